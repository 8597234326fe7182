//! Default preemption.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use kube_scheduler_abi::Code;
use serde_json::Value as Json;

use super::Simulator;
use super::core::{Core, Signal, set_condition};
use super::cycle::Diagnosis;
use super::event::plugin;
use super::filter::{CycleState, Failure};
use super::node::{NodeId, NodeInfo};
use super::pod::{PodId, PodInfo};
use super::trace::What;
use crate::objects::{LabelSelector, Time};

/// At least so many candidates are compared, if there are so many.
const MIN_CANDIDATES: usize = 100;
/// And at least so many in a hundred nodes.
const MIN_CANDIDATES_PERCENT: usize = 10;

/// A node, and what would have to go from it.
struct Candidate {
    node: NodeId,
    /// The most important first.
    victims: Vec<PodId>,
    violations: usize,
}

/// What preemption came to: a node to nominate ("" clears), and a message if it came to nothing.
pub(super) enum Preemption {
    Nominate(NodeId),
    Nothing { clear: bool, message: String },
}

impl Core {
    /// Deletes a pod to make room.
    pub(super) fn disrupt(&mut self, id: PodId, by: &str, reason: &str) {
        let key = self.pod(id).key.clone();
        self.note(What::Evicted { pod: key, by: by.to_owned(), reason: reason.to_owned() });
        let now = Time::from_unix_ms(self.unix_ms());
        let scheduler = self.config.scheduler_name.clone();
        self.update_pod(id, |pod| {
            let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
            set_condition(pod, "DisruptionTarget", "True", "PreemptionByScheduler", &message, now);
        });
        self.delete_pod(id);
    }

    /// Which of these pods a PodDisruptionBudget protects, if all of them are to go in this order.
    pub(super) fn protected(&self, pods: impl Iterator<Item = PodId>) -> BTreeSet<PodId> {
        let budgets = self.objects_of("policy", "PodDisruptionBudget");
        let mut budgets: Vec<(&str, LabelSelector, i64)> = budgets
            .filter_map(|(reference, object)| {
                let selector: LabelSelector = serde_json::from_value(object["spec"]["selector"].clone()).ok()?;
                let empty = selector == LabelSelector::default();
                let allowed = self.disruptions_allowed(&reference.namespace, &selector, object);
                (!empty).then_some((reference.namespace.as_str(), selector, allowed))
            })
            .collect();
        if budgets.is_empty() {
            return BTreeSet::new();
        }
        let mut protected = BTreeSet::new();
        for id in pods {
            let meta = &self.pod(id).info.pod.metadata;
            for (namespace, selector, allowed) in &mut budgets {
                if meta.namespace == *namespace && !meta.labels.is_empty() && selector.matches(&meta.labels) {
                    *allowed -= 1;
                    if *allowed < 0 {
                        protected.insert(id);
                    }
                }
            }
        }
        protected
    }

    /// How many pods of a budget may go: as its status says, else counted as the disruption controller does.
    fn disruptions_allowed(&self, namespace: &str, selector: &LabelSelector, budget: &Json) -> i64 {
        if let Some(allowed) = budget["status"]["disruptionsAllowed"].as_i64() {
            return allowed;
        }
        let members = self.by_key.values().map(|id| &self.pod(*id).info.pod).filter(|pod| {
            pod.metadata.namespace == namespace && selector.matches(&pod.metadata.labels) && !pod.is_terminal()
        });
        let (mut all, mut healthy) = (0, 0);
        for pod in members {
            all += 1;
            healthy += i64::from(pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none());
        }
        let spec = &budget["spec"];
        let needed = match (&spec["minAvailable"], &spec["maxUnavailable"]) {
            (Json::Null, Json::Null) => 0,
            (Json::Null, most) => all - of_total(most, all),
            (least, _) => of_total(least, all),
        };
        (healthy - needed).max(0)
    }

    /// Whether `a` is more important than `b`: higher priority, else started earlier.
    fn more_important(&self, a: PodId, b: PodId) -> std::cmp::Ordering {
        let priority = |id: PodId| self.pod(id).info.priority;
        priority(b).cmp(&priority(a)).then_with(|| self.start(a).cmp(&self.start(b))).then(a.cmp(&b))
    }

