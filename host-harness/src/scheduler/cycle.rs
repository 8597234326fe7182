//! The scheduling cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kube_scheduler_abi::{Code, Export};

use super::Simulator;
use super::core::{Task, Waiting, set_condition};
use super::event::plugin;
use super::filter::{self, CycleState, Failure, Reason};
use super::host::World;
use super::node::{NodeId, NodeInfo};
use super::plugin::Plugin;
use super::pod::{Place, PodId, PodInfo};
use super::preempt::Preemption;
use super::resource::Resources;
use super::trace::{Outcome, What};
use super::{affinity, score, spread};
use crate::guest::{self, CallError, Fault};
use crate::objects::Time;

/// All nodes are looked at up to this number.
const MIN_FEASIBLE: usize = 100;
/// The longest time that Permit may ask for.
const MAX_PERMIT_MS: i64 = 15 * 60 * 1000;
/// Longer messages of events are cut.
const MAX_NOTE: usize = 1024;

/// Why no node does.
#[derive(Clone, Debug, Default)]
pub(super) struct Diagnosis {
    pub(super) nodes: Vec<(NodeId, Failure)>,
    /// What holds for all other nodes.
    pub(super) absent: Option<(Code, String)>,
    pre_filter: Option<String>,
    post_filter: String,
    rejectors: u32,
    pending: u32,
}

impl Diagnosis {
    /// Of a dry run: what the nodes tried say, and that preemption doesn't help on the others.
    pub(super) fn of_dry_run(nodes: Vec<(NodeId, Failure)>) -> Self {
        let text = "Preemption is not helpful for scheduling".to_owned();
        Self { nodes, absent: Some((Code::UnschedulableAndUnresolvable, text)), ..Self::default() }
    }

    pub(super) fn code(&self, node: NodeId) -> Code {
        let own = self.nodes.iter().find(|(id, _)| *id == node).map(|(_, failure)| failure.code);
        own.or(self.absent.as_ref().map(|(code, _)| *code)).unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    fn refuse(&mut self, plugin: u32, code: Code) {
        self.rejectors |= plugin;
        if code == Code::Pending {
            self.pending |= plugin;
        }
    }

    /// The scheduler's message: how many nodes refuse for which reason.
    pub(super) fn message(&self, all: usize, resources: &Resources) -> String {
        let mut message = format!("0/{all} nodes are available:");
        if let Some(text) = &self.pre_filter {
            message += &format!(" {text}.");
        } else {
            let mut by_reason: BTreeMap<&Reason, usize> = BTreeMap::new();
            for (_, failure) in &self.nodes {
                *by_reason.entry(&failure.reason).or_default() += 1;
            }
            let mut by_text: BTreeMap<String, usize> = BTreeMap::new();
            for (reason, count) in by_reason {
                for text in reason.texts(resources) {
                    *by_text.entry(text).or_default() += count;
                }
            }
            if let Some((_, text)) = &self.absent
                && self.nodes.len() < all
            {
                *by_text.entry(text.clone()).or_default() += all - self.nodes.len();
            }
            let mut texts: Vec<String> = by_text.into_iter().map(|(text, count)| format!("{count} {text}")).collect();
            texts.sort_unstable();
            if !texts.is_empty() {
                message += &format!(" {}.", texts.join(", "));
            }
        }
        if !self.post_filter.is_empty() {
            message += &format!(" {}", self.post_filter);
        }
        message
    }
}

/// What a failed cycle does to the pod's nomination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nomination {
    Leave,
    Clear,
    Set(NodeId),
}

/// How a cycle or a binding failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) outcome: Outcome,
    pub(super) rejectors: u32,
    pub(super) pending: u32,
    pub(super) message: String,
    pub(super) nomination: Nomination,
}

impl Failed {
    pub(super) fn error(message: impl Into<String>) -> Self {
        let nomination = Nomination::Clear;
        Self { outcome: Outcome::Error, rejectors: 0, pending: 0, message: message.into(), nomination }
    }

