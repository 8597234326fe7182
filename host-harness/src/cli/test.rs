use std::io::Write;
use std::path::PathBuf;

use super::output::Progress;
use super::{Fault, PluginArgs, Verdict};
use crate::input::Loaded;
use crate::run::{self, Setup, Watch};

/// Run scenarios and say whether their expectations hold
///
/// Each runs twice, to prove that it is deterministic; a step of any order runs in many orders.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Scenario files, or directories of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    plugin: PluginArgs,

    /// Print what happens in each scenario, a line each
    #[arg(long)]
    verbose: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Verdict, Fault> {
    let loaded = super::load(&args.paths)?;
    if loaded.scenarios.is_empty() {
        let paths: Vec<_> = args.paths.iter().map(|p| p.display().to_string()).collect();
        return Err(Fault::Other(format!("no scenario in {}", paths.join(", "))));
    }
    let plugin = args.plugin.load(loaded.configuration.as_ref())?;
    let progress = Progress::new(loaded.scenarios.len() as u64);
    let (mut failed, mut broken) = (0, 0);
    for (file, scenario) in loaded.scenarios {
        // What else was read, a cluster say, is part of every scenario.
        let one = Loaded {
            arrivals: loaded.arrivals.clone(),
            scenarios: vec![(file.clone(), scenario)],
            configuration: loaded.configuration.clone(),
            notes: Vec::new(),
        };
        let plugin = plugin.as_ref().map(|p| run::Plugin { file: &p.file, wasm: &p.wasm, config: p.config.as_deref() });
        let watch = |now| progress.at(now);
        let setup = Setup { plugin, watch: Watch(&watch), ..Setup::default() };
        let tested = run::test(&one, &setup);
        progress.step();
        let tested = match tested {
            Ok(tested) => tested,
            Err(problems) => {
                broken += 1;
                writeln!(out, "BROKEN  {file}")?;
                for problem in &problems {
                    writeln!(out, "        {problem}")?;
                }
                continue;
            }
        };
        if args.verbose {
            write!(out, "{}", tested.trace)?;
        }
        if tested.failures.is_empty() {
            writeln!(out, "ok      {file}")?;
        } else {
            failed += 1;
            writeln!(out, "FAILED  {file}")?;
            for failure in &tested.failures {
                writeln!(out, "        {file}:{}: {}", failure.line, failure.message)?;
            }
        }
    }
    progress.finish();
    if failed > 0 {
        writeln!(out, "{failed} failed")?;
    }
    match (broken, failed) {
        (0, 0) => Ok(Verdict::Good),
        (0, _) => Ok(Verdict::Failed),
        _ => Err(Fault::Other(format!("{broken} of the scenarios could not be run"))),
    }
}
