//! The binding cycle: after Permit, each pod on its own.

use std::rc::Rc;

use kube_scheduler_abi::{Code, Export};

use super::Simulator;
use super::core::{Signal, Task, set_condition};
use super::cycle::{Failed, is_rejection};
use super::event::{ClusterEvent, plugin};
use super::node::NodeId;
use super::pod::{Place, PodId};
use super::trace::{Outcome, What};
use crate::guest;
use crate::objects::Time;

impl Simulator {
    /// A pod that waited at Permit was decided.
    pub(super) fn signalled(&mut self, id: PodId, signal: Signal) {
        let core = &mut self.world.core;
        let Some(waiting) = core.waiting.remove(&id) else { return };
        match signal {
            Signal::Allow => self.release(id, waiting.node),
            Signal::Reject { plugin: by, reason } => {
                let name = plugin::names(by, &core.config.plugin_name).pop().unwrap_or_default();
                let pod = core.pod(id).key.clone();
                core.note(What::Rejected { pod, plugin: name, reason: reason.clone() });
                self.give_up(id, waiting.node, Failed::on_node(by, Code::Unschedulable, &reason));
            }
        }
    }

    /// The time at Permit is over.
    pub(super) fn permit_timeout(&mut self, id: PodId) {
        let core = &mut self.world.core;
        let entry = core.pod(id);
        let waited = core.now - entry.scheduling.counted_ms;
        let (seconds, rest) = (waited / 1000, waited % 1000);
        let fraction = format!(".{rest:03}");
        let waited = match (seconds, fraction.trim_end_matches(['0', '.'])) {
            (0, _) => format!("{rest}ms"),
            (s, fraction) if s < 60 => format!("{s}{fraction}s"),
            (s, fraction) => format!("{}m{}{fraction}s", s / 60, s % 60),
        };
        let plugin_name = &core.config.plugin_name;
        let reason = format!("rejected due to timeout after waiting {waited} at plugin {plugin_name}");
        core.signal(id, Signal::Reject { plugin: plugin::GUEST, reason });
    }

    /// A pod is past Permit: PreBind, then the binding is under way.
    pub(super) fn release(&mut self, id: PodId, node: NodeId) {
        let core = &mut self.world.core;
        let now = core.now;
        core.pod_mut(id).released_ms = Some(now);
        if self.implements(id, Export::PreBind) {
            let name = self.world.core.config.plugin_name.clone();
            let answer = self.with_assumed(id, node, |simulator, pod, node| {
                simulator.call(|p, w| p.prebind(w, pod, node)).unwrap_or_else(|status| status)
            });
            match answer.map(|status| (Code::from_i32(status.code), status.reason)) {
                None | Some((Some(Code::Success), _)) => {}
                Some((Some(code), reason)) if is_rejection(Some(code)) => {
                    return self.give_up(id, node, Failed::on_node(plugin::GUEST, code, &reason));
                }
                Some((_, reason)) => {
                    let message = format!("running PreBind plugin \"{name}\": {reason}");
                    return self.give_up(id, node, Failed::error(message));
                }
            }
        }
        let core = &mut self.world.core;
        core.queue.done(id, &mut core.pods[id.0 as usize]);
        let at = core.now + core.config.bind_ms.max(0);
        core.plan(at, 1, Task::Bind(id, node));
    }

    /// Runs something with the pod as it is assumed on the node; None if it isn't any more.
    fn with_assumed<T>(
        &mut self,
        id: PodId,
        node: NodeId,
        f: impl FnOnce(&mut Self, guest::Pod<'_>, &str) -> T,
    ) -> Option<T> {
        let entry = self.world.core.pod(id);
        let assumed = entry.scheduling.assumed.as_ref().or(entry.scheduling.counted.as_ref())?;
        let (uid, protobuf) = (Rc::clone(&entry.uid), assumed.protobuf());
        let name = Rc::clone(&self.world.core.node(node).name);
        Some(f(self, guest::Pod { uid: &uid, protobuf: &protobuf }, &name))
    }

    /// The binding reaches the API server.
    pub(super) fn bind(&mut self, id: PodId, node: NodeId) {
        let core = &mut self.world.core;
        let name = core.node(node).name.to_string();
        let entry = core.pod(id);
        let (key, info) = (entry.key.clone(), Rc::clone(&entry.info));
        let failures = core.fail_binds.get(&key).copied().unwrap_or(0);
        let refusal = if !entry.exists {
            Some(format!("pods \"{}\" not found", key.name()))
        } else if entry.info.pod.metadata.deletion_timestamp.is_some() {
            Some(format!("pod {} is being deleted, cannot be assigned to a host", key.name()))
        } else if !entry.info.pod.spec.node_name.is_empty() {
            Some(format!("pod {} is already assigned to node \"{}\"", key.name(), entry.info.pod.spec.node_name))
        } else if failures > 0 {
            core.fail_binds.insert(key.clone(), failures - 1);
            Some("the API server refused the binding".to_owned())
        } else if core.api_away() {
            Some("the API server doesn't answer".to_owned())
        } else {
            None
        };
        if let Some(reason) = refusal {
            core.note(What::BindFailed { pod: key, node: name, reason: reason.clone() });
            let message = format!("binding rejected: running Bind plugin \"DefaultBinder\": {reason}");
            return self.give_up(id, node, Failed::error(message));
        }
        core.note(What::Bound { pod: key.clone(), node: name.clone() });
        let now = Time::from_unix_ms(core.unix_ms());
        core.update_pod(id, |pod| {
            name.clone_into(&mut pod.spec.node_name);
            set_condition(pod, "PodScheduled", "True", "", "", now);
        });
        core.bind_volumes(&info, node);
        core.plan(core.now, 1, Task::Run(id));
        let note = format!("Successfully assigned {key} to {name}");
        core.record_pod(id, "Normal", "Scheduled", &note);
        if self.implements(id, Export::PostBind) {
            // The framework goes on whatever the guest answers; a fault is in the trace.
            let _gone_on =
                self.with_assumed(id, node, |simulator, pod, node| simulator.call(|p, w| p.postbind(w, pod, node)));
        }
        self.done(id, Place::None);
    }

    /// A pod that was assumed gives its node up: Unreserve, and back to the queue.
    fn give_up(&mut self, id: PodId, node: NodeId, failed: Failed) {
        self.with_assumed(id, node, |simulator, pod, node| simulator.unreserve(id, pod, node));
        let core = &mut self.world.core;
        core.pod_mut(id).released_ms = None;
        let Some(assumed) = core.pod(id).scheduling.counted.clone() else {
            return self.fail(id, failed);
        };
        core.uncount(id);
        core.storage.forget(&assumed);
        // Its room is free as if it had been deleted. If it was refused, that is no event for itself.
        let event = ClusterEvent::pod_deleted(id, &assumed);
        if failed.outcome == Outcome::Unschedulable {
            self.fail(id, failed);
            self.world.core.move_all(event, Some(id));
        } else {
            core.move_all(event, None);
            self.fail(id, failed);
        }
    }
}
