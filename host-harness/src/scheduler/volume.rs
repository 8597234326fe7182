//! Claims, volumes and storage classes, as far as they say on which nodes a pod can be: VolumeRestrictions, VolumeBinding
//! and VolumeZone. Nobody provisions here: a claim that its class binds at once is bound in the input, or never.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use kube_scheduler_abi::Code;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::action::ObjectRef;
use super::event::plugin;
use super::filter::{Failure, Reason, matches_term};
use super::pod::PodInfo;
use crate::objects::{Node, NodeSelectorTerm, Quantity};

const ZONE_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// A claim's namespace and name.
pub(super) type ClaimKey = (String, String);

#[derive(Clone, Debug, Default)]
struct Claim {
    class: String,
    /// The volume it is bound to, "" for none.
    volume: String,
    phase: String,
    deleted: bool,
    modes: Vec<String>,
    bytes: i64,
}

#[derive(Debug)]
struct Volume {
    name: String,
    class: String,
    modes: Vec<String>,
    bytes: i64,
    /// Terms of which a node must match one; None: every node does.
    nodes: Option<Vec<NodeSelectorTerm>>,
    /// Its zone labels; a value may name several zones.
    zones: Vec<(String, Vec<String>)>,
    /// Free, or reserved for this claim.
    claim: Option<ClaimKey>,
}

#[derive(Debug, Default)]
struct Class {
    /// `WaitForFirstConsumer`.
    waits: bool,
    provisions: bool,
    /// Where it provisions; empty: everywhere.
    topologies: Vec<NodeSelectorTerm>,
}

/// What becomes of an unbound claim whose pod has a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It gets this volume.
    Bind(String),
    /// A volume is provisioned for the pod's node.
    Provision(String),
}

/// What the scheduler knows of storage.
#[derive(Debug, Default)]
pub(super) struct Storage {
    claims: HashMap<ClaimKey, Claim>,
    volumes: BTreeMap<String, Rc<Volume>>,
    classes: HashMap<String, Class>,
    /// Of pods past Reserve.
    planned: BTreeMap<ClaimKey, Plan>,
    /// How many pods on nodes use a claim.
    users: HashMap<ClaimKey, i64>,
}

/// A claim to be bound once the pod has a node.
#[derive(Clone, Debug)]
struct Open {
    key: ClaimKey,
    /// Smallest first.
    candidates: Vec<Rc<Volume>>,
    /// Where its class provisions; None: nowhere.
    provision: Option<Vec<NodeSelectorTerm>>,
    /// Another pod of the same claim had this node chosen.
    chosen: Option<String>,
}

/// What the filters need to know of a pod's claims.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Claims for one pod alone, and how many pods use them.
    exclusive: Vec<String>,
    conflicts: i64,
    bound: Vec<Rc<Volume>>,
    /// A claim's volume doesn't exist.
    lacks_volume: bool,
    open: Vec<Open>,
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Json) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn bytes(value: &Json) -> i64 {
    Quantity::deserialize(value).map_or(0, |q| q.exact().value())
}

/// Whether a node matches one of the terms; no terms at all ask nothing.
fn one_matches(terms: &[NodeSelectorTerm], node: &Node) -> bool {
    terms.is_empty() || terms.iter().any(|term| matches_term(term, node))
}

impl Claim {
    fn of(object: &Json) -> Self {
        let spec = &object["spec"];
        Self {
            class: text(&spec["storageClassName"]),
            volume: text(&spec["volumeName"]),
            phase: text(&object["status"]["phase"]),
            deleted: object["metadata"]["deletionTimestamp"].is_string(),
            modes: texts(&spec["accessModes"]),
            bytes: bytes(&spec["resources"]["requests"]["storage"]),
        }
    }
}

impl Volume {
    fn of(object: &Json) -> Self {
        let (meta, spec) = (&object["metadata"], &object["spec"]);
        let zone = |key: &str| {
            let value = meta["labels"][key].as_str()?;
            Some((key.to_owned(), value.split("__").map(str::to_owned).collect()))
        };
        let claim = &spec["claimRef"];
        Self {
            name: text(&meta["name"]),
            class: text(&spec["storageClassName"]),
            modes: texts(&spec["accessModes"]),
            bytes: bytes(&spec["capacity"]["storage"]),
            nodes: Deserialize::deserialize(&spec["nodeAffinity"]["required"]["nodeSelectorTerms"]).ok(),
            zones: ZONE_LABELS.into_iter().filter_map(zone).collect(),
            claim: claim.is_object().then(|| (text(&claim["namespace"]), text(&claim["name"]))),
        }
    }

