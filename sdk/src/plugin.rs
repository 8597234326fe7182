//! One trait per extension point, named as in Kubernetes' `framework` package. What a status does at each is what the
//! scheduler's `framework/runtime/framework.go` makes of it.

use core::time::Duration;

use kube_scheduler_abi::ClusterEvent;

use crate::context::{BindingContext, CycleContext, NodeContext, PostFilterContext, PreScoreContext, TargetContext};
use crate::{Config, Status};

/// A plugin.
///
/// The scheduler runs several instances of a guest: one for the pod in its scheduling cycle, and one for each pod that
/// waits at Permit or is being bound. What an instance remembers is therefore no truth about the cluster; keep
/// configuration in `self`, and caches that may be wrong.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plugin: it doesn't implement `Plugin`",
    label = "implement `Plugin` for it, whose `new` makes it from the configuration"
)]
pub trait Plugin: Sized + 'static {
    /// Makes the plugin, at the first call of each instance.
    ///
    /// # Errors
    /// What is wrong with the configuration. The instance starts all the same, and every pod that comes to it gets this
    /// status; the first call logs it.
    fn new(config: &Config) -> Result<Self, Status>;
}

/// Which cluster events may make a pod schedulable that this plugin refused.
///
/// Called once, when the scheduler starts, about no pod: there is a configuration to read and nothing else.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `EnqueueExtensions`",
    label = "implement `EnqueueExtensions`, or leave the point Enqueue out of plugin!"
)]
pub trait EnqueueExtensions: Plugin {
    /// The events; none stands for the host's default, any event of pods, nodes, claims, volumes and storage classes.
    fn events_to_register(&self) -> Vec<ClusterEvent>;
}

/// What PreFilter found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreFilterResult {
    /// Any node may do.
    AllNodes,
    /// Only these nodes may do. None at all refuses the pod with code `UnschedulableAndUnresolvable`.
    Nodes(Vec<String>),
    /// This plugin has nothing to say about the pod: Filter, AddPod and RemovePod are not called for it.
    Skip,
}

/// Once a pod and cycle, before any node is looked at ([PreFilter](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#pre-filter)).
///
/// **To read:** the pod and every node. **Instance:** the one of the cycle, which Filter to Permit share.
///
/// | answer | what comes of it |
/// |---|---|
/// | [`PreFilterResult::AllNodes`], [`PreFilterResult::Nodes`] | Filter is called for these nodes, where there is one |
/// | [`PreFilterResult::Skip`] | Filter, AddPod and RemovePod are not called for the pod |
/// | Unschedulable | the pod waits for an event; preemption is tried |
/// | `UnschedulableAndUnresolvable` | the pod waits for an event; preemption is not tried |
/// | Error, Pending | the cycle ends with an error; the pod is retried with backoff |
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PreFilterPlugin`",
    label = "implement `PreFilterPlugin`, or leave the point PreFilter out of plugin!"
)]
pub trait PreFilterPlugin: Plugin {
    /// Looks at the pod.
    ///
    /// # Errors
    /// [`Status::unresolvable`] refuses the pod; [`Status::unschedulable`] too, and lets preemption try.
    fn pre_filter(&self, cx: &CycleContext) -> Result<PreFilterResult, Status>;
}

/// What-if changes of a node, between PreFilter and Filter: pods nominated to it, and victims of a preemption dry run.
///
/// **To read:** the pod, the [target](TargetContext::target_pod) and the node, as the snapshot has it: the change itself
/// does not show there. **Instance:** the one of the cycle; calls of several nodes interleave on it, so whatever is kept
/// is kept by [node name](NodeContext::node_name). Any refusal is an error of the pod's cycle, or takes the node out of
/// the dry run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PreFilterExtensions`",
    label = "implement `PreFilterExtensions`, or leave the point PreFilterExtensions out of plugin!"
)]
pub trait PreFilterExtensions: Plugin {
    /// A pod joins the node.
    ///
    /// # Errors
    /// The pod in the cycle can't go on.
    fn add_pod(&self, cx: &TargetContext) -> Result<(), Status>;

    /// A pod leaves the node.
    ///
    /// # Errors
    /// The pod in the cycle can't go on.
    fn remove_pod(&self, cx: &TargetContext) -> Result<(), Status>;
}

