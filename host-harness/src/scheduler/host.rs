//! What the guest and the bridge may ask of the scheduler.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value as Json;

use super::action::ObjectRef;
use super::core::{Core, Signal};
use super::event::plugin;
use super::filter;
use super::node::NodeId;
use super::pod::PodId;
use super::trace::What;
use crate::bridge::{Bridge, Cluster, Demand, Victim};
use crate::guest::{Event, Host, ImageState, LogLine};
use crate::objects::Time;
use kube_scheduler_abi::bridge::v1;

/// The cluster, the scheduler's memory, and the bridge into it.
pub(super) struct World {
    pub(super) core: Core,
    pub(super) bridge: Bridge,
}

impl Host for World {
    fn node(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        let id = self.core.node_ids.get(name)?;
        self.core.node(*id).protobuf().map(Cow::Borrowed)
    }

    fn nodes(&mut self) -> Vec<Cow<'_, [u8]>> {
        let core = &self.core;
        core.order.iter().filter_map(|id| core.node(*id).protobuf().map(Cow::Borrowed)).collect()
    }

    fn image_states(&mut self, node: &str) -> Option<BTreeMap<String, ImageState>> {
        let core = &self.core;
        let info = core.node(*core.node_ids.get(node)?);
        info.node.as_ref()?;
        let state = |(name, size): (&String, &i64)| {
            let nodes = core.image_nodes.get(name).into_iter().flatten().map(ToString::to_string).collect();
            (name.clone(), ImageState { size: *size, nodes })
        };
        Some(info.images.iter().map(state).collect())
    }

    fn log(&mut self, line: LogLine) {
        self.core.note(What::Log { error: line.error, message: line.message, pairs: line.pairs });
    }

    fn event(&mut self, event: Event) {
        let group = event.regarding.api_version.split_once('/').map_or("", |(group, _)| group);
        let regarding = ObjectRef {
            group: group.to_owned(),
            kind: event.regarding.kind,
            namespace: event.regarding.namespace,
            name: event.regarding.name,
        };
        self.core.record(regarding, &event.r#type, &event.reason, &event.note);
    }

    fn waiting_pod(&mut self, uid: &str) -> Option<Cow<'_, [u8]>> {
        let id = *self.core.by_uid.get(uid)?;
        self.core.waiting.get(&id)?;
        let assumed = self.core.pod(id).scheduling.assumed.as_ref()?;
        Some(Cow::Owned(assumed.protobuf().to_vec()))
    }

    fn reject_waiting_pod(&mut self, uid: &str) -> bool {
        let Some(id) = self.core.by_uid.get(uid).copied() else { return false };
        let reason = "removed".to_owned();
        self.core.signal(id, Signal::Reject { plugin: plugin::GUEST, reason })
    }

    fn bridge(&mut self, request: &[u8], in_scheduling: bool) -> Option<Vec<u8>> {
        Some(self.bridge.handle(request, in_scheduling, &mut self.core))
    }
}

/// A resource as a request names it.
enum Asked {
    /// Places for pods.
    Pods,
    /// By its number; None: nobody has or wants any.
    Resource(Option<usize>),
}

impl Core {
    fn asked(&self, resources: &[String]) -> Vec<Asked> {
        let asked =
            |name: &String| if name == "pods" { Asked::Pods } else { Asked::Resource(self.resources.find(name)) };
        resources.iter().map(asked).collect()
    }

    fn snapshot_node(&self, index: u32) -> NodeId {
        self.order[index as usize]
    }

    fn known(&self, uid: &str) -> Option<PodId> {
        self.by_uid.get(uid).copied().filter(|id| self.pod(*id).exists)
    }
}

impl Cluster for Core {
    fn now_ms(&self) -> i64 {
        self.unix_ms()
    }

    fn can_allow(&self, uid: &str) -> Result<(), String> {
        let id = self.known(uid).ok_or("it is gone")?;
        match self.waiting.get(&id) {
            None => return Err("it isn't held any more".to_owned()),
            Some(waiting) if waiting.decided => return Err("it is decided already".to_owned()),
            Some(_) => {}
        }
        let pod = &self.pod(id).info.pod;
        if pod.metadata.deletion_timestamp.is_some() {
            return Err("it is being deleted".to_owned());
        }
        if !pod.spec.node_name.is_empty() {
            return Err("it has a node already".to_owned());
        }
        Ok(())
    }

