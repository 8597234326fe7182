//! What `tutti new` makes builds and passes its tests, offline.

use std::path::Path;
use std::process::{Command, Output};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    output
}

#[test]
fn a_new_plugin_passes_its_tests() {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let directory = tempfile::tempdir_in(tmp).expect("a directory");
    run(Command::new(env!("CARGO_BIN_EXE_tutti")).args(["new", "my-plugin", "--path"]).arg(directory.path()));
    let project = directory.path().join("my-plugin");
    // The versions tested here, so that nothing need be fetched.
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock"), project.join("Cargo.lock"))
        .expect("writable");
    let test = run(Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--offline"])
        .current_dir(&project)
        // Kept, so that the next run builds the plugin only.
        .env("CARGO_TARGET_DIR", tmp.join("new")));
    let said = String::from_utf8_lossy(&test.stdout);
    assert!(said.contains("2 passed"), "{said}");
}
