//! Cluster events that make the queue retry a pod, as `enqueue` returns them (`scheduler/plugin/clusterevent.go`).

use alloc::vec::Vec;

/// The kind of object an event is about: a closed list, without custom resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the Kubernetes kinds")]
pub enum EventResource {
    Pod = 0,
    Node = 1,
    PersistentVolume = 2,
    PersistentVolumeClaim = 3,
    /// Matches nothing from Kubernetes 1.33 on.
    PodSchedulingContext = 4,
    /// Matches nothing from Kubernetes 1.33 on.
    ResourceClaim = 5,
    StorageClass = 6,
    CsiNode = 7,
    CsiDriver = 8,
    CsiStorageCapacity = 9,
    WildCard = 10,
}

impl EventResource {
    /// The resource with this number, if there is one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        Some(match value {
            0 => Self::Pod,
            1 => Self::Node,
            2 => Self::PersistentVolume,
            3 => Self::PersistentVolumeClaim,
            4 => Self::PodSchedulingContext,
            5 => Self::ResourceClaim,
            6 => Self::StorageClass,
            7 => Self::CsiNode,
            8 => Self::CsiDriver,
            9 => Self::CsiStorageCapacity,
            10 => Self::WildCard,
            _ => return None,
        })
    }
}

/// A set of things that happen to an object. `ADD`, `DELETE` and the node bits are the same in 1.32 and 1.33; later
/// releases move the higher bits, so a guest that must run on several should keep to them or to [`Action::EVERYTHING`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action(pub u32);

impl Action {
    /// Created.
    pub const ADD: Self = Self(1);
    /// Deleted, or gone to a terminal phase.
    pub const DELETE: Self = Self(1 << 1);
    /// Node: allocatable changed.
    pub const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 2);
    /// Node: a label changed.
    pub const UPDATE_NODE_LABEL: Self = Self(1 << 3);
    /// Node: a taint changed.
    pub const UPDATE_NODE_TAINT: Self = Self(1 << 4);
    /// Node: a condition changed.
    pub const UPDATE_NODE_CONDITION: Self = Self(1 << 5);
    /// Whatever happens, in every release.
    pub const EVERYTHING: Self = Self(u32::MAX);

    /// Both sets together.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One event to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// About what.
    pub resource: EventResource,
    /// What happened.
    pub action: Action,
}

impl ClusterEvent {
    /// Bytes of one encoded event: two little-endian u32.
    pub const ENCODED_LEN: usize = 8;

    /// Appends the encoding.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.resource as u32).to_le_bytes());
        out.extend_from_slice(&self.action.0.to_le_bytes());
    }
}

/// Reads encoded events as the host does: (resource number, action bits), an incomplete tail is dropped.
pub fn decode(bytes: &[u8]) -> impl Iterator<Item = (u32, Action)> {
    bytes.chunks_exact(ClusterEvent::ENCODED_LEN).map(|c| {
        let word = |i: usize| u32::from_le_bytes([c[i], c[i + 1], c[i + 2], c[i + 3]]);
        (word(0), Action(word(4)))
    })
}
