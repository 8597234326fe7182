//! The contract of `testing::contract` on the fake host, and the imports and exports of the guest that it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kube_scheduler_abi::export::MEMORY;
use kube_scheduler_abi::import::Shape;
use kube_scheduler_abi::{Code, Export, ExportSet, Import, ValueType};
use kube_scheduler_sdk::testing::contract::{self, Outcome};
use kube_scheduler_sdk::testing::{FakeHost, Guest, Verdict};
use probe::Probe;
use serde_json::json;
use wasmparser::{ExternalKind, FuncType, Parser, Payload, TypeRef, ValType};

#[test]
fn the_fake_host_keeps_it() {
    let host = contract::nodes().into_iter().fold(FakeHost::new(), FakeHost::node);
    let guest = Guest::<Probe>::new(host.waiting(&contract::waiting()).config(contract::CONFIG));
    let (target, node) = (contract::target(), contract::NODE);
    contract::check(|step| {
        let pod = step.pod();
        let lines = guest.host().logs().len();
        let none = || Verdict { code: Code::Success, reason: String::new() };
        let (verdict, result) = match step.export {
            Export::Enqueue => (none(), contract::events(&guest.enqueue())),
            Export::PreFilter => {
                let (verdict, nodes) = guest.pre_filter(&pod);
                (verdict, contract::node_names(nodes))
            }
            Export::AddPod => (guest.add_pod(&pod, &target, node), String::new()),
            Export::RemovePod => (guest.remove_pod(&pod, &target, node), String::new()),
            Export::Filter => (guest.filter(&pod, node), String::new()),
            Export::PostFilter => {
                let (verdict, nominated) = guest.post_filter(&pod, &contract::STATUSES);
                (verdict, contract::nomination(nominated))
            }
            Export::PreScore => (guest.pre_score(&pod, &contract::FILTERED), String::new()),
            Export::Score => {
                let (verdict, score) = guest.score(&pod, node);
                (verdict, score.to_string())
            }
            Export::Reserve => (guest.reserve(&pod, node), String::new()),
            Export::Permit => {
                let (verdict, wait) = guest.permit(&pod, node);
                (verdict, wait.as_millis().to_string())
            }
            Export::Unreserve => {
                guest.unreserve(&pod, node);
                (none(), String::new())
            }
            Export::PreBind => (guest.pre_bind(&pod, node), String::new()),
            Export::Bind => (guest.bind(&pod, node), String::new()),
            Export::PostBind => {
                guest.post_bind(&pod, node);
                (none(), String::new())
            }
            Export::NormalizeScore => unreachable!("no guest of this SDK exports it"),
        };
        let log = guest.host().logs().split_off(lines);
        Outcome {
            code: verdict.code as i32,
            reason: verdict.reason,
            result,
            log: log.into_iter().map(|line| line.pairs).collect(),
        }
    });
    assert_eq!(guest.host().events().len(), 1);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_rendered(file: &str, value: &serde_json::Value) {
    crate::is_generated(&format!("testdata/contract/{file}"), format!("{value:#}\n").as_bytes());
}

#[test]
fn the_list_for_other_languages_is_this_one() {
    let nodes = contract::nodes().map(|node| hex(&node.to_bytes()));
    let steps = contract::STEPS.iter().map(|step| {
        json!({
            "export": step.export.name(),
            "pod": hex(&step.pod().to_bytes()),
            "code": step.code as i32,
            "reason": step.reason,
            "result": step.result,
            "log": step.log,
        })
    });
    let list = json!({
        "config": contract::CONFIG,
        "nodes": nodes,
        "target": hex(&contract::target().to_bytes()),
        "waiting": hex(&contract::waiting().to_bytes()),
        "node": contract::NODE,
        "statuses": BTreeMap::from(contract::STATUSES.map(|(node, code)| (node, code as i32))),
        "filtered": contract::FILTERED,
        "steps": steps.collect::<Vec<_>>(),
    });
    is_rendered("probe.json", &list);
}

/// Every way to combine the five that the host looks at, alone and with what may stand beside them.
#[test]
fn the_export_sets_for_other_languages_are_the_abi_s() {
    use Export as E;
    let core: [&[E]; 5] = [&[E::Filter], &[E::Score], &[E::Reserve, E::Unreserve], &[E::Permit], &[E::Bind]];
    let beside: [&[E]; 8] = [
        &[],
        &[E::PreFilter],
        &[E::Enqueue, E::PreFilter],
        &[E::PreFilter, E::AddPod, E::RemovePod],
        &[E::PostFilter],
        &[E::PreScore, E::NormalizeScore],
        &[E::PreBind, E::PostBind],
        &[E::Unreserve],
    ];
    let mut sets = Vec::new();
    for bits in 0..1_u32 << core.len() {
        for beside in beside {
            let chosen = core.iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, e)| ExportSet::of(e));
            let set = chosen.fold(ExportSet::of(beside), ExportSet::union);
            let names: Vec<_> = set.iter().map(Export::name).collect();
            sets.push(json!({ "exports": names.join(" "), "accepted": set.accepted() }));
        }
    }
    is_rendered("exports.json", &json!(sets));
}

