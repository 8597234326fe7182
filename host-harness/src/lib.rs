//! The harness.

pub mod bridge;
pub mod guest;