    fn reaches(&self, node: &Node) -> bool {
        // An affinity without terms matches no node.
        self.nodes.as_ref().is_none_or(|terms| terms.iter().any(|term| matches_term(term, node)))
    }

    fn in_zone(&self, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        !ZONE_LABELS.iter().any(|key| labels.contains_key(*key))
            || self.zones.iter().all(|(key, zones)| {
                let current = key.replace("failure-domain.beta.kubernetes.io", "topology.kubernetes.io");
                labels.get(key).or_else(|| labels.get(&current)).is_some_and(|zone| zones.contains(zone))
            })
    }

    /// Whether an unbound claim could have it.
    fn suits(&self, key: &ClaimKey, claim: &Claim) -> bool {
        self.claim.as_ref().is_none_or(|of| of == key)
            && self.class == claim.class
            && self.bytes >= claim.bytes
            && claim.modes.iter().all(|mode| self.modes.contains(mode))
    }
}

impl Class {
    fn of(object: &Json) -> Self {
        let term = |term: &Json| {
            let expressions = term["matchLabelExpressions"].as_array().into_iter().flatten();
            let expressions: Vec<Json> =
                expressions.map(|e| json!({"key": e["key"], "operator": "In", "values": e["values"]})).collect();
            NodeSelectorTerm::deserialize(&json!({"matchExpressions": expressions})).unwrap_or_default()
        };
        Self {
            waits: object["volumeBindingMode"] == "WaitForFirstConsumer",
            provisions: object["provisioner"] != "kubernetes.io/no-provisioner",
            topologies: object["allowedTopologies"].as_array().into_iter().flatten().map(term).collect(),
        }
    }
}

impl Storage {
    /// An object came or changed, or (None) is gone. Whether it is one of storage.
    pub(super) fn update(&mut self, reference: &ObjectRef, object: Option<&Json>) -> bool {
        let name = || reference.name.clone();
        match (reference.kind.as_str(), object) {
            ("PersistentVolumeClaim", object) => {
                let key = (reference.namespace.clone(), name());
                match object {
                    Some(object) => self.claims.insert(key, Claim::of(object)),
                    None => self.claims.remove(&key),
                };
            }
            ("PersistentVolume", Some(object)) => {
                self.volumes.insert(name(), Rc::new(Volume::of(object)));
            }
            ("PersistentVolume", None) => {
                self.volumes.remove(&reference.name);
            }
            ("StorageClass", Some(object)) => {
                self.classes.insert(name(), Class::of(object));
            }
            ("StorageClass", None) => {
                self.classes.remove(&reference.name);
            }
            _ => return false,
        }
        true
    }

    /// A pod joins (1) or leaves (-1) a node.
    pub(super) fn count(&mut self, pod: &PodInfo, change: i64) {
        for key in keys(pod) {
            *self.users.entry(key).or_default() += change;
        }
    }

