//! From files to objects: YAML and JSON manifests, lists of them, scheduler configuration.

pub mod config;
pub mod document;
pub mod duration;
mod load;
pub mod strict;
mod workload;

pub use load::{Arrival, Loaded, Origin, Problem, files, load};

/// Whether the text is a Kubernetes quantity; the error says how one is written.
fn quantity_syntax(text: &str) -> Result<(), String> {
    const SUFFIXES: [&str; 17] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let split = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(split);
    let digits = number.chars().filter(char::is_ascii_digit).count();
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|e| e.parse::<i8>().is_ok());
    if digits > 0 && number.matches('.').count() <= 1 && (SUFFIXES.contains(&suffix) || exponent) {
        return Ok(());
    }
    Err(format!(
        "`{text}` is not a quantity; write a number with a suffix of m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi or Ei, as in \
         500m or 2Gi"
    ))
}