    /// A plugin refused the node that was chosen.
    pub(super) fn on_node(plugin: u32, code: Code, reason: &str) -> Self {
        Self {
            outcome: Outcome::Unschedulable,
            rejectors: plugin,
            pending: if code == Code::Pending { plugin } else { 0 },
            message: format!("0/1 nodes are available: 1 {reason}."),
            nomination: Nomination::Clear,
        }
    }
}

/// Whether a code refuses the pod, against an error.
pub(super) fn is_rejection(code: Option<Code>) -> bool {
    matches!(code, Some(Code::Unschedulable | Code::UnschedulableAndUnresolvable | Code::Pending))
}

impl Simulator {
    /// Calls the guest; a call that comes to no answer is a status of code Error.
    pub(super) fn call<T>(
        &mut self,
        f: impl FnOnce(&mut dyn Plugin, &mut World) -> Result<T, CallError>,
    ) -> Result<T, guest::Status> {
        let Some(mut plugin) = self.plugin.take() else {
            return Err(guest::Status { code: Code::Error as i32, reason: "no plugin runs".to_owned() });
        };
        let result = f(&mut *plugin, &mut self.world);
        self.plugin = Some(plugin);
        result.map_err(|error| {
            let status = error.status();
            let core = &mut self.world.core;
            core.note(What::GuestFault { call: format!("{:?}", error.export), reason: status.reason.clone() });
            if let Fault::HostCrash(why) = &error.fault {
                core.crashed.get_or_insert_with(|| why.clone());
            }
            status
        })
    }

    /// Whether the pod's profile calls the plugin at this point.
    pub(super) fn implements(&self, id: PodId, point: Export) -> bool {
        let core = &self.world.core;
        let profile = &core.pod(id).info.pod.spec.scheduler_name;
        core.config.other_profiles.get(profile).is_none_or(|runs_it| *runs_it)
            && self.plugin.as_ref().is_some_and(|p| p.implements(point))
    }

    /// One scheduling cycle: the first pod of the active queue.
    pub(super) fn schedule_one(&mut self) {
        let core = &mut self.world.core;
        let Some(id) = core.queue.pop(&mut core.pods) else { return };
        core.busy_until = core.now + core.config.attempt_ms.max(1);
        let entry = core.pod_mut(id);
        let info = Rc::clone(&entry.info);
        if info.pod.metadata.deletion_timestamp.is_some() {
            let note = format!("skip schedule deleting pod: {}", entry.key);
            core.record_pod(id, "Warning", "FailedScheduling", &note);
            self.done(id, Place::None);
            return;
        }
        entry.attempts += 1;
        core.refresh_order();
        let result = self.place(id, &info);
        self.record_attempt(id, &result);
        match result {
            Ok(Placed { node, wait }) => self.after_permit(id, &info, node, wait),
            Err(failed) => self.fail(id, failed),
        }
    }

    fn record_attempt(&mut self, id: PodId, result: &Result<Placed, Failed>) {
        let core = &mut self.world.core;
        let (outcome, node, plugins, reason) = match result {
            Ok(placed) => (Outcome::Scheduled, core.node(placed.node).name.to_string(), Vec::new(), String::new()),
            Err(failed) => {
                let plugins = plugin::names(failed.rejectors, &core.config.plugin_name);
                (failed.outcome, String::new(), plugins, failed.message.clone())
            }
        };
        let entry = core.pod(id);
        let (pod, attempt) = (entry.key.clone(), entry.attempts);
        core.note(What::Attempt { pod, attempt, outcome, node, plugins, reason });
    }

    /// Forgets a pod that was in flight.
    pub(super) fn done(&mut self, id: PodId, place: Place) {
        let core = &mut self.world.core;
        core.queue.done(id, &mut core.pods[id.0 as usize]);
        core.pods[id.0 as usize].scheduling.place = place;
    }

