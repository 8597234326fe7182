//! Cluster events, and which rejected pods they may help.

use std::rc::Rc;

use kube_scheduler_abi::Action as Bits;

use super::filter;
use super::pod::{PodId, PodInfo};
use super::resource::Resources;
use super::volume::ClaimKey;
use crate::objects::Node;

/// The plugins that can refuse a pod, as bits of a set.
pub(super) mod plugin {
    pub(in crate::scheduler) const NODE_UNSCHEDULABLE: u32 = 1;
    pub(in crate::scheduler) const NODE_NAME: u32 = 1 << 1;
    pub(in crate::scheduler) const TAINT_TOLERATION: u32 = 1 << 2;
    pub(in crate::scheduler) const NODE_AFFINITY: u32 = 1 << 3;
    pub(in crate::scheduler) const NODE_PORTS: u32 = 1 << 4;
    pub(in crate::scheduler) const NODE_RESOURCES_FIT: u32 = 1 << 5;
    pub(in crate::scheduler) const POD_TOPOLOGY_SPREAD: u32 = 1 << 6;
    pub(in crate::scheduler) const INTER_POD_AFFINITY: u32 = 1 << 7;
    pub(in crate::scheduler) const DEFAULT_PREEMPTION: u32 = 1 << 8;
    pub(in crate::scheduler) const SCHEDULING_GATES: u32 = 1 << 9;
    /// The guest.
    pub(in crate::scheduler) const GUEST: u32 = 1 << 10;
    /// The empty name, under which the framework rejects a waiting pod that is deleted.
    pub(in crate::scheduler) const NOBODY: u32 = 1 << 11;
    pub(in crate::scheduler) const VOLUME_RESTRICTIONS: u32 = 1 << 12;
    pub(in crate::scheduler) const VOLUME_BINDING: u32 = 1 << 13;
    pub(in crate::scheduler) const VOLUME_ZONE: u32 = 1 << 14;

    /// Names by bit; the guest's is configured.
    pub(in crate::scheduler) const NAMES: [&str; 15] = [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
        "DefaultPreemption",
        "SchedulingGates",
        "",
        "",
        "VolumeRestrictions",
        "VolumeBinding",
        "VolumeZone",
    ];

    /// The names in a set.
    pub(in crate::scheduler) fn names(set: u32, guest: &str) -> Vec<String> {
        let name = |bit: usize| if 1 << bit == GUEST { guest } else { NAMES[bit] };
        let mut names: Vec<String> =
            (0..NAMES.len()).filter(|bit| set & 1 << bit != 0).map(|b| name(b).to_owned()).collect();
        names.sort_unstable();
        names
    }
}

/// Actions of 1.32 that have no name in the guest's interface.
pub(super) const UPDATE_NODE_ANNOTATION: u32 = 1 << 6;
pub(super) const UPDATE_POD_LABEL: u32 = 1 << 7;
pub(super) const UPDATE_POD_SCALE_DOWN: u32 = 1 << 8;
pub(super) const UPDATE_POD_TOLERATIONS: u32 = 1 << 9;
pub(super) const UPDATE_POD_GATES_ELIMINATED: u32 = 1 << 10;
pub(super) const UPDATE_POD_OTHER: u32 = 1 << 12;

/// What an event is about, old and new version.
#[derive(Clone, Debug)]
pub(super) enum About {
    /// A pod that has a node, or had one.
    Pod { id: PodId, old: Option<Rc<PodInfo>>, new: Option<Rc<PodInfo>> },
    /// A pod without a node, its new version.
    UnscheduledPod { id: PodId, new: Rc<PodInfo> },
    /// A node.
    Node { old: Option<Rc<Node>>, new: Option<Rc<Node>> },
    /// A claim, volume or storage class, by its resource's number; of a claim its namespace and name.
    Storage { resource: u32, claim: Option<ClaimKey> },
    /// This pod is wanted in the active queue whatever refused it.
    Activate(PodId),
}

/// Something that happened to the cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterEvent {
    pub(super) action: u32,
    pub(super) about: About,
}

impl ClusterEvent {
    pub(super) fn pod_added(id: PodId, pod: &Rc<PodInfo>) -> Self {
        Self { action: Bits::ADD.0, about: About::Pod { id, old: None, new: Some(Rc::clone(pod)) } }
    }

    pub(super) fn pod_deleted(id: PodId, pod: &Rc<PodInfo>) -> Self {
        Self { action: Bits::DELETE.0, about: About::Pod { id, old: Some(Rc::clone(pod)), new: None } }
    }