    fn start(&self, id: PodId) -> i64 {
        let pod = &self.pod(id).info.pod;
        pod.status.start_time.map_or_else(|| self.unix_ms(), Time::unix_ms)
    }
}

/// A number, or a percentage of a total rounded up.
fn of_total(value: &Json, total: i64) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|p| p.parse::<i64>().ok());
    percent.map_or_else(|| value.as_i64().unwrap_or(0), |percent| (total * percent + 99) / 100)
}

impl Simulator {
    /// Tries to find a node where the pod would fit if pods of lower priority went, and lets them go.
    pub(super) fn default_preemption(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        state: &CycleState,
        skip_guest: bool,
        diagnosis: &Diagnosis,
    ) -> Preemption {
        let nothing = |message: &str| Preemption::Nothing { clear: false, message: format!("preemption: {message}") };
        if info.pod.spec.preemption_policy == "Never" {
            return nothing("not eligible due to preemptionPolicy=Never.");
        }
        if let Some(node) = self.world.core.pod(id).scheduling.nominated
            && diagnosis.code(node) != Code::UnschedulableAndUnresolvable
        {
            let core = &self.world.core;
            let going = core.node(node).pods.iter().any(|(other, pod)| {
                let now = &core.pod(*other).info.pod;
                let preempted = now.condition("DisruptionTarget").is_some_and(|c| c.reason == "PreemptionByScheduler");
                pod.priority < info.priority && now.metadata.deletion_timestamp.is_some() && preempted
            });
            if going {
                return nothing("not eligible due to a terminating pod on the nominated node.");
            }
        }
        let order = &self.world.core.order;
        let own: HashMap<NodeId, Code> = diagnosis.nodes.iter().map(|(id, failure)| (*id, failure.code)).collect();
        let others = diagnosis.absent.as_ref().map(|(code, _)| *code);
        let may_help = |node: &NodeId| own.get(node).copied().or(others) == Some(Code::Unschedulable);
        let nodes: Vec<NodeId> = order.iter().copied().filter(may_help).collect();
        let all = order.len();
        let mut refused: Vec<(NodeId, Failure)> = Vec::new();
        let mut candidates: Vec<Candidate> = Vec::new();
        if !nodes.is_empty() {
            let wanted = (nodes.len() * MIN_CANDIDATES_PERCENT / 100).max(MIN_CANDIDATES).min(nodes.len());
            let offset = self.world.core.random(nodes.len());
            for i in 0..nodes.len() {
                let node = nodes[(offset + i) % nodes.len()];
                match self.dry_run(id, info, state, skip_guest, node) {
                    Ok(candidate) => candidates.push(candidate),
                    Err(failure) => refused.push((node, failure)),
                }
                let harmless = candidates.iter().any(|c| c.violations == 0);
                if harmless && candidates.len() >= wanted {
                    break;
                }
            }
        }
        if candidates.is_empty() {
            let reasons = Diagnosis::of_dry_run(refused);
            let message = reasons.message(all, &self.world.core.resources);
            return Preemption::Nothing { clear: true, message: format!("preemption: {message}") };
        }
        let best = self.pick(candidates);
        let core = &self.world.core;
        if core.api_away() && best.victims.iter().any(|victim| !core.waiting.contains_key(victim)) {
            return nothing("the API server doesn't answer");
        }
        self.evict_victims(id, info, &best);
        Preemption::Nominate(best.node)
    }

