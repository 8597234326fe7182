//! Write kube-scheduler plugins in Rust, as WebAssembly guests of kube-scheduler-wasm-extension.
#![cfg_attr(not(test), warn(clippy::expect_used))]

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
    pub use crate::api::{Container, Node, Pod};
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
