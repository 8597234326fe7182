//! The bridge's calls that gangs need, as a trait: the scheduler's own bridge stands behind it in the plugin, a small
//! model of one in the model checker.

pub use kube_scheduler_sdk::bridge::*;

macro_rules! calls {
    ($($method:ident($call:ident) -> $reply:ident;)*) => {
        /// Calls of `bridge.proto`, which says what each does.
        pub trait Calls {
            $(
                #[doc = concat!("Calls ", stringify!($call), ".")]
                ///
                /// # Errors
                /// There is no bridge, or it refused.
                fn $method(&self, call: $call) -> Result<$reply, Error>;
            )*
        }

        impl Calls for Bridge {
            $(fn $method(&self, call: $call) -> Result<$reply, Error> {
                Self::$method(self, call)
            })*
        }
    };
}

calls! {
    group_get(GroupGet) -> GroupState;
    group_allow(GroupAllow) -> GroupAllowReply;
    group_leave(GroupLeave) -> GroupLeaveReply;
    group_reject(GroupReject) -> CountReply;
    group_activate(GroupActivate) -> CountReply;
    group_backoff(GroupBackoff) -> Done;
    group_block(GroupBlock) -> Done;
    group_members(GroupMembers) -> GroupMembersReply;
    group_shapes(GroupShapes) -> GroupShapesReply;
    nodes_free(NodesFree) -> NodesFreeReply;
    nodes_victims(NodesVictims) -> NodesVictimsReply;
    pods_evict(PodsEvict) -> PodsEvictReply;
    event_record(EventRecord) -> Done;
    metric_add(MetricAdd) -> Done;
    metric_observe(MetricObserve) -> Done;
}