    /// Finds a node, and asks Reserve and Permit.
    fn place(&mut self, id: PodId, info: &Rc<PodInfo>) -> Result<Placed, Failed> {
        let node = self.find_node(id, info)?;
        let name = Rc::clone(&self.world.core.node(node).name);
        let assumed = info.assumed_on(&name);
        let (uid, protobuf) = (Rc::clone(&self.world.core.pod(id).uid), assumed.protobuf());
        self.world.core.pod_mut(id).scheduling.assumed = Some(assumed);
        self.world.core.plan_volumes(info, node);
        let pod = guest::Pod { uid: &uid, protobuf: &protobuf };
        let result = self.reserve_and_permit(id, pod, &name);
        if result.is_err() {
            self.unreserve(id, pod, &name);
            self.world.core.storage.forget(info);
            self.world.core.pod_mut(id).scheduling.assumed = None;
        }
        result.map(|wait| Placed { node, wait })
    }

    fn reserve_and_permit(&mut self, id: PodId, pod: guest::Pod<'_>, node: &str) -> Result<Option<i64>, Failed> {
        let guest_name = self.world.core.config.plugin_name.clone();
        if self.implements(id, Export::Reserve) {
            let status = self.call(|p, w| p.reserve(w, pod, node)).unwrap_or_else(|status| status);
            match Code::from_i32(status.code) {
                Some(Code::Success) => {}
                Some(code) if is_rejection(Some(code)) => {
                    return Err(Failed::on_node(plugin::GUEST, code, &status.reason));
                }
                _ => {
                    return Err(Failed::error(format!("running Reserve plugin \"{guest_name}\": {}", status.reason)));
                }
            }
        }
        if !self.implements(id, Export::Permit) {
            return Ok(None);
        }
        let (status, wait) = match self.call(|p, w| p.permit(w, pod, node)) {
            Ok(permit) => (permit.status, permit.wait_ms),
            Err(status) => (status, 0),
        };
        match Code::from_i32(status.code) {
            Some(Code::Success) => Ok(None),
            Some(Code::Wait) => Ok(Some(i64::from(wait).min(MAX_PERMIT_MS))),
            Some(code) if is_rejection(Some(code)) => Err(Failed::on_node(plugin::GUEST, code, &status.reason)),
            _ => Err(Failed::error(format!("running Permit plugin \"{guest_name}\": {}", status.reason))),
        }
    }

    pub(super) fn unreserve(&mut self, id: PodId, pod: guest::Pod<'_>, node: &str) {
        if self.implements(id, Export::Unreserve) {
            // The framework goes on whatever the guest answers; a fault is in the trace.
            let _gone_on = self.call(|p, w| p.unreserve(w, pod, node));
        }
    }

    /// The pod passed Permit, or waits there.
    fn after_permit(&mut self, id: PodId, info: &Rc<PodInfo>, node: NodeId, wait: Option<i64>) {
        let core = &mut self.world.core;
        let Some(assumed) = core.pod(id).scheduling.assumed.clone() else { return };
        core.count(id, node, &assumed);
        core.pod_mut(id).scheduling.assumed = Some(assumed);
        core.nominate(id, None);
        debug_assert!(info.pod.spec.node_name.is_empty(), "only pods without a node are scheduled");
        match wait {
            Some(timeout_ms) => {
                let timeout = core.plan(core.now + timeout_ms, 1, Task::PermitTimeout(id));
                core.waiting.insert(id, Waiting { node, decided: false, timeout });
                let (pod, node) = (core.pod(id).key.clone(), core.node(node).name.to_string());
                core.note(What::Waiting { pod, node, timeout_ms });
            }
            None => self.release(id, node),
        }
    }

