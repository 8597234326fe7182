//! The contract of `testing::contract` on the fake host, and the imports and exports of the guest that it is about.

use std::collections::BTreeSet;
use std::path::Path;

use kube_scheduler_abi::export::MEMORY;
use kube_scheduler_abi::import::Shape;
use kube_scheduler_abi::{Export, Import, ValueType};
use kube_scheduler_sdk::testing::{FakeHost, Guest, contract};
use probe::Probe;
use wasmparser::{ExternalKind, FuncType, Parser, Payload, TypeRef, ValType};

#[test]
fn the_fake_host_keeps_it() {
    let host = contract::nodes().into_iter().fold(FakeHost::new(), FakeHost::node);
    let guest = Guest::<Probe>::new(host.waiting(&contract::waiting()).config(contract::CONFIG));
    let (pod, target, node) = (contract::a_pod(), contract::target(), "n1");
    for (i, (export, expected)) in contract::STEPS.iter().enumerate() {
        match export {
            Export::Enqueue => assert_eq!(guest.enqueue(), []),
            Export::PreFilter => assert!(guest.pre_filter(&pod).0.is_success()),
            Export::AddPod => assert!(guest.add_pod(&pod, &target, node).is_success()),
            Export::RemovePod => assert!(guest.remove_pod(&pod, &target, node).is_success()),
            Export::Filter => assert!(guest.filter(&pod, node).is_success()),
            Export::PostFilter => assert!(!guest.post_filter(&pod, &contract::STATUSES).0.is_success()),
            Export::PreScore => assert!(guest.pre_score(&pod, &contract::FILTERED).is_success()),
            Export::Score => assert!(guest.score(&pod, node).0.is_success()),
            Export::Reserve => assert!(guest.reserve(&pod, node).is_success()),
            Export::Permit => assert!(guest.permit(&pod, node).0.is_success()),
            Export::Unreserve => guest.unreserve(&pod, node),
            Export::PreBind => assert!(guest.pre_bind(&pod, node).is_success()),
            Export::Bind => assert!(!guest.bind(&pod, node).is_success()),
            Export::PostBind => guest.post_bind(&pod, node),
            Export::NormalizeScore => unreachable!("no guest of this SDK exports it"),
        }
        let logs = guest.host().logs();
        assert_eq!(logs.len(), i + 1, "{export:?} logs one line");
        let pairs: Vec<_> = logs[i].pairs.iter().skip(1).map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, *expected, "{export:?}");
    }
    assert_eq!(guest.host().events().len(), 1);
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