/// Per node: may the pod run there ([Filter](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#filter)).
///
/// Called for the nodes that passed the filters before it, by sixteen threads that wait for one another at the guest.
///
/// **To read:** the pod and every node. **Instance:** the one of the cycle.
///
/// | answer | what comes of it |
/// |---|---|
/// | `Ok` | the next filter, or scoring |
/// | Unschedulable | not this node; preemption looks whether it would pass without pods of lower priority |
/// | `UnschedulableAndUnresolvable` | not this node, and preemption passes over it |
/// | Pending | not this node; if no node is left, the plugin's event retries the pod without backoff |
/// | Error | the cycle ends with an error; the pod is retried with backoff |
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `FilterPlugin`",
    label = "implement `FilterPlugin`, or leave the point Filter out of plugin!"
)]
pub trait FilterPlugin: Plugin {
    /// Looks at the pod on the node.
    ///
    /// # Errors
    /// [`Status::unschedulable`], or [`Status::unresolvable`] where preemption can't help; [`Status::error`] ends the
    /// pod's cycle.
    fn filter(&self, cx: &NodeContext) -> Result<(), Status>;
}

/// What PostFilter achieved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostFilterResult {
    /// The pod will be schedulable on this node; it is nominated there.
    Nominate(String),
    /// The pod is not schedulable, and its nomination is to be taken back.
    ClearNomination(Status),
    /// The pod will be schedulable; its nomination stays as it is. PostFilter plugins after this one are not called.
    Done,
}

/// No node passed Filter ([PostFilter](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#post-filter)). The scheduler's own preemption is such a plugin.
///
/// **To read:** the pod, every node, and [with which code](PostFilterContext::node_to_status_map) each was refused.
/// **Instance:** the one of the cycle.
///
/// | answer | what comes of it |
/// |---|---|
/// | [`PostFilterResult::Nominate`], [`PostFilterResult::Done`] | the pod is retried; no further PostFilter plugin is called |
/// | Unschedulable | the next PostFilter plugin is called, so preemption goes on |
/// | `UnschedulableAndUnresolvable` | no further PostFilter plugin is called |
/// | Error, Pending | the cycle ends with an error |
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PostFilterPlugin`",
    label = "implement `PostFilterPlugin`, or leave the point PostFilter out of plugin!"
)]
pub trait PostFilterPlugin: Plugin {
    /// Tries to make room.
    ///
    /// # Errors
    /// [`Status::unschedulable`]: it couldn't; the next PostFilter plugin, such as preemption, is called.
    fn post_filter(&self, cx: &PostFilterContext) -> Result<PostFilterResult, Status>;
}

/// What PreScore found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreScoreResult {
    /// Call Score for each node.
    Score,
    /// This plugin has nothing to say: Score is not called for the pod.
    Skip,
}

/// Before scoring, when more than one node passed ([PreScore](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#pre-score)).
///
/// **To read:** the pod, every node, and the [names](PreScoreContext::filtered_nodes) of those that passed. **Instance:**
/// the one of the cycle. [`PreScoreResult::Skip`] spares the calls per node; any other code than Success is an error of
/// the pod's cycle.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PreScorePlugin`",
    label = "implement `PreScorePlugin`, or leave the point PreScore out of plugin!"
)]
pub trait PreScorePlugin: Plugin {
    /// Looks at the pod and the nodes that passed.
    ///
    /// # Errors
    /// [`Status::error`] ends the pod's cycle.
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status>;
}

/// The worst score.
pub const MIN_NODE_SCORE: i64 = 0;
/// The best score.
pub const MAX_NODE_SCORE: i64 = 100;

/// Per node: how good ([Score](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#scoring)).
///
/// Called for each node that passed, when there are two or more; the score is multiplied by the plugin's weight in the
/// profile and added to the other plugins'. There is no [NormalizeScore](crate#concepts).
///
/// **To read:** the pod and every node. **Instance:** the one of the cycle.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `ScorePlugin`",
    label = "implement `ScorePlugin`, or leave the point Score out of plugin!"
)]
pub trait ScorePlugin: Plugin {
    /// Rates the pod on the node from [`MIN_NODE_SCORE`] to [`MAX_NODE_SCORE`], on its own: there is no normalising
    /// afterwards.
    ///
    /// # Errors
    /// [`Status::error`] ends the pod's cycle, as does a score out of range.
    fn score(&self, cx: &NodeContext) -> Result<i64, Status>;
}

