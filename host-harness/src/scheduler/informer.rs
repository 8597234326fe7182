//! What the scheduler and the bridge do when the API changes.

use std::collections::BTreeMap;
use std::rc::Rc;

use kube_scheduler_abi::bridge::v1;
use kube_scheduler_abi::{Action as Bits, EventResource as Resource};

use super::Simulator;
use super::core::{Core, Notice, Signal};
use super::event::{About, ClusterEvent, plugin};
use super::pod::{Place, PodId, PodInfo};
use crate::bridge;
use crate::objects::Time;

impl Simulator {
    /// Hands the changes of the API, and the decisions at Permit, to those whom they concern, until there are none.
    pub(super) fn settle(&mut self) {
        loop {
            if !self.world.core.up {
                self.world.core.notices.clear();
                self.world.core.signals.clear();
                return;
            }
            if let Some(notice) = self.world.core.notices.pop_front() {
                self.noticed(notice);
            } else if let Some((id, signal)) = self.world.core.signals.pop_front() {
                self.signalled(id, signal);
            } else {
                return;
            }
        }
    }

    fn noticed(&mut self, notice: Notice) {
        let with_plugin = self.plugin.is_some();
        let world = &mut self.world;
        let core = &mut world.core;
        match notice {
            Notice::PodAdded(id) => {
                // Whatever changed since has a notice of its own.
                let info = Rc::clone(&core.pod(id).info);
                if with_plugin {
                    world.bridge.pod_changed(&bridge_pod(core, id), core);
                }
                core.pod_appeared(id, &info);
            }
            Notice::PodUpdated { id, old, new } => {
                if with_plugin && core.pod(id).exists {
                    world.bridge.pod_changed(&bridge_pod(core, id), core);
                }
                core.pod_changed(id, &old, &new);
            }
            Notice::PodDeleted { id, last } => {
                if with_plugin {
                    let uid = Rc::clone(&core.pod(id).uid);
                    world.bridge.pod_deleted(&uid);
                }
                if !last.pod.is_terminal() {
                    core.pod_vanished(id, &last);
                }
            }
            Notice::NodeAdded(node) => {
                core.set_node(&node.metadata.name, Some(Rc::clone(&node)));
                let about = About::Node { old: None, new: Some(node) };
                core.move_all(ClusterEvent { action: Bits::ADD.0, about }, None);
            }
            Notice::NodeUpdated { old, new } => {
                core.set_node(&new.metadata.name, Some(Rc::clone(&new)));
                for event in ClusterEvent::node_updated(&old, &new) {
                    core.move_all(event, None);
                }
            }
            Notice::NodeDeleted(node) => {
                let about = About::Node { old: Some(Rc::clone(&node)), new: None };
                core.move_all(ClusterEvent { action: Bits::DELETE.0, about }, None);
                core.set_node(&node.metadata.name, None);
                if with_plugin {
                    world.bridge.node_gone(&node.metadata.name, core);
                }
            }
            Notice::Object(reference, version) => {
                if core.observe(&reference) {
                    let resource = match reference.kind.as_str() {
                        "PersistentVolume" => Resource::PersistentVolume,
                        "PersistentVolumeClaim" => Resource::PersistentVolumeClaim,
                        _ => Resource::StorageClass,
                    } as u32;
                    let key = (reference.namespace.clone(), reference.name.clone());
                    let claim = (reference.kind == "PersistentVolumeClaim").then_some(key);
                    core.move_all(
                        ClusterEvent { action: Bits::ADD.0, about: About::Storage { resource, claim } },
                        None,
                    );
                }
                if with_plugin {
                    let resource = v1::Resource {
                        group: reference.group.clone(),
                        version,
                        resource: super::host::plural(&reference.kind),
                    };
                    world.bridge.object_changed(&resource, &reference.namespace, &reference.name, core);
                }
            }
        }
    }
}

