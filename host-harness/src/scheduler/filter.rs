//! The in-tree filters, and what their queueing hints need.

use std::collections::BTreeMap;
use std::rc::Rc;

use kube_scheduler_abi::Code;

use super::event::{About, ClusterEvent, plugin};
use super::node::NodeInfo;
use super::pod::{HostPort, PodId, PodInfo};
use super::resource::{Resources, at};
use super::{affinity, spread, volume};
use crate::objects::{LabelSelector, Node, NodeSelectorTerm, Pod, Taint, Toleration};

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// The bit of [`Reason::Resources`] that says that the node has no place for another pod.
const TOO_MANY_PODS: u64 = 1 << 63;

/// Why a node doesn't do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Fixed(&'static str),
    Text(Rc<str>),
    /// Bits of the resource numbers that it lacks.
    Resources(u64),
}

impl Reason {
    /// Each reason on its own, as the scheduler words it.
    pub(super) fn texts(&self, resources: &Resources) -> Vec<String> {
        match self {
            Self::Fixed(text) => vec![(*text).to_owned()],
            Self::Text(text) => vec![text.to_string()],
            Self::Resources(bits) => {
                let mut texts = Vec::new();
                if bits & TOO_MANY_PODS != 0 {
                    texts.push("Too many pods".to_owned());
                }
                let lacking = (0..63).filter(|n| bits & (1 << n) != 0);
                texts.extend(lacking.map(|n| format!("Insufficient {}", resources.name(n))));
                texts
            }
        }
    }
}

/// A plugin's refusal of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) plugin: u32,
    pub(super) code: Code,
    pub(super) reason: Reason,
}

/// What the in-tree PreFilters compute for one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct CycleState {
    pub(super) spread: Option<spread::State>,
    pub(super) affinity: Option<affinity::State>,
    pub(super) volumes: Option<volume::State>,
}

impl CycleState {
    /// Counts a pod that joins (1) or leaves (-1) a node.
    pub(super) fn update(&mut self, pod: &PodInfo, other: &PodInfo, node: &Node, change: i64) {
        if let Some(spread) = &mut self.spread {
            spread.update(pod, other, node, change);
        }
        if let Some(affinity) = &mut self.affinity {
            affinity.update(pod, other, node, change);
        }
        if let Some(volumes) = &mut self.volumes {
            volumes.update(pod, other, change);
        }
    }
}

/// Whether the pod can go on the node, all in-tree filters in their order.
pub(super) fn check(pod: &PodInfo, info: &NodeInfo, state: &CycleState) -> Result<(), Failure> {
    let Some(node) = &info.node else {
        let reason = Reason::Fixed("node(s) are gone");
        return Err(Failure { plugin: plugin::NODE_NAME, code: Code::UnschedulableAndUnresolvable, reason });
    };
    check_static(&pod.pod, node)?;
    if !pod.ports.is_empty() && ports_conflict(&pod.ports, &info.ports) {
        return Err(Failure {
            plugin: plugin::NODE_PORTS,
            code: Code::Unschedulable,
            reason: Reason::Fixed("node(s) didn't have free ports for the requested pod ports"),
        });
    }
    let lacking = insufficient(pod, info);
    if lacking != 0 {
        return Err(Failure {
            plugin: plugin::NODE_RESOURCES_FIT,
            code: Code::Unschedulable,
            reason: Reason::Resources(lacking),
        });
    }
    if let Some(volumes) = &state.volumes {
        volumes.check(node)?;
    }
    if let Some(spread) = &state.spread {
        spread.check(pod, node)?;
    }
    if let Some(affinity) = &state.affinity {
        affinity.check(pod, node)?;
    }
    Ok(())
}

