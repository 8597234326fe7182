//! The scheduling queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::config::SimConfig;
use super::event::{ClusterEvent, Interests, Verdict, plugin, worth};
use super::pod::{Place, PodEntry, PodId};
use super::resource::Resources;

/// Backoffs end at whole seconds after the scheduler's start.
const BACKOFF_TICK_MS: i64 = 1_000;
/// Pods that stayed unschedulable too long are looked for so often.
const UNSCHEDULABLE_TICK_MS: i64 = 30_000;

/// The scheduling queue: three queues, and the events that pods in flight have missed.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By priority, then by how long they are there.
    active: BTreeSet<(Reverse<i32>, i64, u64, PodId)>,
    /// By the end of the backoff.
    backoff: BTreeSet<(i64, u64, PodId)>,
    /// By the set of plugins that refused them, so that an event finds those it may help.
    unschedulable: BTreeMap<u32, BTreeSet<PodId>>,
    /// The same pods by the time they came.
    unschedulable_since: BTreeSet<(i64, PodId)>,
    events: VecDeque<Rc<ClusterEvent>>,
    /// Index of the first of `events`.
    events_base: u64,
    in_flight: BTreeSet<(u64, PodId)>,
    seq: u64,
    pub(super) interests: Interests,
    started_ms: i64,
    initial_ms: i64,
    max_ms: i64,
    unschedulable_max_ms: i64,
}

impl Queue {
    /// An empty queue of a scheduler that starts now.
    pub(super) fn new(config: &SimConfig, now: i64) -> Self {
        Self {
            started_ms: now,
            initial_ms: config.backoff_initial_ms,
            max_ms: config.backoff_max_ms,
            unschedulable_max_ms: config.unschedulable_max_ms,
            ..Self::default()
        }
    }

    pub(super) fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    fn stamp(&mut self, entry: &mut PodEntry, now: i64) {
        self.seq += 1;
        entry.scheduling.queued_ms = now;
        entry.scheduling.queued_seq = self.seq;
    }

    /// Takes a pod out of whatever queue it is in.
    pub(super) fn remove(&mut self, id: PodId, entry: &mut PodEntry) {
        let s = &mut entry.scheduling;
        match s.place {
            Place::Active => {
                self.active.remove(&(Reverse(entry.info.priority), s.queued_ms, s.queued_seq, id));
            }
            Place::Backoff(end) => {
                self.backoff.remove(&(end, s.queued_seq, id));
            }
            Place::Unschedulable => {
                let set = s.rejectors | s.pending;
                if let Some(pods) = self.unschedulable.get_mut(&set) {
                    pods.remove(&id);
                    if pods.is_empty() {
                        self.unschedulable.remove(&set);
                    }
                }
                self.unschedulable_since.remove(&(s.queued_ms, id));
            }
            Place::None | Place::InFlight(_) => return,
        }
        s.place = Place::None;
    }

    fn park(&mut self, id: PodId, entry: &mut PodEntry) {
        let s = &mut entry.scheduling;
        self.unschedulable.entry(s.rejectors | s.pending).or_default().insert(id);
        if !s.gated {
            self.unschedulable_since.insert((s.queued_ms, id));
        }
        s.place = Place::Unschedulable;
    }

    /// To the active queue, or to the unschedulable pods if it is gated.
    fn activate_entry(&mut self, id: PodId, entry: &mut PodEntry) {
        self.remove(id, entry);
        entry.scheduling.gated = !entry.info.pod.spec.scheduling_gates.is_empty();
        if entry.scheduling.gated {
            entry.scheduling.rejectors |= plugin::SCHEDULING_GATES;
            return self.park(id, entry);
        }
        let s = &mut entry.scheduling;
        self.active.insert((Reverse(entry.info.priority), s.queued_ms, s.queued_seq, id));
        s.place = Place::Active;
    }

    fn backoff_end(&self, entry: &PodEntry) -> i64 {
        let s = &entry.scheduling;
        if s.attempts == 0 {
            return s.queued_ms;
        }
        let doublings = (s.attempts - 1).min(30);
        s.queued_ms + self.initial_ms.saturating_mul(1 << doublings).min(self.max_ms)
    }

    fn requeue(&mut self, id: PodId, entry: &mut PodEntry, verdict: Verdict, now: i64) {
        let end = self.backoff_end(entry);
        match verdict {
            Verdict::Skip => self.park(id, entry),
            Verdict::AfterBackoff if end > now => {
                let s = &mut entry.scheduling;
                self.backoff.insert((end, s.queued_seq, id));
                s.place = Place::Backoff(end);
            }
            Verdict::AfterBackoff | Verdict::Immediately => self.activate_entry(id, entry),
        }
    }

    /// A pod that is new to the scheduler.
    pub(super) fn add(&mut self, id: PodId, entry: &mut PodEntry, now: i64) {
        self.stamp(entry, now);
        self.activate_entry(id, entry);
    }

    /// The next pod to schedule.
    pub(super) fn pop(&mut self, pods: &mut [PodEntry]) -> Option<PodId> {
        let (_, _, _, id) = self.active.pop_first()?;
        let entry = &mut pods[id.0 as usize];
        let start = self.events_base + self.events.len() as u64;
        self.in_flight.insert((start, id));
        let s = &mut entry.scheduling;
        s.place = Place::InFlight(Some(start));
        s.attempts += 1;
        s.rejectors = 0;
        s.pending = 0;
        Some(id)
    }

    /// Events need no longer be kept for a pod in flight.
    pub(super) fn done(&mut self, id: PodId, entry: &mut PodEntry) {
        if let Place::InFlight(Some(start)) = entry.scheduling.place {
            entry.scheduling.place = Place::InFlight(None);
            self.in_flight.remove(&(start, id));
            let first = self.in_flight.first().map_or(self.events_base + self.events.len() as u64, |(s, _)| *s);
            while self.events_base < first {
                self.events.pop_front();
                self.events_base += 1;
            }
        }
    }

