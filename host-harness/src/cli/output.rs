//! Writing results.

use std::io::Write as _;
use std::path::Path;

use super::Fault;

/// Writes a file whole or not at all: into a temporary file beside it, which then takes its name.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let fault = |e: &dyn std::fmt::Display| Fault::Other(format!("{}: {e}; nothing was written", path.display()));
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(fault(&"is not a file name")),
    };
    if path.is_dir() {
        return Err(fault(&"is a directory"));
    }
    std::fs::create_dir_all(directory).map_err(|e| fault(&e))?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666)); // less the umask, as any other new file
    }
    let mut file = builder.prefix(".tutti-").tempfile_in(directory).map_err(|e| fault(&e))?;
    file.write_all(content).map_err(|e| fault(&e))?;
    file.persist(path).map_err(|e| fault(&e.error))?;
    Ok(())
}

/// A progress bar on standard error; there only if that is a terminal and the work takes longer than a second.
pub(super) struct Progress {
    bar: indicatif::ProgressBar,
    since: std::time::Instant,
}

impl Progress {
    pub(super) fn new(runs: u64) -> Self {
        let bar = indicatif::ProgressBar::new(runs);
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        Self { bar, since: std::time::Instant::now() }
    }

    /// One run is done.
    pub(super) fn step(&self) {
        if self.bar.is_hidden() && self.since.elapsed().as_secs() >= 1 {
            // Hidden by itself where standard error is no terminal.
            self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        self.bar.inc(1);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