/// The filters that don't depend on what runs on the node.
pub(super) fn check_static(pod: &Pod, node: &Node) -> Result<(), Failure> {
    let refuse = |plugin, reason| Err(Failure { plugin, code: Code::UnschedulableAndUnresolvable, reason });
    if node.spec.unschedulable && !tolerates_unschedulable(pod) {
        return refuse(plugin::NODE_UNSCHEDULABLE, Reason::Fixed("node(s) were unschedulable"));
    }
    if !pod.spec.node_name.is_empty() && pod.spec.node_name != node.metadata.name {
        return refuse(plugin::NODE_NAME, Reason::Fixed("node(s) didn't match the requested node name"));
    }
    if let Some(taint) = untolerated(pod, node) {
        let text = format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value);
        return refuse(plugin::TAINT_TOLERATION, Reason::Text(text.into()));
    }
    if !matches_required(pod, node) {
        return refuse(plugin::NODE_AFFINITY, Reason::Fixed("node(s) didn't match Pod's node affinity/selector"));
    }
    Ok(())
}

fn insufficient(pod: &PodInfo, info: &NodeInfo) -> u64 {
    let count = i64::try_from(info.pods.len()).unwrap_or(i64::MAX);
    let mut bits = if count + 1 > info.allowed_pods { TOO_MANY_PODS } else { 0 };
    for &(number, amount) in &pod.requests {
        if amount > info.free(number) {
            bits |= 1 << number.min(62);
        }
    }
    bits
}

/// Whether the pod would fit the node if nothing ran there.
pub(super) fn empty_node_fits(pod: &PodInfo, node: &Rc<Node>, resources: &Resources) -> bool {
    let (allocatable, pods) = allocatable(node, resources);
    pods >= 1 && pod.requests.iter().all(|&(number, amount)| amount <= at(&allocatable, number))
}

/// Whether the new version of the node has more of something the pod wants.
pub(super) fn has_more_of_wanted(pod: &PodInfo, old: &Rc<Node>, new: &Rc<Node>, resources: &Resources) -> bool {
    let (before, pods_before) = allocatable(old, resources);
    let (after, pods_after) = allocatable(new, resources);
    pods_after > pods_before || pod.requests.iter().any(|&(number, _)| at(&after, number) > at(&before, number))
}

fn allocatable(node: &Node, resources: &Resources) -> (Vec<i64>, i64) {
    let mut amounts = Vec::new();
    let mut pods = 0;
    for (name, quantity) in &node.status.allocatable {
        if name == "pods" {
            pods = quantity.exact().value();
        } else if let Some(number) = resources.find(name) {
            if amounts.len() <= number {
                amounts.resize(number + 1, 0);
            }
            amounts[number] = Resources::amount(number, quantity.exact());
        }
    }
    (amounts, pods)
}

/// Whether two sets of ports can't be on one node.
pub(super) fn ports_conflict(wanted: &[HostPort], used: &[HostPort]) -> bool {
    const ANY: &str = "0.0.0.0";
    wanted.iter().any(|(ip, protocol, port)| {
        used.iter().any(|(other_ip, other_protocol, other_port)| {
            port == other_port && protocol == other_protocol && (ip == other_ip || ip == ANY || other_ip == ANY)
        })
    })
}

/// Whether a toleration covers a taint.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match toleration.operator.as_str() {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}

pub(super) fn tolerates_unschedulable(pod: &Pod) -> bool {
    let taint = Taint { key: UNSCHEDULABLE_TAINT.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    pod.spec.tolerations.iter().any(|t| tolerates(t, &taint))
}

/// The first taint of the node that keeps the pod away.
pub(super) fn untolerated<'a>(pod: &Pod, node: &'a Node) -> Option<&'a Taint> {
    let keeps_away = |taint: &&Taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    let mut taints = node.spec.taints.iter().filter(keeps_away);
    taints.find(|taint| !pod.spec.tolerations.iter().any(|t| tolerates(t, taint)))
}

/// Whether the node matches the pod's node selector and required node affinity.
pub(super) fn matches_required(pod: &Pod, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    if !pod.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches_term(term, node)))
}

