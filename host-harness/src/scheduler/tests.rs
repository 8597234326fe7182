//! Tests of the scheduler as a whole: what goes in, and the trace that comes out.

use serde_json::{Value as Json, json};

use super::*;

mod basics;
mod filters;
mod permit;
mod properties;
mod queues;
mod scores;
mod volumes;

/// A node with so many cores, and more that is merged in.
fn node(name: &str, cpu: i64, with: Json) -> Action {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "110"}},
    });
    self::core::merge(&mut object, &with);
    Action::Create { object, runs_ms: None }
}

/// A pod of one container that asks for so many milli of cpu.
fn pod(name: &str, cpu: i64, with: Json) -> Action {
    runs(name, cpu, None, with)
}

fn runs(name: &str, cpu: i64, runs_ms: Option<i64>, with: Json) -> Action {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": format!("{cpu}m")}}}]},
    });
    self::core::merge(&mut object, &with);
    Action::Create { object, runs_ms }
}

fn simulator() -> Simulator {
    Simulator::new(SimConfig::default(), None).unwrap()
}

/// A simulator in which all this happens at time 0, and which has settled.
fn settled(actions: impl IntoIterator<Item = Action>) -> Simulator {
    let mut s = simulator();
    actions.into_iter().for_each(|action| s.push(0, action));
    s.run_until(500);
    s
}

fn node_of<'a>(simulator: &'a Simulator, name: &str) -> &'a str {
    simulator.state().pods().find(|p| p.key.name() == name).unwrap_or_else(|| panic!("no pod {name}")).node
}

fn reason_of<'a>(simulator: &'a Simulator, name: &str) -> &'a str {
    simulator.state().pods().find(|p| p.key.name() == name).unwrap_or_else(|| panic!("no pod {name}")).reason
}
