//! klog severities (`scheduler/plugin/host.go`).

/// Severity of a log line. The host prints [`Severity::Info`] and [`Severity::Error`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Severity {
    /// Printed by klog.InfoS.
    Info = 0,
    /// Dropped by the host.
    Warning = 1,
    /// Printed by klog.ErrorS.
    Error = 2,
    /// Dropped by the host.
    Fatal = 3,
}

/// Whether the host's `log` (no key/values) lets a line through: it drops what is *above* the threshold.
#[must_use]
pub const fn log_passes(severity: i32, threshold: i32) -> bool {
    severity <= threshold
}

/// Whether the host's `logs` with at least one key/value lets a line through: it drops what is *below* the threshold.
/// With no key/values `logs` behaves as `log`.
#[must_use]
pub const fn logs_passes(severity: i32, threshold: i32) -> bool {
    severity >= threshold
}
