use std::io::Write;
use std::path::{Path, PathBuf};

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

    /// Directory of the SDK, when it isn't to come from crates.io. Default: the one that this tutti was built beside, if it
    /// is still there
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// The template's files, by their place in the new crate.
const FILES: [(&str, &str); 4] = [
    (".gitignore", "/target\n"),
    ("Cargo.toml", include_str!("../../../sdk/template/Cargo.toml")),
    ("src/lib.rs", include_str!("../../../sdk/template/src/lib.rs")),
    (".cargo/config.toml", include_str!("../../../sdk/template/cargo-config.toml")),
];

/// Names that `cargo new` refuses, too.
#[rustfmt::skip]
const TAKEN: [&str; 51] = [
    "abstract", "alloc", "as", "async", "await", "become", "box", "break", "const", "continue", "core", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move",
    "mut", "override", "priv", "proc_macro", "pub", "ref", "return", "self", "static", "std", "struct", "super", "test", "trait",
    "true", "try", "type", "unsafe", "use", "where", "while",
];

fn crate_name(text: &str) -> Result<String, String> {
    let letter = |c: char| c.is_ascii_lowercase();
    if TAKEN.contains(&text) {
        return Err(format!("{text} is a word of the language or a crate that comes with it; take another name"));
    }
    if text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit() || c == '-' || c == '_') {
        Ok(text.to_owned())
    } else {
        Err("a crate's name has lower-case letters, digits, - and _, and starts with a letter".to_owned())
    }
}

/// `my-plugin` as a type: `MyPlugin`.
fn type_name(name: &str) -> String {
    let words = name.split(['-', '_']).filter(|word| !word.is_empty());
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// The SDK that this tutti was built beside.
const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk");

/// Where the crate gets the SDK from, as Cargo wants it.
fn dependency(sdk: Option<&Path>) -> String {
    let version = format!("version = {:?}", env!("CARGO_PKG_VERSION"));
    match sdk {
        Some(path) => format!("{version}, path = {:?}", path.display().to_string()),
        None => version,
    }
}

/// The SDK's directory, absolute, if it comes from one.
fn sdk(asked: Option<&Path>) -> Result<Option<PathBuf>, String> {
    let directory = asked.unwrap_or(Path::new(CHECKOUT));
    if directory.join("Cargo.toml").is_file() {
        return directory.canonicalize().map(Some).map_err(|e| format!("{}: {e}", directory.display()));
    }
    match asked {
        Some(_) => Err(format!(
            "{} is no crate: it has no Cargo.toml; --sdk takes the directory of kube-scheduler-sdk",
            directory.display()
        )),
        None => Ok(None),
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Verdict, Fault> {
    let target = args.path.join(&args.name);
    let fault = |e: &dyn std::fmt::Display| Fault::Other(format!("{}: {e}; nothing was made", target.display()));
    if target.exists() {
        return Err(fault(&"exists already"));
    }
    let dependency = dependency(sdk(args.sdk.as_deref()).map_err(|e| fault(&e))?.as_deref());
    std::fs::create_dir_all(&args.path).map_err(|e| fault(&e))?;
    // Made under another name, so that a crate of that name is whole or isn't there.
    let made = tempfile::Builder::new().prefix(".tutti-").tempdir_in(&args.path).map_err(|e| fault(&e))?;
    for (file, template) in FILES {
        let text = template
            .replace("{{name}}", &args.name)
            .replace("{{Name}}", &type_name(&args.name))
            .replace("{{sdk}}", &dependency);
        let path = made.path().join(file);
        path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|e| fault(&e))?;
        std::fs::write(path, text).map_err(|e| fault(&e))?;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(made.path(), std::fs::Permissions::from_mode(0o755)).map_err(|e| fault(&e))?;
    }
    std::fs::rename(made.path(), &target).map_err(|e| fault(&e))?;
    let _ = made.keep(); // it has its name now
    writeln!(
        out,
        "made {}; in it, `cargo test` runs its tests and `cargo build --release --target wasm32-unknown-unknown` makes the module",
        target.display()
    )?;
    Ok(Verdict::Good)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sdk_comes_from_a_checkout_or_from_crates_io() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(super::dependency(None), format!("version = \"{version}\""));
        let checkout = super::sdk(None).expect("readable").expect("this very checkout");
        assert!(super::dependency(Some(&checkout)).ends_with("/sdk\""), "{}", checkout.display());
        assert!(super::sdk(Some("src".as_ref())).is_err());
    }

    #[test]
    fn names_become_types() {
        for (name, want) in [("my-plugin", "MyPlugin"), ("rack_2_spread", "Rack2Spread"), ("x-", "X")] {
            assert_eq!(super::type_name(name), want);
        }
    }
}