    /// Finds a node for the pod: PreFilter, Filter, PostFilter, Score.
    fn find_node(&mut self, id: PodId, info: &Rc<PodInfo>) -> Result<NodeId, Failed> {
        let all = self.world.core.order.len();
        if all == 0 {
            let message = "no nodes available to schedule pods".to_owned();
            return Err(Failed { outcome: Outcome::Unschedulable, ..Failed::error(message) });
        }
        let mut diagnosis = Diagnosis::default();
        let mut state = CycleState::default();
        let mut skip_guest = false;
        let feasible = self.feasible(id, info, &mut diagnosis, &mut state, &mut skip_guest)?;
        match feasible.as_slice() {
            [] => {
                let nomination = self.post_filter(id, info, &state, skip_guest, &mut diagnosis);
                Err(Failed {
                    outcome: Outcome::Unschedulable,
                    rejectors: diagnosis.rejectors,
                    pending: diagnosis.pending,
                    message: diagnosis.message(all, &self.world.core.resources),
                    nomination,
                })
            }
            [only] => Ok(*only),
            _ => self.best(id, info, &feasible),
        }
    }

    fn feasible(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        diagnosis: &mut Diagnosis,
        state: &mut CycleState,
        skip_guest: &mut bool,
    ) -> Result<Vec<NodeId>, Failed> {
        let Some(only) = self.pre_filter(id, info, diagnosis, state, skip_guest)? else { return Ok(Vec::new()) };
        if let Some(node) = self.world.core.pod(id).scheduling.nominated
            && self.world.core.node(node).node.is_some()
            && !info.pod.status.nominated_node_name.is_empty()
        {
            match self.check_live(id, info, state, node, *skip_guest) {
                Ok(()) => return Ok(vec![node]),
                Err(failure) if failure.code == Code::Error => return Err(filter_error(&failure)),
                Err(_) => {}
            }
        }
        let core = &self.world.core;
        let all = core.order.len();
        let nodes: Option<Vec<NodeId>> = only.map(|names| {
            let known = |name: &String| core.node_ids.get(name.as_str()).copied();
            names.iter().filter_map(known).filter(|id| core.node(*id).node.is_some()).collect()
        });
        let count = nodes.as_ref().map_or(all, Vec::len);
        let wanted = self.nodes_to_find(count);
        let start = self.world.core.next_start;
        let mut feasible = Vec::new();
        for i in 0..count {
            let node = match &nodes {
                Some(nodes) => nodes[(start + i) % count],
                None => self.world.core.order[(start + i) % count],
            };
            match self.check_live(id, info, state, node, *skip_guest) {
                Ok(()) => feasible.push(node),
                Err(failure) if failure.code == Code::Error => return Err(filter_error(&failure)),
                Err(failure) => {
                    diagnosis.refuse(failure.plugin, failure.code);
                    diagnosis.nodes.push((node, failure));
                }
            }
            if feasible.len() == wanted {
                break;
            }
        }
        let processed = feasible.len() + diagnosis.nodes.len();
        self.world.core.next_start = (start + processed) % all;
        Ok(feasible)
    }

    /// How many feasible nodes are enough to choose from.
    fn nodes_to_find(&self, all: usize) -> usize {
        if all < MIN_FEASIBLE {
            return all;
        }
        let percentage = match self.world.core.config.percentage_of_nodes_to_score as usize {
            0 => 50_usize.saturating_sub(all / 125).max(5),
            given => given.min(100),
        };
        (all * percentage / 100).max(MIN_FEASIBLE)
    }

