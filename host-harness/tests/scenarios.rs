//! Each file of `testdata/scenarios` is a test: its expectations hold, two runs of it are the same, and its trace is the one
//! beside it. `UPDATE_GOLDEN=1` writes the traces anew.
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    let tested = run::test(&loaded, &Setup { plugin: Some(plugin), ..Setup::default() }).map_err(problems)?;
    let golden = file.with_extension("trace");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &tested.trace)?;
    }
    if !tested.failures.is_empty() {
        let lines = tested.failures.iter().map(|f| format!("{}:{}: {}", file.display(), f.line, f.message));
        return Err(lines.collect::<Vec<_>>().join("\n").into());
    }
    let want = std::fs::read_to_string(&golden).unwrap_or_default();
    let differs = want.lines().zip(tested.trace.lines()).position(|(a, b)| a != b);
    match differs.or((want.lines().count() != tested.trace.lines().count())
        .then_some(want.lines().count().min(tested.trace.lines().count())))
    {
        None => Ok(()),
        Some(line) => Err(format!(
            "{}:{}: the trace differs; UPDATE_GOLDEN=1 takes the new one\n  was {:?}\n  is  {:?}",
            golden.display(),
            line + 1,
            want.lines().nth(line),
            tested.trace.lines().nth(line)
        )
        .into()),
    }
}
