use std::io::Write;
use std::path::PathBuf;

use super::{Fault, Verdict};
use crate::guest::Inspection;
use crate::input::Problem;

/// Say whether the scheduler's wasm extension would load a module, and if not, why
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The module
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Verdict, Fault> {
    let problem = |message: String| Problem { file: args.file.display().to_string(), line: None, message };
    let bytes = std::fs::read(&args.file).map_err(|e| problem(e.to_string()))?;
    let found = Inspection::of(&bytes).map_err(|e| problem(e.to_string()))?;
    writeln!(out, "size      {} bytes", found.size)?;
    let memory = found.memory.map_or("none exported".to_owned(), |m| format!("{} KiB at start, per instance", m >> 10));
    writeln!(out, "memory    {memory}")?;
    writeln!(out, "exports   {}", found.exports)?;
    let (started, uncalled): (Vec<_>, Vec<_>) = found.other_exports.iter().partition(|name| *name == "_start");
    if !started.is_empty() {
        writeln!(out, "          run once at the start of an instance: _start")?;
    }
    if !uncalled.is_empty() {
        writeln!(out, "          never called: {}", uncalled.into_iter().cloned().collect::<Vec<_>>().join(", "))?;
    }
    let imports: Vec<_> = found.imports.iter().map(|(module, name)| format!("{module}.{name}")).collect();
    writeln!(out, "imports   {}", if imports.is_empty() { "none".to_owned() } else { imports.join("\n          ") })?;
    for hazard in &found.hazards {
        writeln!(out, "warning   {hazard}")?;
    }
    if found.accepted() {
        writeln!(out, "accepted  the scheduler loads it")?;
        return Ok(Verdict::Good);
    }
    Err(Fault::Input(found.refusals.iter().map(|refusal| problem(format!("not accepted: {refusal}"))).collect()))
}
