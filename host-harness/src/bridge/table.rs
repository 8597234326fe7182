//! Groups and their members.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kube_scheduler_abi::bridge::v1;
use v1::error::Code;
use v1::group_leave_reply::Was;
use v1::group_source::{RoleFrom, ValueFrom};
use v1::member::State;

use super::{Cluster, Phase, Pod, error};

/// Members in a reply whose request sets no limit.
const MEMBERS_PAGE: u32 = 1000;

/// Members in order: by creation, then uid.
type Order = BTreeSet<(i64, String)>;

/// The table of groups.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// None before the first Hello: no pod is a member of anything.
    sources: Option<Vec<v1::GroupSource>>,
    pods: HashMap<String, Entry>,
    /// By pod. A hold outlives its pod, since Unreserve may come after the pod's deletion.
    holds: HashMap<String, Hold>,
    /// Only groups with members.
    groups: HashMap<String, Group>,
    /// Groups with someone held.
    holders: u32,
    blocked: BTreeSet<(Reverse<i64>, i64, String)>,
    timers: BTreeSet<(i64, Timer, String)>,
    /// The last GroupAllow that let its caller pass, by caller: a repeat with the same bytes gets the same answer.
    granted: HashMap<String, (Vec<u8>, v1::GroupAllowReply)>,
}

#[derive(Debug)]
struct Entry {
    pod: Pod,
    place: Option<Place>,
}

/// What a pod adds to the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    key: String,
    /// Which source matched.
    source: usize,
    role: String,
    state: State,
    created_ms: i64,
    held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Waiting,
    Released,
    Rejected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Deadline,
    Backoff,
}

#[derive(Debug, Default)]
struct Group {
    members: Order,
    /// Neither succeeded, failed nor terminating.
    live: Order,
    /// With an undecided hold, terminating or not.
    held: Order,
    total: v1::Counts,
    roles: BTreeMap<String, v1::Counts>,
    deadline_ms: i64,
    released: bool,
    backoff: v1::GroupBackoff,
    block: Option<v1::Blocked>,
}

impl Table {
    /// Hello: sets the sources, once.
    pub(super) fn declare(&mut self, sources: Vec<v1::GroupSource>) -> Result<(), v1::Error> {
        if let Some(known) = &self.sources {
            return if *known == sources {
                Ok(())
            } else {
                Err(error(Code::BadRequest, "other group sources were declared before, and they are one set for all"))
            };
        }
        for (i, source) in sources.iter().enumerate() {
            let named = match &source.value_from {
                Some(ValueFrom::Label(name) | ValueFrom::Annotation(name)) => !name.is_empty(),
                None => false,
            };
            if source.prefix.is_empty() || !named {
                return Err(error(
                    Code::BadRequest,
                    format!("source {i} lacks its prefix, or its label or annotation"),
                ));
            }
        }
        self.sources = Some(sources);
        let uids: Vec<String> = self.pods.keys().cloned().collect();
        uids.iter().for_each(|uid| self.refresh(uid));
        Ok(())
    }

    pub(super) fn pod_changed(&mut self, pod: &Pod) {
        if !pod.node.is_empty() && self.holds.get(&pod.uid) == Some(&Hold::Released) {
            self.end_hold(&pod.uid);
        }
        match self.pods.get_mut(&pod.uid) {
            Some(entry) => entry.pod.clone_from(pod),
            None => {
                self.pods.insert(pod.uid.clone(), Entry { pod: pod.clone(), place: None });
            }
        }
        self.refresh(&pod.uid);
    }

    pub(super) fn pod_deleted(&mut self, uid: &str) {
        if self.pods.contains_key(uid) {
            self.place(uid, None);
            self.pods.remove(uid);
        }
    }

    pub(super) fn object_changed(
        &mut self,
        resource: &v1::Resource,
        namespace: &str,
        name: &str,
        cluster: &mut dyn Cluster,
    ) {
        let sources = self.sources.iter().flatten();
        let keys: BTreeSet<String> = sources
            .filter(|s| s.object.as_ref() == Some(resource))
            .map(|s| format!("{}/{namespace}/{name}", s.prefix))
            .collect();
        for key in keys {
            self.activate(&key, "", cluster);
        }
    }

