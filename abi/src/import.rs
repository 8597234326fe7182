//! What a guest may import (`scheduler/plugin/host.go`).

use crate::ValueType::{self, I32};

/// Module of nodes.
pub const API: &str = "k8s.io/api";
/// Module of logging.
pub const KLOG: &str = "k8s.io/klog";
/// Module of the scheduling cycle.
pub const SCHEDULER: &str = "k8s.io/scheduler";

/// How a function's memory parameters are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// (buf, limit) -> length. The host writes nothing when the length is above the limit; the guest grows and asks again.
    Read,
    /// (key, key_len, buf, limit) -> length, as [`Shape::Read`].
    ReadKeyed,
    /// (buf, len): the guest hands bytes over.
    Write,
    /// (key, key_len, out, limit), no result: the host writes at `out` whatever the limit.
    KeyedOut,
    /// klog's `log`: (severity, msg, msg_len).
    Log,
    /// klog's `logs`: (severity, msg, msg_len, kvs, kvs_len).
    Logs,
    /// () -> i32.
    Get,
}

impl Shape {
    /// Parameter types.
    #[must_use]
    pub const fn params(self) -> &'static [ValueType] {
        match self {
            Self::Read | Self::Write => &[I32, I32],
            Self::ReadKeyed | Self::KeyedOut => &[I32, I32, I32, I32],
            Self::Log => &[I32, I32, I32],
            Self::Logs => &[I32, I32, I32, I32, I32],
            Self::Get => &[],
        }
    }

    /// Result type.
    #[must_use]
    pub const fn result(self) -> Option<ValueType> {
        match self {
            Self::Read | Self::ReadKeyed | Self::Get => Some(I32),
            Self::Write | Self::KeyedOut | Self::Log | Self::Logs => None,
        }
    }
}

macro_rules! imports {
    ($($(#[$doc:meta])* $variant:ident = $module:ident $name:literal $shape:ident;)*) => {
        /// A function the host offers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Import { $($(#[$doc])* $variant,)* }

        impl Import {
            /// Every import, by module.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its module.
            #[must_use]
            pub const fn module(self) -> &'static str {
                match self { $(Self::$variant => $module),* }
            }

            /// Its name in the module.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its parameters and result.
            #[must_use]
            pub const fn shape(self) -> Shape {
                match self { $(Self::$variant => Shape::$shape),* }
            }
        }
    };
}

imports! {
    /// A v1.Node by name, protobuf. Reads the snapshot: scheduling exports only.
    Node = API "node" ReadKeyed;
    /// Every node, protobuf v1.NodeList. Tens of MB on a large cluster, marshalled at each call.
    NodeList = API "nodeList" Read;
    /// A line without key/values. Drops what is above the threshold, errors among it; see [`crate::klog::log_passes`].
    Log = KLOG "log" Log;
    /// A line with NUL-terminated keys and values.
    Logs = KLOG "logs" Logs;
    /// The configured threshold.
    Severity = KLOG "severity" Get;
    /// `guestConfig` of the plugin's configuration, as it stands there.
    GetConfig = SCHEDULER "get_config" Read;
    /// PreScore: JSON array of node names.
    FilteredNodeList = SCHEDULER "filteredNodeList" Read;
    /// AddPod, RemovePod: the pod that joins or leaves, protobuf v1.Pod.
    TargetPod = SCHEDULER "targetPod" Read;
    /// Filter, Score, AddPod, RemovePod, Reserve, Unreserve, Permit and the binding exports: the node's name.
    CurrentNodeName = SCHEDULER "currentNodeName" Read;
    /// JSON map of an image name to `{"Size":…,"NumNodes":…,"Nodes":…}` of a node, "null" if there is none.
    NodeImageStates = SCHEDULER "nodeImageStates" ReadKeyed;
    /// The pod of this call, protobuf v1.Pod.
    CurrentPod = SCHEDULER "currentPod" Read;
    /// Enqueue's result, see [`crate::event`].
    ResultClusterEvents = SCHEDULER "result.cluster_events" Write;
    /// PreFilter's result: NUL-terminated names; empty means all nodes.
    ResultNodeNames = SCHEDULER "result.node_names" Write;
    /// PostFilter's result.
    ResultNominatedNodeName = SCHEDULER "result.nominated_node_name" Write;
    /// Every status' reason.
    ResultStatusReason = SCHEDULER "result.status_reason" Write;
    /// PostFilter: JSON map of node name to status code.
    NodeToStatusMap = SCHEDULER "nodeToStatusMap" Read;
    /// NormalizeScore's result: JSON map of node name to score.
    ResultNormalizedScoreList = SCHEDULER "result.normalized_score_list" Write;
    /// NormalizeScore: JSON map of node name to score.
    NodeScoreList = SCHEDULER "nodeScoreList" Read;
    /// An Event, JSON.
    Eventf = SCHEDULER "handle.eventrecorder.eventf" Write;
    /// Rejects a waiting pod by uid; writes u64 1 if it waited, else 0.
    RejectWaitingPod = SCHEDULER "handle.reject_waiting_pod" KeyedOut;
    /// A waiting pod by uid: raw protobuf without its length, or eight zero bytes.
    GetWaitingPod = SCHEDULER "handle.get_waiting_pod" KeyedOut;
}

impl Import {
    /// The import with this module and name, if there is one.
    #[must_use]
    pub fn find(module: &str, name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|i| i.module() == module && i.name() == name)
    }
}
