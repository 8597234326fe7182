//! A gang pod's way through the extension points: asks the bridge for the facts, has [`crate::gang`] decide, and tells
//! the bridge what follows.

use std::collections::BTreeMap;

use crate::bridge::{
    Calls, Counts, Error, EventRecord, GroupActivate, GroupAllow, GroupBackoff, GroupBlock, GroupGet, GroupLeave,
    GroupReject, GroupShapes, GroupState, MetricAdd, MetricObserve, NodesFree, group_leave_reply::Was,
};
use crate::config::Config;
use crate::gang::fit::{Need, Nodes, Short};
use crate::gang::hold::{Backoff, Cause, Hold};
use crate::gang::membership::GangId;
use crate::gang::quorum;
use crate::gang::reason::Reason;
use crate::gang::spec::Spec;

/// A pod that belongs to a gang.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its gang.
    pub gang: GangId,
    /// Its uid.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// Whether its preemption policy lets it preempt.
    pub preempts: bool,
    /// What it says about its gang itself.
    pub facts: BTreeMap<String, String>,
}

/// A gang as it stands.
#[derive(Clone, Debug)]
pub struct View {
    /// Which.
    pub id: GangId,
    /// What it asks for.
    pub spec: Spec,
    /// The host's counts.
    pub state: GroupState,
}

impl View {
    fn waiting(&self) -> u32 {
        self.state.total.as_ref().map_or(0, |c| c.waiting)
    }

    fn started(&self) -> u32 {
        self.state.total.as_ref().map_or(0, |c| c.bound.saturating_add(c.running))
    }

    fn backoff(&self) -> Backoff {
        Backoff::from_state(self.state.attempt, self.state.backoff_until_ms)
    }
}

/// A refusal of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: String,
    /// Whether preempting other pods could help.
    pub preemption_may_help: bool,
}

/// What PreFilter found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreFilter {
    /// The pod may look for a node.
    Go,
    /// It may not.
    Refuse(Refusal),
}

/// What Permit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The gang is whole, or the pod is free.
    Allow,
    /// The pod waits for its gang, at most so many milliseconds.
    Wait(u32),
}

/// What PostFilter found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostFilter {
    /// The pod is on its own: the scheduler's preemption may try.
    Single,
    /// Nothing more can be done; the text is empty where PreFilter has said it all.
    Refuse(String),
}

/// The extension points, for one call.
#[derive(Debug)]
pub struct Cycle<'a, B> {
    /// The bridge.
    pub bridge: &'a B,
    /// The configuration.
    pub config: &'a Config,
}

/// Free room as the bridge tells it.
struct Free<'a, B> {
    bridge: &'a B,
    /// Room held by pods of lower priority than this counts as free.
    evict_below: Option<i32>,
}

/// Nodes per page: some 20 KB of reply.
const PAGE: u32 = 1024;

impl<B: Calls> Nodes for Free<'_, B> {
    type Error = Error;

    fn each(&mut self, uid: &str, resources: &[String], see: &mut dyn FnMut(&[i64]) -> bool) -> Result<(), Error> {
        let mut offset = 0;
        loop {
            let page = self.bridge.nodes_free(NodesFree {
                uid: uid.into(),
                resources: resources.to_vec(),
                offset,
                limit: PAGE,
                evict_lower: self.evict_below.is_some(),
                priority: self.evict_below.unwrap_or(0),
                ..NodesFree::default()
            })?;
            for free in page.free.chunks_exact(resources.len().max(1)) {
                if !see(free) {
                    return Ok(());
                }
            }
            // An offset that doesn't grow would never end.
            if page.next_offset <= offset {
                return Ok(());
            }
            offset = page.next_offset;
        }
    }
}

