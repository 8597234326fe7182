//! Runs what was loaded: feeds the simulator, watches it moment by moment, and tells what came of it.

mod agenda;
mod collective;
mod history;
mod observe;

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use serde_json::Value as Json;

use self::agenda::{Agenda, Entry};
use self::collective::Collectives;
use self::history::History;
use self::observe::Watched;
use crate::guest::{Guest, Instances, Options};
use crate::input::duration::Millis;
use crate::input::{Arrival, Loaded, Problem};
use crate::report::{Summary, Timeline};
use crate::scenario::{Action, Checker, Conditions, Failure, Pattern, Step};
use crate::scheduler::{self, ObjectRef, SimConfig, Simulator, StartPlugin};

/// A run in which nothing has come to pass for so long won't get any further: longer than every backoff and than the
/// five and a half minutes after which the scheduler tries a pod again without any event.
const QUIET_MS: i64 = 30 * 60_000;
/// The longest a replay without an end of its own lasts.
const LONGEST: Millis = Millis(30 * 86_400_000);
/// Orders that a step of any order is tried in.
const ORDERS: u64 = 60;

/// A plugin to run.
#[derive(Clone, Copy, Debug)]
pub struct Plugin<'a> {
    /// As the user knows it.
    pub file: &'a str,
    /// The module.
    pub wasm: &'a [u8],
    /// `guestConfig`; that of a scenario comes first.
    pub config: Option<&'a str>,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Name of the scheduler in reports.
    pub name: &'a str,
    /// The plugin; without one it is the plain scheduler.
    pub plugin: Option<Plugin<'a>>,
    /// Draws ties between nodes.
    pub seed: u64,
    /// Which order of the mixed steps; 0 is that of the file.
    pub order: u64,
    /// When to stop; the scenario's own end comes second.
    pub until: Option<Millis>,
    /// How guest instances are handed to pods.
    pub instances: Instances,
    /// Is told how far a run has come.
    pub watch: Watch<'a>,
}

/// Who is told of each moment of a run.
#[derive(Clone, Copy)]
pub struct Watch<'a>(pub &'a dyn Fn(Millis));

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            name: "kube-scheduler",
            plugin: None,
            seed: 1,
            order: 0,
            until: None,
            instances: Instances::Pool,
            watch: Watch(&|_| ()),
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// One line per thing that happened.
    pub trace: String,
    /// Expectations that did not hold.
    pub failures: Vec<Failure>,
    /// In figures.
    pub summary: Summary,
    /// To draw.
    pub timeline: Timeline,
}

/// Runs a scenario twice, compares the traces, and tries the orders of its mixed steps; the trace is that of the file's
/// order.
///
/// # Errors
/// As [`run`], or two runs that differ.
pub fn test(loaded: &Loaded, setup: &Setup<'_>) -> Result<Outcome, Vec<Problem>> {
    let mut first = run(loaded, setup)?;
    let again = run(loaded, setup)?;
    let file = loaded.scenarios.first().map_or(String::new(), |(file, _)| file.clone());
    if first.trace != again.trace {
        let line = first.trace.lines().zip(again.trace.lines()).position(|(a, b)| a != b).unwrap_or(0) + 1;
        let message = format!("two runs of the same input differ from line {line} of the trace on");
        return Err(vec![Problem { file, line: None, message }]);
    }
    let mixed = loaded.scenarios.iter().flat_map(|(_, s)| &s.steps).any(|s| s.any_order);
    for order in 1..if mixed { ORDERS } else { 1 } {
        if !first.failures.is_empty() {
            break;
        }
        let mut other = run(loaded, &Setup { order, ..*setup })?;
        for failure in &mut other.failures {
            failure.message = format!("in order {order} of the mixed step: {}", failure.message);
        }
        first.failures = other.failures;
    }
    Ok(first)
}

/// Runs the objects that were loaded, with the first scenario if there is one.
///
/// # Errors
/// The plugin can't be loaded or ends the scheduler, or an action is refused by the API server.
pub fn run(loaded: &Loaded, setup: &Setup<'_>) -> Result<Outcome, Vec<Problem>> {
    Run::new(loaded, setup)?.finish()
}

struct Run<'a> {
    loaded: &'a Loaded,
    setup: &'a Setup<'a>,
    simulator: Simulator,
    agenda: Agenda,
    collectives: Collectives,
    history: History,
    checker: Option<Checker<'a>>,
    /// Steps that wait for their condition.
    waiting: Vec<(&'a Step, &'a Conditions)>,
    end: Millis,
}