    fn allow(&mut self, uid: &str) {
        if let Some(id) = self.known(uid)
            && self.waiting.get(&id).is_some_and(|w| !w.decided)
        {
            self.signal(id, Signal::Allow);
            let pod = self.pod(id).key.clone();
            self.note(What::Allowed { pod });
        }
    }

    fn reject(&mut self, uid: &str, reason: &str) {
        if let Some(id) = self.by_uid.get(uid).copied() {
            self.signal(id, Signal::Reject { plugin: plugin::GUEST, reason: reason.to_owned() });
        }
    }

    fn activate(&mut self, uids: &[String]) {
        for uid in uids {
            let Some(id) = self.known(uid) else { continue };
            if self.queue.activate(id, &mut self.pods[id.0 as usize]) {
                let pod = self.pod(id).key.clone();
                self.note(What::Activated { pod });
            }
        }
    }

    fn held_on(&self, uid: &str) -> Option<&str> {
        let waiting = self.waiting.get(self.by_uid.get(uid)?)?;
        Some(&self.node(waiting.node).name)
    }

    fn nominate_pod(&mut self, uid: &str, node: &str) {
        let (Some(id), Some(node_id)) = (self.known(uid), self.node_ids.get(node).copied()) else { return };
        if self.pod(id).scheduling.nominated == Some(node_id) {
            return;
        }
        self.nominate(id, Some(node_id));
        let pod = self.pod(id).key.clone();
        self.note(What::Nominated { pod, node: node.to_owned() });
        if !self.api_away() {
            self.update_pod(id, |pod| node.clone_into(&mut pod.status.nominated_node_name));
        }
    }

    fn evict(&mut self, uid: &str, preemptor_uid: &str, reason: &str) -> Result<(), String> {
        let id = self.known(uid).ok_or("it is gone")?;
        if self.pod(id).info.pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if self.api_away() {
            return Err("the API server doesn't answer".to_owned());
        }
        let by = self.by_uid.get(preemptor_uid).map(|id| self.pod(*id).key.to_string());
        let by = by.unwrap_or_else(|| preemptor_uid.to_owned());
        self.disrupt(id, &by, reason);
        Ok(())
    }

    fn demand(&self, uid: &str) -> Option<Demand> {
        let info = &self.pod(self.known(uid)?).info;
        let mut requests: BTreeMap<String, i64> =
            info.requests.iter().map(|(number, amount)| (self.resources.name(*number).to_owned(), *amount)).collect();
        requests.insert("pods".to_owned(), 1);
        let spec = &info.pod.spec;
        let mut constraints = String::new();
        let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        if !spec.node_selector.is_empty() || required.is_some() || !spec.tolerations.is_empty() {
            let written = write!(constraints, "{:?} {required:?} {:?}", spec.node_selector, spec.tolerations);
            debug_assert!(written.is_ok(), "a String takes all");
        }
        Some(Demand { requests, constraints })
    }

