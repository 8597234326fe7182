//! The wire contract between kube-scheduler-wasm-extension and its guests, and between a guest and the Tutti bridge.
//!
//! Guest and host both read names, codes and packing from here, so the two can't drift. Facts are those of the
//! extension at `v0.0.0-20250615114056-9b9e18b9d66a` (files `scheduler/plugin/{host,guest,mask,clusterevent}.go`) and
//! hold for its later commit 9b2791f too.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bridge;
pub mod event;
pub mod export;
pub mod import;
pub mod klog;
pub mod names;
pub mod packing;
pub mod status;

pub use event::{Action, ClusterEvent, EventResource};
pub use export::{Export, ExportSet, ExportSetError};
pub use import::Import;
pub use klog::Severity;
pub use status::Code;

/// A value type of the ABI; there are no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// 32 bits: pointers, lengths, codes.
    I32,
    /// 64 bits: two packed 32-bit halves, see [`packing`].
    I64,
}
