use std::io::Write;
use std::path::PathBuf;

use super::{Fault, Verdict};

/// Start a scheduler plugin of your own: a crate that builds to a module the scheduler loads
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the crate, and of the directory that is made
    #[arg(value_parser = crate_name)]
    name: String,

    /// Where to make the directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    path: PathBuf,
}

fn crate_name(text: &str) -> Result<String, String> {
    let letter = |c: char| c.is_ascii_lowercase();
    if text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit() || c == '-' || c == '_') {
        Ok(text.to_owned())
    } else {
        Err("a crate's name has lower-case letters, digits, - and _, and starts with a letter".to_owned())
    }
}

pub(super) fn run(args: &Args, _out: &mut dyn Write) -> Result<Verdict, Fault> {
    let target = args.path.join(&args.name);
    Err(Fault::Other(format!("{}: no template is built in yet", target.display())))
}