    /// A pod comes back from a cycle that failed.
    pub(super) fn add_unschedulable(&mut self, id: PodId, entry: &mut PodEntry, now: i64, resources: &Resources) {
        self.stamp(entry, now);
        let s = &entry.scheduling;
        let (rejectors, pending) = (s.rejectors, s.pending);
        let mut verdict = Verdict::Skip;
        if rejectors | pending == 0 {
            verdict = Verdict::AfterBackoff;
        } else if let Place::InFlight(Some(start)) = s.place {
            let missed = self.events.range(usize::try_from(start - self.events_base).unwrap_or(0)..);
            for event in missed {
                verdict = verdict.max(worth(&self.interests, event, id, &entry.info, rejectors, pending, resources));
                if verdict == Verdict::Immediately || (verdict == Verdict::AfterBackoff && pending == 0) {
                    break;
                }
            }
        }
        self.done(id, entry);
        entry.scheduling.place = Place::None;
        self.requeue(id, entry, verdict, now);
    }

    /// Moves the unschedulable pods that an event may help.
    pub(super) fn move_all(
        &mut self,
        event: ClusterEvent,
        except: Option<PodId>,
        pods: &mut [PodEntry],
        now: i64,
        resources: &Resources,
    ) {
        let interested = self.interests.interested(&event);
        if interested == 0 {
            return;
        }
        let mut moved = Vec::new();
        for (set, parked) in &self.unschedulable {
            if *set != 0 && set & interested == 0 {
                continue;
            }
            for &id in parked {
                let entry = &pods[id.0 as usize];
                let s = &entry.scheduling;
                if Some(id) == except || s.gated {
                    continue;
                }
                let verdict = worth(&self.interests, &event, id, &entry.info, s.rejectors, s.pending, resources);
                if verdict != Verdict::Skip {
                    moved.push((id, verdict));
                }
            }
        }
        for (id, verdict) in moved {
            let entry = &mut pods[id.0 as usize];
            self.remove(id, entry);
            self.requeue(id, entry, verdict, now);
        }
        self.note(event);
    }

    /// Keeps an event for the pods in flight.
    fn note(&mut self, event: ClusterEvent) {
        if !self.in_flight.is_empty() {
            self.events.push_back(Rc::new(event));
        }
    }

    /// A pod without a node changed; `pods` has its new version. `old_priority` is that of its place in the active queue.
    pub(super) fn update(
        &mut self,
        id: PodId,
        events: Vec<ClusterEvent>,
        pods: &mut [PodEntry],
        now: i64,
        resources: &Resources,
    ) {
        let entry = &mut pods[id.0 as usize];
        match entry.scheduling.place {
            Place::InFlight(Some(_)) => events.into_iter().for_each(|event| self.note(event)),
            Place::Unschedulable => {
                for event in events {
                    let s = &entry.scheduling;
                    let verdict = worth(&self.interests, &event, id, &entry.info, s.rejectors, s.pending, resources);
                    if verdict != Verdict::Skip {
                        self.remove(id, entry);
                        self.requeue(id, entry, verdict, now);
                    }
                    if entry.scheduling.place != Place::Unschedulable {
                        break;
                    }
                }
            }
            Place::None => self.add(id, entry, now),
            Place::Active | Place::Backoff(_) | Place::InFlight(None) => {}
        }
    }

    /// Moves a pod to the active queue, without backoff. Whether it was parked.
    pub(super) fn activate(&mut self, id: PodId, entry: &mut PodEntry) -> bool {
        match entry.scheduling.place {
            Place::Unschedulable | Place::Backoff(_) => {
                self.activate_entry(id, entry);
                entry.scheduling.place == Place::Active
            }
            Place::InFlight(Some(_)) => {
                let about = super::event::About::Activate(id);
                self.note(ClusterEvent { action: u32::MAX, about });
                false
            }
            Place::None | Place::Active | Place::InFlight(None) => false,
        }
    }

    /// Moves on the pods whose time has come.
    pub(super) fn flush(&mut self, pods: &mut [PodEntry], now: i64) {
        if (now - self.started_ms) % BACKOFF_TICK_MS == 0 {
            while let Some(&(end, _, id)) = self.backoff.first() {
                if end > now {
                    break;
                }
                self.activate_entry(id, &mut pods[id.0 as usize]);
            }
        }
        if (now - self.started_ms) % UNSCHEDULABLE_TICK_MS == 0 {
            let late: Vec<PodId> = self
                .unschedulable_since
                .iter()
                .take_while(|(since, _)| now - since > self.unschedulable_max_ms)
                .map(|(_, id)| *id)
                .collect();
            for id in late {
                let entry = &mut pods[id.0 as usize];
                self.remove(id, entry);
                self.requeue(id, entry, Verdict::AfterBackoff, now);
            }
        }
    }

    /// When [`Queue::flush`] has something to do next, after `now`.
    pub(super) fn next_flush(&self, now: i64) -> Option<i64> {
        let tick = |at: i64, tick: i64| {
            let at = at.max(now + 1) - self.started_ms;
            self.started_ms + (at + tick - 1).div_euclid(tick) * tick
        };
        let backoff = self.backoff.first().map(|(end, _, _)| tick(*end, BACKOFF_TICK_MS));
        let late = self.unschedulable_since.first();
        let late = late.map(|(since, _)| tick(since + self.unschedulable_max_ms + 1, UNSCHEDULABLE_TICK_MS));
        backoff.into_iter().chain(late).min()
    }
}
