use std::io::Write;
use std::path::PathBuf;

use serde_json::Value as Json;

use super::{Fault, PluginArgs, Verdict};
use crate::input::duration::Millis;
use crate::report::{GangSummary, PendingPod, Summary};
use crate::run::{self, Setup};

/// Say in one paragraph why a gang is not running
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The gang: its name, or namespace/name
    gang: String,

    /// Files, directories, or - for the standard input; YAML or JSON
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    plugin: PluginArgs,

    /// Stop at this virtual time, as 90s or 1h30m
    #[arg(long, value_name = "TIME", default_value = "1m", allow_hyphen_values = true)]
    until: Millis,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Verdict, Fault> {
    let loaded = super::load_one(&args.paths)?;
    let plugin = args.plugin.load(loaded.configuration.as_ref())?;
    let plugin = plugin.as_ref().map(|p| run::Plugin { file: &p.file, wasm: &p.wasm, config: p.config.as_deref() });
    let setup = Setup { plugin, until: Some(args.until), ..Setup::default() };
    let summary = run::run(&loaded, &setup)?.summary;
    let named =
        |gang: &&GangSummary| gang.gang == args.gang || gang.gang.split_once('/').is_some_and(|(_, n)| n == args.gang);
    let found: Vec<_> = summary.gangs.iter().filter(named).collect();
    match found[..] {
        [gang] => {
            writeln!(out, "{}", paragraph(gang, &summary))?;
            Ok(Verdict::Good)
        }
        [] => {
            if let Some(group) = loaded.arrivals.iter().find(|arrival| is_group(&arrival.object, &args.gang)) {
                writeln!(
                    out,
                    "Gang {} is not running: its PodGroup is there ({}), but within {} no pod of it comes.",
                    args.gang, group.origin, args.until
                )?;
                return Ok(Verdict::Good);
            }
            let known: Vec<_> = summary.gangs.iter().map(|g| g.gang.as_str()).take(20).collect();
            let known = if known.is_empty() {
                format!("within {} no pod of any gang comes", args.until)
            } else {
                format!("there are {}", known.join(", "))
            };
            Err(Fault::Other(format!("no gang {}; {known}", args.gang)))
        }
        _ => {
            let which: Vec<_> = found.iter().map(|g| g.gang.as_str()).collect();
            Err(Fault::Other(format!("{} is in several namespaces; say {}", args.gang, which.join(" or "))))
        }
    }
}

/// Whether the object is the PodGroup of this name, or namespace/name.
fn is_group(object: &Json, gang: &str) -> bool {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    object["kind"] == "PodGroup" && (gang == text("name") || gang == format!("{}/{}", text("namespace"), text("name")))
}

fn paragraph(gang: &GangSummary, summary: &Summary) -> String {
    let GangSummary { gang: name, pods, bound, held, succeeded, failed, attempts, reason, .. } = gang;
    let waiting = pods.saturating_sub(bound + held + succeeded + failed);
    let failures = if *failed > 0 { format!(", {failed} of them failed") } else { String::new() };
    let mut text = match (gang.started_ms, gang.done_ms) {
        (_, Some(done)) => {
            format!("Gang {name} is done since {}: all {pods} pods have ended{failures}.", Millis(done))
        }
        (Some(started), None) if waiting == 0 => {
            format!("Gang {name} is running: {bound} of its {pods} pods have a node, since {}.", Millis(started))
        }
        (Some(_), None) => format!("Gang {name} runs in part: {bound} of its {pods} pods have a node, {waiting} wait."),
        (None, None) => format!(
            "Gang {name} is not running: after {} and {attempts} scheduling attempts none of its {pods} pods has a node{}.",
            Millis(summary.end_ms),
            if *held > 0 { format!(", {held} are held at Permit") } else { String::new() }
        ),
    };
    if waiting > 0 && !reason.is_empty() {
        text.push_str(&format!(" The scheduler says: {}.", reason.trim_end_matches('.')));
    }
    for PendingPod { pod, reason } in &gang.other_reasons {
        text.push_str(&format!(" Of {pod} it says: {}.", reason.trim_end_matches('.')));
    }
    text
}
