//! Tests of a plugin without wasm: a fake host, and builders of pods and nodes.

mod build;
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
