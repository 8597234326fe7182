//! The `tutti` command: one file per subcommand, doc comments are the help.

mod explain;
mod generate;
mod inspect;
mod new;
mod output;
mod replay;
mod test;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::input::{self, Configuration, Loaded, Problem};

const AFTER_HELP: &str = "\
Examples:
  kubectl get nodes,pods,podgroups -A -o yaml | tutti replay -     what becomes of each gang
  tutti replay --compare --svg out.svg manifests/                  beside the plain scheduler
  tutti explain training manifests/                                why one gang is not running

Exit codes:
  0  done, and all expectations held
  1  an expectation of a scenario did not hold
  2  wrong usage, bad input, or an error of the plugin

Files are written whole or not at all.";

/// Gang scheduling, offline: replays manifests through the scheduler plugin that the real kube-scheduler loads.
#[derive(Debug, Parser)]
#[command(name = "tutti", version, after_help = AFTER_HELP, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(replay::Args),
    Test(test::Args),
    Explain(explain::Args),
    Generate(generate::Args),
    Inspect(inspect::Args),
    New(new::Args),
}

/// How a command that ran to its end came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Failed,
}

/// Why a command didn't run to its end.
#[derive(Debug)]
enum Fault {
    /// Problems with what was given, each with its place.
    Input(Vec<Problem>),
    /// Anything else: one sentence.
    Other(String),
    /// Nobody reads the output any more.
    BrokenPipe,
}

impl From<Vec<Problem>> for Fault {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Input(problems)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::Input(vec![problem])
    }
}

impl From<io::Error> for Fault {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Other(e.to_string()) }
    }
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = io::stdout().lock();
    let result = match args.command {
        Command::Replay(args) => replay::run(&args, &mut out),
        Command::Test(args) => test::run(&args, &mut out),
        Command::Explain(args) => explain::run(&args, &mut out),
        Command::Generate(args) => generate::run(&args, &mut out),
        Command::Inspect(args) => inspect::run(&args, &mut out),
        Command::New(args) => new::run(&args, &mut out),
    };
    let result = result.and_then(|verdict| out.flush().map_err(Fault::from).map(|()| verdict));
    let fail = |text: &dyn std::fmt::Display| {
        // Nothing can be done about a closed standard error.
        let _ = writeln!(io::stderr(), "error: {text}");
    };
    match result {
        Ok(Verdict::Good) | Err(Fault::BrokenPipe) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(1),
        Err(Fault::Input(problems)) => {
            problems.iter().for_each(|problem| fail(problem));
            ExitCode::from(2)
        }
        Err(Fault::Other(text)) => {
            fail(&text);
            ExitCode::from(2)
        }
    }
}

/// Reads manifests and shows what the user should know of them.
fn load(paths: &[PathBuf]) -> Result<Loaded, Fault> {
    let loaded = input::load(paths)?;
    for note in &loaded.notes {
        // Nothing can be done about a closed standard error.
        let _ = writeln!(io::stderr(), "note: {note}");
    }
    Ok(loaded)
}

/// The same, with one scenario at most.
fn load_one(paths: &[PathBuf]) -> Result<Loaded, Fault> {
    let loaded = load(paths)?;
    match &loaded.scenarios[..] {
        [(first, _), (second, _), ..] => {
            Err(Fault::Other(format!("{first} and {second} are scenarios; name one, or run all with `tutti test`")))
        }
        _ => Ok(loaded),
    }
}

/// Which plugin to run.
#[derive(Debug, Clone, clap::Args)]
struct PluginArgs {
    /// The plugin to run [default: that of a KubeSchedulerConfiguration among the inputs, else out/guest/plugin.wasm]
    #[arg(long, value_name = "FILE", conflicts_with = "no_plugin")]
    plugin: Option<PathBuf>,

    /// Run the plain scheduler, without a plugin
    #[arg(long)]
    no_plugin: bool,
}

/// A plugin's module and arguments.
#[derive(Clone, Debug)]
struct Plugin {
    /// As the user knows it.
    file: String,
    wasm: Vec<u8>,
    config: Option<String>,
}

/// Where `make guests` puts the plugin.
const DEFAULT_PLUGIN: &str = "out/guest/plugin.wasm";

impl PluginArgs {
    /// Reads the plugin; `None`: run without.
    fn load(&self, configuration: Option<&Configuration>) -> Result<Option<Plugin>, Fault> {
        if self.no_plugin {
            return Ok(None);
        }
        let path = match (&self.plugin, configuration) {
            (Some(path), _) => path.clone(),
            (None, Some(configuration)) => PathBuf::from(&configuration.guest_file),
            (None, None) => PathBuf::from(DEFAULT_PLUGIN),
        };
        let file = path.display().to_string();
        let wasm = std::fs::read(&path).map_err(|e| {
            let help =
                if self.plugin.is_none() { "; name one with --plugin, or build it with `make guests`" } else { "" };
            Problem { file: file.clone(), line: None, message: format!("{e}{help}") }
        })?;
        Ok(Some(Plugin { file, wasm, config: configuration.and_then(|c| c.guest_config.clone()) }))
    }
}
