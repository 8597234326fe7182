//! What a host owes its guests, as calls of the guest `examples/probe` and the log lines that follow.
//!
//! The SDK runs it on [`FakeHost`](super::FakeHost), and any other host can be held to the same list: put the
//! [`nodes`], the [`waiting`] pod and the [`CONFIG`] behind it, load `probe.wasm`, and for each of [`STEPS`] call the
//! export with [`a_pod`] on node `n1` (and [`target`], statuses and nodes as the step's point has them). Each line is logged at
//! severity info with message `probe`.

use kube_scheduler_abi::{Code, Export};

use super::{NodeBuilder, PodBuilder, node, pod};

/// The guest's configuration.
pub const CONFIG: &str = "contract <&> ✓";

/// The nodes of the snapshot.
#[must_use]
pub fn nodes() -> [NodeBuilder; 2] {
    // Larger than a guest's first buffer.
    let n1 = (0..200).fold(node("n1"), |n, i| n.label(&format!("label-{i}"), "some value"));
    [
        n1.label("zone", "z1").resource("cpu", "1500m").image("train:1", 5).image("\"q\"", 7),
        node("n2").image("train:1", 5),
    ]
}

/// The pod in the cycle.
#[must_use]
pub fn a_pod() -> PodBuilder {
    pod("p")
        .namespace("team")
        .cpu("250m")
        .memory("1Gi")
        .annotation("probe/other", "uid-w")
        .annotation("probe/reject", "")
}

/// The pod that AddPod and RemovePod are about.
#[must_use]
pub fn target() -> PodBuilder {
    pod("t")
}

/// A pod that waits at Permit, larger than a guest's first buffer for it.
#[must_use]
pub fn waiting() -> PodBuilder {
    (0..1000).fold(pod("w"), |p, i| p.annotation(&format!("annotation-{i}"), "of some length"))
}

/// How PostFilter finds the nodes.
pub const STATUSES: [(&str, Code); 1] = [("n1", Code::Unschedulable)];

/// The nodes that PreScore gets.
pub const FILTERED: [&str; 2] = ["n1", "n2"];

/// The calls in their order, with the key/values that each logs after `point`; without the bridge.
pub const STEPS: &[(Export, &[(&str, &str)])] = &[
    (Export::Enqueue, &[("config", CONFIG)]),
    (
        Export::PreFilter,
        &[
            ("pod", "p"),
            ("namespace", "team"),
            ("uid", "uid-p"),
            ("cpu", "250m"),
            ("memory", "1073741824"),
            ("nodes", "2"),
            ("bridge", "this scheduler has no Tutti bridge; run the scheduler built with it"),
        ],
    ),
    (Export::AddPod, &[("target", "t"), ("node", "n1")]),
    (Export::RemovePod, &[("target", "t"), ("node", "n1")]),
    (Export::Filter, &[("node", "n1"), ("zone", "z1"), ("cpu", "1500m"), ("images", "\"q\"=7/1;train:1=5/2;")]),
    (Export::PostFilter, &[("codes", "n1=Unschedulable;")]),
    (Export::PreScore, &[("nodes", "n1,n2")]),
    (Export::Score, &[("node", "n1"), ("scores", "0")]),
    (Export::Reserve, &[("node", "n1"), ("assumed", "n1")]),
    (Export::Permit, &[("node", "n1"), ("other", "w"), ("rejected", "true")]),
    // It waits no more.
    (Export::Permit, &[("node", "n1"), ("other", "not waiting"), ("rejected", "false")]),
    (Export::Unreserve, &[("pod", "p"), ("node", "n1")]),
    (Export::PreBind, &[("pod", "p"), ("node", "n1")]),
    (Export::Bind, &[("pod", "p"), ("node", "n1")]),
    (Export::PostBind, &[("pod", "p"), ("node", "n1")]),
];
