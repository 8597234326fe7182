//! How things stand.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::action::ObjectRef;
use super::core::EventState;
use super::host::World;
use super::trace::PodKey;
use crate::bridge::Metric;

/// How things stand at the simulator's clock.
#[derive(Clone, Copy)]
pub struct State<'a> {
    world: &'a World,
}

/// A pod that is in the API.
#[derive(Clone, Copy, Debug)]
pub struct PodState<'a> {
    /// Its namespace and name.
    pub key: &'a PodKey,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `spec.nodeName`, "" for none.
    pub node: &'a str,
    /// `status.phase`.
    pub phase: &'a str,
    /// Whether it is held at Permit: room taken, nothing decided.
    pub waiting: bool,
    /// The node it is held on or assumed to be on, "" for none.
    pub assumed_node: &'a str,
    /// When it was let go to its node (at Permit), virtual milliseconds; None for a pod that hasn't been, or that came
    /// with a node.
    pub released_ms: Option<i64>,
    /// Scheduling cycles so far.
    pub attempts: u32,
    /// Message of the PodScheduled condition, "" for none.
    pub reason: &'a str,
}

impl<'a> State<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        Self { world }
    }

    /// The pods that are in the API, by namespace and name.
    pub fn pods(self) -> impl Iterator<Item = PodState<'a>> {
        let core = &self.world.core;
        core.by_key.values().map(move |id| {
            let entry = core.pod(*id);
            let pod = &entry.info.pod;
            let assumed = entry.scheduling.assumed.is_some().then_some(entry.scheduling.node).flatten();
            PodState {
                key: &entry.key,
                uid: &entry.uid,
                node: &pod.spec.node_name,
                phase: &pod.status.phase,
                waiting: core.waiting.get(id).is_some_and(|w| !w.decided),
                assumed_node: assumed.map_or("", |node| &core.node(node).name),
                released_ms: entry.released_ms,
                attempts: entry.attempts,
                reason: pod.condition("PodScheduled").map_or("", |c| &c.message),
            }
        })
    }

    /// Allocatable less what bound and held pods request on a node: milli for cpu, bytes for memory and storage, else
    /// whole; `pods` is the places left. None: no such node.
    #[must_use]
    pub fn free(self, node: &str, resource: &str) -> Option<i64> {
        let core = &self.world.core;
        let info = core.node(*core.node_ids.get(node)?);
        info.node.as_ref()?;
        Some(match resource {
            "pods" => info.allowed_pods - i64::try_from(info.pods.len()).unwrap_or(i64::MAX),
            name => core.resources.find(name).map_or(0, |number| info.free(number)),
        })
    }

    /// An object as the API shows it. The group may be "" for a kind that only one API has.
    #[must_use]
    pub fn object(self, object: &ObjectRef) -> Option<Json> {
        let core = &self.world.core;
        if object.kind.eq_ignore_ascii_case("pod") {
            return Some(core.pod_json(*core.by_key.get(&PodKey::new(&object.namespace, &object.name))?));
        }
        Some(Json::clone(&core.objects[core.resolve(object)?]))
    }

    /// All events so far.
    #[must_use]
    pub fn events(self) -> &'a [EventState] {
        &self.world.core.events
    }

    /// What the guest counted and observed, by name and labels.
    #[must_use]
    pub fn metrics(self) -> Vec<(String, BTreeMap<String, String>, Metric)> {
        let metrics = self.world.bridge.metrics().iter();
        metrics.map(|((name, labels), metric)| (name.clone(), labels.clone(), metric.clone())).collect()
    }

    /// Why the scheduler ended for good, if it has: the guest ended its process.
    #[must_use]
    pub fn crashed(self) -> Option<&'a str> {
        self.world.core.crashed.as_deref()
    }
}
