//! Events and metrics; docs/messages.md lists them.

use std::collections::BTreeMap;

use super::{Cycle, Member, View};
use crate::bridge::{Calls, EventRecord, GroupState, MetricAdd, MetricObserve, PodsEvictReply};
use crate::gang::hold::Hold;
use crate::gang::membership::GangId;
use crate::gang::reason::Reason;

impl<B: Calls> Cycle<'_, B> {
    /// An event on the gang's object, once for each change of the reason.
    pub(super) fn tell(&self, gang: &GangId, state: &GroupState, note: &str) {
        if note != state.note {
            self.event(gang, state, true, "GangUnschedulable", note.into());
        }
    }

    pub(super) fn capped(&self, own: &View, asked_ms: u64, held_ms: u64) {
        let note = format!(
            "gang {} asks to be held for {}s; it is held for {}s, the longest the scheduler can",
            own.id,
            asked_ms / 1000,
            held_ms / 1000
        );
        self.event(&own.id, &own.state, true, "TimeoutCapped", note);
    }

    pub(super) fn started(&self, own: &View, hold: Hold) {
        self.add("tutti_gangs_started_total", "Gangs let go as a whole.", "", 1.0);
        let state = &own.state;
        let seconds = |since_ms: i64| state.now_ms.saturating_sub(since_ms).max(0) as f64 / 1000.0;
        if state.oldest_member_ms > 0 {
            let help = "From the creation of a gang's oldest member to its start.";
            self.observe("tutti_gang_start_seconds", help, seconds(state.oldest_member_ms));
        }
        let timeout_ms = i64::try_from(hold.timeout_ms).unwrap_or(i64::MAX);
        let held_since =
            if state.deadline_ms > 0 { state.deadline_ms.saturating_sub(timeout_ms) } else { state.now_ms };
        let help = "How long a gang's first member was held before the start.";
        self.observe("tutti_gang_hold_seconds", help, seconds(held_since));
        self.event(
            &own.id,
            state,
            false,
            "GangStarted",
            format!("gang {} starts: its minimum of {} has a place", own.id, own.spec.min),
        );
    }

    pub(super) fn bind_failed(&self, member: &Member) {
        self.add("tutti_bind_failures_total", "Members whose binding failed after their gang was let go.", "", 1.0);
        if let Ok(view) = self.view(&member.gang, None) {
            let note =
                format!("gang {}: binding of {} failed after the start; it is tried again", member.gang, member.name);
            self.event(&member.gang, &view.state, true, "BindFailed", note);
        }
    }

    pub(super) fn evicted(&self, reply: &PodsEvictReply) {
        let help = "Pods evicted to make room for a gang.";
        self.add("tutti_preemption_victims_total", help, "", reply.evicted.len() as f64);
    }

    pub(super) fn count_refusal(&self, reason: &Reason) {
        let help = "Gang pods refused before they looked for a node, by reason.";
        self.add("tutti_gang_refusals_total", help, reason.label(), 1.0);
    }

    pub(super) fn count_rejection(&self, reason: &Reason) {
        self.add("tutti_gang_rejections_total", "Tries of a gang that failed, by reason.", reason.label(), 1.0);
    }

    pub(super) fn count_backoff(&self) {
        self.add("tutti_gang_backoffs_total", "Times a gang stood back after a failed try.", "", 1.0);
    }

    fn event(&self, gang: &GangId, state: &GroupState, warning: bool, reason: &str, note: String) {
        let (Some(object_type), Some(object)) = (gang.convention.object, &state.object) else { return };
        if object.found {
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
