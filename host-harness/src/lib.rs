//! The harness.

pub mod bridge;
pub mod guest;
pub mod input;
pub mod objects;
pub mod report;
pub mod scenario;
pub mod scheduler;