impl<'a> Run<'a> {
    fn new(loaded: &'a Loaded, setup: &'a Setup<'a>) -> Result<Self, Vec<Problem>> {
        let scenario = loaded.scenarios.first().map(|(_, scenario)| scenario);
        let configuration = loaded.configuration.as_ref();
        let mut config = SimConfig { seed: setup.seed, ..SimConfig::default() };
        if let Some(configuration) = configuration {
            config.scheduler_name.clone_from(&configuration.scheduler);
            config.plugin_name.clone_from(&configuration.plugin);
            config.other_profiles.clone_from(&configuration.profiles);
            config.other_profiles.remove(&configuration.scheduler);
            config.weights.clone_from(&configuration.weights);
            config.percentage_of_nodes_to_score = configuration.percentage_of_nodes_to_score;
            let ms = |seconds: Option<i64>, default: i64| seconds.map_or(default, |s| s.saturating_mul(1000));
            config.backoff_initial_ms = ms(configuration.initial_backoff, config.backoff_initial_ms);
            config.backoff_max_ms = ms(configuration.max_backoff, config.backoff_max_ms);
        }
        let start =
            setup.plugin.map(|plugin| start(plugin, scenario.and_then(|s| s.config.as_deref()), setup.instances));
        let file = setup.plugin.map_or("", |p| p.file).to_owned();
        let simulator = Simulator::new(config, start).map_err(|message| vec![Problem { file, line: None, message }])?;
        let mut agenda = Agenda::new(configuration.is_some());
        for arrival in &loaded.arrivals {
            agenda.create(arrival.at, &arrival.object);
        }
        let mut waiting = Vec::new();
        for step in scenario.iter().flat_map(|s| &s.steps) {
            match &step.when {
                None => agenda.step(step, step.at, setup.order),
                Some(conditions) => waiting.push((step, conditions)),
            }
        }
        let end = setup.until.or(scenario.map(|s| s.until)).unwrap_or(LONGEST);
        let checker = scenario.map(Checker::new);
        Ok(Self {
            loaded,
            setup,
            simulator,
            agenda,
            collectives: Collectives::default(),
            history: History::default(),
            checker,
            waiting,
            end,
        })
    }

    fn finish(mut self) -> Result<Outcome, Vec<Problem>> {
        let mut now = Millis(0);
        let stuck = loop {
            (self.setup.watch.0)(now);
            self.moment(now);
            if let Some(reason) = self.simulator.state().crashed() {
                let file = self.setup.plugin.map_or("", |p| p.file).to_owned();
                let message = format!("ended the scheduler at {now}: {reason}");
                return Err(vec![Problem { file, line: None, message }]);
            }
            if let Some((fault, at)) = self.history.guest_fault() {
                // The scheduler would try again for ever; what is wrong is known.
                let file = self.setup.plugin.map_or("", |p| p.file).to_owned();
                return Err(vec![Problem { file, line: None, message: format!("failed at {at}: {fault}") }]);
            }
            let next = [self.simulator.next_event_time(), self.agenda.next().map(|t| t.0)].into_iter().flatten().min();
            let next = Millis(next.unwrap_or(i64::MAX)).min(Millis(self.end.0.saturating_add(1)));
            if let Some(checker) = &mut self.checker {
                checker.look(now, next, &Watched { state: self.simulator.state(), history: &self.history });
            }
            let stuck = self.agenda.next().is_none() && next.0.saturating_sub(self.history.last_progress) > QUIET_MS;
            // A scenario runs to its end: its expectations may be about silence.
            if next > self.end || (stuck && (self.checker.is_none() || self.collectives.any())) {
                break stuck;
            }
            now = next;
        };
        let bounded = self.setup.until.is_some() || self.checker.is_some();
        let end = match (stuck && self.collectives.any(), bounded) {
            (true, _) => now,
            (false, true) => self.end,
            // What runs on is shown to do so.
            (false, false) if self.history.runs_on() => Millis(now.0.saturating_add(QUIET_MS)).min(self.end),
            (false, false) => now,
        };
        if let Some(checker) = &mut self.checker {
            checker.look(
                now,
                Millis(self.end.0.saturating_add(1)),
                &Watched { state: self.simulator.state(), history: &self.history },
            );
        }
        self.outcome(end, stuck)
    }

    /// Lets everything of one moment happen.
    fn moment(&mut self, now: Millis) {
        loop {
            for entry in self.agenda.due(now) {
                self.push(now, entry);
            }
            self.simulator.run_until(now.0);
            let records = self.simulator.trace().records();
            let fresh = self.history.read(records);
            self.collectives.follow(&records[fresh..], now, &mut self.agenda);
            let watched = Watched { state: self.simulator.state(), history: &self.history };
            let agenda = &mut self.agenda;
            let setup = self.setup;
            self.waiting.retain(|(step, conditions)| {
                let holds = conditions.judge(&watched, Millis(0)).is_ok();
                if holds {
                    agenda.step(step, Millis(now.0.saturating_add(step.at.0)), setup.order);
                }
                !holds
            });
            if self.agenda.next().is_none_or(|t| t > now) {
                return;
            }
        }
    }

