//! Which gang a pod belongs to.

use kube_scheduler_sdk::bridge::{GroupSource, Resource, group_source};

/// Where a pod states something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A label of this name.
    Label(&'static str),
    /// An annotation of this name.
    Annotation(&'static str),
}

impl Place {
    /// The label's or annotation's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Label(name) | Self::Annotation(name) => name,
        }
    }

    /// What this place says on the pod; an empty value says nothing.
    pub fn read<'a>(self, pod: &impl Labelled<'a>) -> Option<&'a str> {
        match self {
            Self::Label(name) => pod.label(name),
            Self::Annotation(name) => pod.annotation(name),
        }
        .filter(|value| !value.is_empty())
    }
}

/// Something with labels and annotations.
pub trait Labelled<'a> {
    /// The label's value.
    fn label(&self, name: &str) -> Option<&'a str>;
    /// The annotation's value.
    fn annotation(&self, name: &str) -> Option<&'a str>;
}

/// A custom resource that describes gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectType {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Kind.
    pub kind: &'static str,
}

impl ObjectType {
    /// As the bridge names it.
    #[must_use]
    pub fn to_resource(self) -> Resource {
        Resource { group: self.group.into(), version: self.version.into(), resource: self.resource.into() }
    }
}

/// One way to say "this pod belongs to that gang".
#[derive(Debug, PartialEq, Eq)]
pub struct Convention {
    /// First part of the gang's key.
    pub prefix: &'static str,
    /// Where a pod names its gang.
    pub name: Place,
    /// The object of that name that describes the gang.
    pub object: Option<ObjectType>,
    /// Where a pod names its role.
    pub role: Option<Place>,
    /// What a pod itself says about its gang.
    pub facts: &'static [&'static str],
}

/// Minimum of a gang of convention [`SIGS`].
pub const SIGS_MIN_AVAILABLE: &str = "pod-group.scheduling.sigs.k8s.io/min-available";
/// Minimum of a gang of convention [`KOORDINATOR`].
pub const MIN_AVAILABLE: &str = "gang.scheduling.koordinator.sh/min-available";
/// `Strict` or `NonStrict`.
pub const MODE: &str = "gang.scheduling.koordinator.sh/mode";
/// Which pods count.
pub const MATCH_POLICY: &str = "gang.scheduling.koordinator.sh/match-policy";
/// How long members are held, a Go duration.
pub const WAITING_TIME: &str = "gang.scheduling.koordinator.sh/waiting-time";
/// Linked gangs, a JSON array of `namespace/name`.
pub const GROUPS: &str = "gang.scheduling.koordinator.sh/groups";

/// PodGroup of kubernetes-sigs/scheduler-plugins.
pub const X_K8S: Convention = Convention {
    prefix: "x-k8s.io",
    name: Place::Label("scheduling.x-k8s.io/pod-group"),
    object: Some(ObjectType {
        group: "scheduling.x-k8s.io",
        version: "v1alpha1",
        resource: "podgroups",
        kind: "PodGroup",
    }),
    role: None,
    facts: &[],
};

/// PodGroup of Volcano.
pub const VOLCANO: Convention = Convention {
    prefix: "volcano.sh",
    name: Place::Annotation("scheduling.k8s.io/group-name"),
    object: Some(ObjectType {
        group: "scheduling.volcano.sh",
        version: "v1beta1",
        resource: "podgroups",
        kind: "PodGroup",
    }),
    role: Some(Place::Annotation("volcano.sh/task-spec")),
    facts: &[],
};

/// Labels alone, without an object.
pub const SIGS: Convention = Convention {
    prefix: "sigs.k8s.io",
    name: Place::Label("pod-group.scheduling.sigs.k8s.io/name"),
    object: None,
    role: None,
    facts: &[SIGS_MIN_AVAILABLE],
};

/// Koordinator's annotations alone, without an object.
pub const KOORDINATOR: Convention = Convention {
    prefix: "koordinator.sh",
    name: Place::Annotation("gang.scheduling.koordinator.sh/name"),
    object: None,
    role: None,
    facts: &[MIN_AVAILABLE, MODE, MATCH_POLICY, WAITING_TIME, GROUPS],
};

/// All conventions; the first that a pod follows says what gang it is in.
pub const CONVENTIONS: [&Convention; 4] = [&X_K8S, &VOLCANO, &SIGS, &KOORDINATOR];

impl Convention {
    /// As the bridge is told in Hello.
    #[must_use]
    pub fn source(&self) -> GroupSource {
        GroupSource {
            prefix: self.prefix.into(),
            value_from: Some(match self.name {
                Place::Label(name) => group_source::ValueFrom::Label(name.into()),
                Place::Annotation(name) => group_source::ValueFrom::Annotation(name.into()),
            }),
            object: self.object.map(ObjectType::to_resource),
            role_from: self.role.map(|role| match role {
                Place::Label(name) => group_source::RoleFrom::RoleLabel(name.into()),
                Place::Annotation(name) => group_source::RoleFrom::RoleAnnotation(name.into()),
            }),
            facts: self.facts.iter().map(|&fact| fact.into()).collect(),
        }
    }
}

