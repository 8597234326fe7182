//! The two ways the ABI packs two 32-bit values in one i64 result.

/// Permit: status code high, milliseconds to wait low.
#[must_use]
pub const fn permit(code: i32, wait_ms: u32) -> u64 {
    ((code as u32 as u64) << 32) | wait_ms as u64
}

/// Inverse of [`permit`]: (code, milliseconds).
#[must_use]
pub const fn unpack_permit(packed: u64) -> (i32, u32) {
    ((packed >> 32) as u32 as i32, packed as u32)
}

/// Score and PostFilter: value high, status code low. The value is a score, or a [`NominatingMode`].
#[must_use]
pub const fn value(value: i32, code: i32) -> u64 {
    ((value as u32 as u64) << 32) | code as u32 as u64
}

/// Inverse of [`value`]: (value, code).
#[must_use]
pub const fn unpack_value(packed: u64) -> (i32, i32) {
    ((packed >> 32) as u32 as i32, packed as u32 as i32)
}

/// What PostFilter does to the pod's nominated node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum NominatingMode {
    /// Leave it.
    Noop = 0,
    /// Set it to `result.nominated_node_name`; an empty name clears it.
    Override = 1,
}
