//! The harness.

pub mod bridge;
pub mod guest;
pub mod input;
pub mod report;
pub mod scenario;
