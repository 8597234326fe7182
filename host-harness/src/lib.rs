//! The harness.

pub mod bridge;
pub mod cli;
pub mod guest;
pub mod input;
pub mod objects;
mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod scheduler;
