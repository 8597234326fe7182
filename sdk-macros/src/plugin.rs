use kube_scheduler_abi::{Export, ExportSet};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Token, Type};

/// An extension point: the trait, and the exports it stands for. A trait is exported whole, so half a pair can't be.
struct Point {
    name: &'static str,
    exports: &'static [Export],
}

const POINTS: [Point; 12] = [
    Point { name: "Enqueue", exports: &[Export::Enqueue] },
    Point { name: "PreFilter", exports: &[Export::PreFilter] },
    Point { name: "PreFilterExtensions", exports: &[Export::AddPod, Export::RemovePod] },
    Point { name: "Filter", exports: &[Export::Filter] },
    Point { name: "PostFilter", exports: &[Export::PostFilter] },
    Point { name: "PreScore", exports: &[Export::PreScore] },
    Point { name: "Score", exports: &[Export::Score] },
    Point { name: "Reserve", exports: &[Export::Reserve, Export::Unreserve] },
    Point { name: "Permit", exports: &[Export::Permit] },
    Point { name: "PreBind", exports: &[Export::PreBind] },
    Point { name: "Bind", exports: &[Export::Bind] },
    Point { name: "PostBind", exports: &[Export::PostBind] },
];

/// Never called without another point of the author's own, since the default of that one is never reached.
const NEEDS: [(&str, &str); 2] = [("PreFilterExtensions", "Filter"), ("PreScore", "Score")];

struct Input {
    plugin: Type,
    points: Punctuated<Ident, Token![,]>,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let plugin = input.parse()?;
        input.parse::<Token![:]>()?;
        Ok(Self { plugin, points: Punctuated::parse_terminated(input)? })
    }
}

pub(crate) fn expand(input: TokenStream) -> syn::Result<TokenStream> {
    let input = Input::parse.parse2(input).map_err(|e| {
        Error::new(
            e.span(),
            format!("{e}; write the plugin's type and its extension points: plugin!(MyPlugin: Filter, Score)"),
        )
    })?;
    let named = named(&input)?;
    let exports = complete(named);
    // Holds for whatever can be named; the test goes through all of it.
    exports.check().map_err(|e| Error::new_spanned(&input.plugin, e))?;

    let plugin = &input.plugin;
    let functions = exports.iter().map(|export| function(export, named, plugin));
    Ok(quote! {
        #[automatically_derived]
        const _: () = {
            use ::kube_scheduler_sdk::__private as sdk;

            ::std::thread_local! {
                static PLUGIN: sdk::Slot<#plugin> = const { sdk::Slot::new() };
            }

            #(#functions)*
        };
    })
}

fn named(input: &Input) -> syn::Result<ExportSet> {
    let mut set = ExportSet::default();
    let mut seen: Vec<&Ident> = Vec::new();
    for ident in &input.points {
        let error = |message: String| Err(Error::new(ident.span(), message));
        if ident == "NormalizeScore" {
            return error(
                "NormalizeScore gives scores to the wrong nodes: the host reads them back in map order; \
                 answer 0 to 100 from Score instead"
                    .into(),
            );
        }
        let Some(point) = POINTS.iter().find(|p| ident == p.name) else {
            let names = POINTS.map(|p| p.name).join(", ");
            return error(format!("{ident} is not an extension point; there are {names}"));
        };
        if seen.contains(&ident) {
            return error(format!("{ident} is named twice"));
        }
        seen.push(ident);
        set = set.union(ExportSet::of(point.exports));
    }
    if seen.is_empty() {
        return Err(Error::new_spanned(
            &input.plugin,
            "the plugin has no extension point: name at least one, as in plugin!(MyPlugin: Filter)",
        ));
    }
    for (point, needs) in NEEDS {
        if let Some(ident) = seen.iter().find(|i| **i == point)
            && !seen.iter().any(|i| *i == needs)
        {
            return Err(Error::new(
                ident.span(),
                format!("{point} is never called without {needs}: add {needs} and implement it"),
            ));
        }
    }
    Ok(set)
}

/// What is exported for the points named: they, and what the host needs with them.
fn complete(named: ExportSet) -> ExportSet {
    use Export as E;
    let mut set = named.with(E::PreFilter);
    // The binding exports run on the pod's own instance only if Permit set it aside, and what Permit sets aside is given
    // back by Unreserve or PostBind.
    if [E::Permit, E::PreBind, E::Bind, E::PostBind].into_iter().any(|e| set.has(e)) {
        set = set.union(ExportSet::of(&[E::Reserve, E::Unreserve, E::Permit, E::Bind, E::PostBind]));
    }
    // PostFilter is wired through Filter.
    if set.has(E::PostFilter) {
        set = set.with(E::Filter);
    }
    // Of the sets with Permit the host takes those with Filter and Score, or with neither.
    if set.has(E::Permit) && set.has(E::Filter) != set.has(E::Score) {
        set = set.with(E::Filter).with(E::Score);
    }
    // Without PostFilter the host answers Success for it, which switches preemption off.
    if set.has(E::Filter) {
        set = set.with(E::PostFilter);
    }
    // Skips the author's missing Score.
    if set.has(E::Score) && !named.has(E::Score) {
        set = set.with(E::PreScore);
    }
    set
}

/// One export: the author's trait, or the harmless answer.
fn function(export: Export, named: ExportSet, plugin: &Type) -> TokenStream {
    let name = export.name();
    let ident = format_ident!("{name}");
    let author = quote! { PLUGIN.with(sdk::#ident::<#plugin>) };
    let skip = quote! { sdk::Code::Skip };
    let (result, body) = match (export, named.has(export)) {
        (Export::Enqueue | Export::Unreserve | Export::PostBind, true) => (quote! {}, author),
        (Export::Score | Export::PostFilter | Export::Permit, true) => (quote! { -> u64 }, author),
        (_, true) => (quote! { -> i32 }, author),
        (Export::PreFilter, false) => {
            let otherwise = if named.has(Export::Filter) {
                quote! { sdk::Code::Success }
            } else {
                skip
            };
            (quote! { -> i32 }, quote! { PLUGIN.with(|plugin| sdk::prefilter_default(plugin, #otherwise)) })
        }
        (Export::PostFilter, false) => (quote! { -> u64 }, quote! { sdk::postfilter_default() }),
        (Export::PreScore | Export::Bind, false) => (quote! { -> i32 }, quote! { #skip as i32 }),
        (Export::Unreserve | Export::PostBind, false) => (quote! {}, quote! {}),
        // Success, a score of 0, no wait: all are 0.
        (Export::Score | Export::Permit, false) => (quote! { -> u64 }, quote! { 0 }),
        (_, false) => (quote! { -> i32 }, quote! { 0 }),
    };
    quote! {
        #[cfg_attr(target_family = "wasm", unsafe(export_name = #name))]
        #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "called by the host"))]
        extern "C" fn #ident() #result {
            #body
        }
    }
}