    /// PreFilter, the guest's first. None: refused; else the only nodes to look at.
    #[expect(clippy::option_option, reason = "refused, or all nodes, or some")]
    fn pre_filter(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        diagnosis: &mut Diagnosis,
        state: &mut CycleState,
        skip_guest: &mut bool,
    ) -> Result<Option<Option<Vec<String>>>, Failed> {
        let guest_name = self.world.core.config.plugin_name.clone();
        let mut nodes: Option<BTreeSet<String>> = None;
        let mut naming = 0;
        let mut refusal = None;
        if self.implements(id, Export::PreFilter) {
            let (uid, protobuf) = (Rc::clone(&self.world.core.pod(id).uid), info.protobuf());
            let pod = guest::Pod { uid: &uid, protobuf: &protobuf };
            let (status, names) = match self.call(|p, w| p.prefilter(w, pod)) {
                Ok(answer) => (answer.status, answer.nodes),
                Err(status) => (status, None),
            };
            match Code::from_i32(status.code) {
                Some(Code::Success) => {
                    if let Some(names) = names {
                        naming |= plugin::GUEST;
                        nodes = Some(names.into_iter().collect());
                    }
                }
                Some(Code::Skip) => *skip_guest = true,
                Some(code @ Code::UnschedulableAndUnresolvable) => {
                    diagnosis.refuse(plugin::GUEST, code);
                    diagnosis.pre_filter = Some(status.reason.clone());
                    diagnosis.absent = Some((code, status.reason));
                    return Ok(None);
                }
                Some(code @ Code::Unschedulable) => refusal = Some((plugin::GUEST, code, status.reason)),
                _ => {
                    let message = format!("running PreFilter plugin \"{guest_name}\": {}", status.reason);
                    return Err(Failed::error(message));
                }
            }
        }
        if let Some(named) = filter::named_nodes(&info.pod) {
            naming |= plugin::NODE_AFFINITY;
            let named: BTreeSet<String> = named.into_iter().collect();
            nodes = Some(nodes.map_or(named.clone(), |nodes| nodes.intersection(&named).cloned().collect()));
        }
        if nodes.as_ref().is_some_and(BTreeSet::is_empty) {
            let names = plugin::names(naming, &guest_name);
            let text = match names.as_slice() {
                [one] => format!("node(s) didn't satisfy plugin {one}"),
                several => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", several.join(" ")),
            };
            diagnosis.rejectors |= naming;
            diagnosis.pre_filter = Some(text.clone());
            diagnosis.absent = Some((Code::UnschedulableAndUnresolvable, text));
            return Ok(None);
        }
        match self.world.core.storage.look(info) {
            Ok(volumes) => state.volumes = volumes,
            Err((plugin, reason)) => {
                let code = Code::UnschedulableAndUnresolvable;
                diagnosis.refuse(plugin, code);
                diagnosis.pre_filter = Some(reason.clone());
                diagnosis.absent = Some((code, reason));
                return Ok(None);
            }
        }
        if let Some((plugin, code, reason)) = refusal {
            diagnosis.refuse(plugin, code);
            diagnosis.pre_filter = Some(reason.clone());
            diagnosis.absent = Some((code, reason));
            self.count_topology(info, state);
            return Ok(None);
        }
        if nodes.is_some() {
            let names = plugin::names(naming, &guest_name).join(" ");
            let text = format!("node(s) didn't satisfy plugin(s) [{names}]");
            diagnosis.absent = Some((Code::UnschedulableAndUnresolvable, text));
            diagnosis.rejectors |= naming;
        }
        self.count_topology(info, state);
        Ok(Some(nodes.map(|nodes| nodes.into_iter().collect())))
    }

    /// What the filters of topology spread and pod affinity need to know of the cluster.
    fn count_topology(&self, info: &PodInfo, state: &mut CycleState) {
        let core = &self.world.core;
        state.spread = spread::State::new(info, core.order.iter().map(|id| core.node(*id)));
        let own = !info.required_affinity().is_empty() || !info.required_anti_affinity().is_empty();
        if !own && core.anti_affine_pods == 0 {
            return;
        }
        let mut counts = affinity::State::default();
        for node_id in &core.order {
            let node_info = core.node(*node_id);
            if let Some(node) = &node_info.node
                && (own || node_info.with_anti_affinity > 0)
            {
                node_info.pods.iter().for_each(|(_, other)| counts.update(info, other, node, 1));
            }
        }
        state.affinity = Some(counts);
    }

