//! Structured lines in the scheduler's own log.
//!
//! ```
//! use kube_scheduler_sdk::klog;
//!
//! let (gang, waiting) = ("team/job-1", 3);
//! klog::info("gang is complete", &[("gang", &gang), ("waiting", &waiting)]);
//! ```
//!
//! The host prints infos and errors only, and of its two logging functions the one without key/values drops errors; so
//! every line is sent with key/values, and one without gets `source="wasm"`.

use core::fmt::{Display, Write};

use kube_scheduler_abi::Severity;
use kube_scheduler_abi::klog::logs_passes;

use crate::raw;

/// Logs at severity info.
pub fn info(message: &str, pairs: &[(&str, &dyn Display)]) {
    // Formatting costs more than asking.
    if logs_passes(Severity::Info as i32, raw::severity()) {
        log(Severity::Info, message, pairs);
    }
}

/// Logs at severity error, which no configuration drops but `logSeverity: 3`.
pub fn error(message: &str, pairs: &[(&str, &dyn Display)]) {
    log(Severity::Error, message, pairs);
}

fn log(severity: Severity, message: &str, pairs: &[(&str, &dyn Display)]) {
    let mut list = Vec::new();
    for (key, value) in pairs {
        push(&mut list, key);
        push(&mut list, value);
    }
    if pairs.is_empty() {
        push(&mut list, &"source");
        push(&mut list, &"wasm");
    }
    raw::logs(severity as i32, message.as_bytes(), &list);
}

/// Appends a NUL-terminated entry. The host skips empty entries, which would shift every pair after it, and takes a NUL
/// for the end, so neither is let through.
fn push(list: &mut Vec<u8>, entry: &dyn Display) {
    // Through a String, as all of a guest's texts are made: a writer of its own would be a KiB.
    let mut text = String::new();
    if write!(text, "{entry}").is_err() {
        text.push_str("(value failed to format)");
    }
    if text.is_empty() {
        text.push_str("\"\"");
    }
    let start = list.len();
    list.extend_from_slice(text.as_bytes());
    list[start..].iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    list.push(0);
}
