//! From files to objects: YAML and JSON manifests, lists of them, scheduler configuration.

pub mod config;
pub mod document;
pub mod duration;
mod limits;
mod load;
pub mod strict;
mod validate;
mod workload;

pub use config::Configuration;
pub use load::{Arrival, Loaded, Origin, Problem, files, load};

/// Reads a Kubernetes quantity.
///
/// # Errors
/// The text is none; the error says how one is written.
pub(crate) fn quantity(text: &str) -> Result<kube_scheduler_sdk::Quantity, String> {
    text.parse().map_err(|_| {
        format!(
            "`{text}` is not a quantity; write a number with a suffix of m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi or Ei, as in \
             500m or 2Gi"
        )
    })
}
