//! The host's functions, made safe. The only place with `unsafe`.
//!
//! Off wasm the same functions ask the thread's [`crate::testing::Host`].

#[cfg(any(test, not(target_family = "wasm")))]
use kube_scheduler_abi::Import;

macro_rules! by_shape {
    (Read $import:ident $module:literal $name:literal $f:ident) => {
        /// Lets the host write into `buf`; returns the length it has, which is what it wrote unless that is more than
        /// `buf` holds.
        #[cfg(target_family = "wasm")]
        #[expect(unsafe_code, reason = "the call gate to the host")]
        pub(crate) fn $f(_key: &[u8], buf: &mut [u8]) -> usize {
            #[link(wasm_import_module = $module)]
            unsafe extern "C" {
                #[link_name = $name]
                fn import(buf: *mut u8, limit: usize) -> usize;
            }
            // SAFETY: the host writes at most `limit` bytes at `buf`, and `buf` is exclusively ours for the call.
            unsafe { import(buf.as_mut_ptr(), buf.len()) }
        }
        by_shape!(@native Read $import $f (key: &[u8], buf: &mut [u8]) -> usize { read(key, buf) });
    };
    (ReadKeyed $import:ident $module:literal $name:literal $f:ident) => {
        /// As a plain read, for a key.
        #[cfg(target_family = "wasm")]
        #[expect(unsafe_code, reason = "the call gate to the host")]
        pub(crate) fn $f(key: &[u8], buf: &mut [u8]) -> usize {
            #[link(wasm_import_module = $module)]
            unsafe extern "C" {
                #[link_name = $name]
                fn import(key: *const u8, key_len: usize, buf: *mut u8, limit: usize) -> usize;
            }
            // SAFETY: the host reads `key_len` bytes at `key` and writes at most `limit` bytes at `buf`; both are
            // slices that live through the call, and `buf` is exclusive.
            unsafe { import(key.as_ptr(), key.len(), buf.as_mut_ptr(), buf.len()) }
        }
        by_shape!(@native ReadKeyed $import $f (key: &[u8], buf: &mut [u8]) -> usize { read(key, buf) });
    };
    (Write $import:ident $module:literal $name:literal $f:ident) => {
        /// Hands bytes to the host.
        #[cfg(target_family = "wasm")]
        #[expect(unsafe_code, reason = "the call gate to the host")]
        pub(crate) fn $f(bytes: &[u8]) {
            #[link(wasm_import_module = $module)]
            unsafe extern "C" {
                #[link_name = $name]
                fn import(buf: *const u8, len: usize);
            }
            // SAFETY: the host reads `len` bytes at `buf`, a slice that lives through the call.
            unsafe { import(bytes.as_ptr(), bytes.len()) }
        }
        by_shape!(@native Write $import $f (bytes: &[u8]) { write(bytes) });
    };
    (KeyedOut $import:ident $module:literal $name:literal $f:ident) => {
        /// Asks the host about a key. It writes eight bytes or more at `out` and says nothing of the length.
        #[cfg(target_family = "wasm")]
        #[expect(unsafe_code, reason = "the call gate to the host")]
        pub(crate) fn $f(key: &[u8], out: &mut [u8]) {
            #[link(wasm_import_module = $module)]
            unsafe extern "C" {
                #[link_name = $name]
                fn import(key: *const u8, key_len: usize, out: *mut u8, limit: usize);
            }
            assert!(out.len() >= 8, "the host writes eight bytes whatever the limit");
            // SAFETY: the host reads `key_len` bytes at `key`. It writes at `out` either eight bytes, for which there
            // is room, or at most `limit`; `out` is exclusive.
            unsafe { import(key.as_ptr(), key.len(), out.as_mut_ptr(), out.len()) }
        }
        by_shape!(@native KeyedOut $import $f (key: &[u8], out: &mut [u8]) { keyed_out(key, out) });
    };
    (@native $shape:ident $import:ident $f:ident ($($arg:ident: $type:ty),*) $(-> $result:ty)? { $method:ident($($pass:ident),*) }) => {
        /// The thread's fake of the host's function.
        #[cfg(not(target_family = "wasm"))]
        pub(crate) fn $f($($arg: $type),*) $(-> $result)? {
            crate::testing::with_host(|host| host.$method(Import::$import, $($pass),*))
        }
    };
}

