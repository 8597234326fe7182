//! The decisions about gangs: values in, values out. No clock, no calls, no memory; `tests/model.rs` checks them against
//! every interleaving of a small cluster.

pub mod fit;
pub mod hold;
pub mod membership;
pub mod quorum;
pub mod reason;
pub mod spec;
