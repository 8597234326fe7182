//! Writing results.

use std::io::Write as _;
use std::path::Path;

use super::Fault;

/// Writes files whole, all of them or none: each into a temporary file beside it, which then takes its name.
pub(super) fn write_whole<'a>(files: impl IntoIterator<Item = (&'a Path, String)>) -> Result<(), Fault> {
    let mut staged: Vec<(&Path, tempfile::NamedTempFile)> = Vec::new();
    for (path, content) in files {
        if staged.iter().any(|(other, _)| *other == path) {
            return Err(Fault::Other(format!("{}: named for two outputs; nothing was written", path.display())));
        }
        staged.push((path, stage(path, content.as_bytes())?));
    }
    for (path, file) in staged {
        file.persist(path).map_err(|e| fault(path, &e.error))?;
    }
    Ok(())
}

fn fault(path: &Path, e: &dyn std::fmt::Display) -> Fault {
    Fault::Other(format!("{}: {e}; nothing was written", path.display()))
}

/// The content in a temporary file beside the path.
fn stage(path: &Path, content: &[u8]) -> Result<tempfile::NamedTempFile, Fault> {
    let fault = |e: std::io::Error| fault(path, &e);
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(self::fault(path, &"is not a file name")),
    };
    if path.is_dir() {
        return Err(self::fault(path, &"is a directory"));
    }
    std::fs::create_dir_all(directory).map_err(fault)?;
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