macro_rules! imports {
    ($($shape:ident $import:ident = $module:literal $name:literal as $f:ident;)*) => {
        $(by_shape!($shape $import $module $name $f);)*

        /// What this module declares, for the test that compares it with the ABI's table.
        #[cfg(test)]
        const DECLARED: &[(Import, kube_scheduler_abi::import::Shape, &str, &str)] =
            &[$((Import::$import, kube_scheduler_abi::import::Shape::$shape, $module, $name)),*];
    };
}

imports! {
    ReadKeyed Node = "k8s.io/api" "node" as node;
    Read NodeList = "k8s.io/api" "nodeList" as node_list;
    Read GetConfig = "k8s.io/scheduler" "get_config" as get_config;
    Read FilteredNodeList = "k8s.io/scheduler" "filteredNodeList" as filtered_node_list;
    Read TargetPod = "k8s.io/scheduler" "targetPod" as target_pod;
    Read CurrentNodeName = "k8s.io/scheduler" "currentNodeName" as current_node_name;
    ReadKeyed NodeImageStates = "k8s.io/scheduler" "nodeImageStates" as node_image_states;
    Read CurrentPod = "k8s.io/scheduler" "currentPod" as current_pod;
    Write ResultClusterEvents = "k8s.io/scheduler" "result.cluster_events" as result_cluster_events;
    Write ResultNodeNames = "k8s.io/scheduler" "result.node_names" as result_node_names;
    Write ResultNominatedNodeName = "k8s.io/scheduler" "result.nominated_node_name" as result_nominated_node_name;
    Write ResultStatusReason = "k8s.io/scheduler" "result.status_reason" as result_status_reason;
    Read NodeToStatusMap = "k8s.io/scheduler" "nodeToStatusMap" as node_to_status_map;
    Read NodeScoreList = "k8s.io/scheduler" "nodeScoreList" as node_score_list;
    Write Eventf = "k8s.io/scheduler" "handle.eventrecorder.eventf" as eventf;
    KeyedOut RejectWaitingPod = "k8s.io/scheduler" "handle.reject_waiting_pod" as reject_waiting_pod;
    KeyedOut GetWaitingPod = "k8s.io/scheduler" "handle.get_waiting_pod" as get_waiting_pod;
}

/// A log line with key/value pairs.
#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "the call gate to the host")]
pub(crate) fn logs(severity: i32, message: &[u8], pairs: &[u8]) {
    #[link(wasm_import_module = "k8s.io/klog")]
    unsafe extern "C" {
        #[link_name = "logs"]
        fn import(severity: i32, message: *const u8, message_len: usize, pairs: *const u8, pairs_len: usize);
    }
    // SAFETY: the host reads both slices, which live through the call.
    unsafe { import(severity, message.as_ptr(), message.len(), pairs.as_ptr(), pairs.len()) }
}

/// The configured threshold.
#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "the call gate to the host")]
pub(crate) fn severity() -> i32 {
    #[link(wasm_import_module = "k8s.io/klog")]
    unsafe extern "C" {
        #[link_name = "severity"]
        safe fn import() -> i32;
    }
    import()
}

/// The thread's fake of the host's log.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn logs(severity: i32, message: &[u8], pairs: &[u8]) {
    crate::testing::with_host(|host| host.logs(severity, message, pairs));
}

/// The thread's fake of the host's threshold.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn severity() -> i32 {
    crate::testing::with_host(|host| host.severity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_those_of_the_abi() {
        for (import, shape, module, name) in DECLARED {
            assert_eq!((import.shape(), import.module(), import.name()), (*shape, *module, *name), "{import:?}");
        }
        let by_hand = [
            // Drops errors, so it is never called: see the ABI's `klog`.
            Import::Log,
            Import::Logs,
            Import::Severity,
            // Gives scores to the wrong nodes, so it is never called.
            Import::ResultNormalizedScoreList,
        ];
        let mut all: Vec<_> = DECLARED.iter().map(|d| d.0).chain(by_hand).collect();
        all.sort();
        let mut wanted = Import::ALL.to_vec();
        wanted.sort();
        assert_eq!(all, wanted);
    }
}