    fn object(&self, resource: &v1::Resource, namespace: &str, name: &str) -> v1::Object {
        let found = self.kind_of(&resource.group, &resource.resource).and_then(|kind| {
            let (group, kind) = (resource.group.clone(), kind.to_owned());
            self.objects.get(&ObjectRef { group, kind, namespace: namespace.to_owned(), name: name.to_owned() })
        });
        let Some(found) = found else {
            return v1::Object { served: true, ..v1::Object::default() };
        };
        let mut object = Json::clone(found);
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let uid = text(&object["metadata"]["uid"]);
        let resource_version = text(&object["metadata"]["resourceVersion"]);
        if let Some(fields) = object.as_object_mut() {
            fields.shift_remove("status");
        }
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.shift_remove("managedFields");
        }
        v1::Object { served: true, found: true, uid, resource_version, json: object.to_string().into_bytes() }
    }

    fn record_event(&mut self, event: &v1::EventRecord) {
        let group = event.resource.as_ref().map_or_else(String::new, |r| r.group.clone());
        let regarding =
            ObjectRef { group, kind: event.kind.clone(), namespace: event.namespace.clone(), name: event.name.clone() };
        let r#type = if event.warning { "Warning" } else { "Normal" };
        self.record(regarding, r#type, &event.reason, &event.note);
    }

    fn snapshot(&self) -> (u64, u32) {
        (self.generation, u32::try_from(self.order.len()).unwrap_or(u32::MAX))
    }

    fn node_name(&self, index: u32) -> &str {
        &self.node(self.snapshot_node(index)).name
    }

    fn node_label(&self, index: u32, key: &str) -> Option<&str> {
        self.node(self.snapshot_node(index)).labels().get(key).map(String::as_str)
    }

    fn node_admits(&self, index: u32, uid: &str) -> bool {
        let Some(id) = self.by_uid.get(uid) else { return true };
        let node = self.node(self.snapshot_node(index)).node.as_deref();
        node.is_some_and(|node| filter::check_static(&self.pod(*id).info.pod, node).is_ok())
    }

    fn nodes_free(&self, indices: &[u32], resources: &[String], evict_below: Option<i32>) -> Vec<i64> {
        let asked = self.asked(resources);
        let mut all = Vec::with_capacity(indices.len() * asked.len());
        for index in indices {
            let info = self.node(self.snapshot_node(*index));
            let pods = info.allowed_pods - i64::try_from(info.pods.len()).unwrap_or(i64::MAX);
            let free = amounts(&asked, |number| info.free(number), pods);
            let start = all.len();
            all.extend(free);
            let Some(priority) = evict_below else { continue };
            for (_, pod) in info.pods.iter().filter(|(_, pod)| pod.priority < priority) {
                let held = amounts(&asked, |number| pod.request(number), 1);
                all[start..].iter_mut().zip(held).for_each(|(free, held)| *free += held);
            }
        }
        all
    }

    fn node_nominated(&self, index: u32, resources: &[String], priority: i32) -> Vec<(String, Vec<i64>)> {
        let asked = self.asked(resources);
        let nominated = self.nominated.get(&self.snapshot_node(index)).into_iter().flatten();
        nominated
            .map(|id| self.pod(*id))
            .filter(|entry| entry.info.priority >= priority)
            .map(|entry| (entry.uid.to_string(), amounts(&asked, |number| entry.info.request(number), 1).collect()))
            .collect()
    }

    fn node_victims(&self, index: u32, resources: &[String], priority: i32) -> Vec<Victim> {
        let (info, asked) = (self.node(self.snapshot_node(index)), self.asked(resources));
        let below = info.pods.iter().filter(|(_, pod)| pod.priority < priority);
        let protected = self.protected(below.clone().map(|(id, _)| *id));
        below
            .map(|(id, pod)| {
                let entry = self.pod(*id);
                let now = &entry.info.pod;
                let counted = self.config.start_unix_ms + entry.scheduling.counted_ms;
                Victim {
                    uid: entry.uid.to_string(),
                    priority: pod.priority,
                    start_ms: now.status.start_time.map_or(counted, Time::unix_ms),
                    requests: amounts(&asked, |number| pod.request(number), 1).collect(),
                    protected: protected.contains(id),
                    terminating: now.metadata.deletion_timestamp.is_some(),
                }
            })
            .collect()
    }
}

/// The amounts of what was asked for.
fn amounts(asked: &[Asked], of: impl Fn(usize) -> i64, pods: i64) -> impl Iterator<Item = i64> {
    asked.iter().map(move |asked| match asked {
        Asked::Pods => pods,
        Asked::Resource(number) => number.map_or(0, &of),
    })
}

/// The plural of a kind, as it stands in an API path.
pub(super) fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower.ends_with('s') || lower.ends_with('x') || lower.ends_with("ch") || lower.ends_with("sh") {
        return format!("{lower}es");
    }
    match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{lower}s"),
    }
}