    fn push(&mut self, now: Millis, entry: Entry) {
        let mut push = |action| self.simulator.push(now.0, action);
        match entry {
            Entry::Create { object, runs } => {
                self.history.comes(&object);
                if let Some(collective) = collective::of(&object) {
                    self.collectives.add(collective, &object);
                    push(scheduler::Action::Create { object, runs_ms: None });
                } else {
                    push(scheduler::Action::Create { object, runs_ms: runs.map(|r| r.0) });
                }
            }
            Entry::Step(action) => {
                for action in self.resolve(&action) {
                    self.simulator.push(now.0, action);
                }
            }
            Entry::CollectiveDone(name, start) => {
                for pod in self.collectives.done(&name, start) {
                    push(scheduler::Action::Finish {
                        namespace: pod.namespace().to_owned(),
                        name: pod.name().to_owned(),
                        phase: "Succeeded".to_owned(),
                    });
                }
            }
            Entry::CollectiveLate(name, start) => {
                for object in self.collectives.late(&name, start) {
                    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
                    let (namespace, pod) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
                    push(scheduler::Action::Delete(scheduler::ObjectRef::pod(&namespace, &pod)));
                    // The name is free when the old pod has stopped.
                    match object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0) {
                        0 => push(scheduler::Action::Create { object, runs_ms: None }),
                        grace => {
                            let at = Millis(now.0.saturating_add(grace.saturating_mul(1000)));
                            self.agenda.add(at, Entry::Create { object, runs: None });
                        }
                    }
                }
            }
        }
    }

    /// The simulator's actions for a step's, with patterns resolved to the objects there are now.
    fn resolve(&self, action: &Action) -> Vec<scheduler::Action> {
        let pods = |pattern: &Pattern| -> Vec<(String, String)> {
            if let Some((namespace, name)) = pattern.exact() {
                return vec![(namespace.to_owned(), name.to_owned())];
            }
            let now = self.simulator.state().pods().map(|p| (p.key.namespace().to_owned(), p.key.name().to_owned()));
            // Bindings may be made to fail before their pods come.
            let known = self.agenda.pods().iter().cloned();
            let all: BTreeSet<_> =
                if matches!(action, Action::FailBinds(_)) { now.chain(known).collect() } else { now.collect() };
            all.into_iter().filter(|(namespace, name)| pattern.matches(namespace, name)).collect()
        };
        match action {
            Action::Create(_) => Vec::new(),
            Action::Delete(refs) => {
                refs.iter().map(|r| scheduler::Action::Delete(observe::object_ref(r, self.simulator.state()))).collect()
            }
            Action::Patch(patches) => patches
                .iter()
                .map(|(r, with)| scheduler::Action::Patch(observe::object_ref(r, self.simulator.state()), with.clone()))
                .collect(),
            Action::Finish(finish) => finish
                .iter()
                .flat_map(|(pattern, phase)| {
                    pods(pattern).into_iter().map(move |(namespace, name)| scheduler::Action::Finish {
                        namespace,
                        name,
                        phase: phase.clone(),
                    })
                })
                .collect(),
            Action::FailBinds(fail) => fail
                .iter()
                .flat_map(|&(ref pattern, count)| {
                    pods(pattern).into_iter().map(move |(namespace, name)| scheduler::Action::FailBinds {
                        namespace,
                        name,
                        count,
                    })
                })
                .collect(),
            Action::ApiAway(time) => vec![scheduler::Action::ApiAway(time.0)],
            Action::RestartScheduler(time) => vec![scheduler::Action::RestartScheduler(time.0)],
        }
    }

    fn outcome(self, end: Millis, stuck: bool) -> Result<Outcome, Vec<Problem>> {
        if let Some((action, message)) = self.history.refusal() {
            let creates = |arrival: &&Arrival| {
                ObjectRef::of(&arrival.object).is_ok_and(|object| action == format!("create {object}"))
            };
            let (file, line) = match self.loaded.arrivals.iter().find(creates) {
                Some(Arrival { origin, .. }) => (origin.file.to_string(), Some(origin.line)),
                None => (self.loaded.scenarios.first().map_or(String::new(), |(file, _)| file.clone()), None),
            };
            return Err(vec![Problem { file, line, message: message.to_owned() }]);
        }
        let failures = self.checker.map(Checker::finish).unwrap_or_default();
        let deadlocked = stuck && self.collectives.unfinished() && !self.collectives.working();
        let timeline = self.history.timeline(self.setup.name, end, &self.collectives);
        let mut summary = self.history.summary(self.setup.name, end, self.simulator.state(), &timeline);
        summary.seed = self.setup.seed;
        summary.deadlocked = deadlocked;
        let timeline = Timeline { subtitle: summary.line(), ..timeline };
        Ok(Outcome { trace: self.simulator.trace().to_string(), failures, summary, timeline })
    }
}

/// How the simulator starts the plugin, now and after each restart.
fn start(plugin: Plugin<'_>, scenario_config: Option<&str>, instances: Instances) -> StartPlugin {
    let wasm: Rc<[u8]> = plugin.wasm.into();
    let config = scenario_config.or(plugin.config).unwrap_or_default().to_owned();
    Rc::new(move || {
        let options = Options { config: config.clone(), instances, ..Options::default() };
        let guest = Guest::load(&wasm, options).map_err(|e| e.to_string())?;
        Ok(Box::new(guest))
    })
}