    /// What an update of a pod amounts to.
    pub(super) fn pod_updated(id: PodId, old: &Rc<PodInfo>, new: &Rc<PodInfo>) -> Vec<Self> {
        let mut actions = Vec::new();
        if old.pod.metadata.labels != new.pod.metadata.labels {
            actions.push(UPDATE_POD_LABEL);
        }
        if old.requests.iter().any(|&(resource, amount)| new.request(resource) < amount) {
            actions.push(UPDATE_POD_SCALE_DOWN);
        }
        if !old.pod.spec.scheduling_gates.is_empty() && new.pod.spec.scheduling_gates.is_empty() {
            actions.push(UPDATE_POD_GATES_ELIMINATED);
        }
        if old.pod.spec.tolerations.len() != new.pod.spec.tolerations.len() {
            actions.push(UPDATE_POD_TOLERATIONS);
        }
        if actions.is_empty() {
            actions.push(UPDATE_POD_OTHER);
        }
        let about = if new.pod.spec.node_name.is_empty() {
            About::UnscheduledPod { id, new: Rc::clone(new) }
        } else {
            About::Pod { id, old: Some(Rc::clone(old)), new: Some(Rc::clone(new)) }
        };
        actions.into_iter().map(|action| Self { action, about: about.clone() }).collect()
    }

    /// What an update of a node amounts to.
    pub(super) fn node_updated(old: &Rc<Node>, new: &Rc<Node>) -> Vec<Self> {
        let mut actions = Vec::new();
        if old.spec.unschedulable && !new.spec.unschedulable {
            actions.push(Bits::UPDATE_NODE_TAINT.0);
        }
        if old.status.allocatable != new.status.allocatable {
            actions.push(Bits::UPDATE_NODE_ALLOCATABLE.0);
        }
        if old.metadata.labels != new.metadata.labels {
            actions.push(Bits::UPDATE_NODE_LABEL.0);
        }
        if old.spec.taints != new.spec.taints {
            actions.push(Bits::UPDATE_NODE_TAINT.0);
        }
        let conditions = |node: &Node| -> Vec<(String, String)> {
            node.status.conditions.iter().map(|c| (c.r#type.clone(), c.status.clone())).collect()
        };
        if conditions(old) != conditions(new) {
            actions.push(Bits::UPDATE_NODE_CONDITION.0);
        }
        if old.metadata.annotations != new.metadata.annotations {
            actions.push(UPDATE_NODE_ANNOTATION);
        }
        let about = About::Node { old: Some(Rc::clone(old)), new: Some(Rc::clone(new)) };
        actions.into_iter().map(|action| Self { action, about: about.clone() }).collect()
    }
}

/// What an event means for a pod that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Nothing.
    Skip,
    /// Try it again when its backoff is over.
    AfterBackoff,
    /// Try it again now.
    Immediately,
}

/// Which plugins want to know of which events.
#[derive(Clone, Debug, Default)]
pub(super) struct Interests {
    /// The guest's: resource number and actions.
    pub(super) guest: Vec<(u32, u32)>,
}

const POD: u32 = 0;
const NODE: u32 = 1;
const WILDCARD: u32 = 10;
const ALL_ACTIONS: u32 = (1 << 13) - 1;

impl Interests {
    /// What the extension registers for a guest: what it asked for, or everything about six resources.
    pub(super) fn of_guest(asked: &[(u32, Bits)]) -> Self {
        if asked.is_empty() {
            // Pod, Node, PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode
            return Self { guest: [0, 1, 2, 3, 6, 7].map(|resource| (resource, ALL_ACTIONS)).to_vec() };
        }
        Self { guest: asked.iter().map(|(resource, action)| (*resource, action.0)).collect() }
    }