impl<B: Calls> Cycle<'_, B> {
    /// The gang as it stands.
    ///
    /// # Errors
    /// Why there is no telling what it asks for; with the counts, where they could be had.
    pub fn view(&self, gang: &GangId, member: &Member) -> Result<View, (Reason, Option<GroupState>)> {
        let uid = if *gang == member.gang { member.uid.as_str() } else { "" };
        let call = GroupGet { key: gang.key(), with_object: gang.convention.object.is_some(), uid: uid.into() };
        let state = self.bridge.group_get(call).map_err(|e| (Reason::Bridge(e.to_string()), None))?;
        let policy = self.config.match_policy;
        let spec = match (gang.convention.object, &state.object) {
            (None, _) => {
                let own =
                    |name: &str| (*gang == member.gang).then(|| member.facts.get(name)).flatten().map(String::as_str);
                Spec::from_facts(gang, |name| state.facts.get(name).map(String::as_str).or_else(|| own(name)), policy)
                    .map_err(|invalid| Reason::Invalid(gang.clone(), invalid))
            }
            (Some(_), Some(object)) if object.found => {
                Spec::from_object(gang, &object.json, policy).map_err(|invalid| Reason::Invalid(gang.clone(), invalid))
            }
            (Some(_), Some(object)) if !object.served => Err(Reason::NoResource(gang.clone())),
            (Some(_), _) => Err(Reason::NoObject(gang.clone())),
        };
        match spec {
            Ok(spec) => Ok(View { id: gang.clone(), spec, state }),
            Err(reason) => Err((reason, Some(state))),
        }
    }

    /// The gang and those linked to it, its own first.
    fn views(&self, member: &Member) -> Result<Vec<View>, (Reason, Option<GroupState>)> {
        let own = self.view(&member.gang, member)?;
        let mut views = vec![own];
        for i in 0..views[0].spec.links.len() {
            let link = views[0].spec.links[i].clone();
            match self.view(&link, member) {
                Ok(view) => views.push(view),
                Err((why, _)) => {
                    let state = views.swap_remove(0).state;
                    return Err((Reason::Linked(member.gang.clone(), Box::new(why)), Some(state)));
                }
            }
        }
        Ok(views)
    }

    /// May the pod look for a node?
    pub fn pre_filter(&self, member: &Member) -> PreFilter {
        let views = match self.views(member) {
            Ok(views) => views,
            Err((reason, state)) => return self.refuse(member, reason, state.as_ref()),
        };
        let own = &views[0];
        if quorum::is_free(&own.spec, &own.state) || quorum::is_satisfied(&own.spec, &own.state) {
            return PreFilter::Go;
        }
        for view in &views {
            if let Err(incomplete) = quorum::exists(&view.spec, &view.state) {
                let why = Reason::Incomplete(view.id.clone(), incomplete);
                let reason = if view.id == own.id { why } else { Reason::Linked(own.id.clone(), Box::new(why)) };
                self.give_way(&views, &reason);
                if own.state.blocked_since_ms != 0 {
                    self.unblock(own);
                }
                return self.refuse(member, reason, Some(&own.state));
            }
        }
        let waiting = views.iter().any(|view| view.waiting() > 0);
        let (key, now, limits) = (own.id.key(), own.state.now_ms, self.config.backoff());
        let backoff = own.backoff();
        // Where members are held already, a backoff is a left-over of the try before.
        let standing_back = !waiting && backoff.is_in_force(now);
        if standing_back && !backoff.may_look_again(&key, now, limits) {
            let reason = if own.state.note.is_empty() {
                format!("gang {} stands back after a failed try", own.id)
            } else {
                own.state.note.clone()
            };
            return PreFilter::Refuse(Refusal { reason, preemption_may_help: false });
        }
        let other_holders =
            own.state.other_holders > views[1..].iter().filter(|view| view.waiting() > 0).fold(0, |sum, _| sum + 1);
        if !waiting || other_holders {
            match self.room(&views, member, None) {
                Ok(Err(short)) => {
                    let reason = Reason::NoRoom(own.id.clone(), short);
                    let next = if standing_back {
                        backoff.restarted(&key, now, limits)
                    } else {
                        backoff.next(&key, Cause::NoRoom, now, limits)
                    };
                    self.stand_back(own, next, &reason);
                    self.give_way(&views, &reason);
                    self.count("tutti_gang_refusals_total", &reason);
                    let preemption_may_help =
                        member.preempts && matches!(self.room(&views, member, Some(member.priority)), Ok(Ok(())));
                    return PreFilter::Refuse(Refusal { reason: reason.to_string(), preemption_may_help });
                }
                // No figures, no refusal: Filter decides.
                Ok(Ok(())) | Err(_) => {}
            }
        }
        PreFilter::Go
    }

    /// Whether the missing members of all the gangs could fit.
    fn room(&self, views: &[View], member: &Member, evict_below: Option<i32>) -> Result<Result<(), Short>, Error> {
        if !self.bridge.serves("group_shapes") || !self.bridge.serves("nodes_free") {
            return Ok(Ok(()));
        }
        let mut need = Need::default();
        for view in views {
            let uid = if view.id == member.gang { member.uid.clone() } else { String::new() };
            let shapes = self.bridge.group_shapes(GroupShapes { key: view.id.key(), uid })?;
            need.add(quorum::missing(&view.spec, &view.state), &shapes, &view.spec.min_resources);
        }
        need.check(&mut Free { bridge: self.bridge, evict_below })
    }

    /// May the pod go on, or is it held?
    ///
    /// # Errors
    /// Why it's refused.
    pub fn permit(&self, member: &Member) -> Result<Permit, String> {
        let views = self.views(member).map_err(|(reason, _)| reason.to_string())?;
        let own = &views[0];
        if quorum::is_free(&own.spec, &own.state) {
            return Ok(Permit::Allow);
        }
        let hold = Hold::of(own.spec.timeout_ms, u64::from(self.config.default_timeout_seconds) * 1000);
        let reply = self
            .bridge
            .group_allow(GroupAllow {
                quorums: views.iter().map(|view| quorum::to_let_go(&view.spec, view.id.key())).collect(),
                uid: member.uid.clone(),
                join_until_ms: hold.deadline_ms(own.state.now_ms),
            })
            .map_err(|e| Reason::Bridge(e.to_string()).to_string())?;
        if reply.allowed {
            if !quorum::is_satisfied(&own.spec, &own.state) {
                self.started(own, hold);
            }
            return Ok(Permit::Allow);
        }
        if views.iter().all(|view| view.waiting() == 0) {
            // The first to be held wakes the others, once per try.
            for view in &views {
                self.activate(view, &member.uid);
            }
            if let Some(asked) = hold.capped_from_ms {
                let note = format!(
                    "gang {} asks to be held for {}s; held for {}s, the longest the scheduler can",
                    own.id,
                    asked / 1000,
                    hold.timeout_ms / 1000
                );
                self.event(&own.id, &own.state, true, "TimeoutCapped", note);
            }
        }
        Ok(Permit::Wait(hold.framework_ms()))
    }

    /// The pod found no node. `refused` is what PreFilter said of it in this cycle.
    pub fn post_filter(&self, member: &Member, refused: Option<&Refusal>) -> PostFilter {
        if refused.is_some() {
            return PostFilter::Refuse(String::new());
        }
        let Ok(views) = self.views(member) else { return PostFilter::Refuse(String::new()) };
        let own = &views[0];
        if quorum::is_free(&own.spec, &own.state) || quorum::is_satisfied(&own.spec, &own.state) {
            return PostFilter::Single;
        }
        let reason = Reason::NoNode {
            gang: own.id.clone(),
            member: member.name.clone(),
            held: if own.spec.strict { views.iter().fold(0, |sum, v| sum.saturating_add(v.waiting())) } else { 0 },
            started: own.started(),
            min: own.spec.min,
            short: self.room(&views, member, None).ok().and_then(Result::err),
        };
        if own.spec.strict {
            // Where nobody was held the gang took nothing from others, so it may look again when room comes free.
            let held = views.iter().any(|view| view.waiting() > 0);
            let cause = if held { Cause::Failed } else { Cause::NoRoom };
            let next = own.backoff().next(&own.id.key(), cause, own.state.now_ms, self.config.backoff());
            self.stand_back(own, next, &reason);
            self.give_way(&views, &reason);
            self.count("tutti_gang_rejections_total", &reason);
        }
        PostFilter::Refuse(reason.to_string())
    }

    /// The pod gives its place up. Runs beside other pods' cycles.
    ///
    /// # Errors
    /// The bridge failed.
    pub fn unreserve(&self, member: &Member) -> Result<(), Error> {
        let left = self.bridge.group_leave(GroupLeave { key: member.gang.key(), uid: member.uid.clone() })?;
        match left.was() {
            Was::Nothing => {}
            Was::Released => {
                self.bridge.group_activate(GroupActivate { key: member.gang.key(), except_uid: String::new() })?;
                self.add(
                    "tutti_bind_failures_total",
                    "Members whose binding failed after their gang was let go.",
                    "",
                    1.0,
                );
            }
            Was::Waiting => {
                let reason = Reason::MemberLeft { gang: member.gang.clone(), member: member.name.clone() };
                self.failed(member, &reason);
            }
            Was::Rejected => {
                // A rejection by the plugin has set a backoff; the deadline's hasn't.
                if let Ok(view) = self.view(&member.gang, member)
                    && view.waiting() == 0
                    && !view.backoff().is_in_force(view.state.now_ms)
                {
                    let hold = Hold::of(view.spec.timeout_ms, u64::from(self.config.default_timeout_seconds) * 1000);
                    let reason =
                        Reason::Deadline { gang: member.gang.clone(), timeout_ms: hold.timeout_ms, own: hold.own };
                    self.failed(member, &reason);
                }
            }
        }
        Ok(())
    }

    /// A try failed: the gang stands back, and who is still held gives way.
    fn failed(&self, member: &Member, reason: &Reason) {
        match self.views(member) {
            Ok(views) => {
                let own = &views[0];
                let next = own.backoff().next(&own.id.key(), Cause::Failed, own.state.now_ms, self.config.backoff());
                self.stand_back(own, next, reason);
                self.give_way(&views, reason);
            }
            // Without its description the gang can't be whole, whatever the reason.
            Err(_) => {
                let _ = self.bridge.group_reject(GroupReject { key: member.gang.key(), reason: reason.to_string() });
            }
        }
        self.count("tutti_gang_rejections_total", reason);
    }

    /// Rejects whoever is held. The backoff is set before: who is rejected must find it.
    fn give_way(&self, views: &[View], reason: &Reason) {
        for view in views.iter().filter(|view| view.waiting() > 0) {
            let _ = self.bridge.group_reject(GroupReject { key: view.id.key(), reason: reason.to_string() });
        }
    }

    fn stand_back(&self, view: &View, backoff: Backoff, reason: &Reason) {
        let note = reason.to_string();
        if note != view.state.note {
            self.event(&view.id, &view.state, true, "GangUnschedulable", note.clone());
        }
        let _ = self.bridge.group_backoff(GroupBackoff {
            key: view.id.key(),
            until_ms: backoff.until_ms,
            attempt: backoff.attempt(),
            note,
        });
        self.add("tutti_gang_backoffs_total", "Times a gang stood back after a failed try.", "", 1.0);
    }

    fn refuse(&self, member: &Member, reason: Reason, state: Option<&GroupState>) -> PreFilter {
        let note = reason.to_string();
        if let Some(state) = state {
            if state.total.as_ref().is_some_and(|c| c.waiting > 0) {
                let call = GroupReject { key: member.gang.key(), reason: note.clone() };
                let _ = self.bridge.group_reject(call);
            }
            if state.note != note {
                self.event(&member.gang, state, true, "GangUnschedulable", note.clone());
                let _ = self.bridge.group_backoff(GroupBackoff {
                    key: member.gang.key(),
                    until_ms: state.backoff_until_ms,
                    attempt: state.attempt,
                    note: note.clone(),
                });
            }
        }
        self.count("tutti_gang_refusals_total", &reason);
        PreFilter::Refuse(Refusal { reason: note, preemption_may_help: false })
    }

    fn unblock(&self, view: &View) {
        let _ = self.bridge.group_block(GroupBlock { key: view.id.key(), clear: true, ..GroupBlock::default() });
    }

    fn activate(&self, view: &View, except: &str) {
        let _ = self.bridge.group_activate(GroupActivate { key: view.id.key(), except_uid: except.into() });
    }

    fn started(&self, view: &View, hold: Hold) {
        let none = Counts::default();
        let total = view.state.total.as_ref().unwrap_or(&none);
        self.add("tutti_gangs_started_total", "Gangs let go as a whole.", "", 1.0);
        let now = view.state.now_ms;
        let seconds = |since: i64| now.saturating_sub(since).max(0) as f64 / 1000.0;
        if view.state.oldest_member_ms > 0 {
            self.observe(
                "tutti_gang_start_seconds",
                "From the creation of a gang's oldest member to its start.",
                seconds(view.state.oldest_member_ms),
            );
        }
        let held_since = if view.state.deadline_ms > 0 {
            view.state.deadline_ms.saturating_sub(i64::try_from(hold.timeout_ms).unwrap_or(i64::MAX))
        } else {
            now
        };
        self.observe(
            "tutti_gang_hold_seconds",
            "How long a gang's first member was held before the start.",
            seconds(held_since),
        );
        let members = quorum::placed(total, view.spec.policy).saturating_add(1);
        let note = format!("gang {} starts: {members} of {} members have a place", view.id, view.spec.min);
        self.event(&view.id, &view.state, false, "GangStarted", note);
    }

    fn event(&self, gang: &GangId, state: &GroupState, warning: bool, reason: &str, note: String) {
        let (Some(object_type), Some(object)) = (gang.convention.object, &state.object) else { return };
        if !object.found {
            return;
        }
        let _ = self.bridge.event_record(EventRecord {
            resource: Some(object_type.to_resource()),
            kind: object_type.kind.into(),
            namespace: gang.namespace.clone(),
            name: gang.name.clone(),
            uid: object.uid.clone(),
            warning,
            reason: reason.into(),
            note,
        });
    }

    fn count(&self, name: &str, reason: &Reason) {
        let help = match name {
            "tutti_gang_refusals_total" => "Gang pods refused before they looked for a node, by reason.",
            _ => "Tries of a gang that failed, by reason.",
        };
        self.add(name, help, reason.label(), 1.0);
    }

    fn add(&self, name: &str, help: &str, reason: &str, value: f64) {
        let mut labels = BTreeMap::new();
        if !reason.is_empty() {
            labels.insert("reason".into(), reason.into());
        }
        let _ = self.bridge.metric_add(MetricAdd { name: name.into(), labels, value, help: help.into() });
    }

    fn observe(&self, name: &str, help: &str, value: f64) {
        let labels = BTreeMap::new();
        let _ = self.bridge.metric_observe(MetricObserve { name: name.into(), labels, value, help: help.into() });
    }
}