    /// All filters on a node as it is.
    fn check_live(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        state: &CycleState,
        node: NodeId,
        skip_guest: bool,
    ) -> Result<(), Failure> {
        let core = &self.world.core;
        if !core.nominated.contains_key(&node) {
            filter::check(info, core.node(node), state)?;
            return self.guest_filter(id, info, node, skip_guest);
        }
        let copy = core.node(node).clone();
        self.check_with_nominated(id, info, &copy, state, node, skip_guest)
    }

    /// All filters on a state of a node; with pods nominated there of the same or higher priority, the pod must fit both
    /// with and without them.
    pub(super) fn check_with_nominated(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        on: &NodeInfo,
        state: &CycleState,
        node: NodeId,
        skip_guest: bool,
    ) -> Result<(), Failure> {
        let core = &self.world.core;
        let nominated: Vec<(PodId, Rc<PodInfo>)> = core
            .nominated
            .get(&node)
            .into_iter()
            .flatten()
            .filter(|other| **other != id && core.pod(**other).info.priority >= info.priority)
            .map(|other| (*other, Rc::clone(&core.pod(*other).info)))
            .collect();
        if !nominated.is_empty() {
            let (mut copy, mut with) = (on.clone(), state.clone());
            for (other, pod) in &nominated {
                self.shift(id, info, &mut copy, &mut with, skip_guest, (*other, pod), true);
            }
            filter::check(info, &copy, &with)?;
            self.guest_filter(id, info, node, skip_guest)?;
        }
        filter::check(info, on, state)?;
        self.guest_filter(id, info, node, skip_guest)
    }

    fn guest_filter(&mut self, id: PodId, info: &PodInfo, node: NodeId, skip: bool) -> Result<(), Failure> {
        if skip || !self.implements(id, Export::Filter) {
            return Ok(());
        }
        let (uid, protobuf) = (Rc::clone(&self.world.core.pod(id).uid), info.protobuf());
        let name = Rc::clone(&self.world.core.node(node).name);
        let pod = guest::Pod { uid: &uid, protobuf: &protobuf };
        let status = self.call(|p, w| p.filter(w, pod, &name)).unwrap_or_else(|status| status);
        let code = match Code::from_i32(status.code) {
            Some(Code::Success) => return Ok(()),
            Some(code) if is_rejection(Some(code)) => code,
            _ => {
                let reason =
                    format!("running \"{}\" filter plugin: {}", self.world.core.config.plugin_name, status.reason);
                return Err(Failure { plugin: plugin::GUEST, code: Code::Error, reason: Reason::Text(reason.into()) });
            }
        };
        Err(Failure { plugin: plugin::GUEST, code, reason: Reason::Text(status.reason.into()) })
    }

    /// A pod joins a node in a dry run, or leaves it.
    #[expect(clippy::too_many_arguments, reason = "the parts of a cycle")]
    pub(super) fn shift(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        on: &mut NodeInfo,
        state: &mut CycleState,
        skip_guest: bool,
        (other, pod): (PodId, &Rc<PodInfo>),
        joins: bool,
    ) {
        if joins {
            on.add(other, pod);
        } else {
            on.remove(other);
        }
        if let Some(node) = on.node.clone() {
            state.update(info, pod, &node, if joins { 1 } else { -1 });
        }
        let point = if joins { Export::AddPod } else { Export::RemovePod };
        if !skip_guest && self.implements(id, point) {
            self.extension(id, info, other, pod, &on.name, joins);
        }
    }

    /// AddPod and RemovePod. What they answer shows in the guest's own filter.
    fn extension(&mut self, id: PodId, info: &PodInfo, other: PodId, pod: &PodInfo, node: &str, add: bool) {
        let (uid, bytes) = (Rc::clone(&self.world.core.pod(id).uid), info.protobuf());
        let (other_uid, other_bytes) = (Rc::clone(&self.world.core.pod(other).uid), pod.protobuf());
        let one = guest::Pod { uid: &uid, protobuf: &bytes };
        let target = guest::Pod { uid: &other_uid, protobuf: &other_bytes };
        let _answer =
            self.call(|p, w| if add { p.addpod(w, one, target, node) } else { p.removepod(w, one, target, node) });
    }

