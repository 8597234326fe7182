//! What the plugin costs the scheduler: fuel (about one unit per wasm instruction, the same on every machine) of each call,
//! guest instances and their memory. `UPDATE_GOLDEN=1` writes the fuel budgets anew.

#![allow(clippy::unwrap_used, reason = "a failed step of a test fails it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use host_harness::guest::{FuelUse, Guest, Options, Usage};
use host_harness::scheduler::{Action, Plugin, SimConfig, Simulator, StartPlugin};
use kube_scheduler_abi::Export;
use serde_json::{Value as Json, json};

/// By how many percent the fuel of a call may miss its budget.
const TOLERANCE: u64 = 3;

fn root(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// The built plugin; None, outside of CI, when it isn't there.
fn plugin() -> Option<Vec<u8>> {
    let file = root("out/guest/plugin.wasm");
    let bytes = std::fs::read(&file);
    assert!(bytes.is_ok() || std::env::var_os("CI").is_none(), "{}: build it with `make guests`", file.display());
    bytes.ok()
}

fn simulator(wasm: &[u8]) -> Simulator {
    let wasm: Rc<[u8]> = wasm.into();
    let start: StartPlugin = Rc::new(move || {
        let guest = Guest::load(&wasm, Options::default()).map_err(|e| e.to_string())?;
        Ok(Box::new(guest) as Box<dyn Plugin>)
    });
    Simulator::new(SimConfig::default(), Some(start)).unwrap()
}

fn create(simulator: &mut Simulator, object: Json) {
    let now = simulator.now();
    simulator.push(now, Action::Create { object, runs_ms: None });
}

fn create_nodes(simulator: &mut Simulator, count: u32, cpu: u32, pods: u32) {
    for i in 0..count {
        let allocatable = json!({"cpu": cpu, "memory": "1Ti", "pods": pods});
        let metadata = json!({"name": format!("n{i}")});
        let status = json!({"allocatable": allocatable});
        create(simulator, json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}));
    }
}

fn create_pod(simulator: &mut Simulator, name: &str, gang: Option<&str>) {
    let labels = gang.map_or(json!({}), |gang| json!({"scheduling.x-k8s.io/pod-group": gang}));
    let requests = json!({"cpu": "1", "memory": "1Gi"});
    create(
        simulator,
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
        }),
    );
}

/// A gang that arrives at once.
fn create_gang(simulator: &mut Simulator, members: u32) {
    create(
        simulator,
        json!({
            "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": members},
        }),
    );
    (0..members).for_each(|i| create_pod(simulator, &format!("g-{i}"), Some("g")));
}

fn usage(simulator: &Simulator) -> Usage {
    simulator.plugin().unwrap().usage()
}

fn bound(simulator: &Simulator) -> usize {
    simulator.state().pods().filter(|pod| !pod.node.is_empty()).count()
}

/// The calls and fuel of one scheduling cycle by export; the first cycle is 1, and each takes a virtual millisecond. The
/// bindings that a last Permit sets off come after.
fn fuel_of_cycle(mut simulator: Simulator, cycle: i64) -> BTreeMap<Export, FuelUse> {
    let mut fuel_after = |cycles: i64| {
        simulator.run_until(cycles - 1);
        simulator.plugin().unwrap().fuel()
    };
    let before = if cycle > 1 { fuel_after(cycle - 1) } else { BTreeMap::new() };
    let mut spent = fuel_after(cycle);
    for (export, before) in before {
        let spent = spent.entry(export).or_default();
        spent.calls -= before.calls;
        spent.total -= before.total;
    }
    spent.retain(|export, spent| spent.calls > 0 && *export != Export::Enqueue);
    spent
}

#[test]
fn fuel_stays_within_its_budget() {
    let Some(wasm) = plugin() else { return };
    let mut lines = vec!["pod\tnodes\texport\tcalls\tfuel per call".to_owned()];
    for nodes in [100, 5_000] {
        for (name, members, cycle) in [
            ("ordinary", 0, 1),
            ("member 1 of 8", 8, 1),
            ("member 8 of 8", 8, 8),
            ("member 1 of 200", 200, 1),
            ("member 200 of 200", 200, 200),
        ] {
            let mut simulator = simulator(&wasm);
            create_nodes(&mut simulator, nodes, 8, 110);
            match members {
                0 => create_pod(&mut simulator, "p", None),
                members => create_gang(&mut simulator, members),
            }
            for (export, spent) in fuel_of_cycle(simulator, cycle) {
                let each = spent.total / spent.calls;
                lines.push(format!("{name}\t{nodes}\t{}\t{}\t{each}", export.name(), spent.calls));
            }
        }
    }
    let is = lines.join("\n") + "\n";
    let file = root("testdata/fuel.tsv");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, &is).unwrap();
    }
    let budget = std::fs::read_to_string(&file).unwrap_or_default();
    let split = |line: &str| -> Option<(String, u64)> {
        let (what, fuel) = line.rsplit_once('\t')?;
        Some((what.to_owned(), fuel.parse().ok()?))
    };
    let within = |line: &str, budget: &str| match (split(line), split(budget)) {
        (Some((what, fuel)), Some((wanted, budget))) => {
            what == wanted && fuel.abs_diff(budget) * 100 <= budget * TOLERANCE
        }
        (None, None) => line == budget,
        _ => false,
    };
    let same_length = is.lines().count() == budget.lines().count();
    let missed: Vec<_> = is.lines().zip(budget.lines()).filter(|(line, budget)| !within(line, budget)).collect();
    assert!(
        same_length && missed.is_empty(),
        "{}: more than {TOLERANCE} % off, (is, budget): {missed:#?}\nUPDATE_GOLDEN=1 takes the new figures",
        file.display()
    );
}

#[test]
fn a_pod_gives_its_instance_back_and_memory_stays_flat() {
    let Some(wasm) = plugin() else { return };
    let mut simulator = simulator(&wasm);
    create_nodes(&mut simulator, 20, 110, 110);
    let mut flat = None;
    for batch in 0..10 {
        (0..200).for_each(|i| create_pod(&mut simulator, &format!("p-{batch}-{i}"), None));
        simulator.run_until(simulator.now() + 1_000);
        let usage = usage(&simulator);
        assert_eq!(bound(&simulator), 200 * (batch + 1));
        assert_eq!(usage.binding, 0, "no pod keeps an instance once it is bound");
        assert_eq!(usage, *flat.get_or_insert(usage), "after batch {batch}");
    }
}

/// Holds every pod for ten minutes.
const HOLDS: &str = r#"(module (memory (export "memory") 2)
  (func (export "reserve") (result i32) (i32.const 0))
  (func (export "unreserve"))
  (func (export "permit") (result i64) (i64.const 0x4000927c0))
  (func (export "bind") (result i32) (i32.const 5))
  (func (export "postbind")))"#;

#[test]
fn twenty_thousand_pods_are_held_at_once() {
    const PODS: u32 = 20_000;
    let mut simulator = simulator(&wat::parse_str(HOLDS).unwrap());
    create_nodes(&mut simulator, 1, PODS, PODS);
    let requests = json!({"cpu": "1"});
    for i in 0..PODS {
        create(
            &mut simulator,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{i}"), "namespace": "default"},
                "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
            }),
        );
    }
    simulator.run_until(i64::from(PODS) + 1);
    assert_eq!(simulator.state().pods().filter(|pod| pod.waiting).count(), PODS as usize);
    assert_eq!(usage(&simulator).binding, PODS as usize);
}
