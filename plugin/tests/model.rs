//! The plugin's own code against every interleaving of a small cluster.
//!
//! The scheduler, the bridge and the cluster are a state; whatever can happen next is an action. A scheduling cycle is one
//! action, as in the scheduler, which runs one at a time; what runs beside it (Unreserve, binding, deletions, timers) is
//! another, in any order. Time passes only when the scheduler has nothing to do. [`Mutant`]s break the plugin or the
//! bridge on purpose, and each must be found out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use plugin::bridge::*;
use plugin::config::Config;
use plugin::cycle::{Cycle, Member, Permit, PostFilter, PreFilter, Rules, Wants};
use plugin::gang::membership::{GangId, X_K8S};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// Failed tries in a row of a gang that could start; more is a livelock.
const TRIES: u8 = 4;
/// The clock stands here; what is in the future is kept as a distance from it.
const NOW: i64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Phase {
    /// Not created yet.
    Future,
    /// In the active queue.
    Queued,
    /// Among the unschedulable.
    Parked,
    /// Held at Permit on a node.
    Waiting(u8),
    /// Rejected by the bridge; Unreserve comes.
    Rejected(u8),
    /// The framework has been told to reject it; the bridge learns it from Unreserve (preempted) or from the lister
    /// (deleted).
    Doomed(u8),
    /// Let go; the binding runs.
    Allowed(u8),
    /// Let go by the bridge, but the framework had been told to reject it before.
    AllowedInVain(u8),
    Bound(u8),
    /// Evicted, still ending.
    Ending(u8),
    Gone,
}

impl Phase {
    fn node(self) -> Option<u8> {
        match self {
            Self::Waiting(n)
            | Self::Rejected(n)
            | Self::Doomed(n)
            | Self::Allowed(n)
            | Self::AllowedInVain(n)
            | Self::Bound(n)
            | Self::Ending(n) => Some(n),
            Self::Future | Self::Queued | Self::Parked | Self::Gone => None,
        }
    }

    /// The same without its node.
    fn kind(self) -> Self {
        match self {
            Self::Waiting(_) => Self::Waiting(0),
            Self::Rejected(_) => Self::Rejected(0),
            Self::Doomed(_) => Self::Doomed(0),
            Self::Allowed(_) => Self::Allowed(0),
            Self::AllowedInVain(_) => Self::AllowedInVain(0),
            Self::Bound(_) => Self::Bound(0),
            Self::Ending(_) => Self::Ending(0),
            phase => phase,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pod {
    gang: u8,
    phase: Phase,
    /// Has a deletionTimestamp, as the API server and a fresh lister have it.
    deleted: bool,
    /// Has left its group since it last joined.
    left: bool,
    /// The node it is nominated for.
    place: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Group {
    backoff_ms: i64,
    attempt: u32,
    note: String,
    deadline_ms: i64,
    released: bool,
    /// Since when (the order counts), rank, note.
    blocked: Option<(u8, i64, Vec<u8>)>,
    /// Failed tries since the cluster last changed.
    fails: u8,
    /// Pods were evicted for it, and it hasn't started since.
    owed: bool,
    /// Members lost after their gang was let go, or by a race that no scheme inside the scheduler closes.
    lost: u8,
}

/// How often the adversary may still act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    deletions: u8,
    bind_failures: u8,
    preemptions: u8,
    restarts: u8,
    node_losses: u8,
    stale_lists: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    pods: Vec<Pod>,
    groups: Vec<Group>,
    /// Capacity per node, 0 once it's lost.
    nodes: Vec<i64>,
    budget: Budget,
    /// The lister misses deletions.
    stale: bool,
    /// Something went wrong that no state shows: a pod evicted for nothing, say.
    wrong: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Arrive(u8),
    /// A scheduling cycle that picks this node where it passes.
    Cycle(u8, u8),
    Unreserve(u8),
    Bind(u8),
    FailBind(u8),
    Delete(u8),
    PreemptWaiting(u8),
    End(u8),
    LoseNode(u8),
    Restart,
    GoStale,
    Refresh,
    /// Time passes to the next timer.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// The bridge counts whoever has joined, dead or alive.
    AllowByCountOnly,
    /// The bridge lets the caller go when enough have joined, and forgets the held ones.
    AllowOnlyTheCaller,
    /// A member without a node doesn't make the others give way.
    NoReject,
    NoBackoff,
    NoJitter,
    /// Nobody wakes the others when the first is held, nor at the end of a backoff.
    NoActivate,
    /// The plugin isn't told of Unreserve.
    NoUnreserve,
    /// The bridge nominates nobody.
    NoNomination,
}

#[derive(Clone, Debug)]
struct Cluster {
    /// Per gang: members, minimum, cpu of one member, priority.
    gangs: Vec<(u8, u8, i64, i32)>,
    nodes: Vec<i64>,
    /// One pod per node, by a rule the bridge's figures don't show: a host port.
    exclusive: bool,
    /// The bridge can't tell what members ask for, so there is no fit check.
    blind: bool,
    /// All pods are there from the start.
    arrived: bool,
    /// Gangs that run already.
    running: Vec<u8>,
    budget: Budget,
    mutant: Mutant,
}

/// The bridge of one action.
struct Bridged<'a> {
    cluster: &'a Cluster,
    state: RefCell<State>,
    caller: usize,
}

fn gang(i: usize) -> GangId {
    GangId { convention: &X_K8S, namespace: "ns".into(), name: format!("g{i}") }
}

fn index(key: &str) -> Option<usize> {
    key.strip_prefix("x-k8s.io/ns/g")?.parse().ok()
}

fn uid(pod: usize) -> String {
    format!("p{pod}")
}

fn pod_of(uid: &str) -> Option<usize> {
    uid.strip_prefix('p')?.parse().ok()
}

fn node_of(name: &str) -> Option<u8> {
    name.strip_prefix('n')?.parse().ok()
}

impl State {
    fn of(&self, group: usize) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(move |pod| usize::from(pod.gang) == group)
    }

    fn nodes(&self) -> impl Iterator<Item = u8> {
        (0u8..).zip(&self.nodes).filter(|(_, capacity)| **capacity > 0).map(|(node, _)| node)
    }

    /// The cluster changed: tries before don't count.
    fn forgive(&mut self) {
        self.groups.iter_mut().for_each(|group| group.fails = 0);
    }

    /// An assigned pod went: the queue retries the parked pods, all of them refused by this plugin or for room.
    fn wake(&mut self) {
        for pod in &mut self.pods {
            if pod.phase == Phase::Parked {
                pod.phase = Phase::Queued;
            }
        }
    }

    fn lose(&mut self, pod: usize) {
        self.groups[usize::from(self.pods[pod].gang)].lost += 1;
    }
}

impl Cluster {
    fn request(&self, pod: &Pod) -> i64 {
        self.gangs[usize::from(pod.gang)].2
    }

