use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use kube_scheduler_abi::packing::NominatingMode;
use kube_scheduler_abi::{Action, Code, Import, event, names, packing};

use super::fake::Call;
use super::{FakeHost, PodBuilder, with};
use crate::entry::{self, Slot};
use crate::{
    BindPlugin, EnqueueExtensions, FilterPlugin, PermitPlugin, Plugin, PostBindPlugin, PostFilterPlugin, PreBindPlugin,
    PreFilterExtensions, PreFilterPlugin, PreScorePlugin, ReservePlugin, ScorePlugin,
};

/// What the scheduler makes of a call: its code and the reason on the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The code.
    pub code: Code,
    /// The reason; empty when there is none.
    pub reason: String,
}

impl Verdict {
    /// Whether the pod goes on.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Code::Success
    }
}

/// One instance of a plugin, called as the scheduler calls it: through its exports' code, results and reasons packed and
/// unpacked. Calls whose trait the plugin lacks don't compile.
#[derive(Debug)]
pub struct Guest<P: Plugin> {
    host: Rc<FakeHost>,
    slot: Slot<P>,
}

impl<P: Plugin> Guest<P> {
    /// The first instance on a host.
    #[must_use]
    pub fn new(host: FakeHost) -> Self {
        Self { host: Rc::new(host), slot: Slot::new() }
    }

