//! Kubernetes objects, as far as a scheduler reads them.
//!
//! Each type reads and writes the JSON that `kubectl get -o json` prints and the protobuf that a guest gets; field
//! numbers are upstream's. Fields that no scheduler reads are left out here and kept by the API server's own JSON.

mod meta;
mod node;
mod pod;
mod quantity;
mod requests;
mod selector;
mod time;

pub use meta::{ObjectMeta, OwnerReference};
pub use node::{ContainerImage, Node, NodeCondition, NodeSpec, NodeStatus, Taint};
pub use pod::{
    Affinity, Container, ContainerPort, EphemeralVolumeSource, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PersistentVolumeClaimTemplate, PersistentVolumeClaimVolumeSource, Pod, PodAffinity,
    PodAffinityTerm, PodCondition, PodSchedulingGate, PodSpec, PodStatus, PreferredSchedulingTerm,
    ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, VolumeSource, WeightedPodAffinityTerm,
};
pub use quantity::Quantity;
pub use requests::{default_requests, non_zero_requests, pod_requests};
pub use selector::{LabelSelector, LabelSelectorRequirement};
pub use time::Time;

/// Whether a value is what an absent field reads as.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares messages that are both JSON and protobuf: after each field stands what `prost` must know of it.
macro_rules! messages {
    ($($(#[$meta:meta])* $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = [$($prost:tt)*],)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, PartialEq, prost::Message, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[expect(missing_docs, reason = "Kubernetes' own names")]
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[prost($($prost)*)]
                #[serde(skip_serializing_if = "crate::objects::is_default")]
                pub $field: $type,
            )*
        }
    )*};
}
use messages;

#[cfg(test)]
mod tests;