    /// PostFilter: the guest's, then default preemption.
    fn post_filter(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        state: &CycleState,
        skip_guest: bool,
        diagnosis: &mut Diagnosis,
    ) -> Nomination {
        let mut nomination = Nomination::Leave;
        let mut reasons = Vec::new();
        if self.implements(id, Export::PostFilter) {
            let (uid, protobuf) = (Rc::clone(&self.world.core.pod(id).uid), info.protobuf());
            let pod = guest::Pod { uid: &uid, protobuf: &protobuf };
            let core = &self.world.core;
            let statuses: BTreeMap<String, i32> =
                diagnosis.nodes.iter().map(|(id, f)| (core.node(*id).name.to_string(), f.code as i32)).collect();
            let (status, nominated) = match self.call(|p, w| p.postfilter(w, pod, &statuses)) {
                Ok(answer) => (answer.status, answer.nominated),
                Err(status) => (status, None),
            };
            let asked = match nominated {
                None => Nomination::Leave,
                Some(name) if name.is_empty() => Nomination::Clear,
                Some(name) => Nomination::Set(self.world.core.node_id(&name)),
            };
            match Code::from_i32(status.code) {
                Some(Code::Success | Code::UnschedulableAndUnresolvable) => {
                    diagnosis.post_filter = status.reason;
                    return asked;
                }
                Some(code) if is_rejection(Some(code)) => {
                    if asked != Nomination::Leave {
                        nomination = asked;
                    }
                    if !status.reason.is_empty() {
                        reasons.push(status.reason);
                    }
                }
                _ => {
                    diagnosis.post_filter = status.reason;
                    return Nomination::Leave;
                }
            }
        }
        match self.default_preemption(id, info, state, skip_guest, diagnosis) {
            Preemption::Nominate(node) => {
                diagnosis.post_filter.clear();
                return Nomination::Set(node);
            }
            Preemption::Nothing { clear, message } => {
                if clear {
                    nomination = Nomination::Clear;
                }
                reasons.push(message);
            }
        }
        diagnosis.post_filter = reasons.join(", ");
        nomination
    }

    /// The node with the highest score; between equals the seed decides.
    fn best(&mut self, id: PodId, info: &Rc<PodInfo>, nodes: &[NodeId]) -> Result<NodeId, Failed> {
        let mut totals = score::totals(&self.world.core, info, nodes);
        self.guest_scores(id, info, nodes, &mut totals)?;
        let most = totals.iter().copied().max().unwrap_or(0);
        let best: Vec<NodeId> = nodes.iter().zip(&totals).filter(|(_, t)| **t == most).map(|(n, _)| *n).collect();
        Ok(best[self.world.core.random(best.len())])
    }

