//! What a host owes its guests: calls of the guest `examples/probe`, with what each must answer and log.
//!
//! [`check`] runs the list against a host. This repository runs it against [`FakeHost`](super::FakeHost) (`sdk/tests`),
//! against the offline harness (`host-harness/tests`) and, from its rendering in `testdata/contract`, against the
//! extension itself (`scheduler/contract`). To hold another host to it, put the [`nodes`], the [`waiting`] pod and the
//! [`CONFIG`] behind it, without a bridge, and load `probe.wasm`.

use kube_scheduler_abi::{Action, Code, EventResource, Export};

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

/// The pod that AddPod and RemovePod are about.
#[must_use]
pub fn target() -> PodBuilder {
    pod("t")
}

/// A pod that waits at Permit, larger than a guest's first buffer for it.
#[must_use]
pub fn waiting() -> PodBuilder {
    pod("w").annotation("large", &"x".repeat(20_000))
}

/// The node of every call that is about one.
pub const NODE: &str = "n1";

/// How PostFilter finds the nodes.
pub const STATUSES: [(&str, Code); 2] = [("n1", Code::Unschedulable), ("n2", Code::UnschedulableAndUnresolvable)];

/// The nodes that PreScore gets.
pub const FILTERED: [&str; 2] = ["n1", "n2"];

/// A call, and what must come of it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What is called.
    pub export: Export,
    /// Annotations of the pod that steer the probe in this call.
    pub annotations: &'static [(&'static str, &'static str)],
    /// The code of the status; Success where the export has none.
    pub code: Code,
    /// The reason of the status.
    pub reason: &'static str,
    /// What the export answers beside its status, see [`Outcome::result`].
    pub result: &'static str,
    /// Keys and values of the line it logs, after the key `point`, which is the export.
    pub log: &'static [(&'static str, &'static str)],
}

impl Step {
    /// The pod of the call. From Reserve on the host assumes it on [`NODE`].
    #[must_use]
    pub fn pod(&self) -> PodBuilder {
        let pod = pod("p").namespace("team").cpu("250m").memory("1Gi");
        self.annotations.iter().fold(pod, |pod, (key, value)| pod.annotation(key, value))
    }

    const fn steered(mut self, annotations: &'static [(&'static str, &'static str)]) -> Self {
        self.annotations = annotations;
        self
    }

    const fn answers(mut self, code: Code, reason: &'static str) -> Self {
        self.code = code;
        self.reason = reason;
        self
    }
}

const fn step(export: Export, result: &'static str, log: &'static [(&'static str, &'static str)]) -> Step {
    Step { export, annotations: &[], code: Code::Success, reason: "", result, log }
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The code of the status; 0 where the export has none.
    pub code: i32,
    /// The reason of the status.
    pub reason: String,
    /// Enqueue: see [`events`]; PreFilter: see [`node_names`]; PostFilter: see [`nomination`]; Score: the score; Permit:
    /// milliseconds to wait; else nothing.
    pub result: String,
    /// Key/value pairs of each line logged with message `probe`.
    pub log: Vec<Vec<(String, String)>>,
}

/// Events as `Resource/action`, with spaces between.
#[must_use]
pub fn events(events: &[(u32, Action)]) -> String {
    let event = |&(resource, action): &(u32, Action)| match EventResource::from_u32(resource) {
        Some(resource) => format!("{resource:?}/{}", action.0),
        None => format!("{resource}/{}", action.0),
    };
    events.iter().map(event).collect::<Vec<_>>().join(" ")
}

/// The nodes that PreFilter keeps, with commas between, or `all`.
#[must_use]
pub fn node_names(nodes: Option<Vec<String>>) -> String {
    nodes.map_or("all".into(), |names| names.join(","))
}

/// The node that PostFilter nominates, `clear` where it takes the nomination back, `keep` where it leaves it.
#[must_use]
pub fn nomination(nominated: Option<String>) -> String {
    match nominated {
        None => "keep".into(),
        Some(node) if node.is_empty() => "clear".into(),
        Some(node) => node,
    }
}

/// Calls each of [`STEPS`] and compares.
///
/// # Panics
/// An outcome is not the expected one.
pub fn check(mut call: impl FnMut(&Step) -> Outcome) {
    for (i, step) in STEPS.iter().enumerate() {
        let point = [("point", step.export.name())];
        let pairs = point.iter().chain(step.log).map(|&(k, v)| (k.into(), v.into()));
        let expected = Outcome {
            code: step.code as i32,
            reason: step.reason.into(),
            result: step.result.into(),
            log: vec![pairs.collect()],
        };
        let got = call(step);
        assert_eq!(got, expected, "step {i}, {} with {:?}", step.export.name(), step.annotations);
    }
}

/// What PreFilter logs.
const PRE_FILTER: &[(&str, &str)] = &[
    ("pod", "p"),
    ("namespace", "team"),
    ("uid", "uid-p"),
    ("cpu", "250m"),
    ("memory", "1073741824"),
    ("nodes", "2"),
    ("bridge", "this scheduler has no Tutti bridge; run the scheduler built with it"),
];
const FILTER: &[(&str, &str)] =
    &[("node", "n1"), ("zone", "z1"), ("cpu", "1500m"), ("images", "\"q\"=7/1;train:1=5/2;")];