    fn priority(&self, pod: &Pod) -> i32 {
        self.gangs[usize::from(pod.gang)].3
    }

    fn min(&self, group: usize) -> usize {
        usize::from(self.gangs[group].1)
    }

    fn free(&self, state: &State, node: u8) -> i64 {
        let there = state.pods.iter().filter(|pod| pod.phase.node() == Some(node));
        state.nodes[usize::from(node)] - there.map(|pod| self.request(pod)).sum::<i64>()
    }

    /// What Filter says: room for which others are nominated is theirs, unless they are less important.
    fn admits(&self, state: &State, pod: usize, node: u8) -> bool {
        let nominated: i64 = (state.pods.iter().enumerate())
            .filter(|(p, other)| *p != pod && other.place == Some(node))
            .filter(|(_, other)| self.priority(other) >= self.priority(&state.pods[pod]))
            .map(|(_, other)| self.request(other))
            .sum();
        self.free(state, node) - nominated >= self.request(&state.pods[pod])
            && !(self.exclusive && state.pods.iter().any(|other| other.phase.node() == Some(node)))
    }

    /// What the bridge counts.
    fn counts(&self, state: &State, group: usize) -> Counts {
        let mut counts = Counts::default();
        for pod in state.of(group) {
            let counter = match pod.phase {
                Phase::Future | Phase::Gone => continue,
                _ if pod.deleted && !state.stale => &mut counts.terminating,
                Phase::Queued | Phase::Parked | Phase::Rejected(_) => &mut counts.unscheduled,
                Phase::Waiting(_) | Phase::Doomed(_) => &mut counts.waiting,
                Phase::Allowed(_) | Phase::AllowedInVain(_) => &mut counts.bound,
                Phase::Bound(_) => &mut counts.running,
                Phase::Ending(_) => &mut counts.terminating,
            };
            *counter += 1;
        }
        counts
    }

    fn started(&self, state: &State, group: usize) -> usize {
        state.of(group).filter(|pod| matches!(pod.phase, Phase::Allowed(_) | Phase::Bound(_))).count()
    }

    /// Whether the gang's missing members fit beside what is started; what is merely held is left aside.
    fn fits(&self, state: &State, group: usize) -> bool {
        // Beyond the minimum pods come one by one.
        let missing = self.min(group).saturating_sub(self.started(state, group)).max(1);
        let places = |node: u8| {
            let stays = |pod: &&Pod| {
                pod.phase.node() == Some(node)
                    && matches!(pod.phase, Phase::Allowed(_) | Phase::Bound(_) | Phase::Ending(_))
            };
            let used: i64 = state.pods.iter().filter(stays).map(|pod| self.request(pod)).sum();
            let places = (state.nodes[usize::from(node)] - used) / self.gangs[group].2;
            if self.exclusive { i64::from(used == 0 && places > 0) } else { places }
        };
        state.nodes().map(places).sum::<i64>() >= missing as i64
    }

    fn live_members(&self, state: &State, group: usize) -> usize {
        let live = |pod: &&Pod| !pod.deleted && !matches!(pod.phase, Phase::Future | Phase::Gone | Phase::Ending(_));
        state.of(group).filter(live).count()
    }

    /// Nothing happens any more but time, new arrivals and the adversary.
    fn idle(&self, state: &State) -> bool {
        state.pods.iter().all(|pod| {
            matches!(pod.phase, Phase::Future | Phase::Parked | Phase::Waiting(_) | Phase::Bound(_) | Phase::Gone)
        })
    }
}

impl Bridged<'_> {
    fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.state.borrow_mut())
    }
}