    /// The pod is in a scheduling cycle, so whatever held it before is over.
    pub(super) fn in_cycle(&mut self, uid: &str) {
        if self.end_hold(uid).is_some() {
            self.refresh(uid);
        }
    }

    pub(super) fn get(&self, call: &v1::GroupGet, cluster: &dyn Cluster) -> v1::GroupState {
        let group = self.groups.get(&call.key);
        let holds = group.is_some_and(|g| !g.held.is_empty());
        let mut state = v1::GroupState {
            now_ms: cluster.now_ms(),
            other_holders: self.holders - u32::from(holds),
            head: self.blocked.first().and_then(|(_, _, key)| self.groups.get(key)?.block.clone()),
            object: if call.with_object { self.object(&call.key, cluster) } else { None },
            ..Default::default()
        };
        let Some(group) = group else {
            state.total = Some(v1::Counts::default());
            return state;
        };
        state.total = Some(group.total);
        state.roles.clone_from(&group.roles);
        state.deadline_ms = group.deadline_ms;
        state.released = group.released;
        state.backoff_until_ms = group.backoff.until_ms;
        state.attempt = group.backoff.attempt;
        state.note.clone_from(&group.backoff.note);
        state.blocked_since_ms = group.block.as_ref().map_or(0, |b| b.since_ms);
        if let Some((created_ms, uid)) = group.live.first() {
            state.oldest_member_ms = *created_ms;
            state.facts = self.facts(uid);
        }
        state
    }

    /// The object that describes a group, whether or not the group has members.
    fn object(&self, key: &str, cluster: &dyn Cluster) -> Option<v1::Object> {
        self.sources.iter().flatten().find_map(|source| {
            let (namespace, name) = key.strip_prefix(&source.prefix)?.strip_prefix('/')?.split_once('/')?;
            source.object.as_ref().map(|resource| cluster.object(resource, namespace, name))
        })
    }

    fn facts(&self, uid: &str) -> BTreeMap<String, String> {
        let Some((entry, place)) = self.pods.get(uid).and_then(|e| Some((e, e.place.as_ref()?))) else {
            return BTreeMap::new();
        };
        let names = self.sources.iter().flatten().nth(place.source).map_or(&[][..], |s| &s.facts);
        let carried = names.iter().filter_map(|name| {
            let value = entry.pod.labels.get(name).or_else(|| entry.pod.annotations.get(name))?;
            Some((name.clone(), value.clone()))
        });
        carried.collect()
    }

    /// GroupAllow; `bytes` is the encoded request.
    pub(super) fn allow(
        &mut self,
        call: &v1::GroupAllow,
        bytes: &[u8],
        cluster: &mut dyn Cluster,
    ) -> Result<v1::GroupAllowReply, v1::Error> {
        let Some(own) = call.quorums.first().map(|q| q.key.clone()) else {
            return Err(error(Code::BadRequest, "group_allow names no quorum"));
        };
        if call.uid.is_empty() {
            return Err(error(Code::BadRequest, "group_allow names no pod"));
        }
        if let Some((asked, reply)) = self.granted.get(&call.uid)
            && asked == bytes
        {
            return Ok(reply.clone());
        }

        let mut ready: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut reply = v1::GroupAllowReply { allowed: true, ..Default::default() };
        for quorum in &call.quorums {
            if !ready.contains_key(quorum.key.as_str()) {
                let (can, lost) = self.held(&quorum.key, &call.uid, cluster);
                ready.insert(&quorum.key, can);
                reply.lost.extend(lost);
            }
            let (met, state) = self.measure(quorum, &ready[quorum.key.as_str()], &call.uid, quorum.key == own);
            reply.allowed &= met;
            reply.quorums.push(state);
        }

        if reply.allowed {
            let keys: Vec<String> = ready.keys().map(|&k| k.to_owned()).collect();
            let uids: Vec<String> = ready.into_values().flatten().map(str::to_owned).collect();
            reply.released = uids.len() as u32;
            for uid in &uids {
                cluster.allow(uid);
                self.hold(uid, Hold::Released);
            }
            self.hold(&call.uid, Hold::Released);
            keys.iter().for_each(|key| self.released(key));
            self.granted.insert(call.uid.clone(), (bytes.to_vec(), reply.clone()));
        } else if call.join_until_ms > 0 {
            self.hold(&call.uid, Hold::Waiting);
            let joined = self.groups.get(&own).filter(|g| !g.held.is_empty());
            if let Some(group) = joined {
                let earliest =
                    if group.deadline_ms == 0 { call.join_until_ms } else { group.deadline_ms.min(call.join_until_ms) };
                self.set_deadline(&own, earliest);
            }
        }
        Ok(reply)
    }

