//! Write kube-scheduler plugins in Rust, as WebAssembly guests of [kube-scheduler-wasm-extension].
//!
//! A plugin is a type that implements a trait per extension point, and one line that exports them:
//!
//! ```
//! use kube_scheduler_sdk::prelude::*;
//!
//! /// Keeps pods that ask for much memory away from small nodes.
//! struct Roomy {
//!     largest_share: i64,
//! }
//!
//! plugin!(Roomy: Filter);
//!
//! impl Plugin for Roomy {
//!     fn new(config: &Config) -> Result<Self, Status> {
//!         match config.as_str()? {
//!             "" => Ok(Self { largest_share: 50 }),
//!             text => match text.parse() {
//!                 Ok(largest_share) => Ok(Self { largest_share }),
//!                 Err(e) => Err(Status::error(format!("guestConfig {text} is no percentage: {e}"))),
//!             },
//!         }
//!     }
//! }
//!
//! impl FilterPlugin for Roomy {
//!     fn filter(&self, cx: &NodeContext) -> Result<(), Status> {
//!         let wanted = pod_requests(cx.pod()?)?.get("memory").value();
//!         let there = cx.node()?.allocatable("memory")?.unwrap_or(Quantity::ZERO).value();
//!         if i128::from(wanted) * 100 > i128::from(there) * i128::from(self.largest_share) {
//!             return Err(Status::unresolvable("node(s) were too small for the pod"));
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // The same code runs in a test, on a host that is faked.
//! use kube_scheduler_sdk::testing::{FakeHost, Guest, node, pod};
//!
//! let host = FakeHost::new().node(node("small").resource("memory", "64Gi")).node(node("big").resource("memory", "1Ti"));
//! let guest = Guest::<Roomy>::new(host);
//! let job = pod("job").memory("48Gi");
//! assert!(guest.filter(&job, "big").is_success());
//! assert_eq!(guest.filter(&job, "small").reason, "node(s) were too small for the pod");
//! ```
//!
//! Built with `crate-type = ["cdylib", "rlib"]` for `wasm32-unknown-unknown`, this is a module that the scheduler loads.
//! `docs/writing-a-plugin.md` in the repository goes from an empty directory to a running scheduler, and `examples/` has
//! four small plugins.
//!
//! # Concepts
//!
//! **Instances.** The scheduler runs a guest in several instances: one for the pod in its scheduling cycle, and one more
//! for each pod that waits at Permit or is being bound. Permit takes the instance away with its pod, Unreserve may run on
//! the instance of another pod, and a trap (a panic) leaves an instance in use. So nothing an instance remembers is the
//! truth about the cluster. The SDK makes the plugin at the first call of each instance, reads the pod anew in each call,
//! and keeps no state of its own but a spare buffer.
//!
//! **Contexts.** Each extension point gets a context with what works there, and only that: the nodes can be read while the
//! scheduling cycle runs, for instance, and [`BindingContext`](context::BindingContext) can't, because the scheduler
//! rewrites its snapshot meanwhile. What a context offers is looked up when asked for; a plugin that never asks for the pod
//! never pays for it.
//!
//! **Readers.** [`Pod`](api::Pod), [`Node`](api::Node) and their parts are views of the host's bytes. An accessor finds its
//! field when it is called, allocates nothing, and fails where the bytes are malformed. [`Quantity`] is exact.
//!
//! **Statuses.** Going on is `Ok`. [`Status`] is why a pod doesn't, with a code and a reason that ends up on the pod's
//! `PodScheduled` condition. Reader and bridge errors become a status through `?`.
//!
//! **What is exported.** Only the points named in [`plugin!`] and what they need to run safely: the host calls what is
//! exported, and each call costs. The host loads 23 of the 31 combinations of Filter, Score, Reserve, Permit and Bind, and
//! some of those leak memory or crash the scheduler, so the macro completes the set with harmless answers:
//!
//! | named | exported with it |
//! |---|---|
//! | anything | prefilter; without a PreFilter and a Filter of the author's it answers Skip |
//! | Filter | postfilter: Unschedulable, so that preemption goes on |
//! | PostFilter | filter: every node passes |
//! | Permit, PreBind, Bind or PostBind | reserve, unreserve, permit: pass; bind: Skip; postbind |
//! | only Enqueue beside PreFilter | score, as the host wants more than that; PreScore skips scoring |
//! | Filter or Score beside one of those | the other of the two: every node passes, PreScore skips scoring |
//!
//! NormalizeScore is refused: the host hands the scores back in the order of a Go map, so they land on wrong nodes. Answer
//! 0 to 100 from Score.
//!
//! **Panics** are logged with their place before the trap, which the scheduler sees as an error of that one call. Return a
//! [`Status`] instead where you can; a guest that traps often runs out of stack.
//!
//! # Extension points
//!
//! | trait | runs | codes that mean something | on which instance |
//! |---|---|---|---|
//! | [`EnqueueExtensions`] | once, at start | | any |
//! | [`PreFilterPlugin`] | per pod and cycle | Unschedulable, UnschedulableAndUnresolvable, Error; Skip as a result | the cycle's |
//! | [`PreFilterExtensions`] | per what-if of a node | Error | the cycle's; calls of several nodes interleave |
//! | [`FilterPlugin`] | per node, 16 at a time but one after the other in the guest | Unschedulable, UnschedulableAndUnresolvable, Pending, Error | the cycle's |
//! | [`PostFilterPlugin`] | when no node passed | Unschedulable, UnschedulableAndUnresolvable, Error | the cycle's |
//! | [`PreScorePlugin`] | when two nodes or more passed | Error; Skip as a result | the cycle's |
//! | [`ScorePlugin`] | per node that passed | Error | the cycle's |
//! | [`ReservePlugin`] | when the pod is assumed on a node | Unschedulable, Pending, Error | reserve: the cycle's; unreserve: whichever is in a cycle |
//! | [`PermitPlugin`] | last in the cycle | Unschedulable, UnschedulableAndUnresolvable, Pending, Error; Wait as a result | the cycle's, which then becomes the pod's own |
//! | [`PreBindPlugin`], [`BindPlugin`], [`PostBindPlugin`] | beside other pods' cycles | Unschedulable, Error; Bind: Skip as a result | the pod's own |
//!
//! Each trait's documentation says what may be read there and what each answer leads to. What the points mean is Kubernetes'
//! own: the [scheduling framework] and its [proposal]. Which host functions stand behind
//! the contexts is in [`plugin.go`] and [`host.go`] of the extension.
//!
//! # Features
//!
//! - `serde`: [`Config::parse`] and `json::from_slice`.
//! - `bridge`: `bridge::Bridge`, for schedulers with the Tutti bridge: groups of pods, a clock, free resources, objects.
//! - `talc`: talc as the guest's allocator, about 7 KiB smaller than the standard library's.
//!
//! [kube-scheduler-wasm-extension]: https://github.com/kubernetes-sigs/kube-scheduler-wasm-extension
//! [scheduling framework]: https://kubernetes.io/docs/concepts/scheduling-eviction/scheduling-framework/
//! [proposal]: https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/624-scheduling-framework
//! [`plugin.go`]: https://github.com/kubernetes-sigs/kube-scheduler-wasm-extension/blob/main/scheduler/plugin/plugin.go
//! [`host.go`]: https://github.com/kubernetes-sigs/kube-scheduler-wasm-extension/blob/main/scheduler/plugin/host.go