impl Calls for Bridged<'_> {
    fn group_get(&self, call: GroupGet) -> Result<GroupState, Error> {
        let state = self.state.borrow();
        let blocked = state.groups.iter().enumerate().filter_map(|(i, group)| {
            let (since, rank, note) = group.blocked.as_ref()?;
            Some((-rank, *since, i, note))
        });
        let head = blocked.min().map(|(rank, since, i, note)| Blocked {
            key: gang(i).key(),
            rank: -rank,
            since_ms: since.into(),
            note: note.clone(),
        });
        let Some(i) = index(&call.key) else { return Ok(GroupState { head, ..GroupState::default() }) };
        let group = &state.groups[i];
        let holds = |g: usize| state.of(g).any(|pod| matches!(pod.phase, Phase::Waiting(_)));
        let later = |ms: i64| if ms > 0 { NOW + ms } else { 0 };
        let json = format!(r#"{{"spec":{{"minMember":{}}}}}"#, self.cluster.min(i));
        Ok(GroupState {
            total: Some(self.cluster.counts(&state, i)),
            now_ms: NOW,
            backoff_until_ms: later(group.backoff_ms),
            attempt: group.attempt,
            deadline_ms: later(group.deadline_ms),
            released: group.released,
            blocked_since_ms: group.blocked.as_ref().map_or(0, |(since, ..)| (*since).into()),
            other_holders: (0..state.groups.len()).filter(|&g| g != i && holds(g)).count() as u32,
            head,
            object: Some(Object { served: true, found: true, json: json.into_bytes(), ..Object::default() }),
            note: group.note.clone(),
            ..GroupState::default()
        })
    }

    fn group_allow(&self, call: GroupAllow) -> Result<GroupAllowReply, Error> {
        let mutant = self.cluster.mutant;
        self.with(|state| {
            let quorum = &call.quorums[0];
            let g = index(&quorum.key).expect("a key of ours");
            let looks_alive = |pod: &Pod| mutant == Mutant::AllowByCountOnly || !pod.deleted || state.stale;
            let mut held = Vec::new();
            let mut have = 1;
            for (p, pod) in
                state.pods.iter().enumerate().filter(|(p, pod)| usize::from(pod.gang) == g && *p != self.caller)
            {
                match pod.phase {
                    Phase::Waiting(_) | Phase::Doomed(_) => {
                        held.push(p);
                        have += u32::from(looks_alive(pod));
                    }
                    Phase::Allowed(_) | Phase::AllowedInVain(_) | Phase::Bound(_) => {
                        have += u32::from(looks_alive(pod))
                    }
                    _ => {}
                }
            }
            if have < quorum.at_least {
                let group = &mut state.groups[g];
                if call.join_until_ms > 0 && group.deadline_ms == 0 {
                    group.deadline_ms = call.join_until_ms - NOW;
                }
                return Ok(GroupAllowReply::default());
            }
            if mutant != Mutant::AllowOnlyTheCaller {
                for &p in &held {
                    match state.pods[p].phase {
                        Phase::Waiting(n) => state.pods[p].phase = Phase::Allowed(n),
                        Phase::Doomed(n) => {
                            // Preempted, or deleted behind a stale list: nobody could know. Else the bridge is to blame.
                            if !state.pods[p].deleted || state.stale {
                                state.lose(p);
                            }
                            state.pods[p].phase = Phase::AllowedInVain(n);
                        }
                        _ => {}
                    }
                }
                state.groups[g] = Group { released: true, lost: state.groups[g].lost, ..Group::default() };
                state.forgive();
            }
            Ok(GroupAllowReply { allowed: true, released: held.len() as u32, ..GroupAllowReply::default() })
        })
    }

    fn group_leave(&self, call: GroupLeave) -> Result<GroupLeaveReply, Error> {
        use group_leave_reply::Was;
        let was = self.with(|state| {
            let pod = &mut state.pods[pod_of(&call.uid).expect("a uid of ours")];
            let was = match pod.phase {
                _ if pod.left => Was::Nothing,
                Phase::Doomed(_) => Was::Waiting,
                Phase::Rejected(_) => Was::Rejected,
                Phase::Allowed(_) | Phase::AllowedInVain(_) => Was::Released,
                _ => Was::Nothing,
            };
            pod.left = true;
            pod.phase = if pod.deleted { Phase::Gone } else { Phase::Parked };
            was
        });
        Ok(GroupLeaveReply { was: was.into(), still_waiting: 0 })
    }

    fn group_reject(&self, call: GroupReject) -> Result<CountReply, Error> {
        if self.cluster.mutant != Mutant::NoReject {
            self.with(|state| {
                let g = index(&call.key);
                for pod in state.pods.iter_mut().filter(|pod| Some(usize::from(pod.gang)) == g) {
                    if let Phase::Waiting(n) = pod.phase {
                        pod.phase = Phase::Rejected(n);
                    }
                }
            });
        }
        Ok(CountReply::default())
    }

    fn group_activate(&self, call: GroupActivate) -> Result<CountReply, Error> {
        if self.cluster.mutant != Mutant::NoActivate {
            self.with(|state| {
                let g = index(&call.key);
                for (p, pod) in state.pods.iter_mut().enumerate() {
                    if Some(usize::from(pod.gang)) == g && pod.phase == Phase::Parked && uid(p) != call.except_uid {
                        pod.phase = Phase::Queued;
                    }
                }
            });
        }
        Ok(CountReply::default())
    }

    fn group_backoff(&self, call: GroupBackoff) -> Result<Done, Error> {
        let mutant = self.cluster.mutant;
        if mutant != Mutant::NoBackoff {
            self.with(|state| {
                let group = &mut state.groups[index(&call.key).expect("a key of ours")];
                group.backoff_ms = (call.until_ms - NOW).max(0);
                if mutant == Mutant::NoJitter && group.backoff_ms > 0 {
                    group.backoff_ms = 1000;
                }
                // Beyond this many tries the delay is at its cap; the count would tell states apart that are alike.
                group.attempt = call.attempt & 0xe000_0000 | (call.attempt & 0x1fff_ffff).min(3);
                group.note = call.note;
            });
        }
        Ok(Done {})
    }

    fn group_block(&self, call: GroupBlock) -> Result<Done, Error> {
        self.with(|state| {
            let g = index(&call.key).expect("a key of ours");
            let last = state.groups.iter().filter_map(|group| group.blocked.as_ref().map(|b| b.0)).max().unwrap_or(0);
            let since = state.groups[g].blocked.as_ref().map_or(last + 1, |b| b.0);
            state.groups[g].blocked = (!call.clear).then_some((since, call.rank, call.note));
        });
        Ok(Done {})
    }

    fn group_members(&self, call: GroupMembers) -> Result<GroupMembersReply, Error> {
        let state = self.state.borrow();
        let g = index(&call.key).expect("a key of ours");
        let of_group = state.pods.iter().enumerate().filter(|(_, pod)| usize::from(pod.gang) == g);
        let members: Vec<_> = of_group
            .filter_map(|(p, pod)| {
                let phase = match pod.phase {
                    Phase::Future | Phase::Gone => return None,
                    Phase::Queued | Phase::Parked | Phase::Rejected(_) => member::State::Unscheduled,
                    Phase::Waiting(_) | Phase::Doomed(_) => member::State::Waiting,
                    Phase::Allowed(_) | Phase::AllowedInVain(_) => member::State::Bound,
                    Phase::Bound(_) => member::State::Running,
                    Phase::Ending(_) => member::State::Terminating,
                };
                let priority = self.cluster.priority(pod);
                Some(plugin::bridge::Member { uid: uid(p), state: phase.into(), priority, ..Default::default() })
            })
            .collect();
        Ok(GroupMembersReply { total: members.len() as u32, members })
    }

    fn group_shapes(&self, call: GroupShapes) -> Result<GroupShapesReply, Error> {
        if self.cluster.blind {
            return Err(Error::BadReply("no figures".into()));
        }
        let state = self.state.borrow();
        let g = index(&call.key).expect("a key of ours");
        let counts = self.cluster.counts(&state, g);
        let (_, _, request, priority) = self.cluster.gangs[g];
        let shape = Shape {
            unscheduled: counts.unscheduled,
            placed: counts.waiting + counts.bound + counts.running,
            uid: call.uid,
            role: String::new(),
            priority,
            requests: vec![request],
        };
        Ok(GroupShapesReply { resources: vec!["cpu".into()], shapes: vec![shape] })
    }

    fn nodes_free(&self, call: NodesFree) -> Result<NodesFreeReply, Error> {
        let state = self.state.borrow();
        let mut reply = NodesFreeReply::default();
        for node in state.nodes() {
            let lower = |pod: &&Pod| {
                call.evict_lower && pod.phase.node() == Some(node) && self.cluster.priority(pod) < call.priority
            };
            let lower: i64 = state.pods.iter().filter(lower).map(|pod| self.cluster.request(pod)).sum();
            reply.free.extend(call.resources.iter().map(|_| self.cluster.free(&state, node) + lower));
            if call.with_names {
                reply.names.push(format!("n{node}"));
            }
        }
        Ok(reply)
    }

    fn nodes_victims(&self, call: NodesVictims) -> Result<NodesVictimsReply, Error> {
        let state = self.state.borrow();
        let victims = |node: u8| {
            let there = state.pods.iter().enumerate().filter(move |(_, pod)| pod.phase.node() == Some(node));
            there.filter(|(_, pod)| self.cluster.priority(pod) < call.priority).map(|(p, pod)| Victim {
                uid: uid(p),
                priority: self.cluster.priority(pod),
                requests: vec![self.cluster.request(pod)],
                group: gang(pod.gang.into()).key(),
                waiting: matches!(pod.phase, Phase::Waiting(_) | Phase::Doomed(_)),
                terminating: matches!(pod.phase, Phase::Ending(_)),
                ..Victim::default()
            })
        };
        let items = state.nodes().map(|node| NodeVictims {
            name: format!("n{node}"),
            free: vec![self.cluster.free(&state, node)],
            victims: victims(node).collect(),
        });
        Ok(NodesVictimsReply { items: items.collect(), ..NodesVictimsReply::default() })
    }

    fn pods_evict(&self, call: PodsEvict) -> Result<PodsEvictReply, Error> {
        let mut reply = PodsEvictReply { evicted: call.uids.clone(), ..PodsEvictReply::default() };
        let nominates = self.cluster.mutant != Mutant::NoNomination;
        self.with(|state| {
            for places in call.places.iter().filter(|_| nominates) {
                // The shape's uid is the caller's.
                let g = pod_of(&places.uid).map(|p| state.pods[p].gang);
                let unscheduled = (state.pods.iter_mut().enumerate())
                    .filter(|(_, pod)| Some(pod.gang) == g && !pod.deleted)
                    .filter(|(_, pod)| matches!(pod.phase, Phase::Queued | Phase::Parked | Phase::Rejected(_)));
                for ((p, pod), node) in unscheduled.zip(&places.nodes) {
                    if p == self.caller {
                        reply.node.clone_from(node);
                    } else {
                        pod.place = node_of(node);
                    }
                }
            }
            for p in call.uids.iter().filter_map(|uid| pod_of(uid)) {
                match state.pods[p].phase {
                    Phase::Waiting(n) => state.pods[p].phase = Phase::Doomed(n),
                    Phase::Allowed(n) | Phase::AllowedInVain(n) | Phase::Bound(n) => {
                        state.pods[p].phase = Phase::Ending(n);
                        state.pods[p].deleted = true;
                        state.lose(p);
                    }
                    _ => state.wrong = Some("evicted a pod that holds nothing"),
                }
            }
        });
        Ok(reply)
    }

    fn event_record(&self, _: EventRecord) -> Result<Done, Error> {
        Ok(Done {})
    }

    fn metric_add(&self, _: MetricAdd) -> Result<Done, Error> {
        Ok(Done {})
    }

    fn metric_observe(&self, _: MetricObserve) -> Result<Done, Error> {
        Ok(Done {})
    }
}

