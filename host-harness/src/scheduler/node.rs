//! A node and what is on it.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use prost::Message;

use super::pod::{HostPort, PodId, PodInfo};
use super::resource::{CPU, MEMORY, Resources, at};
use crate::objects::Node;

/// Number of a node name; a node that comes back under its name has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u32);

/// What the cache knows of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeInfo {
    pub(super) name: Rc<str>,
    /// None while the API has no such node, though pods may be counted on it.
    pub(super) node: Option<Rc<Node>>,
    /// By resource number.
    pub(super) allocatable: Vec<i64>,
    pub(super) allowed_pods: i64,
    pub(super) requested: Vec<i64>,
    /// Milli of cpu and bytes of memory, with defaults where a container requests nothing.
    pub(super) non_zero: (i64, i64),
    pub(super) pods: Vec<(PodId, Rc<PodInfo>)>,
    /// How many of the pods have affinity or anti-affinity to pods.
    pub(super) with_affinity: u32,
    pub(super) with_anti_affinity: u32,
    pub(super) ports: Vec<HostPort>,
    pub(super) images: HashMap<String, i64>,
    protobuf: Option<Rc<[u8]>>,
}

impl NodeInfo {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub(super) fn set_node(&mut self, node: Option<Rc<Node>>, resources: &mut Resources) {
        self.allocatable.clear();
        self.allowed_pods = 0;
        self.images.clear();
        self.protobuf = node.as_ref().map(|n| n.encode_to_vec().into());
        if let Some(node) = &node {
            for (name, quantity) in &node.status.allocatable {
                if name == "pods" {
                    self.allowed_pods = quantity.exact().value();
                } else if let Some(number) = resources.number(name) {
                    if self.allocatable.len() <= number {
                        self.allocatable.resize(number + 1, 0);
                    }
                    self.allocatable[number] = Resources::amount(number, quantity.exact());
                }
            }
            for image in &node.status.images {
                for name in &image.names {
                    self.images.insert(name.clone(), image.size_bytes);
                }
            }
        }
        self.node = node;
    }

    /// The node, encoded.
    pub(super) fn protobuf(&self) -> Option<&[u8]> {
        self.protobuf.as_deref()
    }

    pub(super) fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.node.as_ref().map_or(&NONE, |n| &n.metadata.labels)
    }

    pub(super) fn add(&mut self, id: PodId, pod: &Rc<PodInfo>) {
        self.count(pod, 1);
        self.ports.extend_from_slice(&pod.ports);
        self.pods.push((id, Rc::clone(pod)));
    }

    pub(super) fn remove(&mut self, id: PodId) {
        if let Some(i) = self.pods.iter().position(|(other, _)| *other == id) {
            let (_, pod) = self.pods.remove(i);
            self.count(&pod, -1);
            for port in &pod.ports {
                if let Some(i) = self.ports.iter().position(|p| p == port) {
                    self.ports.remove(i);
                }
            }
        }
    }

    fn count(&mut self, pod: &PodInfo, sign: i64) {
        for &(number, amount) in &pod.requests {
            if self.requested.len() <= number {
                self.requested.resize(number + 1, 0);
            }
            self.requested[number] += sign * amount;
        }
        self.non_zero.0 += sign * pod.non_zero.0;
        self.non_zero.1 += sign * pod.non_zero.1;
        let change = |count: &mut u32, has: bool| {
            if has {
                *count = if sign > 0 { *count + 1 } else { *count - 1 };
            }
        };
        change(&mut self.with_affinity, pod.has_pod_affinity());
        change(&mut self.with_anti_affinity, !pod.required_anti_affinity().is_empty());
    }

    pub(super) fn free(&self, number: usize) -> i64 {
        at(&self.allocatable, number) - at(&self.requested, number)
    }

    /// Requests of cpu or memory as scores compare them.
    pub(super) fn non_zero_request(&self, number: usize) -> i64 {
        match number {
            CPU => self.non_zero.0,
            MEMORY => self.non_zero.1,
            _ => at(&self.requested, number),
        }
    }
}
