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

/// A file of the repository holds these bytes. `UPDATE_GENERATED=1 cargo test -p kube-scheduler-sdk --all-features` writes
/// it.
fn is_generated(file: &str, bytes: &[u8]) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, bytes).expect("writable");
    }
    let kept = std::fs::read(&path).unwrap_or_default();
    assert!(kept == bytes, "{file} is stale: run this test with UPDATE_GENERATED=1");
}
