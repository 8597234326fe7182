use super::{ListMeta, ObjectMeta, Time};
use crate::Quantity;
use crate::wire::{Map, Repeated, Result, messages};

messages! {
    /// A node.
    Node {
        /// Metadata.
        metadata: ObjectMeta<'a> = 1;
        /// What is wanted.
        spec: NodeSpec<'a> = 2;
        /// What is.
        status: NodeStatus<'a> = 3;
    }

    /// What a node is set to.
    NodeSpec {
        /// Id at the cloud provider.
        provider_id: &'a str = 3;
        /// Cordoned.
        unschedulable: bool = 4;
        /// Taints.
        taints: Repeated<'a, Taint<'a>> = 5;
    }

    /// What a node is at.
    NodeStatus {
        /// All there is.
        capacity: Map<'a, Quantity> = 1;
        /// What pods may take of it.
        allocatable: Map<'a, Quantity> = 2;
        /// Conditions.
        conditions: Repeated<'a, NodeCondition<'a>> = 4;
        /// Addresses.
        addresses: Repeated<'a, NodeAddress<'a>> = 5;
        /// Architecture, versions.
        node_info: NodeSystemInfo<'a> = 7;
        /// Images on the node.
        images: Repeated<'a, ContainerImage<'a>> = 8;
    }

    /// One condition of a node.
    NodeCondition {
        /// Type, such as `Ready`.
        type_: &'a str = 1;
        /// `True`, `False` or `Unknown`.
        status: &'a str = 2;
        /// When it last changed.
        last_transition_time: Option<Time<'a>> = 4;
        /// One word.
        reason: &'a str = 5;
        /// For people.
        message: &'a str = 6;
    }

    /// An address of a node.
    NodeAddress {
        /// `Hostname`, `InternalIP`, …
        type_: &'a str = 1;
        /// The address.
        address: &'a str = 2;
    }

    /// What runs the node.
    NodeSystemInfo {
        /// Kernel.
        kernel_version: &'a str = 4;
        /// Distribution.
        os_image: &'a str = 5;
        /// Container runtime.
        container_runtime_version: &'a str = 6;
        /// Kubelet.
        kubelet_version: &'a str = 7;
        /// `linux` or `windows`.
        operating_system: &'a str = 9;
        /// `amd64`, `arm64`, …
        architecture: &'a str = 10;
    }

    /// An image on a node.
    ContainerImage {
        /// All its names.
        names: Repeated<'a, &'a str> = 1;
        /// Bytes.
        size_bytes: i64 = 2;
    }

    /// A taint.
    Taint {
        /// Key.
        key: &'a str = 1;
        /// Value.
        value: &'a str = 2;
        /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
        effect: &'a str = 3;
        /// When a `NoExecute` taint was added.
        time_added: Option<Time<'a>> = 4;
    }

    /// Nodes.
    NodeList {
        /// Metadata.
        metadata: ListMeta<'a> = 1;
        /// The nodes.
        items: Repeated<'a, Node<'a>> = 2;
    }
}

impl<'a> Node<'a> {
    /// `metadata.name`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn name(self) -> Result<&'a str> {
        self.metadata()?.name()
    }

    /// A label.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn label(self, key: &str) -> Result<Option<&'a str>> {
        self.metadata()?.labels()?.get(key)
    }

    /// An annotation.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn annotation(self, key: &str) -> Result<Option<&'a str>> {
        self.metadata()?.annotations()?.get(key)
    }

    /// How much of a resource pods may take in all, if the node has it.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn allocatable(self, resource: &str) -> Result<Option<Quantity>> {
        self.status()?.allocatable()?.get(resource)
    }
}
