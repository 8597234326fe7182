//! Readers of the Kubernetes objects a scheduler looks at: [`Pod`], [`Node`] and what is in them.
//!
//! Each type is the message's bytes; an accessor looks its field up when called and allocates nothing. An absent field
//! reads as Kubernetes' zero value, or as `None` where its absence says something. Accessors are named as the fields
//! of `k8s.io/api/core/v1`, whose documentation says what they mean.

mod meta;
mod node;
mod pod;
mod requests;

pub use meta::{LabelSelector, LabelSelectorRequirement, ListMeta, ObjectMeta, OwnerReference, Time};
pub use node::{
    ContainerImage, Node, NodeAddress, NodeCondition, NodeList, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
pub use pod::{
    Affinity, AwsElasticBlockStoreVolumeSource, Container, ContainerPort, ContainerStatus, CsiVolumeSource,
    GcePersistentDiskVolumeSource, IscsiVolumeSource, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PersistentVolumeClaimVolumeSource, Pod, PodAffinity, PodAffinityTerm, PodCondition,
    PodResourceClaim, PodResourceClaimStatus, PodSchedulingGate, PodSpec, PodStatus, PreferredSchedulingTerm,
    RbdVolumeSource, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, VolumeSource,
    WeightedPodAffinityTerm,
};
pub use requests::{PodRequests, pod_requests};

pub use crate::wire::{Malformed, Map, Message, Repeated};
