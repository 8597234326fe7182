//! The API server, and what the scheduler keeps in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::action::{Action, ObjectRef};
use super::config::SimConfig;
use super::event::ClusterEvent;
use super::host::plural;
use super::node::{NodeId, NodeInfo};
use super::pod::{NamespaceLabels, PodEntry, PodId, PodInfo, Scheduling};
use super::queue::Queue;
use super::resource::Resources;
use super::selector::Selectors;
use super::trace::{PodKey, Trace, What};
use super::volume::{Plan, Storage};
use crate::objects::{Node, Pod, PodCondition, Time, default_requests};

/// The label that every namespace has.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// An event of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventState {
    /// Virtual milliseconds.
    pub at_ms: i64,
    /// What it is about.
    pub regarding: ObjectRef,
    /// `Normal` or `Warning`.
    pub r#type: String,
    /// One word.
    pub reason: String,
    /// The sentence.
    pub note: String,
}

/// A change of the API that informers will hear of.
#[derive(Debug)]
pub(super) enum Notice {
    PodAdded(PodId),
    PodUpdated {
        id: PodId,
        old: Rc<PodInfo>,
        new: Rc<PodInfo>,
    },
    PodDeleted {
        id: PodId,
        last: Rc<PodInfo>,
    },
    NodeAdded(Rc<Node>),
    NodeUpdated {
        old: Rc<Node>,
        new: Rc<Node>,
    },
    NodeDeleted(Rc<Node>),
    /// An object of another kind, and its API version.
    Object(ObjectRef, String),
}

/// What decides a pod that waits at Permit.
#[derive(Debug)]
pub(super) enum Signal {
    Allow,
    Reject { plugin: u32, reason: String },
}

/// A pod that waits at Permit.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) node: NodeId,
    /// A signal is under way; later ones are lost.
    pub(super) decided: bool,
    /// Key of its timeout in the agenda.
    pub(super) timeout: (i64, u8, u64),
}

/// Something due at a time.
#[derive(Debug)]
pub(super) enum Task {
    Act(Action),
    ApiBack,
    StartScheduler,
    PermitTimeout(PodId),
    Bind(PodId, NodeId),
    Run(PodId),
    Finish(PodId),
    GraceEnds(PodId),
}

/// The cluster and the scheduler's memory, all but the plugin and the bridge.
pub(super) struct Core {
    pub(super) config: SimConfig,
    pub(super) now: i64,
    pub(super) trace: Trace,
    /// By time, then what comes from outside first, then as put in.
    pub(super) agenda: BTreeMap<(i64, u8, u64), Task>,
    seq: u64,
    pub(super) resources: Resources,

    // The API server.
    pub(super) pods: Vec<PodEntry>,
    pub(super) by_key: BTreeMap<PodKey, PodId>,
    pub(super) by_uid: HashMap<Rc<str>, PodId>,
    pub(super) objects: BTreeMap<ObjectRef, Rc<Json>>,
    pub(super) events: Vec<EventState>,
    pub(super) notices: VecDeque<Notice>,
    pub(super) away_until: i64,
    /// How many bindings of a pod are yet to be refused.
    pub(super) fail_binds: BTreeMap<PodKey, u32>,
    version: u64,
    uids: u64,

    // The scheduler.
    pub(super) up: bool,
    pub(super) crashed: Option<String>,
    pub(super) nodes: Vec<NodeInfo>,
    pub(super) node_ids: HashMap<Rc<str>, NodeId>,
    /// The nodes of the snapshot, zones in turn.
    pub(super) order: Vec<NodeId>,
    pub(super) generation: u64,
    /// The nodes that have an image.
    pub(super) image_nodes: HashMap<String, BTreeSet<Rc<str>>>,
    pub(super) queue: Queue,
    pub(super) waiting: BTreeMap<PodId, Waiting>,
    pub(super) signals: VecDeque<(PodId, Signal)>,
    pub(super) nominated: BTreeMap<NodeId, Vec<PodId>>,
    pub(super) busy_until: i64,
    pub(super) next_start: usize,
    /// Pods on nodes with required anti-affinity, and nodes with taints of PreferNoSchedule: most clusters have none.
    pub(super) anti_affine_pods: usize,
    pub(super) affine_pods: usize,
    pub(super) selectors: Selectors,
    pub(super) storage: Storage,
    namespaces: HashMap<String, NamespaceLabels>,
    random: u64,
}

