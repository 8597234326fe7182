//! A gang pod's way through the extension points: asks the bridge for the facts, has [`crate::gang`] decide, and tells
//! the bridge what follows.

mod preemption;
mod report;
mod room;
mod scoring;

use std::collections::BTreeMap;

use self::room::Open;
use crate::bridge::{
    Calls, Error, GroupActivate, GroupAllow, GroupBackoff, GroupGet, GroupLeave, GroupReject, GroupState,
    group_leave_reply::Was,
};
use crate::config::Config;
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

/// What of a pod only PostFilter needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Wants {
    /// A node is kept for it.
    pub has_place: bool,
    /// What beside room it wants of its node.
    pub rules: Rules,
}

/// Rules about the pods around a pod, by what a plan of preemption can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// None.
    None,
    /// No two members on one node.
    Apart,
    /// Any others: whether they would be met isn't known before the room is there.
    Unseen,
}

/// A gang as it stands.
#[derive(Clone, Debug)]
struct View {
    id: GangId,
    spec: Spec,
    state: GroupState,
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

    /// Whether its pods start one by one now: it asks for no gang, or has its minimum.
    fn is_free(&self) -> bool {
        quorum::is_free(&self.spec, &self.state) || quorum::is_satisfied(&self.spec, &self.state)
    }
}

/// Why there is no [`View`], with the counts where they could be had.
type NoView = Box<(Reason, Option<GroupState>)>;

/// A refusal of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: String,
    /// What PostFilter is to do about it.
    pub then: Then,
}

/// What PostFilter does with a pod that PreFilter refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing; a place kept for the pod is given up, since it would keep others off.
    GiveUp,
    /// Nothing; a place kept for the pod stays its own, for the pods there are about to end.
    KeepPlace,
    /// Evicting other pods could help.
    Preempt,
}

/// What PreFilter found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreFilter {
    /// The pod may look for a node.
    Go,
    /// It may look among these.
    Only(Vec<String>),
    /// It may not.
    Refuse(Refusal),
}

/// What Permit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Room will come free, for this pod on this node, where it is known.
    Evicted(Option<String>),
    /// Nothing can be done; the text is empty where PreFilter has said it all.
    Refuse(String),
    /// Nothing needs to be done.
    Keep,
}

/// The extension points, for one call.
#[derive(Debug)]
pub struct Cycle<'a, B> {
    /// The bridge.
    pub bridge: &'a B,
    /// The configuration.
    pub config: &'a Config,
}

