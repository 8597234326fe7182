//! A pod, and what the scheduler knows of it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use prost::Message;
use serde_json::Value as Json;

use super::node::NodeId;
use super::resource::Resources;
use super::trace::PodKey;
use crate::objects::{Pod, PodAffinityTerm, Volume, non_zero_requests, pod_requests};

/// Number of a pod; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodId(pub(super) u32);

/// A port of the node: address, protocol, number.
pub(super) type HostPort = (String, String, i32);

/// The labels of a namespace, shared by its pods.
pub(super) type NamespaceLabels = Rc<RefCell<BTreeMap<String, String>>>;

/// One version of a pod, with what a scheduler computes of it.
#[derive(Debug)]
pub(super) struct PodInfo {
    pub(super) pod: Rc<Pod>,
    spec: Rc<SpecInfo>,
    protobuf: OnceCell<Rc<[u8]>>,
}

/// What follows from the spec alone.
#[derive(Debug)]
pub(super) struct SpecInfo {
    /// Effective requests by resource number, without those of nothing.
    pub(super) requests: Vec<(usize, i64)>,
    /// Milli of cpu and bytes of memory, with defaults where there is no request.
    pub(super) non_zero: (i64, i64),
    pub(super) ports: Vec<HostPort>,
    pub(super) priority: i32,
    /// Names of the claims behind its volumes.
    pub(super) claims: Vec<String>,
    pub(super) namespace_labels: NamespaceLabels,
}

impl std::ops::Deref for PodInfo {
    type Target = SpecInfo;

    fn deref(&self) -> &SpecInfo {
        &self.spec
    }
}

impl PodInfo {
    pub(super) fn new(pod: Pod, resources: &mut Resources, namespace_labels: NamespaceLabels) -> Rc<Self> {
        let mut requests = Vec::new();
        for (name, quantity) in pod_requests(&pod) {
            if let Some(number) = resources.number(&name) {
                let amount = Resources::amount(number, quantity);
                if amount > 0 {
                    requests.push((number, amount));
                }
            }
        }
        requests.sort_unstable();
        let mut ports = Vec::new();
        for container in &pod.spec.containers {
            for port in container.ports.iter().filter(|p| p.host_port > 0) {
                let ip = if port.host_ip.is_empty() { "0.0.0.0" } else { &port.host_ip };
                let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
                ports.push((ip.to_owned(), protocol.to_owned(), port.host_port));
            }
        }
        let non_zero = non_zero_requests(&pod);
        let claim = |volume: &Volume| match (&volume.source.persistent_volume_claim, &volume.source.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name, volume.name)),
            (None, None) => None,
        };
        let claims = pod.spec.volumes.iter().filter_map(claim).collect();
        let spec = SpecInfo { requests, non_zero, ports, priority: pod.priority(), claims, namespace_labels };
        Rc::new(Self { pod: Rc::new(pod), spec: Rc::new(spec), protobuf: OnceCell::new() })
    }

    /// The next version of the pod, which asks for the same.
    pub(super) fn with(&self, pod: Pod) -> Rc<Self> {
        Rc::new(Self { pod: Rc::new(pod), spec: Rc::clone(&self.spec), protobuf: OnceCell::new() })
    }

    /// The pod as the scheduler assumes it on a node.
    pub(super) fn assumed_on(&self, node: &str) -> Rc<Self> {
        let mut pod = Pod::clone(&self.pod);
        node.clone_into(&mut pod.spec.node_name);
        self.with(pod)
    }

    pub(super) fn protobuf(&self) -> Rc<[u8]> {
        Rc::clone(self.protobuf.get_or_init(|| self.pod.encode_to_vec().into()))
    }

    pub(super) fn request(&self, resource: usize) -> i64 {
        self.requests.iter().find(|(r, _)| *r == resource).map_or(0, |(_, amount)| *amount)
    }

    pub(super) fn required_affinity(&self) -> &[PodAffinityTerm] {
        let affinity = self.pod.spec.affinity.as_ref().and_then(|a| a.pod_affinity.as_ref());
        affinity.map_or(&[], |a| &a.required_during_scheduling_ignored_during_execution)
    }

    pub(super) fn required_anti_affinity(&self) -> &[PodAffinityTerm] {
        let affinity = self.pod.spec.affinity.as_ref().and_then(|a| a.pod_anti_affinity.as_ref());
        affinity.map_or(&[], |a| &a.required_during_scheduling_ignored_during_execution)
    }

    /// Whether it has any affinity or anti-affinity to pods.
    pub(super) fn has_pod_affinity(&self) -> bool {
        self.pod.spec.affinity.as_ref().is_some_and(|a| a.pod_affinity.is_some() || a.pod_anti_affinity.is_some())
    }
}

/// Where a pod is in the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// The scheduler doesn't have it, or has it on a node.
    #[default]
    None,
    /// In the active queue.
    Active,
    /// In the backoff queue, until this moment.
    Backoff(i64),
    /// Unschedulable.
    Unschedulable,
    /// In its cycle, waiting or binding; `Some`: events are kept for it from this index on.
    InFlight(Option<u64>),
}

/// What the scheduler keeps of a pod in memory; a restart loses it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scheduling {
    pub(super) place: Place,
    /// When it last came into a queue, virtual milliseconds, and what came in after it at the same time.
    pub(super) queued_ms: i64,
    pub(super) queued_seq: u64,
    /// Cycles since it came into the queue first.
    pub(super) attempts: u32,
    /// Plugins that refused it.
    pub(super) rejectors: u32,
    /// Those of them that answered Pending.
    pub(super) pending: u32,
    pub(super) gated: bool,
    /// Where the cache counts it.
    pub(super) node: Option<NodeId>,
    /// When the cache began to count it there.
    pub(super) counted_ms: i64,
    /// It is counted before the API says so.
    pub(super) assumed: Option<Rc<PodInfo>>,
    pub(super) nominated: Option<NodeId>,
    /// The version that the cache counts.
    pub(super) counted: Option<Rc<PodInfo>>,
}

/// A pod, from its creation on; those deleted stay as a record.
#[derive(Debug)]
pub(super) struct PodEntry {
    pub(super) key: PodKey,
    pub(super) uid: Rc<str>,
    pub(super) info: Rc<PodInfo>,
    /// Its manifest: what the typed form doesn't hold.
    pub(super) manifest: Rc<Json>,
    pub(super) exists: bool,
    pub(super) runs_ms: Option<i64>,
    /// Cycles in all.
    pub(super) attempts: u32,
    pub(super) released_ms: Option<i64>,
    pub(super) scheduling: Scheduling,
}
