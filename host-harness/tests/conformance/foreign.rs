//! Guests that other toolchains made: `testdata/guests`.

use std::path::{Path, PathBuf};
use std::process::Command;

use host_harness::guest::{Guest, Hazard, Inspection, Options, Pod};
use kube_scheduler_sdk::testing::pod;

use crate::host::FakeHost;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/guests")
}

#[test]
fn guests_in_other_languages_run() {
    for file in ["digit_as.wasm", "digit_c.wasm", "digit_zig.wasm"] {
        let wasm = std::fs::read(directory().join(file)).expect(file);
        let inspection = Inspection::of(&wasm).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert_eq!((inspection.refusals, inspection.hazards), (vec![], vec![]), "{file}");

        let mut guest = Guest::load(&wasm, Options::default()).unwrap_or_else(|e| panic!("{file}: {e}"));
        let host = &mut FakeHost::default();
        for name in ["job-7", "job-3"] {
            // Larger than what such a guest would start with.
            let bytes = pod(name).annotation("large", &"x".repeat(40_000)).to_bytes();
            let about = Pod { uid: "u", protobuf: &bytes };
            let last = &name[4..];
            assert_eq!(guest.prefilter(host, about).map(|r| r.status.code), Ok(0), "{file}");
            let line = host.lines.pop().expect("a line");
            assert_eq!((line.message.as_str(), &line.pairs[..]), ("prefilter", &[("last".into(), last.into())][..]));
            for node in ["node-13", "node-27"] {
                let status = guest.filter(host, about, node).unwrap_or_else(|e| panic!("{file}: {e}"));
                let fits = node.ends_with(last);
                let reason = if fits { String::new() } else { format!("{node} doesn't end in {last}") };
                assert_eq!((status.code, status.reason), (if fits { 0 } else { 2 }, reason), "{file}");
            }
        }
        assert!(guest.usage().memory <= 256 << 10, "{file}: {:?}", guest.usage());
    }
}

/// Go's runtime is set up by `_initialize`, which the extension doesn't run.
#[test]
#[ignore = "half a minute, to compile the 1.8 MB that Go makes; scheduler/contract runs the same guest in a second"]
fn a_guest_that_needs_initialize_is_warned_of_and_fails_with_its_own_words() {
    let wasm = Path::new(env!("CARGO_TARGET_TMPDIR")).join("digit_go.wasm");
    let go = Command::new("go")
        .args(["build", "-buildmode=c-shared", "-ldflags=-s -w", "-o"])
        .arg(&wasm)
        .arg("digit.go")
        .current_dir(directory().join("go"))
        .envs([("GOOS", "wasip1"), ("GOARCH", "wasm"), ("GOFLAGS", "")])
        .output();
    let go = go.expect("go runs");
    assert!(go.status.success(), "{}", String::from_utf8_lossy(&go.stderr));

    let wasm = std::fs::read(&wasm).expect("built");
    let inspection = Inspection::of(&wasm).expect("a module");
    assert_eq!((inspection.refusals, inspection.hazards), (vec![], vec![Hazard::InitializeNotRun]));
    let mut guest = Guest::load(&wasm, Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let bytes = pod("job-7").to_bytes();
    let error = guest.prefilter(&mut FakeHost::default(), Pod { uid: "u", protobuf: &bytes }).expect_err("not set up");
    assert!(error.to_string().contains(NOT_SET_UP), "{error}");
}

/// What Go says then, under wazero too.
const NOT_SET_UP: &str = "wasmexport function called before runtime initialization";
