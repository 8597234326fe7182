//! Every integration test of the SDK, in one binary.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "shared with the fuzz targets")]
mod fuzz;

mod any_bytes;
mod contract;
mod host;
mod points;
mod quantity;
mod readers;