    /// The held members of a group but the caller: those that can be let go, and the others.
    fn held<'a>(&'a self, key: &str, caller: &str, cluster: &dyn Cluster) -> (Vec<&'a str>, Vec<v1::Lost>) {
        let (mut can, mut lost) = (Vec::new(), Vec::new());
        let held = self.groups.get(key).into_iter().flat_map(|g| &g.held);
        for (_, uid) in held.filter(|(_, uid)| uid != caller) {
            let terminating = self.pods.get(uid).is_some_and(|e| e.pod.terminating);
            let verdict = if terminating { Err("terminating".to_owned()) } else { cluster.can_allow(uid) };
            match verdict {
                Ok(()) => can.push(uid.as_str()),
                Err(why) => lost.push(v1::Lost { uid: uid.clone(), why }),
            }
        }
        (can, lost)
    }

    /// Whether a quorum is met, and by how many.
    fn measure(&self, quorum: &v1::Quorum, ready: &[&str], caller: &str, own: bool) -> (bool, v1::QuorumState) {
        let role = |uid: &str| {
            let place = self.pods.get(uid).and_then(|e| e.place.as_ref());
            place.map_or("", |p| p.role.as_str())
        };
        let group = self.groups.get(&quorum.key);
        let mut there = |counts: &v1::Counts| {
            let mut n = 0;
            if !quorum.only_waiting {
                n += counts.bound + counts.running;
            }
            if quorum.count_succeeded {
                n += counts.succeeded;
            }
            n
        };
        let mut have = group.map_or(0, |g| there(&g.total));
        let mut roles: BTreeMap<String, u32> = quorum
            .roles
            .keys()
            .map(|name| (name.clone(), group.and_then(|g| g.roles.get(name)).map_or(0, &mut there)))
            .collect();
        let mut add = |uid: &str| {
            have += 1;
            if let Some(n) = roles.get_mut(role(uid)) {
                *n += 1;
            }
        };
        ready.iter().for_each(|uid| add(uid));
        // The caller counts as let go already when it repeats a call that let it pass.
        let counted = self.pods.get(caller).and_then(|e| e.place.as_ref()).is_some_and(|p| {
            p.key == quorum.key && !quorum.only_waiting && matches!(p.state, State::Bound | State::Running)
        });
        if own && !counted {
            add(caller);
        }
        let met = have >= quorum.at_least
            && quorum.roles.iter().all(|(name, least)| roles.get(name).is_some_and(|n| n >= least));
        (met, v1::QuorumState { have, roles })
    }

    pub(super) fn leave(&mut self, call: &v1::GroupLeave) -> v1::GroupLeaveReply {
        let was = match self.end_hold(&call.uid) {
            None => Was::Nothing,
            Some(Hold::Waiting) => Was::Waiting,
            Some(Hold::Released) => Was::Released,
            Some(Hold::Rejected) => Was::Rejected,
        };
        self.refresh(&call.uid);
        let still_waiting = self.groups.get(&call.key).map_or(0, |g| g.total.waiting);
        v1::GroupLeaveReply { was: was.into(), still_waiting }
    }

    /// Rejects every held member; how many.
    pub(super) fn reject(&mut self, key: &str, reason: &str, cluster: &mut dyn Cluster) -> u32 {
        let held = self.groups.get(key).map(|g| g.held.clone()).unwrap_or_default();
        for (_, uid) in &held {
            cluster.reject(uid, reason);
            self.hold(uid, Hold::Rejected);
        }
        held.len() as u32
    }

    /// Activates the unscheduled members but one; how many.
    pub(super) fn activate(&mut self, key: &str, except: &str, cluster: &mut dyn Cluster) -> u32 {
        let uids: Vec<String> = self.unscheduled(key).filter(|&uid| uid != except).map(str::to_owned).collect();
        if !uids.is_empty() {
            cluster.activate(&uids);
        }
        uids.len() as u32
    }

    /// The unscheduled members, oldest first.
    fn unscheduled(&self, key: &str) -> impl Iterator<Item = &str> {
        let live = self.groups.get(key).into_iter().flat_map(|g| &g.live).map(|(_, uid)| uid.as_str());
        live.filter(|&uid| self.state(uid) == Some(State::Unscheduled))
    }

    fn state(&self, uid: &str) -> Option<State> {
        self.pods.get(uid)?.place.as_ref().map(|p| p.state)
    }

    pub(super) fn back_off(&mut self, call: v1::GroupBackoff) {
        if let Some(group) = self.groups.get_mut(&call.key).filter(|g| !g.live.is_empty()) {
            let key = call.key.clone();
            self.timers.remove(&(group.backoff.until_ms, Timer::Backoff, key.clone()));
            if call.until_ms > 0 {
                self.timers.insert((call.until_ms, Timer::Backoff, key));
            }
            group.backoff = call;
        }
    }

    pub(super) fn block(&mut self, call: v1::GroupBlock, now_ms: i64) {
        let Some(group) = self.groups.get_mut(&call.key).filter(|g| !g.live.is_empty()) else { return };
        let old = group.block.take();
        if let Some(old) = &old {
            self.blocked.remove(&blocked_place(old));
        }
        if !call.clear {
            let since_ms = old.map_or(now_ms, |b| b.since_ms);
            let block = v1::Blocked { key: call.key, rank: call.rank, since_ms, note: call.note };
            self.blocked.insert(blocked_place(&block));
            group.block = Some(block);
        }
    }

    pub(super) fn members(&self, call: &v1::GroupMembers) -> v1::GroupMembersReply {
        let Some(group) = self.groups.get(&call.key) else { return v1::GroupMembersReply::default() };
        let limit = if call.limit == 0 { MEMBERS_PAGE } else { call.limit };
        let page = group.members.iter().skip(call.offset as usize).take(limit as usize);
        let members = page.filter_map(|(_, uid)| {
            let entry = self.pods.get(uid)?;
            let place = entry.place.as_ref()?;
            Some(v1::Member {
                uid: uid.clone(),
                name: entry.pod.name.clone(),
                role: place.role.clone(),
                state: place.state.into(),
                node: entry.pod.node.clone(),
                priority: entry.pod.priority,
            })
        });
        v1::GroupMembersReply { members: members.collect(), total: group.members.len() as u32 }
    }

    pub(super) fn shapes(&self, call: &v1::GroupShapes, cluster: &dyn Cluster) -> v1::GroupShapesReply {
        let mut reply = v1::GroupShapesReply::default();
        let mut seen = Vec::new();
        let mut names = BTreeSet::new();
        let live = self.groups.get(&call.key).into_iter().flat_map(|g| &g.live);
        for (_, uid) in live {
            let Some(entry) = self.pods.get(uid) else { continue };
            let Some(place) = entry.place.as_ref().filter(|p| p.state != State::Gated) else { continue };
            let Some(demand) = cluster.demand(uid) else { continue };
            names.extend(demand.requests.keys().cloned());
            let kind = (&place.role, entry.pod.priority, demand);
            let at = seen.iter().position(|k| *k == kind).unwrap_or_else(|| {
                reply.shapes.push(v1::Shape {
                    uid: uid.clone(),
                    role: place.role.clone(),
                    priority: entry.pod.priority,
                    ..Default::default()
                });
                seen.push(kind);
                seen.len() - 1
            });
            let shape = &mut reply.shapes[at];
            if place.state == State::Unscheduled {
                if shape.unscheduled == 0 {
                    shape.uid.clone_from(uid);
                }
                shape.unscheduled += 1;
            } else {
                shape.placed += 1;
            }
        }
        reply.resources = names.into_iter().collect();
        for (shape, (_, _, demand)) in reply.shapes.iter_mut().zip(&seen) {
            let figure = |name: &String| demand.requests.get(name).copied().unwrap_or(0);
            shape.requests = reply.resources.iter().map(figure).collect();
        }
        reply
    }

    pub(super) fn evict(&mut self, call: &v1::PodsEvict, cluster: &mut dyn Cluster) -> v1::PodsEvictReply {
        let mut reply = v1::PodsEvictReply::default();
        for uid in &call.uids {
            let outcome = match self.holds.get(uid) {
                Some(Hold::Waiting) => {
                    cluster.reject(uid, &call.reason);
                    self.hold(uid, Hold::Rejected);
                    Ok(())
                }
                Some(Hold::Rejected) => Ok(()),
                Some(Hold::Released) | None => cluster.evict(uid, &call.preemptor_uid, &call.reason),
            };
            match outcome {
                Ok(()) => reply.evicted.push(uid.clone()),
                Err(why) => reply.failed.push(v1::Lost { uid: uid.clone(), why }),
            }
        }
        reply
    }

    /// The key of a pod's group.
    pub(super) fn group_of(&self, uid: &str) -> Option<&str> {
        self.pods.get(uid)?.place.as_ref().map(|p| p.key.as_str())
    }

    /// Whether a pod is held and undecided.
    pub(super) fn waits(&self, uid: &str) -> bool {
        self.holds.get(uid) == Some(&Hold::Waiting)
    }

    pub(super) fn next_timer(&self) -> Option<i64> {
        self.timers.first().map(|(at, _, _)| *at)
    }

    pub(super) fn fire(&mut self, cluster: &mut dyn Cluster) {
        let now_ms = cluster.now_ms();
        while self.timers.first().is_some_and(|(at, _, _)| *at <= now_ms) {
            let Some((_, timer, key)) = self.timers.pop_first() else { return };
            match timer {
                Timer::Deadline => {
                    let held = self.groups.get(&key).map_or(0, |g| g.held.len());
                    self.reject(&key, &format!("group {key}: its deadline passed with {held} waiting"), cluster);
                }
                Timer::Backoff => {
                    self.activate(&key, "", cluster);
                }
            }
        }
    }

    /// Sets a pod's hold.
    fn hold(&mut self, uid: &str, hold: Hold) {
        self.holds.insert(uid.to_owned(), hold);
        if hold != Hold::Released {
            self.granted.remove(uid);
        }
        self.refresh(uid);
    }

    /// Forgets a pod's hold; the caller refreshes its place.
    fn end_hold(&mut self, uid: &str) -> Option<Hold> {
        self.granted.remove(uid);
        self.holds.remove(uid)
    }

    /// A group's members were let go.
    fn released(&mut self, key: &str) {
        if let Some(group) = self.groups.get_mut(key) {
            group.released = true;
            self.calm(key);
        }
    }

    /// Ends a group's backoff and block.
    fn calm(&mut self, key: &str) {
        if let Some(group) = self.groups.get_mut(key) {
            self.timers.remove(&(group.backoff.until_ms, Timer::Backoff, key.to_owned()));
            group.backoff = v1::GroupBackoff::default();
            if let Some(block) = group.block.take() {
                self.blocked.remove(&blocked_place(&block));
            }
        }
    }

    fn set_deadline(&mut self, key: &str, at_ms: i64) {
        if let Some(group) = self.groups.get_mut(key) {
            self.timers.remove(&(group.deadline_ms, Timer::Deadline, key.to_owned()));
            group.deadline_ms = at_ms;
            if at_ms != 0 {
                self.timers.insert((at_ms, Timer::Deadline, key.to_owned()));
            }
        }
    }

    /// Puts a pod where its facts and its hold say.
    fn refresh(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let hold = self.holds.get(uid).copied();
        let place =
            membership(self.sources.as_deref().unwrap_or_default(), &entry.pod).map(|(source, key, role)| Place {
                key,
                source,
                role,
                state: state(&entry.pod, hold),
                created_ms: entry.pod.created_ms,
                held: hold == Some(Hold::Waiting),
            });
        let bound = place.as_ref().filter(|_| !entry.pod.node.is_empty()).map(|p| p.key.clone());
        self.place(uid, place);
        if let Some(group) = bound.and_then(|key| self.groups.get_mut(&key)) {
            group.released = true;
        }
    }

    fn place(&mut self, uid: &str, new: Option<Place>) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.place == new {
            return;
        }
        let old = std::mem::replace(&mut entry.place, new.clone());
        // A held member that moves takes its deadline along.
        let deadline_ms = old.as_ref().and_then(|p| self.groups.get(&p.key)).map_or(0, |g| g.deadline_ms);
        for (place, joins) in [(&old, false), (&new, true)] {
            if let Some(place) = place {
                let group = self.groups.entry(place.key.clone()).or_default();
                let held_before = !group.held.is_empty();
                group.update(uid, place, joins);
                let held_after = !group.held.is_empty();
                self.holders = self.holders + u32::from(held_after) - u32::from(held_before);
            }
        }
        if let (Some(old), Some(new)) = (&old, &new)
            && old.key != new.key
            && old.held
            && new.held
            && deadline_ms != 0
        {
            let there = self.groups.get(&new.key).map_or(0, |g| g.deadline_ms);
            self.set_deadline(&new.key, if there == 0 { deadline_ms } else { there.min(deadline_ms) });
        }
        let keys: HashSet<String> = [old, new].into_iter().flatten().map(|p| p.key).collect();
        keys.iter().for_each(|key| self.settle(key));
    }

    /// Ends what a group without held, live or any members can't have.
    fn settle(&mut self, key: &str) {
        let Some(group) = self.groups.get(key) else { return };
        let (held, live, members) = (group.held.is_empty(), group.live.is_empty(), group.members.is_empty());
        if held {
            self.set_deadline(key, 0);
        }
        if live {
            self.calm(key);
        }
        if members {
            self.groups.remove(key);
        }
    }
}