    /// The plugins that registered for an event.
    pub(super) fn interested(&self, event: &ClusterEvent) -> u32 {
        use plugin::*;
        let action = event.action;
        let any = |actions: u32| action & actions != 0;
        let (add, delete) = (Bits::ADD.0, Bits::DELETE.0);
        let mut set = 0;
        let mut put = |plugin: u32, wanted: bool| {
            if wanted {
                set |= plugin;
            }
        };
        let resource = match &event.about {
            About::Pod { .. } | About::UnscheduledPod { .. } => {
                put(NODE_RESOURCES_FIT | NODE_PORTS | VOLUME_RESTRICTIONS, any(delete));
                put(TAINT_TOLERATION | NODE_UNSCHEDULABLE, any(UPDATE_POD_TOLERATIONS));
                put(POD_TOPOLOGY_SPREAD | INTER_POD_AFFINITY, any(add | delete | UPDATE_POD_LABEL));
                put(SCHEDULING_GATES, any(UPDATE_POD_GATES_ELIMINATED));
                POD
            }
            About::Node { .. } => {
                put(NODE_RESOURCES_FIT, any(add | Bits::UPDATE_NODE_ALLOCATABLE.0));
                let labels = NODE_AFFINITY | INTER_POD_AFFINITY | VOLUME_BINDING | VOLUME_ZONE;
                put(labels, any(add | Bits::UPDATE_NODE_LABEL.0));
                put(TAINT_TOLERATION | NODE_UNSCHEDULABLE, any(add | Bits::UPDATE_NODE_TAINT.0));
                put(NODE_PORTS | NODE_NAME, any(add));
                put(POD_TOPOLOGY_SPREAD, any(add | delete | Bits::UPDATE_NODE_LABEL.0 | Bits::UPDATE_NODE_TAINT.0));
                NODE
            }
            About::Storage { resource, .. } => {
                put(VOLUME_BINDING | VOLUME_RESTRICTIONS | VOLUME_ZONE, true);
                *resource
            }
            About::Activate(_) => return u32::MAX,
        };
        put(GUEST, self.guest.iter().any(|&(r, actions)| (r == resource || r == WILDCARD) && any(actions)));
        set
    }
}

/// Whether an event may help a pod that these plugins refused.
pub(super) fn worth(
    interests: &Interests,
    event: &ClusterEvent,
    id: PodId,
    pod: &PodInfo,
    rejectors: u32,
    pending: u32,
    resources: &Resources,
) -> Verdict {
    let all = rejectors | pending;
    if all == 0 {
        return Verdict::AfterBackoff;
    }
    if let About::Activate(target) = event.about {
        return if target == id { Verdict::AfterBackoff } else { Verdict::Skip };
    }
    let interested = interests.interested(event) & all;
    let mut verdict = Verdict::Skip;
    for bit in 0..plugin::NAMES.len() {
        let plugin = 1 << bit;
        if interested & plugin == 0 || !helps(plugin, event, id, pod, resources) {
            continue;
        }
        if pending & plugin != 0 {
            return Verdict::Immediately;
        }
        verdict = Verdict::AfterBackoff;
    }
    verdict
}

/// A plugin's own opinion whether the event can undo its refusal.
fn helps(plugin: u32, event: &ClusterEvent, id: PodId, pod: &PodInfo, resources: &Resources) -> bool {
    use plugin::*;
    let has_node = |p: &PodInfo| !p.pod.spec.node_name.is_empty();
    match (plugin, &event.about) {
        (NODE_RESOURCES_FIT, About::Pod { old: Some(old), new: None, .. }) => has_node(old),
        (NODE_RESOURCES_FIT, About::Node { old, new: Some(new) }) => {
            filter::empty_node_fits(pod, new, resources)
                && old.as_ref().is_none_or(|old| filter::has_more_of_wanted(pod, old, new, resources))
        }
        (NODE_PORTS, About::Pod { old: Some(old), new: None, .. }) => {
            has_node(old) && filter::ports_conflict(&pod.ports, &old.ports)
        }
        (NODE_AFFINITY, About::Node { old, new: Some(new) }) => {
            filter::matches_required(&pod.pod, new)
                && old.as_ref().is_none_or(|old| !filter::matches_required(&pod.pod, old))
        }
        (TAINT_TOLERATION, About::Node { old, new: Some(new) }) => {
            old.as_ref().is_none_or(|old| filter::untolerated(&pod.pod, old).is_some())
                && filter::untolerated(&pod.pod, new).is_none()
        }
        (NODE_UNSCHEDULABLE, About::Node { old, new: Some(new) }) => {
            !new.spec.unschedulable && old.as_ref().is_none_or(|old| old.spec.unschedulable)
        }
        (TAINT_TOLERATION, About::UnscheduledPod { id: target, .. } | About::Pod { id: target, .. }) => *target == id,
        (NODE_UNSCHEDULABLE, About::UnscheduledPod { id: target, new, .. }) => {
            *target == id && filter::tolerates_unschedulable(&new.pod)
        }
        (SCHEDULING_GATES, About::UnscheduledPod { id: target, .. }) => *target == id,
        (NODE_UNSCHEDULABLE | SCHEDULING_GATES, About::Pod { .. }) => false,
        (VOLUME_RESTRICTIONS, About::Pod { old: Some(old), new: None, .. }) => {
            old.pod.metadata.namespace == pod.pod.metadata.namespace
                && old.claims.iter().any(|claim| pod.claims.contains(claim))
        }
        (_, About::Storage { claim: Some((namespace, name)), .. }) => {
            *namespace == pod.pod.metadata.namespace && pod.claims.contains(name)
        }
        (POD_TOPOLOGY_SPREAD, _) => filter::spread_may_change(event, id, pod),
        (INTER_POD_AFFINITY, _) => filter::affinity_may_change(event, pod),
        // NodeName and NodePorts on a new node, and the guest: always.
        _ => true,
    }
}