impl Cluster {
    /// Runs a part of the plugin on the state.
    fn run<T>(&self, state: &mut State, pod: usize, part: impl FnOnce(Cycle<'_, Bridged<'_>>, &Member) -> T) -> T {
        let member = Member {
            gang: gang(state.pods[pod].gang.into()),
            uid: uid(pod),
            name: uid(pod),
            priority: self.priority(&state.pods[pod]),
            preempts: true,
            facts: BTreeMap::new(),
        };
        let config = Config { backoff_max_seconds: 4, ..Config::default() };
        let bridge = Bridged { cluster: self, state: RefCell::new(state.clone()), caller: pod };
        let result = part(Cycle { bridge: &bridge, config: &config }, &member);
        *state = bridge.state.into_inner();
        result
    }

    /// A scheduling cycle; `None` where the pod can't go to this node but could to another, which is another action.
    fn cycle(&self, state: &mut State, pod: usize, node: u8) -> Option<()> {
        let refused = match self.run(state, pod, |cycle, member| cycle.pre_filter(member)) {
            PreFilter::Refuse(refusal) => Some(refusal),
            found => {
                let open = |n: u8| match &found {
                    PreFilter::Only(nodes) => nodes.contains(&format!("n{n}")),
                    _ => true,
                };
                // Its own place comes first.
                let place = state.pods[pod].place.filter(|&place| self.admits(state, pod, place));
                if place.is_some_and(|place| place != node) {
                    return None;
                }
                if place.is_some() || self.admits(state, pod, node) && open(node) {
                    self.permit(state, pod, node);
                    return Some(());
                }
                if state.nodes().any(|n| self.admits(state, pod, n) && open(n)) {
                    return None;
                }
                None
            }
        };
        let g = usize::from(state.pods[pod].gang);
        if refused.is_none() {
            state.groups[g].fails = (state.groups[g].fails + 1).min(TRIES + 1);
        }
        let ending = |state: &State| state.pods.iter().filter(|pod| matches!(pod.phase, Phase::Ending(_))).count();
        let before = ending(state);
        let wants = Wants { has_place: state.pods[pod].place.is_some(), rules: Rules::None };
        let found = self.run(state, pod, |cycle, member| cycle.post_filter(member, refused.as_ref(), wants));
        match &found {
            PostFilter::Evicted(Some(node)) => state.pods[pod].place = node_of(node),
            PostFilter::Refuse(_) => state.pods[pod].place = None,
            PostFilter::Single | PostFilter::Evicted(None) | PostFilter::Keep => {}
        }
        state.pods[pod].phase = Phase::Parked;
        if ending(state) > before {
            let mut later = state.clone();
            for pod in later.pods.iter_mut().filter(|pod| matches!(pod.phase, Phase::Ending(_))) {
                pod.phase = Phase::Gone;
            }
            if !self.fits(&later, g) {
                state.wrong = Some("evicted pods in vain");
            }
            state.groups[g].owed = true;
            if !matches!(found, PostFilter::Evicted(_)) {
                state.wrong = Some("evicted pods without saying so");
            }
        }
        Some(())
    }