impl Core {
    pub(super) fn new(config: SimConfig) -> Self {
        let random = config.seed ^ 0x9e37_79b9_7f4a_7c15;
        Self {
            now: 0,
            trace: Trace::default(),
            agenda: BTreeMap::new(),
            seq: 0,
            resources: Resources::default(),
            pods: Vec::new(),
            by_key: BTreeMap::new(),
            by_uid: HashMap::new(),
            objects: BTreeMap::new(),
            events: Vec::new(),
            notices: VecDeque::new(),
            away_until: 0,
            fail_binds: BTreeMap::new(),
            version: 0,
            uids: 0,
            up: false,
            crashed: None,
            nodes: Vec::new(),
            node_ids: HashMap::new(),
            order: Vec::new(),
            generation: 0,
            image_nodes: HashMap::new(),
            queue: Queue::default(),
            waiting: BTreeMap::new(),
            signals: VecDeque::new(),
            nominated: BTreeMap::new(),
            busy_until: 0,
            next_start: 0,
            anti_affine_pods: 0,
            affine_pods: 0,
            selectors: Selectors::default(),
            storage: Storage::default(),
            namespaces: HashMap::new(),
            random,
            config,
        }
    }

    /// The next of a fixed row of numbers.
    pub(super) fn random(&mut self, below: usize) -> usize {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % (below.max(1) as u64)).unwrap_or(0)
    }

    pub(super) fn note(&mut self, what: What) {
        self.trace.push(self.now, what);
    }

    pub(super) fn unix_ms(&self) -> i64 {
        self.config.start_unix_ms + self.now
    }

    /// Puts something into the agenda; what comes from outside (`class` 0) goes first.
    pub(super) fn plan(&mut self, at: i64, class: u8, task: Task) -> (i64, u8, u64) {
        self.seq += 1;
        let key = (at, class, self.seq);
        self.agenda.insert(key, task);
        key
    }

    pub(super) fn pod(&self, id: PodId) -> &PodEntry {
        &self.pods[id.0 as usize]
    }

    pub(super) fn pod_mut(&mut self, id: PodId) -> &mut PodEntry {
        &mut self.pods[id.0 as usize]
    }

    pub(super) fn node(&self, id: NodeId) -> &NodeInfo {
        &self.nodes[id.0 as usize]
    }

    /// The number of a node name.
    pub(super) fn node_id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.node_ids.get(name) {
            return *id;
        }
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let info = NodeInfo::new(name);
        self.node_ids.insert(Rc::clone(&info.name), id);
        self.nodes.push(info);
        id
    }

    pub(super) fn api_away(&self) -> bool {
        self.now < self.away_until
    }

    // --- what comes from outside ---

    /// Does what happens from outside; what the API server refuses is noted.
    pub(super) fn act(&mut self, action: Action) {
        let (what, done) = match action {
            Action::Create { object, runs_ms } => {
                let what = ObjectRef::of(&object).map_or_else(|_| "create".to_owned(), |r| format!("create {r}"));
                (what, self.create(object, runs_ms))
            }
            Action::Delete(object) => (format!("delete {object}"), self.delete(&object)),
            Action::Patch(object, patch) => (format!("patch {object}"), self.patch(&object, &patch)),
            Action::Finish { namespace, name, phase } => {
                let what = format!("finish pod/{namespace}/{name}");
                let done = self.existing_pod(&namespace, &name).map(|id| self.finish(id, &phase));
                (what, done)
            }
            Action::FailBinds { namespace, name, count } => {
                // The pod may still be to come.
                self.fail_binds.insert(PodKey::new(&namespace, &name), count);
                return;
            }
            Action::ApiAway(ms) => {
                self.away_until = self.away_until.max(self.now + ms);
                self.note(What::ApiAway);
                let at = self.away_until;
                self.plan(at, 0, Task::ApiBack);
                return;
            }
            // The simulator does it, which has the plugin and the bridge to stop.
            Action::RestartScheduler(_) => return,
        };
        if let Err(reason) = done {
            self.note(What::Refused { action: what, reason });
        }
    }

    fn existing_pod(&self, namespace: &str, name: &str) -> Result<PodId, String> {
        self.by_key.get(&PodKey::new(namespace, name)).copied().ok_or_else(|| "there is no such pod".to_owned())
    }

    fn create(&mut self, mut object: Json, runs_ms: Option<i64>) -> Result<(), String> {
        strip_nulls(&mut object);
        if object["kind"] == "Pod" {
            return self.create_pod(object, runs_ms);
        }
        let reference = ObjectRef::of(&object)?;
        if self.objects.contains_key(&reference) {
            return Err("there is one already".to_owned());
        }
        if object["metadata"]["uid"].as_str().is_none() {
            object["metadata"]["uid"] = Json::from(self.next_uid());
        }
        if object["metadata"]["creationTimestamp"].as_str().is_none() {
            object["metadata"]["creationTimestamp"] = Json::from(Time::from_unix_ms(self.unix_ms()).to_string());
        }
        self.set_version(&mut object);
        if reference.kind == "Node" && reference.group.is_empty() {
            let node: Node = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
            self.notices.push_back(Notice::NodeAdded(Rc::new(node)));
        } else {
            self.notices.push_back(Notice::Object(reference.clone(), version_of(&object)));
        }
        self.note(What::Created { object: reference.to_string() });
        self.objects.insert(reference, Rc::new(object));
        Ok(())
    }

    fn create_pod(&mut self, mut object: Json, runs_ms: Option<i64>) -> Result<(), String> {
        let meta = &mut object["metadata"];
        if meta["namespace"].as_str().is_none_or(str::is_empty) {
            meta["namespace"] = Json::from("default");
        }
        if meta["name"].as_str().is_none()
            && let Some(base) = meta["generateName"].as_str()
        {
            meta["name"] = Json::from(format!("{base}{:05}", self.uids + 1));
        }
        let mut pod: Pod = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
        if pod.metadata.name.is_empty() {
            return Err("the object has no metadata.name".to_owned());
        }
        let key = PodKey::new(&pod.metadata.namespace, &pod.metadata.name);
        if self.by_key.contains_key(&key) {
            return Err("there is one already".to_owned());
        }
        self.admit(&mut pod)?;
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = self.next_uid();
        }
        if pod.metadata.creation_timestamp.is_none() {
            pod.metadata.creation_timestamp = Some(Time::from_unix_ms(self.unix_ms()));
        }
        if !pod.spec.scheduling_gates.is_empty() {
            // The API server says so, the scheduler never sees it.
            let (message, now) =
                ("Scheduling is blocked due to non-empty scheduling gates", Time::from_unix_ms(self.unix_ms()));
            set_condition(&mut pod, "PodScheduled", "False", "SchedulingGated", message, now);
        }
        self.version += 1;
        pod.metadata.resource_version = self.version.to_string();
        let uid: Rc<str> = pod.metadata.uid.as_str().into();
        if self.by_uid.contains_key(&uid) {
            return Err(format!("the uid {uid} is in use"));
        }
        let id = PodId(u32::try_from(self.pods.len()).unwrap_or(u32::MAX));
        let node = pod.spec.node_name.clone();
        let grace_ms = pod.metadata.deletion_timestamp.map(|_| grace_ms(&pod));
        let runs = !node.is_empty() && pod.status.phase == "Pending";
        let runs_on = pod.status.phase == "Running";
        self.note(What::Arrived { pod: key.clone(), node });
        let namespace_labels = self.namespace_labels(&pod.metadata.namespace);
        let info = PodInfo::new(pod, &mut self.resources, namespace_labels);
        self.by_key.insert(key.clone(), id);
        self.by_uid.insert(Rc::clone(&uid), id);
        self.pods.push(PodEntry {
            key,
            uid,
            info,
            manifest: Rc::new(object),
            exists: true,
            runs_ms,
            attempts: 0,
            released_ms: None,
            scheduling: Scheduling::default(),
        });
        self.notices.push_back(Notice::PodAdded(id));
        if let Some(ms) = grace_ms {
            // Its deletion began before the run.
            self.plan(self.now + ms, 1, Task::GraceEnds(id));
        }
        if runs {
            self.plan(self.now, 1, Task::Run(id));
        } else if let (true, Some(ms)) = (runs_on, runs_ms) {
            self.plan(self.now + ms, 1, Task::Finish(id));
        }
        Ok(())
    }

    /// What the API server fills in.
    fn admit(&mut self, pod: &mut Pod) -> Result<(), String> {
        default_requests(pod);
        let spec = &mut pod.spec;
        if spec.scheduler_name.is_empty() {
            "default-scheduler".clone_into(&mut spec.scheduler_name);
        }
        for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
            if spec.host_network {
                for port in &mut container.ports {
                    port.host_port = port.container_port;
                }
            }
        }
        if pod.status.phase.is_empty() {
            "Pending".clone_into(&mut pod.status.phase);
        }
        let class = match spec.priority_class_name.as_str() {
            "" if spec.priority.is_some() => return Ok(()),
            "" => self.priority_classes().find(|(_, o)| o["globalDefault"] == true),
            "system-cluster-critical" => {
                spec.priority = Some(2_000_000_000);
                return Ok(());
            }
            "system-node-critical" => {
                spec.priority = Some(2_000_001_000);
                return Ok(());
            }
            name => {
                let class = self.priority_classes().find(|(r, _)| r.name == name);
                // A pod of a dump has its class resolved already.
                if class.is_none() && spec.priority.is_none() {
                    return Err(format!("no PriorityClass with name {name} was found"));
                }
                class
            }
        };
        if let Some((_, class)) = class {
            let value = class["value"].as_i64().and_then(|v| i32::try_from(v).ok());
            spec.priority = spec.priority.or(value);
            if spec.preemption_policy.is_empty() {
                class["preemptionPolicy"].as_str().unwrap_or_default().clone_into(&mut spec.preemption_policy);
            }
        }
        Ok(())
    }

    fn next_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    fn set_version(&mut self, object: &mut Json) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = Json::from(self.version.to_string());
    }

    /// The objects of a kind, found without a look at the others: there may be many.
    pub(super) fn objects_of<'a>(
        &'a self,
        group: &'a str,
        kind: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectRef, &'a Rc<Json>)> {
        let (namespace, name) = (String::new(), String::new());
        let first = ObjectRef { group: group.to_owned(), kind: kind.to_owned(), namespace, name };
        self.objects.range(first..).take_while(move |(r, _)| r.group == group && r.kind == kind)
    }

    fn priority_classes(&self) -> impl Iterator<Item = (&ObjectRef, &Rc<Json>)> {
        self.objects_of("scheduling.k8s.io", "PriorityClass")
    }

    /// The kind of a resource in a group, by its plural name, among the kinds there are objects of.
    pub(super) fn kind_of(&self, group: &str, resource: &str) -> Option<&str> {
        let (namespace, name) = (String::new(), String::new());
        let mut from = ObjectRef { group: group.to_owned(), kind: String::new(), namespace, name };
        loop {
            let (found, _) = self.objects.range(&from..).next()?;
            if found.group != group {
                return None;
            }
            if plural(&found.kind) == resource {
                return Some(&found.kind);
            }
            // Past all objects of this kind.
            from.kind = format!("{}\0", found.kind);
        }
    }

    /// The object that a reference means; its group may be "" where only one API has the kind.
    pub(super) fn resolve(&self, reference: &ObjectRef) -> Option<&ObjectRef> {
        if let Some((found, _)) = self.objects.get_key_value(reference) {
            return Some(found);
        }
        let same = |r: &&ObjectRef| {
            (reference.group.is_empty() || r.group == reference.group)
                && r.kind.eq_ignore_ascii_case(&reference.kind)
                && r.name == reference.name
                && r.namespace == reference.namespace
        };
        self.objects.keys().find(same)
    }

    pub(super) fn delete(&mut self, reference: &ObjectRef) -> Result<(), String> {
        if reference.kind.eq_ignore_ascii_case("pod") {
            let id = self.existing_pod(&reference.namespace, &reference.name)?;
            self.delete_pod(id);
            return Ok(());
        }
        let reference = self.resolve(reference).cloned().ok_or("there is no such object")?;
        let object = &self.objects[&reference];
        if object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty()) {
            let now = Time::from_unix_ms(self.unix_ms()).to_string();
            self.note(What::Terminating { object: reference.to_string() });
            return self.patch(&reference, &json!({"metadata": {"deletionTimestamp": now}}));
        }
        self.remove_object(&reference);
        Ok(())
    }

    fn remove_object(&mut self, reference: &ObjectRef) {
        self.note(What::Deleted { object: reference.to_string() });
        let Some(object) = self.objects.remove(reference) else { return };
        let node = reference.kind == "Node" && reference.group.is_empty();
        match serde_json::from_value::<Node>(Json::clone(&object)) {
            Ok(last) if node => self.notices.push_back(Notice::NodeDeleted(Rc::new(last))),
            _ => self.notices.push_back(Notice::Object(reference.clone(), version_of(&object))),
        }
    }

    pub(super) fn delete_pod(&mut self, id: PodId) {
        let entry = self.pod(id);
        let key = entry.key.clone();
        let object = format!("pod/{key}");
        let pod = &entry.info.pod;
        let grace_ms = grace_ms(pod);
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        if pod.metadata.finalizers.is_empty() && grace_ms <= 0 {
            return self.remove_pod(id);
        }
        self.note(What::Terminating { object });
        let end = Time::from_unix_ms(self.unix_ms() + grace_ms);
        self.update_pod(id, |pod| pod.metadata.deletion_timestamp = Some(end));
        if grace_ms > 0 {
            self.plan(self.now + grace_ms, 1, Task::GraceEnds(id));
        }
    }

    /// The kubelet has stopped a pod that is being deleted: it is gone, or ended if a finalizer keeps it.
    pub(super) fn stopped(&mut self, id: PodId) {
        if !self.pod(id).exists {
            return;
        }
        if self.pod(id).info.pod.metadata.finalizers.is_empty() {
            self.remove_pod(id);
        } else {
            self.finish(id, "Failed");
        }
    }

    fn remove_pod(&mut self, id: PodId) {
        let entry = self.pod_mut(id);
        entry.exists = false;
        let last = Rc::clone(&entry.info);
        let key = entry.key.clone();
        self.by_key.remove(&key);
        self.note(What::Deleted { object: format!("pod/{key}") });
        self.notices.push_back(Notice::PodDeleted { id, last });
    }

    fn patch(&mut self, reference: &ObjectRef, patch: &Json) -> Result<(), String> {
        if reference.kind.eq_ignore_ascii_case("pod") {
            let id = self.existing_pod(&reference.namespace, &reference.name)?;
            return self.patch_pod(id, patch);
        }
        let reference = self.resolve(reference).cloned().ok_or("there is no such object")?;
        let old = Rc::clone(&self.objects[&reference]);
        let mut new = Json::clone(&old);
        merge(&mut new, patch);
        if new["metadata"]["deletionTimestamp"].is_string()
            && new["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
        {
            self.remove_object(&reference);
            return Ok(());
        }
        self.set_version(&mut new);
        if reference.kind == "Node" && reference.group.is_empty() {
            let read = |object: &Json| serde_json::from_value::<Node>(object.clone()).map_err(|e| e.to_string());
            let (old, new) = (Rc::new(read(&old)?), Rc::new(read(&new)?));
            self.notices.push_back(Notice::NodeUpdated { old, new });
        } else {
            self.notices.push_back(Notice::Object(reference.clone(), version_of(&new)));
        }
        self.note(What::Patched { object: reference.to_string() });
        self.objects.insert(reference, Rc::new(new));
        Ok(())
    }

    fn patch_pod(&mut self, id: PodId, patch: &Json) -> Result<(), String> {
        let mut object = self.pod_json(id);
        merge(&mut object, patch);
        let pod: Pod = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
        let entry = self.pod(id);
        let before = &entry.info.pod;
        if pod.metadata.name != before.metadata.name
            || pod.metadata.namespace != before.metadata.namespace
            || pod.metadata.uid != before.metadata.uid
        {
            return Err("name, namespace and uid can't be changed".to_owned());
        }
        if pod.spec.priority != before.spec.priority || pod.spec.node_name != before.spec.node_name {
            return Err("spec.priority and spec.nodeName can't be changed".to_owned());
        }
        let over = pod.metadata.deletion_timestamp.is_some_and(|end| end.unix_ms() <= self.unix_ms());
        let gone = over && pod.metadata.finalizers.is_empty();
        let key = entry.key.clone();
        self.note(What::Patched { object: format!("pod/{key}") });
        self.pod_mut(id).manifest = Rc::new(object);
        if gone {
            self.remove_pod(id);
            return Ok(());
        }
        let namespace_labels = self.namespace_labels(&pod.metadata.namespace);
        let info = PodInfo::new(pod, &mut self.resources, namespace_labels);
        self.replace_pod(id, info);
        Ok(())
    }

    /// A new version of a pod whose requests stay the same.
    pub(super) fn update_pod(&mut self, id: PodId, change: impl FnOnce(&mut Pod)) {
        let mut pod = Pod::clone(&self.pod(id).info.pod);
        change(&mut pod);
        let info = self.pod(id).info.with(pod);
        self.replace_pod(id, info);
    }

    fn replace_pod(&mut self, id: PodId, mut new: Rc<PodInfo>) {
        self.version += 1;
        if let Some(info) = Rc::get_mut(&mut new)
            && let Some(pod) = Rc::get_mut(&mut info.pod)
        {
            pod.metadata.resource_version = self.version.to_string();
        }
        let old = std::mem::replace(&mut self.pod_mut(id).info, Rc::clone(&new));
        self.notices.push_back(Notice::PodUpdated { id, old, new });
    }

    /// A pod begins to run.
    pub(super) fn run(&mut self, id: PodId) {
        let entry = self.pod(id);
        if !entry.exists || entry.info.pod.status.phase != "Pending" {
            return;
        }
        let (key, runs) = (entry.key.clone(), entry.runs_ms);
        let now = Time::from_unix_ms(self.unix_ms());
        self.note(What::Running { pod: key });
        self.update_pod(id, |pod| {
            "Running".clone_into(&mut pod.status.phase);
            pod.status.start_time = Some(now);
            set_condition(pod, "Ready", "True", "", "", now);
        });
        if let Some(ms) = runs {
            self.plan(self.now + ms, 1, Task::Finish(id));
        }
    }

    /// A pod ends.
    pub(super) fn finish(&mut self, id: PodId, phase: &str) {
        let entry = self.pod(id);
        if !entry.exists || entry.info.pod.is_terminal() {
            return;
        }
        let pod = entry.key.clone();
        self.note(What::Finished { pod, phase: phase.to_owned() });
        let now = Time::from_unix_ms(self.unix_ms());
        self.update_pod(id, |pod| {
            phase.clone_into(&mut pod.status.phase);
            set_condition(pod, "Ready", "False", "PodCompleted", "", now);
        });
        let meta = &self.pod(id).info.pod.metadata;
        if meta.deletion_timestamp.is_some() && meta.finalizers.is_empty() {
            self.remove_pod(id);
        }
    }

    /// Records an event of the API.
    pub(super) fn record(&mut self, regarding: ObjectRef, r#type: &str, reason: &str, note: &str) {
        if self.api_away() {
            return;
        }
        self.note(What::Event {
            regarding: regarding.to_string(),
            r#type: r#type.to_owned(),
            reason: reason.to_owned(),
            note: note.to_owned(),
        });
        self.events.push(EventState {
            at_ms: self.now,
            regarding,
            r#type: r#type.to_owned(),
            reason: reason.to_owned(),
            note: note.to_owned(),
        });
    }

    pub(super) fn record_pod(&mut self, id: PodId, r#type: &str, reason: &str, note: &str) {
        let key = &self.pod(id).key;
        let regarding = ObjectRef::pod(key.namespace(), key.name());
        self.record(regarding, r#type, reason, note);
    }

    /// A pod as the API shows it: its manifest, and over it what is known in typed form.
    pub(super) fn pod_json(&self, id: PodId) -> Json {
        let entry = self.pod(id);
        let mut object = Json::clone(&entry.manifest);
        let typed = serde_json::to_value(&*entry.info.pod).unwrap_or_default();
        overlay(&mut object, typed);
        // What the typed form knows and no longer has is gone.
        let pod = &entry.info.pod;
        if pod.status.nominated_node_name.is_empty()
            && let Some(status) = object["status"].as_object_mut()
        {
            status.shift_remove("nominatedNodeName");
        }
        object
    }

    // --- the scheduler's cache ---

    /// Takes note of an object of a kind that only scheduling decisions read, as it is now. Whether it is one of storage.
    pub(super) fn observe(&mut self, reference: &ObjectRef) -> bool {
        let object = self.objects.get(reference).cloned();
        if reference.kind == "Namespace" && reference.group.is_empty() {
            let labels = object.as_ref().and_then(|o| BTreeMap::deserialize(&o["metadata"]["labels"]).ok());
            let mut labels: BTreeMap<String, String> = labels.unwrap_or_default();
            labels.insert(NAMESPACE_NAME.to_owned(), reference.name.clone());
            self.namespace_labels(&reference.name).replace(labels);
        }
        self.selectors.update(reference, object.as_deref());
        self.storage.update(reference, object.as_deref())
    }

    /// The labels of a namespace; one that isn't in the API has its name alone.
    fn namespace_labels(&mut self, name: &str) -> NamespaceLabels {
        let unknown = || Rc::new(RefCell::new(BTreeMap::from([(NAMESPACE_NAME.to_owned(), name.to_owned())])));
        Rc::clone(self.namespaces.entry(name.to_owned()).or_insert_with(unknown))
    }

    /// Plans what becomes of the pod's open claims on its node.
    pub(super) fn plan_volumes(&mut self, pod: &PodInfo, node: NodeId) {
        if !pod.claims.is_empty()
            && let Some(node) = self.node(node).node.clone()
        {
            self.storage.plan(pod, &node);
        }
    }

    /// The pod is bound, and so are its claims. A volume provisioned for it can be reached from the node's zone.
    pub(super) fn bind_volumes(&mut self, pod: &PodInfo, node: NodeId) {
        for ((namespace, name), plan) in self.storage.settle(pod) {
            // What was deleted meanwhile stays deleted: a patch of it comes to nothing.
            let claim = ObjectRef::core("PersistentVolumeClaim", &namespace, &name);
            let of = json!({"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name});
            let volume = match plan {
                Plan::Bind(volume) => {
                    let bound = json!({"spec": {"claimRef": of}, "status": {"phase": "Bound"}});
                    _ = self.patch(&ObjectRef::core("PersistentVolume", "", &volume), &bound);
                    volume
                }
                Plan::Provision(_) => {
                    let volume = format!("pvc-{namespace}-{name}");
                    let zone = self.node(node).labels().get(ZONE).cloned();
                    let terms = zone
                        .map(|zone| json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]));
                    let affinity = terms.map(|terms| json!({"required": {"nodeSelectorTerms": terms}}));
                    let object = json!({
                        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                        "spec": {"claimRef": of, "nodeAffinity": affinity}, "status": {"phase": "Bound"},
                    });
                    _ = self.create(object, None);
                    volume
                }
            };
            let bound = json!({"spec": {"volumeName": volume}, "status": {"phase": "Bound"}});
            _ = self.patch(&claim, &bound);
        }
    }

    /// Moves the unschedulable pods that an event may help.
    pub(super) fn move_all(&mut self, event: ClusterEvent, except: Option<PodId>) {
        self.queue.move_all(event, except, &mut self.pods, self.now, &self.resources);
    }

    /// Counts a pod on a node.
    pub(super) fn count(&mut self, id: PodId, node: NodeId, info: &Rc<PodInfo>) {
        self.uncount(id);
        self.nodes[node.0 as usize].add(id, info);
        self.storage.count(info, 1);
        self.anti_affine_pods += usize::from(!info.required_anti_affinity().is_empty());
        self.affine_pods += usize::from(info.has_pod_affinity());
        self.generation += 1;
        let now = self.now;
        let s = &mut self.pod_mut(id).scheduling;
        s.node = Some(node);
        s.counted_ms = now;
        s.counted = Some(Rc::clone(info));
    }

    /// Counts a pod no more.
    pub(super) fn uncount(&mut self, id: PodId) {
        let s = &mut self.pod_mut(id).scheduling;
        s.assumed = None;
        if let (Some(node), Some(info)) = (s.node.take(), s.counted.take()) {
            self.nodes[node.0 as usize].remove(id);
            self.storage.count(&info, -1);
            self.anti_affine_pods -= usize::from(!info.required_anti_affinity().is_empty());
            self.affine_pods -= usize::from(info.has_pod_affinity());
            self.generation += 1;
        }
    }

    pub(super) fn nominate(&mut self, id: PodId, node: Option<NodeId>) {
        if let Some(old) = self.pod_mut(id).scheduling.nominated.take()
            && let Some(pods) = self.nominated.get_mut(&old)
        {
            pods.retain(|other| *other != id);
            if pods.is_empty() {
                self.nominated.remove(&old);
            }
        }
        if let Some(node) = node {
            self.nominated.entry(node).or_default().push(id);
            self.pod_mut(id).scheduling.nominated = Some(node);
        }
    }

    /// A node came, changed or went.
    pub(super) fn set_node(&mut self, name: &str, node: Option<Rc<Node>>) {
        let id = self.node_id(name);
        let info = &mut self.nodes[id.0 as usize];
        for image in info.images.keys() {
            if let Some(nodes) = self.image_nodes.get_mut(image) {
                nodes.remove(&info.name);
            }
        }
        info.set_node(node, &mut self.resources);
        for image in info.images.keys() {
            self.image_nodes.entry(image.clone()).or_default().insert(Rc::clone(&info.name));
        }
        self.generation += 1;
        self.order.clear();
    }

    /// Lists the nodes of the snapshot anew if any came, changed or went: one of each zone in turn.
    pub(super) fn refresh_order(&mut self) {
        if !self.order.is_empty() {
            return;
        }
        let mut zones: Vec<(String, Vec<NodeId>)> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        for (i, info) in self.nodes.iter().enumerate().filter(|(_, info)| info.node.is_some()) {
            let label = |key: &str| info.labels().get(key).map_or("", String::as_str);
            let zone = format!("{}/{}", label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"));
            let at = *index.entry(zone.clone()).or_insert_with(|| {
                zones.push((zone, Vec::new()));
                zones.len() - 1
            });
            zones[at].1.push(NodeId(u32::try_from(i).unwrap_or(u32::MAX)));
        }
        let longest = zones.iter().map(|(_, nodes)| nodes.len()).max().unwrap_or(0);
        for i in 0..longest {
            self.order.extend(zones.iter().filter_map(|(_, nodes)| nodes.get(i)));
        }
    }

    /// Signals a pod that waits; only the first signal counts. Whether there was one to signal.
    pub(super) fn signal(&mut self, id: PodId, signal: Signal) -> bool {
        let Some(waiting) = self.waiting.get_mut(&id) else { return false };
        if !waiting.decided {
            waiting.decided = true;
            let timeout = waiting.timeout;
            self.agenda.remove(&timeout);
            self.signals.push_back((id, signal));
        }
        true
    }
}

/// How long a pod takes to stop, in milliseconds: nothing if it doesn't run, or its spec doesn't say.
fn grace_ms(pod: &Pod) -> i64 {
    let runs = !pod.spec.node_name.is_empty() && !pod.is_terminal();
    pod.spec.termination_grace_period_seconds.filter(|_| runs).unwrap_or(0).clamp(0, 86_400) * 1000
}

/// The API version of an object, without its group.
fn version_of(object: &Json) -> String {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    api_version.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Sets a condition; its transition time moves with its status.
pub(super) fn set_condition(pod: &mut Pod, r#type: &str, status: &str, reason: &str, message: &str, now: Time) {
    let conditions = &mut pod.status.conditions;
    let at = conditions.iter().position(|c| c.r#type == r#type).unwrap_or_else(|| {
        conditions.push(PodCondition { r#type: r#type.to_owned(), ..PodCondition::default() });
        conditions.len() - 1
    });
    let condition = &mut conditions[at];
    if condition.status != status {
        status.clone_into(&mut condition.status);
        condition.last_transition_time = Some(now);
    }
    reason.clone_into(&mut condition.reason);
    message.clone_into(&mut condition.message);
}

/// Applies a JSON merge patch (RFC 7386).
pub(super) fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Json::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.shift_remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Json::Null), value);
            }
        }
    }
}

/// Puts the fields of one object over those of another, deeply; lists are replaced.
fn overlay(target: &mut Json, over: Json) {
    match (target, over) {
        (Json::Object(target), Json::Object(over)) => {
            for (key, value) in over {
                match target.get_mut(&key) {
                    // A list may hold more than the typed form knows of it.
                    Some(Json::Array(_)) if matches!(key.as_str(), "containers" | "initContainers" | "volumes") => {}
                    Some(at) => overlay(at, value),
                    None => {
                        target.insert(key, value);
                    }
                }
            }
        }
        (target, over) => *target = over,
    }
}

/// Takes out what is null, which means the same as absent.
fn strip_nulls(value: &mut Json) {
    match value {
        Json::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Json::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}
