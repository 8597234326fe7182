//! Writing results.

use std::cell::Cell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Fault;
use crate::input::duration::Millis;

/// Work that is done sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(100);

/// Writes files whole, all of them or none: each into a temporary file beside it, which then takes its name. What is no
/// regular file, a pipe say, is written to as it is.
pub(super) fn write_whole<'a>(files: impl IntoIterator<Item = (&'a Path, String)>) -> Result<(), Fault> {
    let mut staged: Vec<(PathBuf, tempfile::NamedTempFile)> = Vec::new();
    let mut streams: Vec<(&Path, String)> = Vec::new();
    for (path, content) in files {
        // A link stays one; its target is written.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if staged.iter().any(|(other, _)| *other == target) || streams.iter().any(|(other, _)| *other == path) {
            return Err(fault(path, &"named for two outputs"));
        }
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
            streams.push((path, content));
        } else {
            let file = stage(&target, content.as_bytes()).map_err(|message| fault(path, &message))?;
            staged.push((target, file));
        }
    }
    for (path, file) in staged {
        file.persist(&path).map_err(|e| fault(&path, &e.error))?;
    }
    for (path, content) in streams {
        std::fs::write(path, content).map_err(|e| Fault::Other(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// Outputs must not take the place of what was read.
pub(super) fn not_among_inputs(output: &Path, inputs: &[PathBuf]) -> Result<(), Fault> {
    let Ok(output) = std::fs::canonicalize(output) else { return Ok(()) };
    let is_input = |input: &PathBuf| {
        let files = crate::input::files(input).unwrap_or_default();
        files.iter().any(|file| std::fs::canonicalize(file).is_ok_and(|file| file == output))
    };
    match inputs.iter().find(|input| is_input(input)) {
        Some(_) => Err(fault(&output, &"is one of the inputs")),
        None => Ok(()),
    }
}

fn fault(path: &Path, e: &dyn std::fmt::Display) -> Fault {
    Fault::Other(format!("{}: {e}; nothing was written", path.display()))
}

/// The content in a temporary file beside the path, or why there's none.
fn stage(path: &Path, content: &[u8]) -> Result<tempfile::NamedTempFile, String> {
    let fault = |e: std::io::Error| e.to_string();
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err("is not a file name".to_owned()),
    };
    if path.is_dir() {
        return Err("is a directory".to_owned());
    }
    if !directory.is_dir() {
        return Err(format!("there is no directory {}", directory.display()));
    }
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666)); // less the umask, as any other new file
    }
    let mut file = builder.prefix(".tutti-").tempfile_in(directory).map_err(fault)?;
    file.write_all(content).map_err(fault)?;
    Ok(file)
}

/// A progress bar on standard error; there only if that is a terminal and the work takes longer than a second.
pub(super) struct Progress {
    bar: indicatif::ProgressBar,
    since: Instant,
    drawn: Cell<Instant>,
}

impl Progress {
    pub(super) fn new(runs: u64) -> Self {
        let bar = indicatif::ProgressBar::new(runs).with_style(style());
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        let now = Instant::now();
        Self { bar, since: now, drawn: Cell::new(now) }
    }

    /// The run that goes on has come to this time.
    pub(super) fn at(&self, time: Millis) {
        let now = Instant::now();
        if now - self.drawn.get() < REDRAW {
            return;
        }
        self.drawn.set(now);
        if self.bar.is_hidden() && now - self.since >= PATIENCE {
            // Hidden by itself where standard error is no terminal.
            self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        self.bar.set_message(Millis(time.0 / 1000 * 1000).to_string());
    }

    /// One run is done.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> indicatif::ProgressStyle {
    let template = "{bar:30} {pos}/{len} runs, {elapsed}; the clock of this one shows {msg}";
    indicatif::ProgressStyle::with_template(template).unwrap_or_else(|_| indicatif::ProgressStyle::default_bar())
}
