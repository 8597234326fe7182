//! The decisions about gangs: values in, values out. No clock, no calls, no memory; `tests/model.rs` checks them against
//! every interleaving of a small cluster.

pub mod fit;
pub mod hold;
pub mod membership;
pub mod preempt;
pub mod quorum;
pub mod reason;
pub mod reserve;
pub mod score;
pub mod spec;