    /// Permit, with the pod assumed but not yet among the framework's waiting pods.
    fn permit(&self, state: &mut State, pod: usize, node: u8) {
        state.pods[pod].left = false;
        state.pods[pod].place = None;
        state.pods[pod].phase = match self.run(state, pod, |cycle, member| cycle.permit(member)) {
            Ok(Permit::Allow) => Phase::Allowed(node),
            Ok(Permit::Wait(ms)) => {
                if !(1..=900_000).contains(&ms) {
                    state.wrong = Some("asked the framework for a wait it can't do");
                }
                Phase::Waiting(node)
            }
            Err(_) => Phase::Parked,
        };
        let mut later = state.clone();
        later.pods.iter_mut().filter(|p| matches!(p.phase, Phase::Ending(_))).for_each(|p| p.phase = Phase::Gone);
        let own = usize::from(state.pods[pod].gang);
        let taken = |g: usize| {
            let more_important = self.gangs[g].3 > self.gangs[own].3;
            state.groups[g].owed
                && more_important
                && self.live_members(state, g) >= self.min(g)
                && !self.fits(&later, g)
        };
        if (0..state.groups.len()).any(taken) {
            state.wrong = Some("took room that was made for others");
        }
    }

    fn unreserve(&self, state: &mut State, pod: usize) {
        if self.mutant == Mutant::NoUnreserve {
            state.pods[pod].phase = if state.pods[pod].deleted { Phase::Gone } else { Phase::Parked };
        } else {
            let _ = self.run(state, pod, |cycle, member| cycle.unreserve(member));
        }
    }