impl Group {
    /// A member joins or leaves.
    fn update(&mut self, uid: &str, place: &Place, joins: bool) {
        let live = !matches!(place.state, State::Succeeded | State::Failed | State::Terminating);
        let sets = [(&mut self.members, true), (&mut self.live, live), (&mut self.held, place.held)];
        let id = (place.created_ms, uid.to_owned());
        for (set, _) in sets.into_iter().filter(|(_, takes)| *takes) {
            if joins {
                set.insert(id.clone());
            } else {
                set.remove(&id);
            }
        }
        let step = |n: &mut u32| *n = if joins { *n + 1 } else { *n - 1 };
        step(count(&mut self.total, place.state));
        let role = self.roles.entry(place.role.clone()).or_default();
        step(count(role, place.state));
        if *role == v1::Counts::default() {
            self.roles.remove(&place.role);
        }
    }
}

fn count(counts: &mut v1::Counts, state: State) -> &mut u32 {
    match state {
        State::Gated => &mut counts.gated,
        State::Unscheduled => &mut counts.unscheduled,
        State::Waiting => &mut counts.waiting,
        State::Bound => &mut counts.bound,
        State::Running => &mut counts.running,
        State::Succeeded => &mut counts.succeeded,
        State::Failed => &mut counts.failed,
        State::Terminating => &mut counts.terminating,
    }
}

