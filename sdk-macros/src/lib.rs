//! The export macro of `kube-scheduler-sdk`; its documentation is there.

mod plugin;

use proc_macro::TokenStream;

/// Exports a plugin: `plugin!(Type: Point, Point, …);`, once in a crate.
///
/// A point is the name of a trait without its `Plugin`: `Enqueue` (for `EnqueueExtensions`), `PreFilter`,
/// `PreFilterExtensions`, `Filter`, `PostFilter`, `PreScore`, `Score`, `Reserve`, `Permit`, `PreBind`, `Bind`,
/// `PostBind`. The type implements the traits named. What the host needs beside them to run the plugin safely is
/// exported with a harmless answer; what can't work is refused when the crate is compiled.
#[proc_macro]
pub fn plugin(input: TokenStream) -> TokenStream {
    plugin::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
