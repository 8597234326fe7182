//! What the trace tells, gathered as it grows: counts for conditions, spans on nodes for drawings, figures per gang.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value as Json;

use super::collective::Collectives;
use crate::input::duration::Millis;
use crate::objects::{Node, Pod, default_requests, pod_requests};
use crate::report::{Bar, GangSummary, Lane, PendingPod, State, Summary, Timeline, Usage};
use crate::scheduler::{self, PodKey, Record, What};

/// Where pods name their gang, in the order that counts, and whether that's a label or an annotation.
const GANG_KEYS: [(&str, bool); 4] = [
    ("scheduling.x-k8s.io/pod-group", true),
    ("scheduling.k8s.io/group-name", false),
    ("pod-group.scheduling.sigs.k8s.io/name", true),
    ("gang.scheduling.koordinator.sh/name", false),
];

/// A gang is known by the key that names it, and by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gang {
    key: &'static str,
    name: String,
}

#[derive(Debug, Default)]
pub(super) struct History {
    read: usize,
    /// Scheduling cycles.
    pub(super) attempts: Vec<(Millis, PodKey)>,
    /// Pods deleted to make room.
    pub(super) evictions: Vec<(Millis, PodKey)>,
    /// When something last came to pass in the cluster, beyond a retry.
    pub(super) last_progress: i64,
    /// An action that the API server refused, and what it said.
    refusal: Option<(String, String)>,
    guest_fault: Option<(String, Millis)>,
    nodes: Vec<(String, BTreeMap<String, i64>)>,
    pods: BTreeMap<PodKey, PodStory>,
    /// Pods in the order they came.
    order: Vec<PodKey>,
}

#[derive(Debug, Default)]
struct PodStory {
    gang: Option<Gang>,
    /// It had ended before the run.
    ended_before: bool,
    requests: BTreeMap<String, i64>,
    came: i64,
    ended: Option<i64>,
    spans: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    node: String,
    from: i64,
    to: Option<i64>,
    held: bool,
}

impl PodStory {
    fn close(&mut self, now: i64) {
        if let Some(span) = self.spans.last_mut().filter(|s| s.to.is_none()) {
            span.to = Some(now);
        }
    }

    fn open(&mut self, node: &str, now: i64, held: bool) {
        self.close(now);
        self.spans.push(Span { node: node.to_owned(), from: now, to: None, held });
    }
}

impl History {
    /// Takes note of an object that comes now.
    pub(super) fn comes(&mut self, object: &Json) {
        if object["kind"] == "Node"
            && let Ok(node) = Node::deserialize(object)
        {
            let name = node.metadata.name;
            let room: BTreeMap<String, i64> =
                node.status.allocatable.iter().map(|(r, q)| (r.clone(), units(r, q.exact()))).collect();
            match self.nodes.iter_mut().find(|(n, _)| *n == name) {
                Some((_, known)) => *known = room,
                None => self.nodes.push((name, room)),
            }
        }
        if object["kind"] == "Pod"
            && let Ok(mut pod) = Pod::deserialize(object)
        {
            default_requests(&mut pod);
            let meta = &pod.metadata;
            let gang = GANG_KEYS.iter().find_map(|&(key, label)| {
                let name = if label { &meta.labels } else { &meta.annotations }.get(key).filter(|v| !v.is_empty())?;
                Some(Gang { key, name: format!("{}/{name}", meta.namespace) })
            });
            let story = self.pods.entry(PodKey::new(&meta.namespace, &meta.name)).or_default();
            story.gang = gang;
            story.ended_before = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
            story.requests = pod_requests(&pod).into_iter().map(|(r, q)| (r.clone(), units(&r, q))).collect();
        }
    }

