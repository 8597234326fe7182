//! Topology spread constraints.

use std::collections::{BTreeMap, HashMap};

use kube_scheduler_abi::{Action as Bits, Code};

use super::event::{About, ClusterEvent, plugin};
use super::filter::{Failure, Reason, matches_required, untolerated, with_label_keys};
use super::node::NodeInfo;
use super::pod::{PodId, PodInfo};
use crate::objects::{LabelSelector, Node, TopologySpreadConstraint};

/// A constraint, ready to count with.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) max_skew: i64,
    selector: Option<LabelSelector>,
    min_domains: i64,
    honor_affinity: bool,
    honor_taints: bool,
}

/// The pod's constraints of a kind, `DoNotSchedule` or `ScheduleAnyway`.
pub(super) fn constraints(pod: &PodInfo, kind: &str) -> Vec<Constraint> {
    let of_kind = |c: &&TopologySpreadConstraint| {
        let own = if c.when_unsatisfiable.is_empty() { "DoNotSchedule" } else { &c.when_unsatisfiable };
        own == kind
    };
    let labels = &pod.pod.metadata.labels;
    let constraints = pod.pod.spec.topology_spread_constraints.iter().filter(of_kind);
    constraints
        .map(|c| Constraint {
            key: c.topology_key.clone(),
            max_skew: i64::from(c.max_skew.max(1)),
            selector: with_label_keys(c.label_selector.as_ref(), labels, &c.match_label_keys, &[]),
            min_domains: i64::from(c.min_domains.unwrap_or(1)),
            honor_affinity: c.node_affinity_policy != "Ignore",
            honor_taints: c.node_taints_policy == "Honor",
        })
        .collect()
}

/// Upstream's defaults for a pod without constraints of its own, which belongs together with the pods selected.
pub(super) fn default_constraints(selector: &LabelSelector) -> Vec<Constraint> {
    let constraint = |(key, max_skew): (&str, i64)| Constraint {
        key: key.to_owned(),
        max_skew,
        selector: Some(selector.clone()),
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
    };
    [("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5)].map(constraint).into()
}

impl Constraint {
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|s| s.matches(labels))
    }

    /// Whether the nodes's pods count.
    pub(super) fn includes(&self, pod: &PodInfo, node: &Node) -> bool {
        (!self.honor_affinity || matches_required(&pod.pod, node))
            && (!self.honor_taints || untolerated(&pod.pod, node).is_none())
    }

    /// How many pods of a node count.
    pub(super) fn count(&self, pod: &PodInfo, info: &NodeInfo) -> i64 {
        let counted = info.pods.iter().filter(|(_, other)| self.counts(pod, other));
        i64::try_from(counted.count()).unwrap_or(i64::MAX)
    }

    fn counts(&self, pod: &PodInfo, other: &PodInfo) -> bool {
        let meta = &other.pod.metadata;
        meta.deletion_timestamp.is_none() && meta.namespace == pod.pod.metadata.namespace && self.selects(&meta.labels)
    }
}

/// Whether a node has the labels of all the constraints.
pub(super) fn has_keys(constraints: &[Constraint], node: &Node) -> bool {
    constraints.iter().all(|c| node.metadata.labels.contains_key(&c.key))
}

/// What the filter needs to know of all pods in the cluster.
#[derive(Clone, Debug)]
pub(super) struct State {
    constraints: Vec<Constraint>,
    /// Pods by domain, for each constraint.
    counts: Vec<HashMap<String, i64>>,
}

impl State {
    /// Counts the pods of all nodes; None if the pod has no such constraint.
    pub(super) fn new<'a>(pod: &PodInfo, nodes: impl Iterator<Item = &'a NodeInfo>) -> Option<Self> {
        if pod.pod.spec.topology_spread_constraints.is_empty() {
            return None;
        }
        let constraints = constraints(pod, "DoNotSchedule");
        if constraints.is_empty() {
            return None;
        }
        let mut counts = vec![HashMap::new(); constraints.len()];
        for info in nodes {
            let Some(node) = &info.node else { continue };
            if !has_keys(&constraints, node) {
                continue;
            }
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if constraint.includes(pod, node) {
                    let domain = node.metadata.labels[&constraint.key].clone();
                    *counts.entry(domain).or_default() += constraint.count(pod, info);
                }
            }
        }
        Some(Self { constraints, counts })
    }

    pub(super) fn update(&mut self, pod: &PodInfo, other: &PodInfo, node: &Node, change: i64) {
        if !has_keys(&self.constraints, node) {
            return;
        }
        for (constraint, counts) in self.constraints.iter().zip(&mut self.counts) {
            if constraint.includes(pod, node) && constraint.counts(pod, other) {
                *counts.entry(node.metadata.labels[&constraint.key].clone()).or_default() += change;
            }
        }
    }

    pub(super) fn check(&self, pod: &PodInfo, node: &Node) -> Result<(), Failure> {
        let refuse =
            |code, text| Err(Failure { plugin: plugin::POD_TOPOLOGY_SPREAD, code, reason: Reason::Fixed(text) });
        for (constraint, counts) in self.constraints.iter().zip(&self.counts) {
            let Some(domain) = node.metadata.labels.get(&constraint.key) else {
                let text = "node(s) didn't match pod topology spread constraints (missing required label)";
                return refuse(Code::UnschedulableAndUnresolvable, text);
            };
            let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
            let least = if domains < constraint.min_domains { 0 } else { counts.values().copied().min().unwrap_or(0) };
            let own = i64::from(constraint.selects(&pod.pod.metadata.labels));
            let skew = counts.get(domain).copied().unwrap_or(0) + own - least;
            if skew > constraint.max_skew {
                return refuse(Code::Unschedulable, "node(s) didn't match pod topology spread constraints");
            }
        }
        Ok(())
    }
}

/// Whether an event can change how the pod's constraints are met.
pub(super) fn may_change(event: &ClusterEvent, id: PodId, pod: &PodInfo) -> bool {
    let constraints = constraints(pod, "DoNotSchedule");
    let selects = |p: &PodInfo| constraints.iter().any(|c| c.selects(&p.pod.metadata.labels));
    match &event.about {
        About::UnscheduledPod { id: target, .. } => *target == id,
        About::Pod { old, new, .. } => {
            let other = new.as_ref().or(old.as_ref());
            if other.is_none_or(|p| p.pod.metadata.namespace != pod.pod.metadata.namespace) {
                return false;
            }
            match (old, new) {
                (Some(old), Some(new)) => constraints
                    .iter()
                    .any(|c| c.selects(&old.pod.metadata.labels) != c.selects(&new.pod.metadata.labels)),
                (Some(one), None) | (None, Some(one)) => selects(one),
                (None, None) => false,
            }
        }
        About::Node { old, new } => {
            let keys = |node: &Node| has_keys(&constraints, node);
            match (old, new) {
                (Some(old), Some(new)) => {
                    let domain = |n: &Node, c: &Constraint| n.metadata.labels.get(&c.key).cloned();
                    keys(old) != keys(new)
                        || (keys(new)
                            && (event.action == Bits::UPDATE_NODE_TAINT.0
                                || constraints.iter().any(|c| domain(old, c) != domain(new, c))))
                }
                (Some(one), None) | (None, Some(one)) => keys(one),
                (None, None) => false,
            }
        }
        About::Storage { .. } => false,
        About::Activate(_) => true,
    }
}