/// The pod is assumed on a node; and, perhaps, isn't any more ([Reserve](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#reserve)).
///
/// | answer of reserve | what comes of it |
/// |---|---|
/// | `Ok` | Permit |
/// | Unschedulable, `UnschedulableAndUnresolvable` | Unreserve of every plugin; the pod waits for an event |
/// | Pending | the same, and the plugin's event retries the pod without backoff |
/// | Error | Unreserve of every plugin; the pod is retried with backoff |
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `ReservePlugin`",
    label = "implement `ReservePlugin`, or leave the point Reserve out of plugin!"
)]
pub trait ReservePlugin: Plugin {
    /// The pod is assumed on the node. The pod and every node can be read; it runs on the instance of the cycle.
    ///
    /// # Errors
    /// The pod gives the node up; [`unreserve`](Self::unreserve) is called.
    fn reserve(&self, cx: &NodeContext) -> Result<(), Status>;

    /// The pod gives the node up. May come without a reserve before, more than once, beside the cycle of another pod and
    /// on its instance; only the pod itself can be read.
    ///
    /// # Errors
    /// Is logged.
    fn unreserve(&self, cx: &BindingContext) -> Result<(), Status>;
}

/// What Permit decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitResult {
    /// Go on.
    Allow,
    /// Wait, at most this long; the scheduler rejects the pod then. More than 15 minutes count as 15 minutes.
    Wait(Duration),
}

/// Last word of the scheduling cycle ([Permit](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#permit)).
///
/// **To read:** the pod and every node. **Instance:** the one of the cycle, which from then on is the pod's own until it
/// is bound or refused.
///
/// | answer | what comes of it |
/// |---|---|
/// | [`PermitResult::Allow`] | the pod is bound, unless another Permit plugin holds it |
/// | [`PermitResult::Wait`] | the pod holds its node until it is allowed (the bridge's `group_allow`), rejected, or the time is up |
/// | Unschedulable, `UnschedulableAndUnresolvable` | Unreserve of every plugin; the pod waits for an event |
/// | Pending | the same, and the plugin's event retries the pod without backoff |
/// | Error | Unreserve of every plugin; the pod is retried with backoff |
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PermitPlugin`",
    label = "implement `PermitPlugin`, or leave the point Permit out of plugin!"
)]
pub trait PermitPlugin: Plugin {
    /// Lets the pod pass, holds it or refuses it.
    ///
    /// # Errors
    /// The pod gives the node up.
    fn permit(&self, cx: &NodeContext) -> Result<PermitResult, Status>;
}

/// Before the binding ([PreBind](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#pre-bind)).
///
/// **To read:** the pod, with its node in `spec.nodeName`; it runs beside other pods' cycles. **Instance:** the pod's own.
/// Unschedulable and Error both undo the reservation; after Error the pod is retried with backoff.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PreBindPlugin`",
    label = "implement `PreBindPlugin`, or leave the point PreBind out of plugin!"
)]
pub trait PreBindPlugin: Plugin {
    /// Prepares the binding.
    ///
    /// # Errors
    /// The pod gives the node up.
    fn pre_bind(&self, cx: &BindingContext) -> Result<(), Status>;
}

/// What Bind did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindResult {
    /// The pod is bound: this plugin has made the API call. Saying so without having done it leaves a pod that holds its
    /// node for ever and never runs.
    Bound,
    /// Let the next binder do it.
    Skip,
}

/// The binding itself ([Bind](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#bind)). The scheduler asks binders in order until one doesn't skip, and its own comes first
/// by default.
///
/// **To read:** as in PreBind. **Instance:** the pod's own. Unschedulable and Error undo the reservation.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `BindPlugin`",
    label = "implement `BindPlugin`, or leave the point Bind out of plugin!"
)]
pub trait BindPlugin: Plugin {
    /// Binds the pod to the node.
    ///
    /// # Errors
    /// The pod gives the node up.
    fn bind(&self, cx: &BindingContext) -> Result<BindResult, Status>;
}

/// After the binding ([PostBind](https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/#post-bind)).
///
/// **To read:** as in PreBind. **Instance:** the pod's own, which is free for other pods afterwards.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't implement `PostBindPlugin`",
    label = "implement `PostBindPlugin`, or leave the point PostBind out of plugin!"
)]
pub trait PostBindPlugin: Plugin {
    /// The pod is bound.
    ///
    /// # Errors
    /// Is logged.
    fn post_bind(&self, cx: &BindingContext) -> Result<(), Status>;
}