/// What the bridge knows of a pod.
pub(super) fn bridge_pod(core: &Core, id: PodId) -> bridge::Pod {
    let entry = core.pod(id);
    let pod = &entry.info.pod;
    let meta = &pod.metadata;
    let copy = |map: &BTreeMap<String, String>| map.clone();
    bridge::Pod {
        uid: entry.uid.to_string(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        labels: copy(&meta.labels),
        annotations: copy(&meta.annotations),
        created_ms: meta.creation_timestamp.map_or(0, Time::unix_ms),
        terminating: meta.deletion_timestamp.is_some(),
        gated: !pod.spec.scheduling_gates.is_empty(),
        node: pod.spec.node_name.clone(),
        phase: match pod.status.phase.as_str() {
            "Running" => bridge::Phase::Running,
            "Succeeded" => bridge::Phase::Succeeded,
            "Failed" => bridge::Phase::Failed,
            _ => bridge::Phase::Pending,
        },
        priority: pod.priority(),
    }
}

impl Core {
    /// The scheduler sees a pod for the first time: one that hasn't ended.
    pub(super) fn pod_appeared(&mut self, id: PodId, info: &Rc<PodInfo>) {
        if info.pod.is_terminal() {
            return;
        }
        if info.pod.spec.node_name.is_empty() {
            if self.config.schedules(&info.pod.spec.scheduler_name) {
                self.queue.add(id, &mut self.pods[id.0 as usize], self.now);
                let nominated = info.pod.status.nominated_node_name.clone();
                if !nominated.is_empty() {
                    let node = self.node_id(&nominated);
                    self.nominate(id, Some(node));
                }
            }
            return;
        }
        let node = self.node_id(&info.pod.spec.node_name);
        self.count(id, node, info);
        self.move_all(ClusterEvent::pod_added(id, info), None);
    }

    fn pod_changed(&mut self, id: PodId, old: &Rc<PodInfo>, new: &Rc<PodInfo>) {
        if old.pod.is_terminal() {
            return;
        }
        if new.pod.is_terminal() {
            return self.pod_vanished(id, new);
        }
        let (had, has) = (!old.pod.spec.node_name.is_empty(), !new.pod.spec.node_name.is_empty());
        if !has {
            let ours = self.config.schedules(&new.pod.spec.scheduler_name);
            let assumed = self.pod(id).scheduling.assumed.is_some();
            if ours && !assumed {
                let events = ClusterEvent::pod_updated(id, old, new);
                self.queue.update(id, events, &mut self.pods, self.now, &self.resources);
            }
            return;
        }
        if !had {
            // It left the queue's view: someone bound it, most often this scheduler.
            self.leave_queue(id);
        }
        let node = self.node_id(&new.pod.spec.node_name);
        let since = (self.pod(id).scheduling.node == Some(node)).then(|| self.pod(id).scheduling.counted_ms);
        self.count(id, node, new);
        if let Some(since) = since {
            self.pod_mut(id).scheduling.counted_ms = since;
        }
        if had {
            for event in ClusterEvent::pod_updated(id, old, new) {
                self.move_all(event, None);
            }
        } else {
            self.move_all(ClusterEvent::pod_added(id, new), None);
        }
    }

    /// The scheduler sees a pod no more: it is deleted, or has ended.
    fn pod_vanished(&mut self, id: PodId, last: &Rc<PodInfo>) {
        if last.pod.spec.node_name.is_empty() {
            return self.leave_queue(id);
        }
        self.uncount(id);
        self.move_all(ClusterEvent::pod_deleted(id, last), None);
    }

    /// A pod without a node went out of the queue's view.
    fn leave_queue(&mut self, id: PodId) {
        self.nominate(id, None);
        self.queue.remove(id, &mut self.pods[id.0 as usize]);
        let reason = "removed".to_owned();
        if self.signal(id, Signal::Reject { plugin: plugin::NOBODY, reason }) {
            let last = Rc::clone(&self.pod(id).info);
            self.move_all(ClusterEvent::pod_deleted(id, &last), None);
        }
        debug_assert!(
            !matches!(self.pod(id).scheduling.place, Place::Active | Place::Backoff(_) | Place::Unschedulable),
            "it is in no queue"
        );
    }
}