    /// What the pod's claims mean for the filters; None: it has none. The error refuses the pod everywhere.
    pub(super) fn look(&self, pod: &PodInfo) -> Result<Option<State>, (u32, String)> {
        if pod.claims.is_empty() {
            return Ok(None);
        }
        let mut state = State::default();
        for key in keys(pod) {
            let name = &key.1;
            let Some(claim) = self.claims.get(&key) else {
                return Err((plugin::VOLUME_RESTRICTIONS, format!("persistentvolumeclaim \"{name}\" not found")));
            };
            if claim.phase == "Lost" {
                let text = format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{}\"",
                    claim.volume
                );
                return Err((plugin::VOLUME_BINDING, text));
            }
            if claim.deleted {
                return Err((plugin::VOLUME_BINDING, format!("persistentvolumeclaim \"{name}\" is being deleted")));
            }
            if claim.modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                state.conflicts += self.users.get(&key).copied().unwrap_or(0);
                state.exclusive.push(name.clone());
            }
            let planned = self.planned.get(&key);
            let volume = match planned {
                Some(Plan::Bind(volume)) => volume,
                _ => &claim.volume,
            };
            if !volume.is_empty() {
                match self.volumes.get(volume) {
                    Some(volume) => state.bound.push(Rc::clone(volume)),
                    None => state.lacks_volume = true,
                }
                continue;
            }
            let Some(class) = self.classes.get(&claim.class).filter(|class| class.waits) else {
                return Err((plugin::VOLUME_BINDING, "pod has unbound immediate PersistentVolumeClaims".to_owned()));
            };
            let taken = |volume: &Volume| self.planned.values().any(|p| *p == Plan::Bind(volume.name.clone()));
            let fits = self.volumes.values().filter(|volume| volume.suits(&key, claim) && !taken(volume));
            let mut candidates: Vec<_> = fits.cloned().collect();
            candidates.sort_by_key(|volume| volume.bytes);
            let chosen = match planned {
                Some(Plan::Provision(node)) => Some(node.clone()),
                _ => None,
            };
            let provision = class.provisions.then(|| class.topologies.clone());
            state.open.push(Open { key, candidates, provision, chosen });
        }
        Ok(Some(state))
    }

    /// Plans the pod's open claims for its node.
    pub(super) fn plan(&mut self, pod: &PodInfo, node: &Node) {
        if let Ok(Some(state)) = self.look(pod)
            && let Some(plans) = state.plans(node)
        {
            self.planned.extend(plans);
        }
    }

    /// The pod gives its node up. What another pod of the claim was given stays planned for it.
    pub(super) fn forget(&mut self, pod: &PodInfo) {
        for key in keys(pod) {
            if self.users.get(&key).is_none_or(|users| *users == 0) {
                self.planned.remove(&key);
            }
        }
    }

    /// The pod is bound: what was planned comes to pass.
    pub(super) fn settle(&mut self, pod: &PodInfo) -> Vec<(ClaimKey, Plan)> {
        keys(pod).filter_map(|key| self.planned.remove_entry(&key)).collect()
    }
}

fn keys(pod: &PodInfo) -> impl Iterator<Item = ClaimKey> {
    let namespace = &pod.pod.metadata.namespace;
    pod.claims.iter().map(|name| (namespace.clone(), name.clone()))
}

impl State {
    /// Counts a pod that joins (1) or leaves (-1) a node.
    pub(super) fn update(&mut self, pod: &PodInfo, other: &PodInfo, change: i64) {
        if pod.pod.metadata.namespace == other.pod.metadata.namespace {
            let shared = other.claims.iter().filter(|claim| self.exclusive.contains(claim));
            self.conflicts += change * i64::try_from(shared.count()).unwrap_or(i64::MAX);
        }
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Failure> {
        let refuse = |plugin, code, text| Err(Failure { plugin, code, reason: Reason::Fixed(text) });
        let never = Code::UnschedulableAndUnresolvable;
        if self.conflicts > 0 {
            let text = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
            return refuse(plugin::VOLUME_RESTRICTIONS, Code::Unschedulable, text);
        }
        if self.lacks_volume {
            let text = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
            return refuse(plugin::VOLUME_BINDING, never, text);
        }
        if self.bound.iter().any(|volume| !volume.reaches(node)) {
            return refuse(plugin::VOLUME_BINDING, never, "node(s) had volume node affinity conflict");
        }
        if self.plans(node).is_none() {
            let text = "node(s) didn't find available persistent volumes to bind";
            return refuse(plugin::VOLUME_BINDING, never, text);
        }
        if self.bound.iter().any(|volume| !volume.in_zone(node)) {
            return refuse(plugin::VOLUME_ZONE, never, "node(s) had no available volume zone");
        }
        Ok(())
    }

    /// What would become of the open claims on a node; None: one of them can't be had there.
    fn plans(&self, node: &Node) -> Option<Vec<(ClaimKey, Plan)>> {
        let mut plans: Vec<(ClaimKey, Plan)> = Vec::new();
        for Open { key, candidates, provision, chosen } in &self.open {
            if let Some(chosen) = chosen {
                if *chosen != node.metadata.name {
                    return None;
                }
                continue;
            }
            let free = |volume: &&Rc<Volume>| !plans.iter().any(|(_, plan)| *plan == Plan::Bind(volume.name.clone()));
            let found = candidates.iter().filter(free).find(|volume| volume.reaches(node));
            let plan = match (found, provision) {
                (Some(volume), _) => Plan::Bind(volume.name.clone()),
                (None, Some(topologies)) if one_matches(topologies, node) => {
                    Plan::Provision(node.metadata.name.clone())
                }
                _ => return None,
            };
            plans.push((key.clone(), plan));
        }
        Some(plans)
    }
}