    /// Another instance on the same host, as the scheduler makes one while a pod waits.
    #[must_use]
    pub fn sibling(&self) -> Self {
        Self { host: Rc::clone(&self.host), slot: Slot::new() }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &FakeHost {
        &self.host
    }

    /// Runs an export; what it returned and what it handed over.
    fn call<T>(&self, call: Call, export: impl FnOnce(&Slot<P>) -> T) -> (T, BTreeMap<Import, Vec<u8>>) {
        self.host.begin(call);
        let result = with(Rc::clone(&self.host) as _, || export(&self.slot));
        (result, self.host.begin(Call::default()).written)
    }

    fn verdict(&self, call: Call, export: impl FnOnce(&Slot<P>) -> i32) -> Verdict {
        let (code, written) = self.call(call, export);
        verdict(code, &written)
    }
}

fn text(written: &BTreeMap<Import, Vec<u8>>, import: Import) -> Option<String> {
    written.get(&import).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn verdict(code: i32, written: &BTreeMap<Import, Vec<u8>>) -> Verdict {
    Verdict {
        code: Code::from_i32(code).unwrap_or(Code::Error),
        reason: text(written, Import::ResultStatusReason).unwrap_or_default(),
    }
}

fn about(pod: &PodBuilder) -> Call {
    Call { pod: pod.to_bytes(), ..Call::default() }
}

fn on(pod: &PodBuilder, node: &str) -> Call {
    Call { node_name: node.into(), ..about(pod) }
}

/// From Reserve on the pod is the one assumed on its node.
fn assumed(pod: &PodBuilder, node: &str) -> Call {
    on(&pod.clone().node_name(node), node)
}

fn binding(pod: &PodBuilder, node: &str) -> Call {
    Call { beside_cycle: true, ..assumed(pod, node) }
}

impl<P: EnqueueExtensions> Guest<P> {
    /// EventsToRegister: resource numbers and actions.
    #[must_use]
    pub fn enqueue(&self) -> Vec<(u32, Action)> {
        let ((), written) = self.call(Call::default(), entry::enqueue);
        written.get(&Import::ResultClusterEvents).map(|bytes| event::decode(bytes).collect()).unwrap_or_default()
    }
}

impl<P: PreFilterPlugin> Guest<P> {
    /// PreFilter, and the nodes it keeps; `None` for all.
    #[must_use]
    pub fn pre_filter(&self, pod: &PodBuilder) -> (Verdict, Option<Vec<String>>) {
        let (code, written) = self.call(about(pod), entry::prefilter);
        let nodes = written
            .get(&Import::ResultNodeNames)
            .map(|list| names::iter(list).map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>());
        // The host takes an empty list for all nodes.
        (verdict(code, &written), nodes.filter(|n| !n.is_empty()))
    }
}

impl<P: PreFilterExtensions> Guest<P> {
    /// AddPod.
    #[must_use]
    pub fn add_pod(&self, pod: &PodBuilder, target: &PodBuilder, node: &str) -> Verdict {
        self.verdict(Call { target: target.to_bytes(), ..on(pod, node) }, entry::addpod)
    }

    /// RemovePod.
    #[must_use]
    pub fn remove_pod(&self, pod: &PodBuilder, target: &PodBuilder, node: &str) -> Verdict {
        self.verdict(Call { target: target.to_bytes(), ..on(pod, node) }, entry::removepod)
    }
}

impl<P: FilterPlugin> Guest<P> {
    /// Filter.
    #[must_use]
    pub fn filter(&self, pod: &PodBuilder, node: &str) -> Verdict {
        self.verdict(on(pod, node), entry::filter)
    }
}

impl<P: PostFilterPlugin> Guest<P> {
    /// PostFilter, and the nominated node it sets; empty where it clears it, `None` where it leaves it.
    #[must_use]
    pub fn post_filter(&self, pod: &PodBuilder, statuses: &[(&str, Code)]) -> (Verdict, Option<String>) {
        let statuses = statuses.iter().map(|&(node, code)| (node.to_owned(), code)).collect();
        let (packed, written) = self.call(Call { statuses, ..about(pod) }, entry::postfilter);
        let (mode, code) = packing::unpack_value(packed);
        let nominated = (mode == NominatingMode::Override as i32)
            .then(|| text(&written, Import::ResultNominatedNodeName).unwrap_or_default());
        (verdict(code, &written), nominated)
    }
}

impl<P: PreScorePlugin> Guest<P> {
    /// PreScore.
    #[must_use]
    pub fn pre_score(&self, pod: &PodBuilder, filtered_nodes: &[&str]) -> Verdict {
        let filtered_nodes = filtered_nodes.iter().map(|&n| n.to_owned()).collect();
        self.verdict(Call { filtered_nodes, ..about(pod) }, entry::prescore)
    }
}

impl<P: ScorePlugin> Guest<P> {
    /// Score.
    #[must_use]
    pub fn score(&self, pod: &PodBuilder, node: &str) -> (Verdict, i64) {
        let (packed, written) = self.call(on(pod, node), entry::score);
        let (score, code) = packing::unpack_value(packed);
        (verdict(code, &written), score.into())
    }
}

impl<P: ReservePlugin> Guest<P> {
    /// Reserve.
    #[must_use]
    pub fn reserve(&self, pod: &PodBuilder, node: &str) -> Verdict {
        self.verdict(assumed(pod, node), entry::reserve)
    }

    /// Unreserve.
    pub fn unreserve(&self, pod: &PodBuilder, node: &str) {
        self.call(binding(pod, node), entry::unreserve);
    }
}

impl<P: PermitPlugin> Guest<P> {
    /// Permit, and how long the pod is held where the code is Wait.
    #[must_use]
    pub fn permit(&self, pod: &PodBuilder, node: &str) -> (Verdict, Duration) {
        let (packed, written) = self.call(assumed(pod, node), entry::permit);
        let (code, ms) = packing::unpack_permit(packed);
        (verdict(code, &written), Duration::from_millis(ms.into()))
    }
}

impl<P: PreBindPlugin> Guest<P> {
    /// PreBind.
    #[must_use]
    pub fn pre_bind(&self, pod: &PodBuilder, node: &str) -> Verdict {
        self.verdict(binding(pod, node), entry::prebind)
    }
}

impl<P: BindPlugin> Guest<P> {
    /// Bind.
    #[must_use]
    pub fn bind(&self, pod: &PodBuilder, node: &str) -> Verdict {
        self.verdict(binding(pod, node), entry::bind)
    }
}

impl<P: PostBindPlugin> Guest<P> {
    /// PostBind.
    pub fn post_bind(&self, pod: &PodBuilder, node: &str) {
        self.call(binding(pod, node), entry::postbind);
    }
}