/// A pod's state; the first that holds.
fn state(pod: &Pod, hold: Option<Hold>) -> State {
    match (pod.phase, hold) {
        _ if pod.terminating => State::Terminating,
        (Phase::Succeeded, _) => State::Succeeded,
        (Phase::Failed, _) => State::Failed,
        (Phase::Running, _) => State::Running,
        _ if !pod.node.is_empty() => State::Bound,
        (_, Some(Hold::Released)) => State::Bound,
        (_, Some(Hold::Waiting)) => State::Waiting,
        _ if pod.gated => State::Gated,
        _ => State::Unscheduled,
    }
}

/// Which source matches a pod, its group's key and its role.
fn membership(sources: &[v1::GroupSource], pod: &Pod) -> Option<(usize, String, String)> {
    sources.iter().enumerate().find_map(|(i, source)| {
        let value = match source.value_from.as_ref()? {
            ValueFrom::Label(name) => pod.labels.get(name),
            ValueFrom::Annotation(name) => pod.annotations.get(name),
        };
        let value = value.filter(|v| !v.is_empty())?;
        let role = source.role_from.as_ref().and_then(|from| match from {
            RoleFrom::RoleLabel(name) => pod.labels.get(name),
            RoleFrom::RoleAnnotation(name) => pod.annotations.get(name),
        });
        Some((i, format!("{}/{}/{value}", source.prefix, pod.namespace), role.cloned().unwrap_or_default()))
    })
}

fn blocked_place(block: &v1::Blocked) -> (Reverse<i64>, i64, String) {
    (Reverse(block.rank), block.since_ms, block.key.clone())
}
