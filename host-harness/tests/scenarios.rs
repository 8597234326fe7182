//! Each file of `testdata/scenarios` is a test: its expectations hold, two runs of it are the same, its trace is the one
//! beside it, and it comes out the same when one guest instance serves all pods. `UPDATE_GOLDEN=1` writes the traces anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use host_harness::guest::Instances;
use host_harness::input::{self, Problem};
use host_harness::run::{self, Plugin, Setup};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guest = root.join("out/guest/plugin.wasm");
    let wasm = std::fs::read(&guest).ok();
    if wasm.is_none() && std::env::var_os("CI").is_some() {
        eprintln!("{} is missing; build it with `make guests`", guest.display());
        return ExitCode::FAILURE;
    }
    let files = match input::files(&root.join("testdata/scenarios")) {
        Ok(files) => files,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    let trials = files.into_iter().map(|file| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let ignored = wasm.is_none();
        let wasm = wasm.clone().unwrap_or_default();
        Trial::test(name, move || check(&file, &wasm)).with_ignored_flag(ignored)
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn check(file: &PathBuf, wasm: &[u8]) -> Result<(), Failed> {
    let problems = |problems: Vec<Problem>| -> Failed {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n").into()
    };
    let loaded = input::load(std::slice::from_ref(file)).map_err(problems)?;
    let plugin = Plugin { file: "plugin.wasm", wasm, config: None };
    let setup = Setup { plugin: Some(plugin), ..Setup::default() };
    let tested = run::test(&loaded, &setup).map_err(problems)?;
    let golden = file.with_extension("trace");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &tested.trace)?;
    }
    if !tested.failures.is_empty() {
        let lines = tested.failures.iter().map(|f| format!("{}:{}: {}", file.display(), f.line, f.message));
        return Err(lines.collect::<Vec<_>>().join("\n").into());
    }
    let want = std::fs::read_to_string(&golden).unwrap_or_default();
    same(&golden, "the trace differs; UPDATE_GOLDEN=1 takes the new one", &want, &tested.trace)?;
    // A guest that counted in its own memory would come to another end.
    let single = run::run(&loaded, &Setup { instances: Instances::Single, ..setup }).map_err(problems)?;
    same(&golden, "one guest instance for all pods gives another trace", &want, &single.trace)
}

/// Whether a trace is the one wanted; if not, says where they part.
fn same(golden: &Path, what: &str, want: &str, is: &str) -> Result<(), Failed> {
    if want == is {
        return Ok(());
    }
    let common = want.lines().zip(is.lines()).take_while(|(a, b)| a == b).count();
    let (want, is) = (want.lines().nth(common), is.lines().nth(common));
    Err(format!("{}:{}: {what}\n  was {want:?}\n  is  {is:?}", golden.display(), common + 1).into())
}
