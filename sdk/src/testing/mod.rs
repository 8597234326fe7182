//! Tests of a plugin without wasm: a fake host, instances of the plugin on it, and builders of pods and nodes.
//!
//! ```
//! use kube_scheduler_sdk::prelude::*;
//! use kube_scheduler_sdk::testing::{FakeHost, Guest, node, pod};
//!
//! struct Cordon;
//!
//! impl Plugin for Cordon {
//!     fn new(_: &Config) -> Result<Self, Status> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl FilterPlugin for Cordon {
//!     fn filter(&self, cx: &NodeContext) -> Result<(), Status> {
//!         if cx.node()?.spec()?.unschedulable()? { Err(Status::unresolvable("node(s) were cordoned")) } else { Ok(()) }
//!     }
//! }
//!
//! let guest = Guest::<Cordon>::new(FakeHost::new().node(node("a")).node(node("b").unschedulable()));
//! assert_eq!(guest.filter(&pod("p"), "a").code, Code::Success);
//! assert_eq!(guest.filter(&pod("p"), "b").reason, "node(s) were cordoned");
//! ```
//!
//! [`Guest`] goes through the same code as the exports, so results are packed, reasons handed over and configurations
//! read as in the scheduler; [`Guest::sibling`] is a second instance, as there is one for each pod that waits.

mod build;
pub mod contract;
mod fake;
mod guest;

use std::cell::RefCell;
use std::rc::Rc;

use kube_scheduler_abi::Import;

pub use build::{ContainerBuilder, NodeBuilder, PodBuilder, container, node, pod};
pub use fake::{FakeHost, LogLine};
pub use guest::{Guest, Verdict};

/// What stands behind the host's functions off wasm.
pub trait Host {
    /// Answers a reading function: writes into `buf` what fits as a whole, and returns the length.
    fn read(&self, import: Import, key: &[u8], buf: &mut [u8]) -> usize;
    /// Takes what a writing function hands over.
    fn write(&self, import: Import, bytes: &[u8]);
    /// Answers `reject_waiting_pod` and `get_waiting_pod`.
    fn keyed_out(&self, import: Import, key: &[u8], out: &mut [u8]);
    /// Takes a log line; `pairs` is a NUL-terminated list.
    fn logs(&self, severity: i32, message: &[u8], pairs: &[u8]);
    /// The log's threshold.
    fn severity(&self) -> i32;
}

thread_local! {
    static HOST: RefCell<Rc<dyn Host>> = RefCell::new(Rc::new(FakeHost::new()));
}

/// Puts `host` behind the host functions of this thread while `run` runs.
pub fn with<T>(host: Rc<dyn Host>, run: impl FnOnce() -> T) -> T {
    struct Restore(Rc<dyn Host>);
    impl Drop for Restore {
        fn drop(&mut self) {
            HOST.replace(self.0.clone());
        }
    }
    let _restore = Restore(HOST.replace(host));
    run()
}

pub(crate) fn with_host<T>(run: impl FnOnce(&dyn Host) -> T) -> T {
    let host = HOST.with_borrow(Rc::clone);
    run(&*host)
}