const POST_FILTER: &[(&str, &str)] = &[("codes", "n1=Unschedulable;n2=UnschedulableAndUnresolvable;")];
const TARGET: &[(&str, &str)] = &[("target", "t"), ("node", "n1")];
const PRE_SCORE: &[(&str, &str)] = &[("nodes", "n1,n2")];
const SCORE: &[(&str, &str)] = &[("node", "n1"), ("scores", "0")];
const RESERVE: &[(&str, &str)] = &[("node", "n1"), ("assumed", "n1")];
const PERMIT: &[(&str, &str)] = &[("node", "n1"), ("other", "not waiting"), ("rejected", "false")];
const BINDING: &[(&str, &str)] = &[("pod", "p"), ("node", "n1")];

const UNSCHEDULABLE: &[(&str, &str)] = &[("probe/answer", "Unschedulable")];
const UNRESOLVABLE: &[(&str, &str)] = &[("probe/answer", "UnschedulableAndUnresolvable")];
const ERROR: &[(&str, &str)] = &[("probe/answer", "Error")];
const PENDING: &[(&str, &str)] = &[("probe/answer", "Pending")];
const SKIP: &[(&str, &str)] = &[("probe/answer", "Skip")];
const ASKED: &str = "the pod asked for it";

/// The calls, in their order.
pub const STEPS: &[Step] = &[
    step(Export::Enqueue, "Node/9 Pod/2", &[("config", CONFIG)]),
    step(Export::PreFilter, "all", PRE_FILTER),
    step(Export::PreFilter, "n1,n2", PRE_FILTER).steered(&[("probe/nodes", "n1,n2")]),
    step(Export::PreFilter, "all", PRE_FILTER).steered(SKIP).answers(Code::Skip, ""),
    step(Export::PreFilter, "all", PRE_FILTER).steered(UNRESOLVABLE).answers(Code::UnschedulableAndUnresolvable, ASKED),
    step(Export::AddPod, "", TARGET),
    step(Export::AddPod, "", TARGET).steered(ERROR).answers(Code::Error, ASKED),
    step(Export::RemovePod, "", TARGET),
    step(Export::RemovePod, "", TARGET).steered(UNSCHEDULABLE).answers(Code::Unschedulable, ASKED),
    step(Export::Filter, "", FILTER),
    step(Export::Filter, "", FILTER).steered(UNSCHEDULABLE).answers(Code::Unschedulable, ASKED),
    step(Export::Filter, "", FILTER).steered(PENDING).answers(Code::Pending, ASKED),
    step(Export::PostFilter, "keep", POST_FILTER).answers(Code::Unschedulable, "the probe makes no room"),
    step(Export::PostFilter, "n2", POST_FILTER).steered(&[("probe/nodes", "n2")]),
    step(Export::PostFilter, "clear", POST_FILTER)
        .steered(UNRESOLVABLE)
        .answers(Code::UnschedulableAndUnresolvable, ASKED),
    step(Export::PreScore, "", PRE_SCORE),
    step(Export::PreScore, "", PRE_SCORE).steered(SKIP).answers(Code::Skip, ""),
    step(Export::PreScore, "", PRE_SCORE).steered(ERROR).answers(Code::Error, ASKED),
    step(Export::Score, "0", SCORE),
    step(Export::Score, "100", SCORE).steered(&[("probe/score", "100")]),
    step(Export::Score, "0", SCORE)
        .steered(&[("probe/score", "101")])
        .answers(Code::Error, "Score answered 101, which is not in 0 to 100"),
    step(Export::Reserve, "", RESERVE),
    step(Export::Reserve, "", RESERVE).steered(PENDING).answers(Code::Pending, ASKED),
    step(Export::Permit, "0", PERMIT),
    step(Export::Permit, "1500", PERMIT).steered(&[("probe/wait", "1500")]).answers(Code::Wait, ""),
    step(Export::Permit, "0", PERMIT).steered(UNSCHEDULABLE).answers(Code::Unschedulable, ASKED),
    step(Export::Permit, "0", &[("node", "n1"), ("other", "w"), ("rejected", "true")])
        .steered(&[("probe/other", "uid-w"), ("probe/reject", "")]),
    // It waits no more.
    step(Export::Permit, "0", PERMIT).steered(&[("probe/other", "uid-w"), ("probe/reject", "")]),
    step(Export::Unreserve, "", BINDING),
    // Permit set the instance aside, and Unreserve gave it back.
    step(Export::Permit, "0", PERMIT),
    step(Export::PreBind, "", BINDING),
    step(Export::PreBind, "", BINDING).steered(ERROR).answers(Code::Error, ASKED),
    step(Export::Bind, "", BINDING).answers(Code::Skip, ""),
    step(Export::Bind, "", BINDING).steered(UNSCHEDULABLE).answers(Code::Unschedulable, ASKED),
    step(Export::PostBind, "", BINDING),
];
