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

/// A deadline that has passed.
const OVER_MS: i64 = 1;

/// A group is woken so long after labels or annotations of a member changed. The scheduling queue hears of the change by
/// itself, and may be the later one.
const REMARKED_MS: i64 = 100;

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
    /// When, which, and the group's key or the pod's uid.
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
    /// Since a member's labels or annotations changed.
    Remarked,
    /// Of a held pod in no group: it lost its label between its cycle's start and Permit.
    Stray,
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
    /// What the last one held has joined for.
    joined: Option<v1::Quorum>,
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

    pub(super) fn pod_changed(&mut self, pod: &Pod, cluster: &mut dyn Cluster) {
        if !pod.node.is_empty() && self.holds.get(&pod.uid) == Some(&Hold::Released) {
            self.end_hold(&pod.uid);
        }
        let sources = self.sources.as_deref().unwrap_or_default();
        let remarked = self.pods.get(&pod.uid).is_some_and(|entry| !marks(sources, &entry.pod).eq(marks(sources, pod)));
        match self.pods.get_mut(&pod.uid) {
            Some(entry) => entry.pod.clone_from(pod),
            None => {
                self.pods.insert(pod.uid.clone(), Entry { pod: pod.clone(), place: None });
            }
        }
        self.refresh(&pod.uid);
        if self.group_of(&pod.uid).is_none() && self.waits(&pod.uid) {
            // No group's deadline would ever end its wait. It is tried again as the pod that it is now.
            cluster.reject(&pod.uid, "the pod left its group while it was held");
            self.hold(&pod.uid, Hold::Rejected);
        }
        if remarked && let Some(key) = self.group_of(&pod.uid).map(str::to_owned) {
            self.timers.insert((cluster.now_ms() + REMARKED_MS, Timer::Remarked, key));
        }
    }

    pub(super) fn pod_deleted(&mut self, uid: &str) {
        if self.pods.contains_key(uid) {
            self.place(uid, None);
            self.pods.remove(uid);
        }
    }

    /// Rejects who is held on a node that went. The framework would bind them to it.
    pub(super) fn node_gone(&mut self, name: &str, cluster: &mut dyn Cluster) {
        let waiting = self.holds.iter().filter(|(_, hold)| **hold == Hold::Waiting).map(|(uid, _)| uid);
        let mut there: Vec<String> = waiting.filter(|uid| cluster.held_on(uid) == Some(name)).cloned().collect();
        there.sort_unstable();
        for uid in there {
            cluster.reject(&uid, &format!("node {name} is gone"));
            self.hold(&uid, Hold::Rejected);
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

        let mut reply = v1::GroupAllowReply::default();
        let mut ready: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        // By the counters first: only when they say yes is each held member looked at.
        (reply.allowed, reply.quorums) = self.measure_all(call, None);
        if reply.allowed {
            for quorum in &call.quorums {
                if !ready.contains_key(quorum.key.as_str()) {
                    let (can, lost) = self.held(&quorum.key, &call.uid, cluster);
                    ready.insert(&quorum.key, can);
                    reply.lost.extend(lost);
                }
            }
            (reply.allowed, reply.quorums) = self.measure_all(call, Some(&ready));
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
            let joined = self.groups.get_mut(&own).filter(|g| !g.held.is_empty());
            if let Some(group) = joined {
                group.joined = call.quorums.first().cloned();
                let earliest =
                    if group.deadline_ms == 0 { call.join_until_ms } else { group.deadline_ms.min(call.join_until_ms) };
                self.set_deadline(&own, earliest);
                self.settle(&own);
            } else if self.group_of(&call.uid).is_none() {
                // That of a hold before would end this one too early.
                self.timers.retain(|(_, timer, uid)| *timer != Timer::Stray || *uid != call.uid);
                self.timers.insert((call.join_until_ms, Timer::Stray, call.uid.clone()));
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

    /// Whether all quorums are met, and each by how many. `ready`: the held members that count; None: all that wait.
    fn measure_all(
        &self,
        call: &v1::GroupAllow,
        ready: Option<&BTreeMap<&str, Vec<&str>>>,
    ) -> (bool, Vec<v1::QuorumState>) {
        let mut all = true;
        let measure = |quorum: &v1::Quorum| {
            let ready = ready.map(|of| of.get(quorum.key.as_str()).map_or(&[][..], Vec::as_slice));
            let (met, state) = self.measure(quorum, ready, &call.uid, quorum.key == call.quorums[0].key);
            all &= met;
            state
        };
        let states = call.quorums.iter().map(measure).collect();
        (all, states)
    }

    /// Whether a quorum is met, and by how many.
    fn measure(&self, quorum: &v1::Quorum, ready: Option<&[&str]>, caller: &str, own: bool) -> (bool, v1::QuorumState) {
        let place = |uid: &str| self.pods.get(uid).and_then(|e| e.place.as_ref());
        let counted = |state: State| match state {
            State::Bound | State::Running => !quorum.only_waiting,
            State::Succeeded => quorum.count_succeeded,
            State::Waiting => ready.is_none(),
            _ => false,
        };
        let there = |counts: &v1::Counts| {
            let states = [
                (State::Bound, counts.bound),
                (State::Running, counts.running),
                (State::Succeeded, counts.succeeded),
                (State::Waiting, counts.waiting),
            ];
            states.into_iter().filter(|(state, _)| counted(*state)).map(|(_, n)| n).sum()
        };
        let group = self.groups.get(&quorum.key);
        let mut have = group.map_or(0, |g| there(&g.total));
        let of_role = |name: &String| group.and_then(|g| g.roles.get(name)).map_or(0, there);
        let mut roles: BTreeMap<String, u32> = quorum.roles.keys().map(|name| (name.clone(), of_role(name))).collect();
        // The caller counts in its own quorum, once, also when it repeats a call that let it pass.
        let repeats = place(caller).is_some_and(|p| p.key == quorum.key && counted(p.state));
        let mut add = |uid: &str, n: i32| {
            have = have.saturating_add_signed(n);
            let role = place(uid).map_or("", |p| p.role.as_str());
            if let Some(count) = roles.get_mut(role) {
                *count = count.saturating_add_signed(n);
            }
        };
        ready.unwrap_or_default().iter().for_each(|uid| add(uid, 1));
        add(caller, i32::from(own) - i32::from(repeats));
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
        for places in &call.places {
            let alike = self.alike(&places.uid, cluster);
            for (uid, node) in alike.into_iter().zip(&places.nodes) {
                if uid == call.preemptor_uid {
                    reply.node.clone_from(node);
                } else {
                    cluster.nominate_pod(&uid, node);
                }
            }
        }
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

    /// The unscheduled members of the pod's shape, oldest first.
    fn alike(&self, uid: &str, cluster: &dyn Cluster) -> Vec<String> {
        let shape = |uid: &str| {
            let entry = self.pods.get(uid)?;
            let place = entry.place.as_ref()?;
            Some((&place.key, &place.role, entry.pod.priority, cluster.demand(uid)?))
        };
        let Some(wanted) = shape(uid) else { return Vec::new() };
        self.unscheduled(wanted.0).filter(|uid| shape(uid).as_ref() == Some(&wanted)).map(str::to_owned).collect()
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
                    let why = match self.groups.get(&key) {
                        Some(group) if !group.can_meet() => "too few members are left",
                        _ => "its deadline passed",
                    };
                    self.reject(&key, &format!("group {key}: {why} with {held} waiting"), cluster);
                }
                Timer::Backoff | Timer::Remarked => {
                    self.activate(&key, "", cluster);
                }
                Timer::Stray => {
                    if self.waits(&key) && self.group_of(&key).is_none() {
                        cluster.reject(&key, "held in no group until its deadline");
                        self.hold(&key, Hold::Rejected);
                    }
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
        let placed = |p: &&Place| !entry.pod.node.is_empty() || matches!(p.state, State::Bound | State::Running);
        let bound = place.as_ref().filter(placed).map(|p| p.key.clone());
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
        } else if !group.can_meet() {
            self.set_deadline(key, OVER_MS);
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
    /// Whether those who are left could still be what the held ones wait for.
    fn can_meet(&self) -> bool {
        let Some(quorum) = &self.joined else { return true };
        let left = |counts: &v1::Counts| {
            let started = if quorum.only_waiting { 0 } else { counts.bound + counts.running };
            let succeeded = if quorum.count_succeeded { counts.succeeded } else { 0 };
            counts.unscheduled + counts.waiting + started + succeeded
        };
        let of_role = |role| self.roles.get(role).map_or(0, left);
        left(&self.total) >= quorum.at_least && quorum.roles.iter().all(|(role, least)| of_role(role) >= *least)
    }

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

/// The values of all labels and annotations that the sources name.
fn marks<'a>(sources: &'a [v1::GroupSource], pod: &'a Pod) -> impl Iterator<Item = Option<&'a String>> {
    sources.iter().flat_map(move |source| {
        let value = source.value_from.as_ref().and_then(|from| match from {
            ValueFrom::Label(name) => pod.labels.get(name),
            ValueFrom::Annotation(name) => pod.annotations.get(name),
        });
        let role = source.role_from.as_ref().and_then(|from| match from {
            RoleFrom::RoleLabel(name) => pod.labels.get(name),
            RoleFrom::RoleAnnotation(name) => pod.annotations.get(name),
        });
        let facts = source.facts.iter().map(|name| pod.labels.get(name).or_else(|| pod.annotations.get(name)));
        [value, role].into_iter().chain(facts)
    })
}

fn blocked_place(block: &v1::Blocked) -> (Reverse<i64>, i64, String) {
    (Reverse(block.rank), block.since_ms, block.key.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bridge::{Demand, Victim};

    const KEYS: [&str; 3] = ["p/d/a", "p/d/b", "p/d/c"];
    const UIDS: [&str; 6] = ["u0", "u1", "u2", "u3", "u4", "u5"];

    /// A cluster where some holds are decided already.
    struct Fake {
        now_ms: i64,
        decided: usize,
    }

    impl Cluster for Fake {
        fn now_ms(&self) -> i64 {
            self.now_ms
        }

        fn can_allow(&self, uid: &str) -> Result<(), String> {
            if UIDS[self.decided] == uid { Err("decided".into()) } else { Ok(()) }
        }

        fn allow(&mut self, _: &str) {}

        fn reject(&mut self, _: &str, _: &str) {}

        fn activate(&mut self, _: &[String]) {}

        fn held_on(&self, _: &str) -> Option<&str> {
            None
        }

        fn nominate_pod(&mut self, _: &str, _: &str) {}

        fn evict(&mut self, _: &str, _: &str, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn demand(&self, _: &str) -> Option<Demand> {
            None
        }

        fn object(&self, _: &v1::Resource, _: &str, _: &str) -> v1::Object {
            v1::Object::default()
        }

        fn record_event(&mut self, _: &v1::EventRecord) {}

        fn snapshot(&self) -> (u64, u32) {
            (0, 0)
        }

        fn node_name(&self, _: u32) -> &str {
            ""
        }

        fn node_label(&self, _: u32, _: &str) -> Option<&str> {
            None
        }

        fn node_admits(&self, _: u32, _: &str) -> bool {
            false
        }

        fn nodes_free(&self, _: &[u32], _: &[String], _: Option<i32>) -> Vec<i64> {
            Vec::new()
        }

        fn node_nominated(&self, _: u32, _: &[String], _: i32) -> Vec<(String, Vec<i64>)> {
            Vec::new()
        }

        fn node_victims(&self, _: u32, _: &[String], _: i32) -> Vec<Victim> {
            Vec::new()
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Pod(Pod),
        Gone(usize),
        Allow { uid: usize, key: usize, other: usize, at_least: u32, join_ms: i64, decided: usize },
        Leave(usize),
        Reject(usize),
        Evict(usize),
        InCycle(usize),
        Backoff(usize, i64),
        Block(usize, bool, i64),
        Wait(i64),
    }

    fn pod() -> impl Strategy<Value = Pod> {
        let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.3));
        (0..UIDS.len(), 0..=KEYS.len(), 0..3_usize, 0..4_i64, 0..8_usize, flags).prop_map(
            |(uid, key, role, created_ms, phase, (terminating, gated, bound))| {
                let mut labels = BTreeMap::from([("role".to_owned(), format!("r{role}"))]);
                if let Some(key) = KEYS.get(key) {
                    labels.insert("group".into(), key.rsplit('/').next().unwrap_or_default().into());
                }
                let phases = [Phase::Running, Phase::Succeeded, Phase::Failed];
                Pod {
                    uid: UIDS[uid].into(),
                    namespace: "d".into(),
                    labels,
                    created_ms,
                    terminating,
                    gated,
                    node: if bound { "n".into() } else { String::new() },
                    phase: phases.get(phase).copied().unwrap_or_default(),
                    ..Pod::default()
                }
            },
        )
    }

    fn step() -> impl Strategy<Value = Step> {
        let (uid, key) = (0..UIDS.len(), 0..KEYS.len());
        prop_oneof![
            5 => pod().prop_map(Step::Pod),
            1 => uid.clone().prop_map(Step::Gone),
            6 => (uid.clone(), key.clone(), key.clone(), 1..5_u32, 0..40_i64, uid.clone()).prop_map(
                |(uid, key, other, at_least, join_ms, decided)| Step::Allow { uid, key, other, at_least, join_ms, decided }
            ),
            2 => uid.clone().prop_map(Step::Leave),
            1 => key.clone().prop_map(Step::Reject),
            1 => uid.clone().prop_map(Step::Evict),
            1 => uid.prop_map(Step::InCycle),
            1 => (key.clone(), 0..40_i64).prop_map(|(key, ms)| Step::Backoff(key, ms)),
            1 => (key, prop::bool::weighted(0.2), 0..3_i64).prop_map(|(key, clear, rank)| Step::Block(key, clear, rank)),
            1 => (0..20_i64).prop_map(Step::Wait),
        ]
    }

    fn play(table: &mut Table, cluster: &mut Fake, step: &Step) {
        let name = |uid: &usize| UIDS[*uid].to_owned();
        match step {
            Step::Pod(pod) => table.pod_changed(pod, cluster),
            Step::Gone(uid) => table.pod_deleted(UIDS[*uid]),
            Step::Allow { uid, key, other, at_least, join_ms, decided } => {
                cluster.decided = *decided;
                let quorum =
                    |key: usize, at_least| v1::Quorum { key: KEYS[key].into(), at_least, ..Default::default() };
                let call = v1::GroupAllow {
                    quorums: vec![quorum(*key, *at_least), quorum(*other, 1)],
                    uid: name(uid),
                    join_until_ms: if *join_ms == 0 { 0 } else { cluster.now_ms + join_ms },
                };
                let bytes = prost::Message::encode_to_vec(&call);
                let first = table.allow(&call, &bytes, cluster).expect("a whole request");
                let before = picture(table);
                let again = table.allow(&call, &bytes, cluster).expect("a whole request");
                assert_eq!(first, again, "a repeat answers the same");
                assert_eq!(before, picture(table), "a repeat changes nothing");
            }
            Step::Leave(uid) => {
                table.leave(&v1::GroupLeave { key: KEYS[0].into(), uid: name(uid) });
            }
            Step::Reject(key) => {
                table.reject(KEYS[*key], "", cluster);
            }
            Step::Evict(uid) => {
                table.evict(&v1::PodsEvict { uids: vec![name(uid)], ..Default::default() }, cluster);
            }
            Step::InCycle(uid) => table.in_cycle(UIDS[*uid]),
            Step::Backoff(key, ms) => {
                let until_ms = if *ms == 0 { 0 } else { cluster.now_ms + ms };
                table.back_off(v1::GroupBackoff { key: KEYS[*key].into(), until_ms, ..Default::default() });
            }
            Step::Block(key, clear, rank) => {
                let call = v1::GroupBlock { key: KEYS[*key].into(), clear: *clear, rank: *rank, note: Vec::new() };
                table.block(call, cluster.now_ms);
            }
            Step::Wait(ms) => {
                cluster.now_ms += ms;
                table.fire(cluster);
                assert!(table.next_timer().is_none_or(|at| at > cluster.now_ms), "what is due was done");
            }
        }
    }

    /// All that a repeat must leave as it is.
    fn picture(table: &Table) -> String {
        let Table { pods, holds, groups, timers, blocked, .. } = table;
        let pods: BTreeMap<_, _> = pods.iter().map(|(uid, entry)| (uid, &entry.place)).collect();
        let (holds, groups): (BTreeMap<_, _>, BTreeMap<_, _>) = (holds.iter().collect(), groups.iter().collect());
        format!("{pods:?} {holds:?} {groups:?} {timers:?} {blocked:?}")
    }

    /// Compares what the table keeps with what its pods and holds say.
    fn check(table: &Table) {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let sources = table.sources.as_deref().expect("declared");
        for (uid, entry) in &table.pods {
            let hold = table.holds.get(uid).copied();
            let Some((source, key, role)) = membership(sources, &entry.pod) else {
                assert_eq!(entry.place, None);
                continue;
            };
            let state = state(&entry.pod, hold);
            let held = hold == Some(Hold::Waiting);
            let place = Place { key: key.clone(), source, role, state, created_ms: entry.pod.created_ms, held };
            groups.entry(key).or_default().update(uid, &place, true);
        }
        assert_eq!(table.groups.keys().collect::<BTreeSet<_>>(), groups.keys().collect::<BTreeSet<_>>());
        let (mut timers, mut blocked, mut holders) = (BTreeSet::new(), BTreeSet::new(), 0);
        for (key, want) in &groups {
            let got = &table.groups[key];
            assert_eq!((&got.total, &got.roles), (&want.total, &want.roles), "{key}");
            assert_eq!((&got.members, &got.live, &got.held), (&want.members, &want.live, &want.held), "{key}");
            holders += u32::from(!got.held.is_empty());
            assert!(got.deadline_ms == 0 || !got.held.is_empty(), "{key}: a deadline, and nobody waits");
            assert!(got.total.bound + got.total.running == 0 || got.released, "{key}: bound, not released");
            if got.live.is_empty() {
                assert_eq!((got.backoff.until_ms, &got.block), (0, &None), "{key}: ended");
            }
            if got.deadline_ms != 0 {
                timers.insert((got.deadline_ms, Timer::Deadline, key.clone()));
            }
            blocked.extend(got.block.as_ref().map(blocked_place));
            // A backoff's values stay when its timer is over.
            let backoff = (got.backoff.until_ms, Timer::Backoff, key.clone());
            if table.timers.contains(&backoff) {
                timers.insert(backoff);
            }
        }
        // The others happen once and are no state of a group; that all which are due are done is seen where time passes.
        let of_groups = |(_, timer, _): &&(i64, Timer, String)| matches!(timer, Timer::Deadline | Timer::Backoff);
        let kept: BTreeSet<_> = table.timers.iter().filter(of_groups).cloned().collect();
        assert_eq!((&kept, &table.blocked, table.holders), (&timers, &blocked, holders));
        let released = table.granted.keys().all(|uid| table.holds.get(uid) == Some(&Hold::Released));
        assert!(released, "only a caller that was let go has its answer kept");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_kept_equals_a_recount(steps in prop::collection::vec(step(), 1..60)) {
            let mut table = Table::default();
            let source = v1::GroupSource {
                prefix: "p".into(),
                value_from: Some(ValueFrom::Label("group".into())),
                role_from: Some(RoleFrom::RoleLabel("role".into())),
                ..Default::default()
            };
            table.declare(vec![source]).expect("good sources");
            let mut cluster = Fake { now_ms: 1000, decided: 0 };
            for step in &steps {
                play(&mut table, &mut cluster, step);
                check(&table);
            }
        }
    }
}