/// Whether the node matches a term; an empty term matches nothing.
pub(super) fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    if term.match_expressions.is_empty() && term.match_fields.is_empty() {
        return false;
    }
    let labels = &node.metadata.labels;
    let holds = |operator: &str, values: &[String], value: Option<&String>| match operator {
        "In" => value.is_some_and(|v| values.contains(v)),
        "NotIn" => value.is_none_or(|v| !values.contains(v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" | "Lt" => {
            let number = |text: &String| text.parse::<i64>().ok();
            match (value.and_then(number), values.first().and_then(number)) {
                (Some(have), Some(than)) => (operator == "Gt" && have > than) || (operator == "Lt" && have < than),
                _ => false,
            }
        }
        _ => false,
    };
    term.match_expressions.iter().all(|r| holds(&r.operator, &r.values, labels.get(&r.key)))
        && term
            .match_fields
            .iter()
            .all(|r| r.key == "metadata.name" && holds(&r.operator, &r.values, Some(&node.metadata.name)))
}

/// The only nodes that required node affinity names, if it names any in each of its terms.
pub(super) fn named_nodes(pod: &Pod) -> Option<Vec<String>> {
    let affinity = pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref())?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut names = Vec::new();
    for term in terms {
        let mut of_term: Option<Vec<String>> = None;
        for field in term.match_fields.iter().filter(|f| f.key == "metadata.name" && f.operator == "In") {
            of_term = Some(match of_term {
                Some(names) => names.into_iter().filter(|n| field.values.contains(n)).collect(),
                None => field.values.clone(),
            });
        }
        names.extend(of_term?);
    }
    names.sort_unstable();
    names.dedup();
    if terms.is_empty() { None } else { Some(names) }
}

/// A selector with the pod's own values for some label keys: `In` for those to match, `NotIn` for those not to.
pub(super) fn with_label_keys(
    selector: Option<&LabelSelector>,
    labels: &BTreeMap<String, String>,
    equal: &[String],
    unequal: &[String],
) -> Option<LabelSelector> {
    let mut selector = selector?.clone();
    for (keys, operator) in [(equal, "In"), (unequal, "NotIn")] {
        for key in keys {
            if let Some(value) = labels.get(key) {
                selector.match_expressions.push(crate::objects::LabelSelectorRequirement {
                    key: key.clone(),
                    operator: operator.to_owned(),
                    values: vec![value.clone()],
                });
            }
        }
    }
    Some(selector)
}

/// Whether an event can change how the pod's topology spread constraints are met.
pub(super) fn spread_may_change(event: &ClusterEvent, id: PodId, pod: &PodInfo) -> bool {
    spread::may_change(event, id, pod)
}

/// Whether an event can change how affinity between pods is met.
pub(super) fn affinity_may_change(event: &ClusterEvent, pod: &PodInfo) -> bool {
    match &event.about {
        About::Pod { old, new, .. } => {
            let of_node = |p: &Option<Rc<PodInfo>>| p.as_ref().is_none_or(|p| !p.pod.spec.node_name.is_empty());
            if !of_node(old) || !of_node(new) {
                return false;
            }
            let wanted = |p: &PodInfo| affinity::matches_all(pod, pod.required_affinity(), p);
            let unwanted = |p: &PodInfo| affinity::matches_all(pod, pod.required_anti_affinity(), p);
            match (old, new) {
                (Some(old), Some(new)) => (!wanted(old) && wanted(new)) || (unwanted(old) && !unwanted(new)),
                (None, Some(new)) => wanted(new),
                // Its own anti-affinity may have kept the pod away as well.
                (Some(old), None) => unwanted(old) || affinity::matches_any(old, old.required_anti_affinity(), pod),
                (None, None) => false,
            }
        }
        About::UnscheduledPod { .. } => false,
        About::Node { new: Some(node), .. } => {
            let terms = pod.required_affinity().iter().chain(pod.required_anti_affinity());
            terms.into_iter().any(|t| node.metadata.labels.contains_key(&t.topology_key))
        }
        About::Storage { .. } => false,
        About::Node { .. } | About::Activate(_) => true,
    }
}