#[test]
fn the_imports_for_other_languages_are_the_abi_s() {
    let types = |types: &[ValueType]| types.iter().map(|t| format!("{t:?}").to_lowercase()).collect::<Vec<_>>();
    let imports = Import::ALL.iter().map(|import| {
        let shape = import.shape();
        json!({
            "module": import.module(),
            "name": import.name(),
            "params": types(shape.params()),
            "results": types(shape.result().as_slice()),
        })
    });
    is_rendered("imports.json", &json!(imports.collect::<Vec<_>>()));
}

/// A built guest of this repository.
fn built(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/guest").join(name);
    let bytes = std::fs::read(&path).ok();
    assert!(
        bytes.is_some() || std::env::var_os("CI").is_none(),
        "{} is missing: run tools/build-guest first",
        path.display()
    );
    bytes
}

fn types(values: impl IntoIterator<Item = ValueType>) -> Vec<ValType> {
    values.into_iter().map(|v| if v == ValueType::I32 { ValType::I32 } else { ValType::I64 }).collect()
}

fn signature(shape: Shape) -> FuncType {
    FuncType::new(types(shape.params().iter().copied()), types(shape.result()))
}

#[test]
fn a_built_guest_imports_and_exports_what_the_abi_says() {
    let Some(wasm) = built("probe.wasm") else { return };
    let (mut all, mut functions) = (Vec::new(), Vec::new());
    let (mut imports, mut exports) = (BTreeSet::new(), BTreeSet::new());
    for payload in Parser::new(0).parse_all(&wasm) {
        match payload.expect("valid wasm") {
            Payload::TypeSection(section) => {
                all.extend(section.into_iter_err_on_gc_types().map(|t| t.expect("a function type")));
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.expect("an import");
                    let TypeRef::Func(index) = import.ty else { panic!("{import:?} is no function") };
                    let known = Import::find(import.module, import.name).expect("an import of the ABI");
                    assert_eq!(all[index as usize], signature(known.shape()), "{known:?}");
                    imports.insert(known);
                    functions.push(index);
                }
            }
            Payload::FunctionSection(section) => functions.extend(section.into_iter().map(|f| f.expect("a function"))),
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.expect("an export");
                    match Export::from_name(export.name) {
                        Some(known) => {
                            assert_eq!(export.kind, ExternalKind::Func);
                            let index = functions[export.index as usize] as usize;
                            assert_eq!(all[index], FuncType::new([], types(known.result())), "{known:?}");
                            exports.insert(known);
                        }
                        // The linker's own marks are globals.
                        None if export.kind == ExternalKind::Global => {}
                        None => assert_eq!((export.name, export.kind), (MEMORY, ExternalKind::Memory)),
                    }
                }
            }
            _ => {}
        }
    }
    // `log` drops errors, and normalised scores land on wrong nodes: the SDK calls neither.
    let avoided = [Import::Log, Import::ResultNormalizedScoreList];
    let expected: BTreeSet<_> = Import::ALL.iter().copied().filter(|i| !avoided.contains(i)).collect();
    assert_eq!(imports, expected);
    let expected: BTreeSet<_> = Export::ALL.iter().copied().filter(|e| *e != Export::NormalizeScore).collect();
    assert_eq!(exports, expected);
}
