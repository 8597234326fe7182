//! Affinity and anti-affinity between pods.

use std::collections::HashMap;

use kube_scheduler_abi::Code;

use super::event::plugin;
use super::filter::{Failure, Reason, with_label_keys};
use super::pod::PodInfo;
use crate::objects::{LabelSelector, Node, PodAffinityTerm};

/// How many pods match, by topology key and value.
type Counts = HashMap<(String, String), i64>;

/// What the filter needs to know of all pods in the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Pods whose own required anti-affinity is against this pod.
    existing_anti: Counts,
    /// Pods that match all required affinity terms of this pod.
    wanted: Counts,
    /// Pods that match a required anti-affinity term of this pod.
    unwanted: Counts,
}

/// Whether a term of `owner` is about `other`.
pub(super) fn matches(owner: &PodInfo, term: &PodAffinityTerm, other: &PodInfo) -> bool {
    let namespace = &other.pod.metadata.namespace;
    let in_namespace = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        *namespace == owner.pod.metadata.namespace
    } else {
        let selected = |s: &LabelSelector| s.matches(&other.namespace_labels.borrow());
        term.namespaces.contains(namespace) || term.namespace_selector.as_ref().is_some_and(selected)
    };
    let labels = &owner.pod.metadata.labels;
    let selector =
        with_label_keys(term.label_selector.as_ref(), labels, &term.match_label_keys, &term.mismatch_label_keys);
    in_namespace && selector.is_some_and(|s| s.matches(&other.pod.metadata.labels))
}

/// Whether `other` matches all of these terms of `owner`, of which there must be one.
pub(super) fn matches_all(owner: &PodInfo, terms: &[PodAffinityTerm], other: &PodInfo) -> bool {
    !terms.is_empty() && terms.iter().all(|term| matches(owner, term, other))
}

/// Whether `other` matches one of these terms of `owner`.
pub(super) fn matches_any(owner: &PodInfo, terms: &[PodAffinityTerm], other: &PodInfo) -> bool {
    terms.iter().any(|term| matches(owner, term, other))
}

impl State {
    /// Counts a pod that joins (1) or leaves (-1) a node.
    pub(super) fn update(&mut self, pod: &PodInfo, other: &PodInfo, node: &Node, change: i64) {
        let count = |counts: &mut Counts, term: &PodAffinityTerm| {
            if let Some(value) = node.metadata.labels.get(&term.topology_key) {
                *counts.entry((term.topology_key.clone(), value.clone())).or_default() += change;
            }
        };
        for term in other.required_anti_affinity().iter().filter(|term| matches(other, term, pod)) {
            count(&mut self.existing_anti, term);
        }
        if matches_all(pod, pod.required_affinity(), other) {
            pod.required_affinity().iter().for_each(|term| count(&mut self.wanted, term));
        }
        for term in pod.required_anti_affinity().iter().filter(|term| matches(pod, term, other)) {
            count(&mut self.unwanted, term);
        }
    }

    pub(super) fn check(&self, pod: &PodInfo, node: &Node) -> Result<(), Failure> {
        let refuse =
            |code, text| Err(Failure { plugin: plugin::INTER_POD_AFFINITY, code, reason: Reason::Fixed(text) });
        let labels = &node.metadata.labels;
        let count = |counts: &Counts, key: &str| {
            labels.get(key).map_or(0, |value| counts.get(&(key.to_owned(), value.clone())).copied().unwrap_or(0))
        };
        let terms = pod.required_affinity();
        if terms.iter().any(|term| !labels.contains_key(&term.topology_key)) {
            return refuse(Code::UnschedulableAndUnresolvable, "node(s) didn't match pod affinity rules");
        }
        if terms.iter().any(|term| count(&self.wanted, &term.topology_key) <= 0) {
            // The first pod of a set that wants to be near itself may go anywhere.
            let alone = self.wanted.values().all(|count| *count <= 0);
            if !(alone && matches_all(pod, terms, pod)) {
                return refuse(Code::UnschedulableAndUnresolvable, "node(s) didn't match pod affinity rules");
            }
        }
        if pod.required_anti_affinity().iter().any(|term| count(&self.unwanted, &term.topology_key) > 0) {
            return refuse(Code::Unschedulable, "node(s) didn't match pod anti-affinity rules");
        }
        let against =
            self.existing_anti.iter().any(|((key, value), count)| *count > 0 && labels.get(key) == Some(value));
        if against {
            return refuse(Code::Unschedulable, "node(s) didn't satisfy existing pods anti-affinity rules");
        }
        Ok(())
    }
}
