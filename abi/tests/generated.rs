//! Keeps `src/bridge/v1.rs` equal to what the .proto generates. `UPDATE_GENERATED=1 cargo test -p kube-scheduler-abi`
//! writes it.

use std::path::Path;

#[test]
fn bridge_messages_are_what_the_proto_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile([root.join("proto/bridge/v1/bridge.proto")], [root.join("proto")])
        .expect("bridge.proto compiles");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    prost_build::Config::new().btree_map(["."]).out_dir(dir).compile_fds(descriptors).expect("bridge.proto generates");
    let fresh = std::fs::read_to_string(dir.join("tutti.bridge.v1.rs")).expect("generated file");
    let kept = root.join("src/bridge/v1.rs");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&kept, &fresh).expect("write generated file");
    }
    assert!(
        std::fs::read_to_string(&kept).is_ok_and(|k| k == fresh),
        "src/bridge/v1.rs is stale: run UPDATE_GENERATED=1 cargo test -p kube-scheduler-abi --test generated"
    );
}
