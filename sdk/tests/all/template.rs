//! The template of `tutti new`, filled in, builds and passes its own test.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn the_template_builds_and_passes_its_tests() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = Path::new(env!("CARGO_TARGET_TMPDIR")).join("template");
    let fill = |file: &str| {
        let text = fs::read_to_string(sdk.join("template").join(file)).expect(file);
        let text = text
            .replace("{{name}}", "my-plugin")
            .replace("{{Name}}", "MyPlugin")
            .replace("{{sdk_version}}", env!("CARGO_PKG_VERSION"));
        assert!(!text.contains("{{"), "{file} has a placeholder that the README doesn't list");
        text
    };
    fs::create_dir_all(project.join("src")).expect("a directory");
    // A workspace of its own; the SDK and what belongs to it from this repository, in the versions tested here.
    let root = sdk.parent().expect("the repository");
    let paths = ["abi", "sdk-macros", "sdk"].map(|dir| {
        let name = if dir == "abi" { "kube-scheduler-abi".into() } else { format!("kube-scheduler-{dir}") };
        format!("{name} = {{ path = {:?} }}\n", root.join(dir))
    });
    let manifest = format!("{}\n[workspace]\n\n[patch.crates-io]\n{}", fill("Cargo.toml"), paths.concat());
    fs::write(project.join("Cargo.toml"), manifest).expect("writable");
    fs::write(project.join("src/lib.rs"), fill("src/lib.rs")).expect("writable");
    fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).expect("writable");

    let output = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--offline"])
        .current_dir(&project)
        .env("CARGO_TARGET_DIR", project.join("target"))
        .output()
        .expect("cargo runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("2 passed"), "{}", text(&output.stdout));
}
