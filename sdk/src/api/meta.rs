use crate::wire::{Map, Repeated, messages};

messages! {
    /// `meta.k8s.io/v1` ObjectMeta.
    ObjectMeta {
        /// Unique in the namespace.
        name: &'a str = 1;
        /// Prefix of a generated name.
        generate_name: &'a str = 2;
        /// Empty for cluster-wide objects.
        namespace: &'a str = 3;
        /// Unique in time and space.
        uid: &'a str = 5;
        /// Changes with every write.
        resource_version: &'a str = 6;
        /// Changes with every change of the wanted state.
        generation: i64 = 7;
        /// When the object was created.
        creation_timestamp: Option<Time<'a>> = 8;
        /// When it will be deleted; present: it is terminating.
        deletion_timestamp: Option<Time<'a>> = 9;
        /// Labels.
        labels: Map<'a, &'a str> = 11;
        /// Annotations.
        annotations: Map<'a, &'a str> = 12;
        /// Owners.
        owner_references: Repeated<'a, OwnerReference<'a>> = 13;
        /// Finalizers.
        finalizers: Repeated<'a, &'a str> = 14;
    }

    /// `meta.k8s.io/v1` OwnerReference.
    OwnerReference {
        /// Group and version.
        api_version: &'a str = 5;
        /// Kind.
        kind: &'a str = 1;
        /// Name.
        name: &'a str = 3;
        /// Uid.
        uid: &'a str = 4;
        /// Whether this is the managing controller.
        controller: Option<bool> = 6;
        /// Whether the owner can't go before this object.
        block_owner_deletion: Option<bool> = 7;
    }

    /// `meta.k8s.io/v1` LabelSelector.
    LabelSelector {
        /// All of these labels.
        match_labels: Map<'a, &'a str> = 1;
        /// And all of these requirements.
        match_expressions: Repeated<'a, LabelSelectorRequirement<'a>> = 2;
    }

    /// `meta.k8s.io/v1` LabelSelectorRequirement.
    LabelSelectorRequirement {
        /// Label key.
        key: &'a str = 1;
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: &'a str = 2;
        /// For `In` and `NotIn`.
        values: Repeated<'a, &'a str> = 3;
    }

    /// A moment, as seconds and nanoseconds since 1970 UTC.
    Time {
        /// Seconds.
        seconds: i64 = 1;
        /// Nanoseconds; Kubernetes stores whole seconds.
        nanos: i32 = 2;
    }

    /// `meta.k8s.io/v1` ListMeta.
    ListMeta {
        /// The list's version.
        resource_version: &'a str = 2;
    }
}

impl<'a> ObjectMeta<'a> {
    /// The name before it is checked for UTF-8: the bridge answers in it.
    #[cfg(feature = "bridge")]
    pub(crate) fn name_bytes(self) -> crate::wire::Result<&'a [u8]> {
        Ok(<Option<&[u8]> as crate::wire::Field>::get(self.0, 1)?.unwrap_or_default())
    }
}