/// A gang's identity: convention, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangId {
    /// How its members name it.
    pub convention: &'static Convention,
    /// Namespace of the members.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
}

impl GangId {
    /// The bridge's key.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.convention.prefix, self.namespace, self.name)
    }

    /// The gang with this key, `None` where it's not one of ours.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let mut parts = key.splitn(3, '/');
        let (prefix, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        let convention = CONVENTIONS.into_iter().find(|c| c.prefix == prefix)?;
        Some(Self { convention, namespace: namespace.into(), name: name.into() })
    }

    /// A gang of the same convention.
    #[must_use]
    pub fn sibling(&self, namespace: &str, name: &str) -> Self {
        Self { convention: self.convention, namespace: namespace.into(), name: name.into() }
    }
}

impl core::fmt::Display for GangId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Two conventions on one pod that name different gangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The two places and what they say.
    pub places: [(&'static str, String); 2],
}

/// The gang a pod belongs to: `None` for an ordinary pod.
///
/// # Errors
/// The pod follows several conventions and they name different gangs.
pub fn of<'a>(pod: &impl Labelled<'a>, namespace: &str) -> Result<Option<GangId>, Conflict> {
    let mut found: Option<(&'static Convention, &str)> = None;
    for convention in CONVENTIONS {
        let Some(value) = convention.name.read(pod) else { continue };
        match found {
            None => found = Some((convention, value)),
            Some((first, name)) if name != value => {
                return Err(Conflict {
                    places: [(first.name.name(), name.into()), (convention.name.name(), value.into())],
                });
            }
            Some(_) => {}
        }
    }
    Ok(found.map(|(convention, name)| GangId { convention, namespace: namespace.into(), name: name.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pod(&'static [(&'static str, &'static str)]);

    impl<'a> Labelled<'a> for Pod {
        fn label(&self, name: &str) -> Option<&'a str> {
            self.0.iter().find(|(key, _)| key.strip_prefix("L:") == Some(name)).map(|&(_, value)| value)
        }
        fn annotation(&self, name: &str) -> Option<&'a str> {
            self.0.iter().find(|(key, _)| key.strip_prefix("A:") == Some(name)).map(|&(_, value)| value)
        }
    }

    #[test]
    fn first_convention_wins() {
        let x = ("L:scheduling.x-k8s.io/pod-group", "ga");
        let volcano = ("A:scheduling.k8s.io/group-name", "ga");
        let sigs = ("L:pod-group.scheduling.sigs.k8s.io/name", "ga");
        let koordinator = ("A:gang.scheduling.koordinator.sh/name", "ga");
        for (pod, key) in [
            (Pod(&[]), None),
            (Pod(&[("L:app", "ga"), ("L:scheduling.x-k8s.io/pod-group", "")]), None),
            (Pod(Box::leak(Box::new([x]))), Some("x-k8s.io/ns/ga")),
            (Pod(Box::leak(Box::new([volcano]))), Some("volcano.sh/ns/ga")),
            (Pod(Box::leak(Box::new([sigs]))), Some("sigs.k8s.io/ns/ga")),
            (Pod(Box::leak(Box::new([koordinator]))), Some("koordinator.sh/ns/ga")),
            (Pod(Box::leak(Box::new([koordinator, sigs, volcano, x]))), Some("x-k8s.io/ns/ga")),
            (Pod(Box::leak(Box::new([koordinator, volcano]))), Some("volcano.sh/ns/ga")),
        ] {
            let gang = of(&pod, "ns").unwrap();
            assert_eq!(gang.as_ref().map(GangId::key).as_deref(), key);
            if let Some(key) = key {
                assert_eq!(GangId::from_key(key), gang);
            }
        }
    }

    #[test]
    fn different_names_conflict() {
        let pod = Pod(&[("L:scheduling.x-k8s.io/pod-group", "ga"), ("A:scheduling.k8s.io/group-name", "gb")]);
        let conflict = of(&pod, "ns").unwrap_err();
        assert_eq!(
            conflict.places,
            [("scheduling.x-k8s.io/pod-group", "ga".into()), ("scheduling.k8s.io/group-name", "gb".into())]
        );
    }

    #[test]
    fn keys_of_others_are_not_ours() {
        for key in ["", "x-k8s.io", "x-k8s.io/ns", "other/ns/ga"] {
            assert_eq!(GangId::from_key(key), None, "{key}");
        }
    }
}