    fn tick(&self, state: &mut State) {
        let timers = state.groups.iter().flat_map(|group| [group.backoff_ms, group.deadline_ms]);
        let step = timers.filter(|&ms| ms > 0).min().unwrap_or(0);
        for (g, group) in state.groups.iter_mut().enumerate() {
            let ended = group.backoff_ms == step && self.mutant != Mutant::NoActivate;
            let late = group.deadline_ms == step;
            group.backoff_ms = (group.backoff_ms - step).max(0);
            group.deadline_ms = (group.deadline_ms - step).max(0);
            for pod in state.pods.iter_mut().filter(|pod| usize::from(pod.gang) == g) {
                match pod.phase {
                    // The host activates the gang at the end of its backoff.
                    Phase::Parked if ended => pod.phase = Phase::Queued,
                    Phase::Waiting(n) if late => pod.phase = Phase::Rejected(n),
                    _ => {}
                }
            }
        }
    }

    fn lose_node(state: &mut State, node: u8) {
        state.nodes[usize::from(node)] = 0;
        for p in 0..state.pods.len() {
            match state.pods[p].phase {
                // The pod garbage collector removes what ran there.
                Phase::Bound(n) | Phase::Ending(n) if n == node => {
                    state.pods[p].phase = Phase::Gone;
                    state.lose(p);
                }
                // Binding to it fails.
                Phase::Allowed(n) if n == node => {
                    state.pods[p].phase = Phase::AllowedInVain(n);
                    state.lose(p);
                }
                // The host takes a held pod whose node is gone for one that can't be let go.
                Phase::Waiting(n) if n == node => state.pods[p].phase = Phase::Doomed(n),
                _ => {}
            }
        }
        state.wake();
    }

    fn restart(state: &mut State) {
        for p in 0..state.pods.len() {
            match state.pods[p].phase {
                Phase::Allowed(_) | Phase::AllowedInVain(_) => {
                    // Not bound yet: as if the binding had failed.
                    state.lose(p);
                    state.pods[p].phase = Phase::Queued;
                }
                Phase::Waiting(_) | Phase::Rejected(_) | Phase::Doomed(_) | Phase::Parked => {
                    state.pods[p].phase = if state.pods[p].deleted { Phase::Gone } else { Phase::Queued };
                }
                _ => {}
            }
            state.pods[p].left = true;
        }
        for g in 0..state.groups.len() {
            let released = state.of(g).any(|pod| matches!(pod.phase, Phase::Bound(_)));
            state.groups[g] = Group { released, lost: state.groups[g].lost, ..Group::default() };
        }
    }