    /// Reads the records that are new, and says from which on.
    pub(super) fn read(&mut self, records: &[Record]) -> usize {
        let from = self.read;
        for Record { at_ms, what } in &records[from..] {
            let now = *at_ms;
            let mut progress = true;
            match what {
                What::Arrived { pod, node } => {
                    let story = self.pods.entry(pod.clone()).or_default();
                    if story.spans.is_empty() && story.ended.is_none() {
                        story.came = now;
                        self.order.push(pod.clone());
                    }
                    story.ended = story.ended_before.then_some(now);
                    if !node.is_empty() && !story.ended_before {
                        story.open(node, now, false);
                    }
                }
                What::Waiting { pod, node, .. } => {
                    self.story(pod).open(node, now, true);
                    progress = false;
                }
                What::Rejected { pod, .. } | What::BindFailed { pod, .. } => {
                    self.story(pod).close(now);
                    progress = false;
                }
                What::Bound { pod, node } => self.story(pod).open(node, now, false),
                What::Finished { pod, .. } => self.ended(pod, now),
                What::Evicted { pod, .. } => {
                    // It keeps its room until it has stopped, and is deleted.
                    self.evictions.push((Millis(now), pod.clone()));
                }
                What::Deleted { object } => {
                    if let Some((namespace, name)) = object.strip_prefix("pod/").and_then(|o| o.split_once('/')) {
                        self.ended(&PodKey::new(namespace, name), now);
                    }
                }
                What::Attempt { pod, .. } => {
                    self.attempts.push((Millis(now), pod.clone()));
                    progress = false;
                }
                What::SchedulerStopped { .. } => {
                    for story in self.pods.values_mut().filter(|s| s.spans.last().is_some_and(|s| s.held)) {
                        story.close(now);
                    }
                }
                What::Refused { action, reason } => {
                    self.refusal.get_or_insert_with(|| {
                        (action.clone(), format!("{action} is refused at {}: {reason}", Millis(now)))
                    });
                }
                What::GuestFault { call, reason } => {
                    self.guest_fault.get_or_insert_with(|| (format!("{call}: {reason}"), Millis(now)));
                }
                What::Running { .. }
                | What::Created { .. }
                | What::Patched { .. }
                | What::Terminating { .. }
                | What::SchedulerStarted
                | What::ApiAway
                | What::ApiBack => {}
                What::Nominated { .. }
                | What::Allowed { .. }
                | What::Log { .. }
                | What::Event { .. }
                | What::Activated { .. }
                | What::Condition { .. } => progress = false,
            }
            if progress {
                self.last_progress = now;
            }
        }
        self.read = records.len();
        from
    }

    fn story(&mut self, pod: &PodKey) -> &mut PodStory {
        self.pods.entry(pod.clone()).or_default()
    }

    fn ended(&mut self, pod: &PodKey, now: i64) {
        let story = self.story(pod);
        story.close(now);
        story.ended.get_or_insert(now);
    }

    /// The first action that the API server refused, and a sentence on it.
    pub(super) fn refusal(&self) -> Option<(&str, &str)> {
        self.refusal.as_ref().map(|(action, message)| (action.as_str(), message.as_str()))
    }

    /// Whether some pod has its room still.
    pub(super) fn runs_on(&self) -> bool {
        self.pods.values().any(|story| story.spans.last().is_some_and(|span| span.to.is_none()))
    }

    /// The first call of the guest that failed, and when.
    pub(super) fn guest_fault(&self) -> Option<(&str, Millis)> {
        self.guest_fault.as_ref().map(|(fault, at)| (fault.as_str(), *at))
    }

    /// In the order they came, and what to call each: its key is told where two have one name.
    fn gangs(&self) -> (HashMap<&Gang, usize>, Vec<String>) {
        let mut index = HashMap::new();
        let mut gangs: Vec<&Gang> = Vec::new();
        for gang in self.order.iter().filter_map(|pod| self.pods[pod].gang.as_ref()) {
            index.entry(gang).or_insert_with(|| {
                gangs.push(gang);
                gangs.len() - 1
            });
        }
        let mut count: HashMap<&str, usize> = HashMap::new();
        gangs.iter().for_each(|gang| *count.entry(&gang.name).or_default() += 1);
        let names = gangs.iter().map(|Gang { key, name }| match count[name.as_str()] {
            1 => name.clone(),
            _ => format!("{name} ({key})"),
        });
        let names = names.collect();
        (index, names)
    }

    /// The resource of which the pods ask for the largest part of the cluster.
    fn contended(&self) -> String {
        let mut wanted: BTreeMap<&str, i64> = BTreeMap::new();
        for (resource, amount) in self.pods.values().flat_map(|s| &s.requests) {
            *wanted.entry(resource).or_default() += amount;
        }
        let capacity = |resource: &str| self.nodes.iter().filter_map(|(_, room)| room.get(resource)).sum::<i64>();
        let part =
            |&(resource, amount): &(&str, i64)| i128::from(amount) * 1_000_000 / i128::from(capacity(resource)).max(1);
        let fits = wanted.into_iter().filter(|(resource, _)| *resource != "pods" && capacity(resource) > 0);
        fits.max_by_key(part).map_or("cpu", |(resource, _)| resource).to_owned()
    }

