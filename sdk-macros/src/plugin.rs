use kube_scheduler_abi::{Export, ExportSet, ValueType};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
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

/// Of no use without another point of the author's own, and why.
const NEEDS: [(&str, &str, &str); 2] = [
    ("PreFilterExtensions", "Filter", "tells Filter of pods that would join or leave the node"),
    ("PreScore", "Score", "prepares Score and is never called without it"),
];

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
    let functions = exports.iter().map(|export| function(export, &input));
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
    for (point, needs, why) in NEEDS {
        if let Some(ident) = seen.iter().find(|i| **i == point)
            && !seen.iter().any(|i| *i == needs)
        {
            return Err(Error::new(ident.span(), format!("{point} {why}: add {needs} and implement it")));
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
    // The host wants one of five. Scoring that PreScore skips is the one that costs least.
    let core = [E::Filter, E::Score, E::Reserve, E::Permit, E::Bind];
    if !core.into_iter().any(|e| set.has(e)) && set != ExportSet::of(&[E::PreFilter]) {
        set = set.with(E::Score);
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
fn function(export: Export, input: &Input) -> TokenStream {
    let name = export.name();
    let ident = format_ident!("{name}");
    let point = |name: &str| input.points.iter().find(|i| *i == name);
    let author = POINTS.iter().find(|p| p.exports.contains(&export)).and_then(|p| point(p.name));
    let skip = quote! { sdk::Code::Skip };
    let body = match (author, export) {
        (Some(point), _) => {
            // A trait that lacks is told at the point's name.
            let span = Span::call_site().located_at(point.span());
            quote_spanned! {span=> PLUGIN.with(|plugin| sdk::#ident(plugin)) }
        }
        (None, Export::PreFilter) => {
            let otherwise = if point("Filter").is_some() {
                quote! { sdk::Code::Success }
            } else {
                skip
            };
            // A type that is no plugin is told at its name.
            let span = Span::call_site().located_at(input.plugin.span());
            quote_spanned! {span=> PLUGIN.with(|plugin| sdk::prefilter_default(plugin, #otherwise)) }
        }
        (None, Export::PostFilter) => quote! { sdk::postfilter_default() },
        (None, Export::PreScore | Export::Bind) => quote! { #skip as i32 },
        (None, Export::Unreserve | Export::PostBind) => quote! {},
        // Success, a score of 0, no wait: all are 0.
        (None, _) => quote! { 0 },
    };
    let result = match export.result() {
        None => quote! {},
        Some(ValueType::I32) => quote! { -> i32 },
        Some(ValueType::I64) => quote! { -> u64 },
    };
    quote! {
        #[cfg_attr(target_family = "wasm", unsafe(export_name = #name))]
        #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "called by the host"))]
        extern "C" fn #ident() #result {
            #body
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(points: &[&str]) -> TokenStream {
        let points = points.iter().map(|p| format_ident!("{p}"));
        quote! { Gang: #(#points),* }
    }

    /// The exports of an expansion, by what follows `export_name =`.
    fn exported(points: &[&str]) -> Vec<String> {
        let code = expand(input(points)).expect("expands").to_string();
        code.split("export_name = \"")
            .skip(1)
            .filter_map(|rest| rest.split_once('"'))
            .map(|(name, _)| name.into())
            .collect()
    }

    #[test]
    fn the_expansion() {
        let expected = quote! {
            #[automatically_derived]
            const _: () = {
                use ::kube_scheduler_sdk::__private as sdk;

                ::std::thread_local! {
                    static PLUGIN: sdk::Slot<Gang> = const { sdk::Slot::new() };
                }

                #[cfg_attr(target_family = "wasm", unsafe(export_name = "prefilter"))]
                #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "called by the host"))]
                extern "C" fn prefilter() -> i32 {
                    PLUGIN.with(|plugin| sdk::prefilter_default(plugin, sdk::Code::Skip))
                }

                #[cfg_attr(target_family = "wasm", unsafe(export_name = "score"))]
                #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "called by the host"))]
                extern "C" fn score() -> u64 {
                    PLUGIN.with(|plugin| sdk::score(plugin))
                }
            };
        };
        assert_eq!(expand(quote! { Gang: Score }).expect("expands").to_string(), expected.to_string());
    }

    #[test]
    fn what_is_exported_beside_what_is_named() {
        let cases: [(&[&str], &[&str]); 8] = [
            (&["PreFilter"], &["prefilter"]),
            (&["Enqueue", "PreFilter"], &["enqueue", "prefilter", "prescore", "score"]),
            (&["Filter"], &["prefilter", "filter", "postfilter"]),
            (&["PostFilter"], &["prefilter", "filter", "postfilter"]),
            (&["Reserve"], &["prefilter", "reserve", "unreserve"]),
            (&["Permit"], &["prefilter", "reserve", "unreserve", "permit", "bind", "postbind"]),
            (&["PreBind"], &["prefilter", "reserve", "unreserve", "permit", "prebind", "bind", "postbind"]),
            (
                &["Filter", "Permit"],
                &[
                    "prefilter",
                    "filter",
                    "postfilter",
                    "prescore",
                    "score",
                    "reserve",
                    "unreserve",
                    "permit",
                    "bind",
                    "postbind",
                ],
            ),
        ];
        for (points, expected) in cases {
            assert_eq!(exported(points), expected, "{points:?}");
        }
    }

    #[test]
    fn whatever_can_be_named_is_safe_to_run() {
        let mut accepted = 0;
        for bits in 1..1_u32 << POINTS.len() {
            let points: Vec<&str> =
                POINTS.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, p)| p.name).collect();
            let lacks = NEEDS.iter().any(|(point, needs, _)| points.contains(point) && !points.contains(needs));
            match expand(input(&points)) {
                Ok(_) => {
                    assert!(!lacks, "{points:?}");
                    let exports: Vec<_> = exported(&points).iter().filter_map(|name| Export::from_name(name)).collect();
                    assert_eq!(ExportSet::of(&exports).check(), Ok(()), "{points:?}");
                    accepted += 1;
                }
                Err(e) => assert!(lacks, "{points:?}: {e}"),
            }
        }
        // Three of four for each of the two needs.
        assert_eq!(accepted, (1 << POINTS.len()) * 9 / 16 - 1);
    }

    #[test]
    fn the_result_is_the_host_s() {
        for &export in Export::ALL {
            if export == Export::NormalizeScore {
                continue;
            }
            let code = expand(input(&[
                "Enqueue",
                "PreFilter",
                "PreFilterExtensions",
                "Filter",
                "PostFilter",
                "PreScore",
                "Score",
                "Reserve",
                "Permit",
                "PreBind",
                "Bind",
                "PostBind",
            ]));
            let code = code.expect("expands").to_string();
            let signature = code
                .split_once(&format!("fn {} ()", export.name()))
                .expect("exported")
                .1
                .split_once('{')
                .expect("a body")
                .0;
            let expected = match export.result() {
                None => "",
                Some(ValueType::I32) => "-> i32",
                Some(ValueType::I64) => "-> u64",
            };
            assert_eq!(signature.trim(), expected, "{}", export.name());
        }
    }
}