    /// What tells a node from others.
    fn looks(&self, state: &State, node: u8) -> (i64, Vec<(u8, Phase)>) {
        let there = state.pods.iter().filter(|pod| pod.phase.node() == Some(node) || pod.place == Some(node));
        let mut there: Vec<(u8, Phase)> = there.map(|pod| (pod.gang, pod.phase.kind())).collect();
        there.sort_unstable();
        (state.nodes[usize::from(node)], there)
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut pods = Vec::new();
        let mut nodes = (0..self.nodes.len() as u8).cycle();
        for (g, &(members, ..)) in (0u8..).zip(&self.gangs) {
            for _ in 0..members {
                let phase = match nodes.next() {
                    Some(node) if self.running.contains(&g) => Phase::Bound(node),
                    _ if self.arrived => Phase::Queued,
                    _ => Phase::Future,
                };
                pods.push(Pod { gang: g, phase, deleted: false, left: true, place: None });
            }
        }
        let groups = (0u8..).zip(&self.gangs);
        let groups = groups.map(|(g, _)| Group { released: self.running.contains(&g), ..Group::default() }).collect();
        vec![State { pods, groups, nodes: self.nodes.clone(), budget: self.budget, stale: false, wrong: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        let budget = state.budget;
        for (p, pod) in (0u8..).zip(&state.pods) {
            match pod.phase {
                Phase::Future => actions.push(Action::Arrive(p)),
                Phase::Queued => {
                    // Nodes that look alike are one choice.
                    let mut seen = BTreeSet::new();
                    let admit = |n: &u8| self.admits(state, p.into(), *n);
                    let nodes: Vec<u8> =
                        state.nodes().filter(admit).filter(|&n| seen.insert(self.looks(state, n))).collect();
                    actions.extend(nodes.iter().map(|&n| Action::Cycle(p, n)));
                    if nodes.is_empty() {
                        actions.push(Action::Cycle(p, 0));
                    }
                }
                Phase::Rejected(_) | Phase::Doomed(_) | Phase::AllowedInVain(_) => actions.push(Action::Unreserve(p)),
                Phase::Allowed(_) => {
                    actions.push(Action::Bind(p));
                    if budget.bind_failures > 0 {
                        actions.push(Action::FailBind(p));
                    }
                }
                Phase::Ending(_) => actions.push(Action::End(p)),
                Phase::Parked | Phase::Waiting(_) | Phase::Bound(_) | Phase::Gone => {}
            }
            let deletable = matches!(pod.phase, Phase::Queued | Phase::Parked | Phase::Waiting(_) | Phase::Bound(_));
            if budget.deletions > 0 && deletable {
                actions.push(Action::Delete(p));
            }
            if budget.preemptions > 0 && matches!(pod.phase, Phase::Waiting(_)) {
                actions.push(Action::PreemptWaiting(p));
            }
        }
        if budget.node_losses > 0 {
            actions.extend(state.nodes().map(Action::LoseNode));
        }
        if budget.restarts > 0 {
            actions.push(Action::Restart);
        }
        if state.stale {
            actions.push(Action::Refresh);
        } else if budget.stale_lists > 0 {
            actions.push(Action::GoStale);
        }
        let timers = state.groups.iter().any(|group| group.backoff_ms > 0 || group.deadline_ms > 0);
        if self.idle(state) && timers {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Arrive(p) => {
                state.pods[usize::from(p)].phase = Phase::Queued;
                state.forgive();
            }
            Action::Cycle(p, node) => self.cycle(&mut state, p.into(), node)?,
            Action::Unreserve(p) => {
                self.unreserve(&mut state, p.into());
                // The queue retries what it had parked before; the pod itself is parked only now.
                let own = state.pods[usize::from(p)].phase;
                state.wake();
                state.pods[usize::from(p)].phase = own;
            }
            Action::Bind(p) => {
                if let Phase::Allowed(n) = state.pods[usize::from(p)].phase {
                    state.pods[usize::from(p)].phase = Phase::Bound(n);
                }
            }
            Action::FailBind(p) => {
                state.budget.bind_failures -= 1;
                state.lose(p.into());
                self.unreserve(&mut state, p.into());
                // An error, not a rejection: the queue retries the pod by itself.
                state.wake();
                state.forgive();
            }
            Action::Delete(p) => {
                state.budget.deletions -= 1;
                let p = usize::from(p);
                state.pods[p].deleted = true;
                match state.pods[p].phase {
                    Phase::Waiting(n) => state.pods[p].phase = Phase::Doomed(n),
                    Phase::Bound(_) => {
                        state.pods[p].phase = Phase::Gone;
                        state.lose(p);
                        state.wake();
                    }
                    _ => state.pods[p].phase = Phase::Gone,
                }
                // The bridge ends a hold that those who are left can't complete.
                let g = usize::from(state.pods[p].gang);
                if !state.stale && self.live_members(&state, g) < self.min(g) {
                    for pod in state.pods.iter_mut().filter(|pod| usize::from(pod.gang) == g) {
                        if let Phase::Waiting(n) = pod.phase {
                            pod.phase = Phase::Rejected(n);
                        }
                    }
                }
                state.forgive();
            }
            Action::PreemptWaiting(p) => {
                state.budget.preemptions -= 1;
                if let Phase::Waiting(n) = state.pods[usize::from(p)].phase {
                    state.pods[usize::from(p)].phase = Phase::Doomed(n);
                }
                state.forgive();
            }
            Action::End(p) => {
                state.pods[usize::from(p)].phase = Phase::Gone;
                state.wake();
                state.forgive();
            }
            Action::LoseNode(n) => {
                state.budget.node_losses -= 1;
                Self::lose_node(&mut state, n);
                state.forgive();
            }
            Action::Restart => {
                state.budget.restarts -= 1;
                Self::restart(&mut state);
            }
            Action::GoStale => {
                state.budget.stale_lists -= 1;
                state.stale = true;
            }
            Action::Refresh => state.stale = false,
            Action::Tick => self.tick(&mut state),
        }
        // What a gang holds that has just lost a member may make others fail.
        let holds = |g| last.of(g).any(|pod| matches!(pod.phase, Phase::Waiting(_) | Phase::Rejected(_)));
        if (0..last.groups.len()).any(|g| holds(g) && self.live_members(last, g) < self.min(g)) {
            state.forgive();
        }
        for pod in state.pods.iter_mut().filter(|pod| pod.phase == Phase::Gone) {
            pod.place = None;
        }
        for g in 0..state.groups.len() {
            if !state.of(g).any(|pod| matches!(pod.phase, Phase::Waiting(_) | Phase::Doomed(_))) {
                state.groups[g].deadline_ms = 0;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn each(state: &State, holds: impl Fn(usize) -> bool) -> bool {
            (0..state.groups.len()).all(holds)
        }
        vec![
            Property::always("no partial start", |cluster: &Self, state: &State| {
                each(state, |g| {
                    let started = cluster.started(state, g);
                    started == 0 || started + usize::from(state.groups[g].lost) >= cluster.min(g)
                })
            }),
            Property::always("nothing wrong on the way", |_, state: &State| state.wrong.is_none()),
            Property::always("no hold that nobody tries to complete", |cluster: &Self, state: &State| {
                let holds = |g| state.of(g).any(|pod| matches!(pod.phase, Phase::Waiting(_)));
                let parked = |g| state.of(g).any(|pod| pod.phase == Phase::Parked);
                !cluster.idle(state) || each(state, |g| !(holds(g) && parked(g)))
            }),
            Property::always("no hold without an end", |_, state: &State| {
                each(state, |g| {
                    let holds = state.of(g).any(|pod| matches!(pod.phase, Phase::Waiting(_)));
                    !holds || state.groups[g].deadline_ms > 0
                })
            }),
            Property::always("no livelock", |cluster: &Self, state: &State| {
                each(state, |g| state.groups[g].fails <= TRIES || !cluster.fits(state, g))
            }),
            Property::always("no lost pod", |cluster: &Self, state: &State| {
                // Where nothing will happen any more, whoever could start has started.
                let over = cluster.idle(state)
                    && state.groups.iter().all(|group| group.backoff_ms == 0 && group.deadline_ms == 0)
                    && state.pods.iter().all(|pod| pod.phase != Phase::Future);
                !over
                    || each(state, |g| {
                        let parked = state.of(g).any(|pod| pod.phase == Phase::Parked);
                        let exists = cluster.live_members(state, g) >= cluster.min(g);
                        !parked || !exists || !cluster.fits(state, g)
                    })
            }),
            Property::sometimes("a gang starts", |cluster: &Self, state: &State| {
                !each(state, |g| cluster.running.contains(&(g as u8)) || cluster.started(state, g) == 0)
            }),
        ]
    }
}

/// Clusters in which the plugin must be right, each with its own troubles.
fn clusters() -> Vec<(&'static str, Cluster)> {
    let base = Cluster {
        gangs: vec![(2, 2, 1, 0), (2, 2, 1, 0)],
        nodes: vec![1, 1],
        exclusive: false,
        blind: false,
        arrived: false,
        running: vec![],
        budget: Budget::default(),
        mutant: Mutant::None,
    };
    let at_once = Cluster { arrived: true, ..base.clone() };
    let conflict = Cluster { exclusive: true, nodes: vec![2, 2], ..at_once.clone() };
    let with = |cluster: &Cluster, budget: Budget| Cluster { budget, ..cluster.clone() };
    let budget = Budget::default();
    vec![
        ("two gangs, room for one, any arrival", base.clone()),
        ("two gangs, room for both", Cluster { nodes: vec![2, 2], ..base.clone() }),
        ("a conflict the figures don't show", conflict.clone()),
        ("no figures at all", Cluster { blind: true, ..at_once.clone() }),
        ("the same and a deletion", with(&conflict, Budget { deletions: 1, ..budget })),
        ("held members are deleted and preempted", with(&at_once, Budget { deletions: 1, preemptions: 1, ..budget })),
        ("bindings fail, the scheduler restarts", with(&at_once, Budget { bind_failures: 1, restarts: 1, ..budget })),
        (
            "a node is lost",
            Cluster { nodes: vec![2, 2], budget: Budget { node_losses: 1, ..budget }, ..at_once.clone() },
        ),
        ("a stale list and a deletion", with(&at_once, Budget { deletions: 1, stale_lists: 1, ..budget })),
        (
            "three members of which two are enough",
            Cluster {
                gangs: vec![(3, 2, 1, 0), (2, 2, 1, 0)],
                nodes: vec![2, 1],
                budget: Budget { deletions: 1, ..budget },
                ..at_once.clone()
            },
        ),
        (
            "a more important gang makes room",
            Cluster { gangs: vec![(2, 2, 1, 0), (2, 2, 1, 10)], running: vec![0], ..base.clone() },
        ),
        (
            "a small gang comes while room is made",
            Cluster { gangs: vec![(2, 2, 1, 0), (2, 2, 1, 10), (1, 0, 1, 0)], running: vec![0], ..base.clone() },
        ),
        (
            "a big gang and small ones",
            Cluster { gangs: vec![(3, 3, 1, 0), (1, 1, 1, 0), (1, 1, 1, 0)], nodes: vec![2, 1], ..base },
        ),
    ]
}

#[test]
fn the_plugin_is_right_in_every_interleaving() {
    let mut states = 0;
    for (name, cluster) in clusters() {
        let checker = cluster.checker().threads(2).spawn_bfs().join();
        println!("{name}: {} states", checker.unique_state_count());
        for (property, path) in checker.discoveries() {
            assert_eq!(property, "a gang starts", "{name}: {property}\n{path}");
        }
        checker.assert_any_discovery("a gang starts");
        states += checker.unique_state_count();
    }
    println!("{states} states in all");
    assert!(states > 1_000, "the model has shrunk to nothing: {states} states");
}

#[test]
fn every_mutant_is_found_out() {
    for mutant in [
        Mutant::AllowByCountOnly,
        Mutant::AllowOnlyTheCaller,
        Mutant::NoReject,
        Mutant::NoBackoff,
        Mutant::NoJitter,
        Mutant::NoActivate,
        Mutant::NoUnreserve,
        Mutant::NoNomination,
    ] {
        let found = clusters().into_iter().find_map(|(name, cluster)| {
            let checker = Cluster { mutant, ..cluster }.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
            let checker = checker.spawn_bfs().join();
            let mut broken: Vec<_> = checker.discoveries().into_keys().filter(|p| *p != "a gang starts").collect();
            broken.sort_unstable();
            (!broken.is_empty()).then_some((name, broken))
        });
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "no cluster shows what is wrong with {mutant:?}");
    }
}
