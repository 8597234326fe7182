use std::io::Write;
use std::path::PathBuf;

use super::output::{Progress, not_among_inputs, write_whole};
use super::{Fault, Plugin, PluginArgs, Verdict};
use crate::input::Loaded;
use crate::input::duration::Millis;
use crate::report::{Summary, Timeline, chrome_trace, comparison, svg};
use crate::run::{self, Outcome, Setup, Watch};

/// Replay manifests or a scenario under a virtual clock and show what becomes of each gang
///
/// Takes what `kubectl get -o yaml` prints: nodes, pods, PodGroups, queues, claims and volumes, workloads (their pods are
/// made), a KubeSchedulerConfiguration. When a pod comes and how long it runs say its annotations tutti.dev/arrive and
/// tutti.dev/duration, or a scenario. What isn't simulated is told on standard error.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files, directories, or - for the standard input; YAML or JSON
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    plugin: PluginArgs,

    /// Also run the plain scheduler, and show both side by side
    #[arg(long, conflicts_with = "no_plugin")]
    compare: bool,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Draw the first seed's timeline: nodes over time, a colour per gang
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the first seed's timeline for Perfetto (ui.perfetto.dev) or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Stop at this virtual time, as 90s or 1h30m [default: that of the scenario, else when nothing more happens]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<Millis>,

    /// Draws what is left to chance: ties between nodes, the order of a scenario's mixed steps
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Run so many seeds, from --seed on, and show their means
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs: one object per run
    Json,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Verdict, Fault> {
    let Some(last) = args.seed.checked_add(args.seeds) else {
        return Err(Fault::Other(format!("--seed {} leaves no room for {} seeds", args.seed, args.seeds)));
    };
    for output in [&args.svg, &args.trace].into_iter().flatten() {
        not_among_inputs(output, &args.paths)?;
    }
    let loaded = super::load_one(&args.paths)?;
    let plugin = args.plugin.load(loaded.configuration.as_ref())?;
    let mut sides = vec![Side::new("kube-scheduler with Tutti", plugin.as_ref())];
    if plugin.is_none() {
        sides[0].name = "kube-scheduler";
    }
    if args.compare {
        sides.insert(0, Side::new("kube-scheduler", None));
    }
    let progress = Progress::new(args.seeds * sides.len() as u64);
    let mut held = true;
    for side in &mut sides {
        for seed in args.seed..last {
            let outcome = side.run(&loaded, seed, args.until, &|now| progress.at(now))?;
            held &= outcome.failures.is_empty();
            if side.timeline.is_none() {
                side.timeline = Some(outcome.timeline);
            }
            let failures = outcome.failures.iter().map(|failure| {
                let (file, _) = &loaded.scenarios[0];
                format!("{file}:{}: {}: {}", failure.line, side.name, failure.message)
            });
            side.summaries.push(Summary { failures: failures.collect(), ..outcome.summary });
            progress.step();
        }
    }
    progress.finish();
    let timelines: Vec<Timeline> = sides.iter_mut().filter_map(|s| s.timeline.take()).collect();
    let drawing = args.svg.as_deref().map(|path| (path, svg(&timelines)));
    let trace = args.trace.as_deref().map(|path| (path, chrome_trace(&timelines)));
    write_whole(drawing.into_iter().chain(trace))?;
    show(args, &sides, out)?;
    Ok(if held { Verdict::Good } else { Verdict::Failed })
}

/// One scheduler of a comparison.
struct Side<'a> {
    name: &'static str,
    plugin: Option<&'a Plugin>,
    summaries: Vec<Summary>,
    timeline: Option<Timeline>,
}

impl<'a> Side<'a> {
    fn new(name: &'static str, plugin: Option<&'a Plugin>) -> Self {
        Self { name, plugin, summaries: Vec::new(), timeline: None }
    }

    fn run(&self, loaded: &Loaded, seed: u64, until: Option<Millis>, watch: &dyn Fn(Millis)) -> Result<Outcome, Fault> {
        let plugin = self.plugin.map(|p| run::Plugin { file: &p.file, wasm: &p.wasm, config: p.config.as_deref() });
        let setup =
            Setup { name: self.name, plugin, seed, order: seed, until, watch: Watch(watch), ..Setup::default() };
        run::run(loaded, &setup).map_err(Fault::from)
    }
}

fn show(args: &Args, sides: &[Side<'_>], out: &mut dyn Write) -> Result<(), Fault> {
    if args.format == Format::Json {
        for summary in sides.iter().flat_map(|s| &s.summaries) {
            serde_json::to_writer(&mut *out, summary).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        return Ok(());
    }
    for failure in sides.iter().flat_map(|s| &s.summaries).flat_map(|s| &s.failures) {
        writeln!(out, "{failure}")?;
    }
    match sides {
        [left, right] => write!(out, "{}", comparison(&left.summaries, &right.summaries))?,
        _ if args.seeds > 1 => {
            for summary in &sides[0].summaries {
                writeln!(out, "seed {}: {}", summary.seed, summary.line())?;
            }
        }
        _ => {
            let summary = &sides[0].summaries[0];
            write!(out, "{}", summary.table())?;
            writeln!(out, "\n{}", summary.line())?;
        }
    }
    for path in [&args.svg, &args.trace].into_iter().flatten() {
        writeln!(out, "written {}", path.display())?;
    }
    Ok(())
}