    /// Which pods must go from the node so that the pod fits: as few and as unimportant as can be.
    fn dry_run(
        &mut self,
        id: PodId,
        info: &Rc<PodInfo>,
        state: &CycleState,
        skip_guest: bool,
        node: NodeId,
    ) -> Result<Candidate, Failure> {
        let live = self.world.core.node(node);
        let mut potential: Vec<(PodId, Rc<PodInfo>)> =
            live.pods.iter().filter(|(_, pod)| pod.priority < info.priority).cloned().collect();
        let refuse = |text: &'static str| Failure {
            plugin: plugin::DEFAULT_PREEMPTION,
            code: Code::UnschedulableAndUnresolvable,
            reason: super::filter::Reason::Fixed(text),
        };
        if potential.is_empty() {
            return Err(refuse("No preemption victims found for incoming pod"));
        }
        let mut copy: NodeInfo = live.clone();
        let mut state = state.clone();
        for (other, pod) in &potential {
            self.shift(id, info, &mut copy, &mut state, skip_guest, (*other, pod), false);
        }
        self.check_with_nominated(id, info, &copy, &state, node, skip_guest)?;
        let core = &self.world.core;
        potential.sort_by(|(a, _), (b, _)| core.more_important(*a, *b));
        let protected = core.protected(potential.iter().map(|(id, _)| *id));
        // Those that a budget protects are spared first.
        potential.sort_by_key(|(id, _)| !protected.contains(id));
        let mut victims = Vec::new();
        let mut violations = 0;
        for (other, pod) in potential {
            self.shift(id, info, &mut copy, &mut state, skip_guest, (other, &pod), true);
            if self.check_with_nominated(id, info, &copy, &state, node, skip_guest).is_err() {
                self.shift(id, info, &mut copy, &mut state, skip_guest, (other, &pod), false);
                victims.push(other);
                violations += usize::from(protected.contains(&other));
            }
        }
        if victims.is_empty() {
            return Err(refuse("expected at least one victim pod"));
        }
        let core = &self.world.core;
        victims.sort_by(|a, b| core.more_important(*a, *b));
        Ok(Candidate { node, victims, violations })
    }

    /// Fewest violated budgets; then the lowest of the highest priorities; the least sum of priorities; the fewest pods;
    /// the one whose most important pods started last.
    fn pick(&self, candidates: Vec<Candidate>) -> Candidate {
        let core = &self.world.core;
        let key = |c: &Candidate| {
            let priority = |id: &PodId| i64::from(core.pod(*id).info.priority);
            let highest = c.victims.first().map_or(0, priority);
            let sum: i64 = c.victims.iter().map(|id| priority(id) + i64::from(i32::MAX) + 1).sum();
            let important = c.victims.iter().filter(|id| priority(id) == highest);
            let earliest = important.map(|id| core.start(*id)).min().unwrap_or(0);
            (c.violations, highest, sum, c.victims.len(), std::cmp::Reverse(earliest))
        };
        let mut candidates = candidates.into_iter();
        let Some(first) = candidates.next() else { unreachable!("only called with candidates") };
        candidates.fold(first, |best, c| if key(&c) < key(&best) { c } else { best })
    }

    fn evict_victims(&mut self, id: PodId, info: &Rc<PodInfo>, candidate: &Candidate) {
        let core = &mut self.world.core;
        let by = core.pod(id).key.to_string();
        let node = Rc::clone(&core.node(candidate.node).name);
        for &victim in &candidate.victims {
            if core.waiting.contains_key(&victim) {
                let reason = "preempted".to_owned();
                core.signal(victim, Signal::Reject { plugin: plugin::DEFAULT_PREEMPTION, reason });
            } else if core.pod(victim).exists
                && core.pod(victim).info.pod.metadata.deletion_timestamp.is_none()
                && !core.api_away()
            {
                core.disrupt(victim, &by, &format!("preempted on {node}"));
            }
            let note = format!("Preempted by pod {} on node {node}", info.pod.metadata.uid);
            core.record_pod(victim, "Normal", "Preempted", &note);
        }
        // Pods of lower priority that were to have the node must look again.
        let nominated = core.nominated.get(&candidate.node).cloned().unwrap_or_default();
        for other in nominated.into_iter().filter(|other| *other != id) {
            if core.pod(other).info.priority < info.priority {
                core.nominate(other, None);
                if core.pod(other).exists && !core.api_away() {
                    core.update_pod(other, |pod| pod.status.nominated_node_name.clear());
                }
            }
        }
    }
}