    pub(super) fn timeline(&self, title: &str, end: Millis, collectives: &Collectives) -> Timeline {
        let resource = self.contended();
        let lane_of: HashMap<&str, usize> =
            self.nodes.iter().enumerate().map(|(i, (name, _))| (name.as_str(), i)).collect();
        let (gang_of, gangs) = self.gangs();
        let mut bars = Vec::new();
        let mut last = 0;
        for pod in &self.order {
            let story = &self.pods[pod];
            let amount = story.requests.get(&resource).copied().unwrap_or(0);
            for span in &story.spans {
                let Some(&lane) = lane_of.get(span.node.as_str()) else { continue };
                let to = span.to.unwrap_or(end.0);
                last = last.max(to);
                let mut bar = |from: i64, to: i64, state| {
                    if to > from && amount > 0 {
                        let gang = story.gang.as_ref().map(|g| gang_of[g]);
                        bars.push(Bar { lane, gang, pod: pod.to_string(), start: from, end: to, amount, state });
                    }
                };
                let Some(spells) = collectives.spells(pod).filter(|_| !span.held) else {
                    bar(span.from, to, if span.held { State::Held } else { State::Running });
                    continue;
                };
                let mut at = span.from;
                for &(from, until) in spells {
                    let (from, until) = (from.0.clamp(at, to), until.map_or(to, |u| u.0).clamp(at, to));
                    bar(at, from, State::Idle);
                    bar(from, until, State::Running);
                    at = until;
                }
                bar(at, to, State::Idle);
            }
        }
        let lanes = self
            .nodes
            .iter()
            .map(|(name, room)| Lane { name: name.clone(), capacity: room.get(&resource).copied().unwrap_or(0) });
        Timeline {
            title: title.to_owned(),
            subtitle: String::new(),
            end: last.max(1),
            lanes: lanes.collect(),
            gangs,
            bars,
            resource,
        }
    }

    pub(super) fn summary(
        &self,
        scheduler: &str,
        end: Millis,
        state: scheduler::State<'_>,
        timeline: &Timeline,
    ) -> Summary {
        let mut gangs: Vec<GangSummary> = timeline
            .gangs
            .iter()
            .map(|gang| GangSummary {
                gang: gang.clone(),
                pods: 0,
                bound: 0,
                held: 0,
                succeeded: 0,
                failed: 0,
                came_ms: i64::MAX,
                started_ms: None,
                done_ms: Some(0),
                attempts: 0,
                reason: String::new(),
                other_reasons: Vec::new(),
            })
            .collect();
        let (index, _) = self.gangs();
        let gang_of = |pod: &PodKey| self.pods.get(pod)?.gang.as_ref().map(|g| index[g]);
        for pod in &self.order {
            let (story, Some(gang)) = (&self.pods[pod], gang_of(pod)) else { continue };
            let gang = &mut gangs[gang];
            gang.came_ms = gang.came_ms.min(story.came);
            let started = story.spans.iter().filter(|s| !s.held).map(|s| s.from).min();
            gang.started_ms = [gang.started_ms, started].into_iter().flatten().min();
            gang.done_ms = gang.done_ms.zip(story.ended).map(|(a, b)| a.max(b));
        }
        for (_, pod) in &self.attempts {
            if let Some(gang) = gang_of(pod) {
                gangs[gang].attempts += 1;
            }
        }
        let mut pending_pods = Vec::new();
        for pod in state.pods() {
            let pending = pod.node.is_empty() && !matches!(pod.phase, "Succeeded" | "Failed");
            let Some(gang) = gang_of(pod.key) else {
                if pending {
                    pending_pods.push(PendingPod { pod: pod.key.to_string(), reason: pod.reason.to_owned() });
                }
                continue;
            };
            let gang = &mut gangs[gang];
            gang.pods += 1;
            gang.succeeded += usize::from(pod.phase == "Succeeded");
            gang.failed += usize::from(pod.phase == "Failed");
            gang.bound += usize::from(!pod.node.is_empty() && !matches!(pod.phase, "Succeeded" | "Failed"));
            gang.held += usize::from(pod.waiting);
            if pending && gang.reason.is_empty() {
                pod.reason.clone_into(&mut gang.reason);
            } else if pending
                && gang.reason != pod.reason
                && !pod.reason.is_empty()
                && gang.other_reasons.iter().all(|other| other.reason != pod.reason)
            {
                gang.other_reasons.push(PendingPod { pod: pod.key.to_string(), reason: pod.reason.to_owned() });
            }
        }
        Summary {
            scheduler: scheduler.to_owned(),
            seed: 0,
            end_ms: end.0,
            gangs,
            pending_pods,
            usage: Usage::of(timeline),
            deadlocked: false,
            failures: Vec::new(),
        }
    }
}

fn units(resource: &str, quantity: kube_scheduler_sdk::Quantity) -> i64 {
    if resource == "cpu" { quantity.milli_value() } else { quantity.value() }
}