impl<B: Calls> Cycle<'_, B> {
    fn view(&self, gang: &GangId, member: Option<&Member>) -> Result<View, NoView> {
        let member = member.filter(|member| member.gang == *gang);
        let uid = member.map(|member| member.uid.clone()).unwrap_or_default();
        let call = GroupGet { key: gang.key(), with_object: gang.convention.object.is_some(), uid };
        let state = self.bridge.group_get(call).map_err(|e| Box::new((Reason::Bridge(e.to_string()), None)))?;
        let policy = self.config.match_policy;
        let spec = match (gang.convention.object, &state.object) {
            (None, _) => {
                let own = |name: &str| member.and_then(|member| member.facts.get(name)).map(String::as_str);
                Spec::from_facts(gang, &|name| state.facts.get(name).map(String::as_str).or_else(|| own(name)), policy)
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
            Err(reason) => Err(Box::new((reason, Some(state)))),
        }
    }

    /// The gang and those linked to it, its own first.
    fn views(&self, member: &Member) -> Result<Vec<View>, NoView> {
        let own = self.view(&member.gang, Some(member))?;
        let mut views = vec![own];
        for i in 0..views[0].spec.links.len() {
            let link = views[0].spec.links[i].clone();
            match self.view(&link, None) {
                Ok(view) => views.push(view),
                Err(no_view) => {
                    let state = views.swap_remove(0).state;
                    return Err(Box::new((Reason::Linked(member.gang.clone(), Box::new(no_view.0)), Some(state))));
                }
            }
        }
        Ok(views)
    }

    fn hold(&self, spec: &Spec) -> Hold {
        Hold::of(spec.timeout_ms, u64::from(self.config.default_timeout_seconds) * 1000)
    }

    /// May the pod look for a node, and where?
    pub fn pre_filter(&self, member: &Member) -> PreFilter {
        let views = match self.views(member) {
            Ok(views) => views,
            Err(no_view) => return self.refuse(member, &no_view.0, no_view.1.as_ref()),
        };
        let own = &views[0];
        if own.is_free() {
            return PreFilter::Go;
        }
        for view in &views {
            if let Err(incomplete) = quorum::exists(&view.spec, &view.state) {
                let why = Reason::Incomplete(view.id.clone(), incomplete);
                let reason = if view.id == own.id { why } else { Reason::Linked(own.id.clone(), Box::new(why)) };
                self.give_way(&views[1..], &reason);
                if own.state.blocked_since_ms != 0 {
                    self.unblock(own);
                }
                return self.refuse(member, &reason, Some(&own.state));
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
            let then = if backoff.cause == Cause::Victims { Then::KeepPlace } else { Then::GiveUp };
            return PreFilter::Refuse(Refusal { reason, then });
        }
        let open = match self.open_nodes(member, &views) {
            Ok(open) => open,
            Err(behind) => {
                let next = self.next_backoff(own, standing_back, Cause::NoRoom);
                self.stand_back(own, next, &behind.to_string());
                self.give_way(&views, &behind);
                self.count_refusal(&behind);
                return PreFilter::Refuse(Refusal { reason: behind.to_string(), then: Then::GiveUp });
            }
        };
        let links_waiting = views[1..].iter().filter(|view| view.waiting() > 0).count();
        let others_hold = own.state.other_holders as usize > links_waiting;
        // Without figures there is no refusal: Filter decides.
        if (!waiting || others_hold)
            && let Ok(need) = self.need(&views, member)
            && let Ok(Err(short)) = self.fits(&need, open.as_ref(), None)
        {
            // It may fit but for the room kept for another; else what it lacks is said of all nodes, closed ones included.
            let everywhere = open.as_ref().map(|_| self.fits(&need, None, None));
            let reason = match (everywhere, &own.state.head) {
                (Some(Ok(Ok(()))), Some(head)) => Reason::behind(&own.id, &head.key),
                (Some(Ok(Err(short))), _) => Reason::NoRoom(own.id.clone(), short),
                _ => Reason::NoRoom(own.id.clone(), short),
            };
            let next = self.next_backoff(own, standing_back, Cause::NoRoom);
            let text = if standing_back && backoff.cause == Cause::Victims {
                // Still waiting for the same pods to end; PostFilter looks whether that's still enough.
                let next = Backoff { cause: Cause::Victims, ..next };
                self.stand_back(own, next, &own.state.note);
                own.state.note.clone()
            } else {
                self.stand_back(own, next, &reason.to_string());
                reason.to_string()
            };
            self.give_way(&views, &reason);
            self.block(member, own, &need);
            self.count_refusal(&reason);
            let preempt = self.may_evict(member, backoff)
                && matches!(self.fits(&need, open.as_ref(), Some(member.priority)), Ok(Ok(())));
            let then = if preempt { Then::Preempt } else { Then::GiveUp };
            return PreFilter::Refuse(Refusal { reason: text, then });
        }
        open.and_then(Open::only).map_or(PreFilter::Go, PreFilter::Only)
    }

    fn may_evict(&self, member: &Member, backoff: Backoff) -> bool {
        self.config.preemption && member.preempts && !backoff.in_vain
    }

    /// A look in vain while the gang stands back doesn't make it stand back longer each time.
    fn next_backoff(&self, own: &View, standing_back: bool, cause: Cause) -> Backoff {
        let (key, now, limits) = (own.id.key(), own.state.now_ms, self.config.backoff());
        let backoff = own.backoff();
        if standing_back { backoff.restarted(&key, now, limits) } else { backoff.next(&key, cause, now, limits) }
    }

    /// May the pod go on, or is it held?
    ///
    /// # Errors
    /// Why it's refused.
    pub fn permit(&self, member: &Member) -> Result<Permit, String> {
        let views = self.views(member).map_err(|no_view| no_view.0.to_string())?;
        let own = &views[0];
        if quorum::is_free(&own.spec, &own.state) {
            return Ok(Permit::Allow);
        }
        let hold = self.hold(&own.spec);
        let reply = self
            .bridge
            .group_allow(GroupAllow {
                quorums: views.iter().map(|view| quorum::to_let_go(&view.spec, view.id.key())).collect(),
                uid: member.uid.clone(),
                join_until_ms: hold.deadline_ms(own.state.now_ms),
            })
            .map_err(|e| Reason::Bridge(e.to_string()).to_string())?;
        if reply.allowed {
            if !own.is_free() {
                self.started(own, hold);
            }
            return Ok(Permit::Allow);
        }
        if views.iter().all(|view| view.waiting() == 0) {
            // The first to be held wakes the others, once per try.
            for view in &views {
                let call = GroupActivate { key: view.id.key(), except_uid: member.uid.clone() };
                let _ = self.bridge.group_activate(call);
            }
            if let Some(asked) = hold.capped_from_ms {
                self.capped(own, asked, hold.timeout_ms);
            }
        }
        Ok(Permit::Wait(hold.framework_ms()))
    }

    /// The pod found no node. `refused` is what PreFilter said of it in this cycle.
    pub fn post_filter(&self, member: &Member, refused: Option<&Refusal>, wants: Wants) -> PostFilter {
        match refused.map(|refused| refused.then) {
            Some(Then::GiveUp) => return PostFilter::Refuse(String::new()),
            Some(Then::KeepPlace) => return PostFilter::Keep,
            Some(Then::Preempt) | None => {}
        }
        let Ok(views) = self.views(member) else { return PostFilter::Refuse(String::new()) };
        let own = &views[0];
        if own.is_free() {
            return PostFilter::Single;
        }
        if refused.is_none() && own.backoff().cause == Cause::Victims && !wants.has_place {
            // The room that was made is kept for others of the gang: it's their turn.
            let call = GroupActivate { key: own.id.key(), except_uid: member.uid.clone() };
            let _ = self.bridge.group_activate(call);
            return PostFilter::Refuse(own.state.note.clone());
        }
        let need = self.need(&views, member).ok();
        let mut said = String::new();
        let mut backoff = own.backoff();
        if refused.is_none() {
            let reason = Reason::NoNode {
                gang: own.id.clone(),
                member: member.name.clone(),
                held: if own.spec.strict { views.iter().fold(0, |sum, v| sum.saturating_add(v.waiting())) } else { 0 },
                started: own.started(),
                min: own.spec.min,
                short: need.as_ref().and_then(|need| self.fits(need, None, None).ok()?.err()),
            };
            said = reason.to_string();
            // Pods were evicted for it, and still a node is lacking: by rules that no plan sees. It mustn't go on like that.
            let in_vain = backoff.in_vain || backoff.cause == Cause::Victims;
            if own.spec.strict {
                // Where nobody was held the gang took nothing from others, so it may look again when room comes free.
                let held = views.iter().any(|view| view.waiting() > 0);
                let cause = if held { Cause::Failed } else { Cause::NoRoom };
                backoff = Backoff { in_vain, ..self.next_backoff(own, false, cause) };
                self.stand_back(own, backoff, &said);
                self.give_way(&views, &reason);
                if let Some(need) = &need {
                    self.block(member, own, need);
                }
                self.count_rejection(&reason);
            } else if in_vain && !backoff.in_vain {
                backoff.in_vain = true;
                self.stand_back(own, backoff, &said);
            }
        }
        // What gave way a moment ago is free only in the next snapshot: a plan made now would evict too many.
        let gave_way = refused.is_none() && views.iter().any(|view| view.waiting() > 0);
        let may_evict = self.may_evict(member, backoff) && wants.rules != Rules::Unseen;
        if let (Some(need), true, false) = (&need, may_evict, gave_way)
            // Room that is kept for another gang isn't this one's to clear.
            && let Ok(open) = self.open_nodes(member, &views)
            && let Some(evicted) = self.preempt(member, &views, backoff, need, wants.rules, open.as_ref())
        {
            return evicted;
        }
        PostFilter::Refuse(said)
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
                if let Ok(view) = self.view(&member.gang, Some(member)) {
                    let key = member.gang.key();
                    let (now, limits) = (view.state.now_ms, self.config.backoff());
                    let backoff = view.backoff().after_failed_binding(&key, now, limits);
                    let _ = self.bridge.group_backoff(GroupBackoff {
                        key,
                        until_ms: backoff.until_ms,
                        attempt: backoff.attempt(),
                        note: view.state.note,
                    });
                }
                self.bind_failed(member);
            }
            Was::Waiting => {
                let reason = Reason::MemberLeft { gang: member.gang.clone(), member: member.name.clone() };
                self.failed(member, &reason);
            }
            Was::Rejected => {
                // A rejection by the plugin has set a backoff; the deadline's hasn't.
                if let Ok(view) = self.view(&member.gang, Some(member))
                    && view.waiting() == 0
                    && !view.is_free()
                    && !view.backoff().is_in_force(view.state.now_ms)
                {
                    let gang = member.gang.clone();
                    if let Err(incomplete) = quorum::exists(&view.spec, &view.state) {
                        self.refuse(member, &Reason::Incomplete(gang, incomplete), Some(&view.state));
                        return Ok(());
                    }
                    let hold = self.hold(&view.spec);
                    self.failed(member, &Reason::Deadline { gang, timeout_ms: hold.timeout_ms, own: hold.own });
                }
            }
        }
        Ok(())
    }

    /// A try failed: the gang stands back, and who is still held gives way.
    fn failed(&self, member: &Member, reason: &Reason) {
        match self.views(member) {
            Ok(views) => {
                self.stand_back(&views[0], self.next_backoff(&views[0], false, Cause::Failed), &reason.to_string());
                self.give_way(&views, reason);
            }
            // Without its description the gang can't be whole, whatever the reason.
            Err(_) => {
                let _ = self.bridge.group_reject(GroupReject { key: member.gang.key(), reason: reason.to_string() });
            }
        }
        self.count_rejection(reason);
    }

    /// Rejects whoever is held. The backoff is set before: who is rejected must find it.
    fn give_way(&self, views: &[View], reason: &Reason) {
        for view in views.iter().filter(|view| view.waiting() > 0) {
            let _ = self.bridge.group_reject(GroupReject { key: view.id.key(), reason: reason.to_string() });
        }
    }

    fn stand_back(&self, view: &View, backoff: Backoff, note: &str) {
        self.tell(&view.id, &view.state, note);
        let _ = self.bridge.group_backoff(GroupBackoff {
            key: view.id.key(),
            until_ms: backoff.until_ms,
            attempt: backoff.attempt(),
            note: note.into(),
        });
        self.count_backoff();
    }

    /// Refuses a pod whose gang can't be tried at all; being short of members starts no backoff.
    fn refuse(&self, member: &Member, reason: &Reason, state: Option<&GroupState>) -> PreFilter {
        let note = reason.to_string();
        if let Some(state) = state {
            if state.total.as_ref().is_some_and(|c| c.waiting > 0) {
                let call = GroupReject { key: member.gang.key(), reason: note.clone() };
                let _ = self.bridge.group_reject(call);
            }
            if state.note != note {
                self.tell(&member.gang, state, &note);
                let mut backoff = Backoff::from_state(state.attempt, state.backoff_until_ms);
                if matches!(reason, Reason::Incomplete(..) | Reason::Linked(..)) {
                    backoff = backoff.restate(state.now_ms, self.config.backoff());
                }
                let _ = self.bridge.group_backoff(GroupBackoff {
                    key: member.gang.key(),
                    until_ms: backoff.until_ms,
                    attempt: backoff.attempt(),
                    note: note.clone(),
                });
            }
        }
        self.count_refusal(reason);
        PreFilter::Refuse(Refusal { reason: note, then: Then::GiveUp })
    }
}