// A guest has one thread.
#[cfg(all(feature = "talc", target_family = "wasm", not(target_feature = "atomics")))]
#[global_allocator]
static ALLOCATOR: talc::wasm::WasmDynamicTalc = talc::wasm::new_wasm_dynamic_allocator();

pub mod api;
#[cfg(feature = "bridge")]
pub mod bridge;
mod buffer;
mod config;
pub mod context;
mod entry;
pub mod host;
#[cfg(feature = "serde")]
pub mod json;
#[cfg(not(feature = "serde"))]
mod json;
pub mod klog;
mod plugin;
mod quantity;
mod raw;
mod status;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod wire;

pub use buffer::{HostBytes, NodeBuf, NodeListBuf, PodBuf};
pub use config::Config;
pub use kube_scheduler_abi::{Action, ClusterEvent, Code, EventResource};
pub use kube_scheduler_sdk_macros::plugin;
pub use plugin::{
    BindPlugin, BindResult, EnqueueExtensions, FilterPlugin, MAX_NODE_SCORE, MIN_NODE_SCORE, PermitPlugin,
    PermitResult, Plugin, PostBindPlugin, PostFilterPlugin, PostFilterResult, PreBindPlugin, PreFilterExtensions,
    PreFilterPlugin, PreFilterResult, PreScorePlugin, PreScoreResult, ReservePlugin, ScorePlugin,
};
pub use quantity::{ParseQuantityError, Quantity};
pub use status::Status;

/// What a plugin's file imports.
pub mod prelude {
    pub use crate::api::{Container, Node, Pod, pod_requests};
    pub use crate::context::{
        BindingContext, CycleContext, NodeContext, PodContext, PostFilterContext, PreScoreContext, TargetContext,
    };
    pub use crate::{
        Action, BindPlugin, BindResult, ClusterEvent, Code, Config, EnqueueExtensions, EventResource, FilterPlugin,
        MAX_NODE_SCORE, MIN_NODE_SCORE, PermitPlugin, PermitResult, Plugin, PostBindPlugin, PostFilterPlugin,
        PostFilterResult, PreBindPlugin, PreFilterExtensions, PreFilterPlugin, PreFilterResult, PreScorePlugin,
        PreScoreResult, Quantity, ReservePlugin, ScorePlugin, Status, klog, plugin,
    };
}

/// For the expansion of [`plugin!`] only; changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::entry::*;
    pub use kube_scheduler_abi::Code;
}

/// Compiles the guide's code and the readme's.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../docs/writing-a-plugin.md")]
    struct Guide;
    #[doc = include_str!("../README.md")]
    struct Readme;
}