    fn guest_scores(&mut self, id: PodId, info: &PodInfo, nodes: &[NodeId], totals: &mut [i64]) -> Result<(), Failed> {
        if !self.implements(id, Export::Score) {
            return Ok(());
        }
        let core = &self.world.core;
        let guest_name = core.config.plugin_name.clone();
        let weight = core.config.weights.get(&guest_name).copied().unwrap_or(1);
        let (uid, protobuf) = (Rc::clone(&core.pod(id).uid), info.protobuf());
        let pod = guest::Pod { uid: &uid, protobuf: &protobuf };
        let names: Vec<Rc<str>> = nodes.iter().map(|id| Rc::clone(&core.node(*id).name)).collect();
        let error =
            |point: &str, reason: &str| Failed::error(format!("running {point} plugin \"{guest_name}\": {reason}"));
        if self.implements(id, Export::PreScore) {
            let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
            let status = self.call(|p, w| p.prescore(w, pod, &names)).unwrap_or_else(|status| status);
            match Code::from_i32(status.code) {
                Some(Code::Success) => {}
                Some(Code::Skip) => return Ok(()),
                _ => return Err(error("PreScore", &status.reason)),
            }
        }
        let mut scores: Vec<(String, i64)> = Vec::with_capacity(names.len());
        for name in &names {
            let answer = self.call(|p, w| p.score(w, pod, name)).map_err(|status| error("Score", &status.reason))?;
            if answer.status.code != Code::Success as i32 {
                return Err(error("Score", &answer.status.reason));
            }
            scores.push((name.to_string(), answer.score));
        }
        if self.implements(id, Export::NormalizeScore) {
            let status = self.call(|p, w| p.normalizescore(w, pod, &mut scores)).unwrap_or_else(|status| status);
            if status.code != Code::Success as i32 {
                return Err(error("NormalizeScore", &status.reason));
            }
        }
        for (total, (_, score)) in totals.iter_mut().zip(scores) {
            if !(0..=100).contains(&score) {
                let reason = format!("plugin returns an invalid score {score}, it should in the range of [0, 100]");
                return Err(error("Score", &reason));
            }
            *total += weight * score;
        }
        Ok(())
    }

    /// A cycle or a binding failed: the pod goes back to the queue, and its status says why.
    pub(super) fn fail(&mut self, id: PodId, failed: Failed) {
        let core = &mut self.world.core;
        let entry = &mut core.pods[id.0 as usize];
        entry.scheduling.rejectors = failed.rejectors;
        entry.scheduling.pending = failed.pending;
        let (exists, placed) = (entry.exists, !entry.info.pod.spec.node_name.is_empty());
        if !exists || placed {
            self.done(id, Place::None);
            return;
        }
        core.queue.add_unschedulable(id, entry, core.now, &core.resources);
        let before = core.pod(id).scheduling.nominated;
        let after = match failed.nomination {
            Nomination::Leave => before,
            Nomination::Clear => None,
            Nomination::Set(node) => Some(node),
        };
        core.nominate(id, after);
        if before != after {
            let node = after.map_or_else(String::new, |node| core.node(node).name.to_string());
            let pod = core.pod(id).key.clone();
            core.note(What::Nominated { pod, node });
        }
        let mut note = failed.message.clone();
        if note.len() > MAX_NOTE {
            let cut = (0..=MAX_NOTE - 4).rev().find(|i| note.is_char_boundary(*i)).unwrap_or(0);
            note.truncate(cut);
            note += " ...";
        }
        core.record_pod(id, "Warning", "FailedScheduling", &note);
        if core.api_away() {
            return;
        }
        let reason = if failed.outcome == Outcome::Error { "SchedulerError" } else { "Unschedulable" };
        let pod = &core.pod(id).info.pod;
        let condition = pod.condition("PodScheduled");
        let same = condition.is_some_and(|c| c.status == "False" && c.reason == reason && c.message == failed.message);
        let nominated = match failed.nomination {
            Nomination::Leave => pod.status.nominated_node_name.clone(),
            _ => after.map_or_else(String::new, |node| core.node(node).name.to_string()),
        };
        if same && nominated == pod.status.nominated_node_name {
            return;
        }
        if !same {
            let pod = core.pod(id).key.clone();
            core.note(What::Condition { pod, reason: reason.to_owned(), message: failed.message.clone() });
        }
        let now = Time::from_unix_ms(core.unix_ms());
        core.update_pod(id, |pod| {
            set_condition(pod, "PodScheduled", "False", reason, &failed.message, now);
            pod.status.nominated_node_name = nominated;
        });
    }
}

/// A node that was found, and how long the pod is to wait at Permit.
struct Placed {
    node: NodeId,
    wait: Option<i64>,
}

fn filter_error(failure: &Failure) -> Failed {
    let text = match &failure.reason {
        Reason::Text(text) => text.to_string(),
        Reason::Fixed(text) => (*text).to_owned(),
        Reason::Resources(_) => String::new(),
    };
    Failed::error(text)
}
