//! The built plugin against random clusters and workloads: what must hold of every gang holds of all of them.
//!
//! The seed is fixed, so that a run of CI says something about the change it runs for; `PROPTEST_RNG_SEED` takes another
//! and `PROPTEST_CASES` more. What has failed once is kept in `property.proptest-regressions`.

#![allow(clippy::unwrap_used, reason = "a failed step of a test fails it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use host_harness::guest::{Guest, Options};
use host_harness::scheduler::{Action, ObjectRef, Plugin, SimConfig, Simulator, StartPlugin, What};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use serde_json::{Value as Json, json};

/// How long a gang is held at most, by the defaults, and a moment for the rejection.
const HOLD_MS: i64 = 60_100;
/// All members let go together have their nodes by then.
const BINDING_MS: i64 = 50;
/// Nothing random happens later.
const EVENTS_END_MS: i64 = 60_000;
/// Each workload is over by then: every pod runs a minute at most, and the longest backoffs are half a minute.
const END_MS: i64 = 40 * 60_000;
/// Within so much of an eviction the one it was for has its node: grace, backoff and a look.
const VICTIM_MS: i64 = 60_000;

#[derive(Clone, Debug)]
struct Gang {
    at_ms: i64,
    /// How long after the group its members come, each a little later than the one before.
    apart_ms: i64,
    min: u32,
    extra: u32,
    cpu: i64,
    priority: i32,
    runs_ms: i64,
}

#[derive(Clone, Debug)]
enum Trouble {
    DeleteMember(usize, usize),
    FailBinds(usize, usize, u32),
    AddNode(i64),
    Restart,
    ApiAway,
}

#[derive(Clone, Debug)]
struct World {
    nodes: Vec<i64>,
    gangs: Vec<Gang>,
    /// When, cpu, how long.
    plain: Vec<(i64, i64, i64)>,
    troubles: Vec<(i64, Trouble)>,
    strict: bool,
}

fn gang() -> impl Strategy<Value = Gang> {
    let size = (1u32..5, 0u32..2, 1i64..4);
    let time = (0..EVENTS_END_MS / 2, prop_oneof![Just(0i64), 1i64..3000], 1_000i64..60_000);
    (size, time, prop_oneof![4 => Just(0), 1 => Just(10)]).prop_map(
        |((min, extra, cpu), (at_ms, apart_ms, runs_ms), priority)| Gang {
            at_ms,
            apart_ms,
            min,
            extra,
            cpu,
            priority,
            runs_ms,
        },
    )
}

fn calm() -> impl Strategy<Value = World> {
    let nodes = prop::collection::vec(1i64..5, 1..5);
    let plain = prop::collection::vec((0..EVENTS_END_MS, 1i64..3, 500i64..40_000), 0..8);
    (nodes, prop::collection::vec(gang(), 1..5), plain).prop_map(|(nodes, gangs, plain)| World {
        nodes,
        gangs,
        plain,
        troubles: vec![],
        strict: false,
    })
}

/// Nobody passes a gang that waits for room. All are equally important: a gang that waits for more important pods to end
/// isn't in line.
fn strict() -> impl Strategy<Value = World> {
    calm().prop_map(|mut world| {
        world.gangs.iter_mut().for_each(|gang| gang.priority = 0);
        World { strict: true, ..world }
    })
}

fn troubled() -> impl Strategy<Value = World> {
    let trouble = prop_oneof![
        4 => (0usize..5, 0usize..6).prop_map(|(g, m)| Trouble::DeleteMember(g, m)),
        2 => (0usize..5, 0usize..6, 1u32..4).prop_map(|(g, m, n)| Trouble::FailBinds(g, m, n)),
        1 => (1i64..5).prop_map(Trouble::AddNode),
        1 => Just(Trouble::Restart),
        1 => Just(Trouble::ApiAway),
    ];
    (calm(), prop::collection::vec((0..EVENTS_END_MS, trouble), 1..5))
        .prop_map(|(world, troubles)| World { troubles, ..world })
}

fn node(name: String, cpu: i64) -> Json {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "1Ti", "pods": 110}}})
}

fn pod(name: &str, cpu: i64, priority: i32, group: Option<&str>) -> Json {
    let labels = group.map_or(json!({}), |group| json!({"scheduling.x-k8s.io/pod-group": group}));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"priority": priority, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn member(gang: usize, member: usize) -> String {
    format!("g{gang}-{member}")
}

/// The gang of the member of this name.
fn gang_of(name: &str) -> Option<usize> {
    name.strip_prefix('g')?.split_once('-')?.0.parse().ok()
}

impl World {
    fn simulator(&self, start: &StartPlugin) -> Simulator {
        let mut simulator = Simulator::new(SimConfig::default(), Some(Rc::clone(start))).unwrap();
        let mut create = |at_ms, object, runs_ms| simulator.push(at_ms, Action::Create { object, runs_ms });
        for (n, &cpu) in self.nodes.iter().enumerate() {
            create(0, node(format!("n{n}"), cpu), None);
        }
        for (g, gang) in self.gangs.iter().enumerate() {
            let group = format!("g{g}");
            let object = json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
                "metadata": {"name": group, "namespace": "default"}, "spec": {"minMember": gang.min}});
            create(gang.at_ms, object, None);
            for m in 0..(gang.min + gang.extra) as usize {
                let at_ms = gang.at_ms + gang.apart_ms * m as i64;
                create(at_ms, pod(&member(g, m), gang.cpu, gang.priority, Some(&group)), Some(gang.runs_ms));
            }
        }
        for (p, &(at_ms, cpu, runs_ms)) in self.plain.iter().enumerate() {
            create(at_ms, pod(&format!("p{p}"), cpu, 0, None), Some(runs_ms));
        }
        for (i, (at_ms, trouble)) in self.troubles.iter().enumerate() {
            let namespace = "default".to_owned();
            let action = match *trouble {
                Trouble::DeleteMember(g, m) => Action::Delete(ObjectRef::pod("default", &member(g, m))),
                Trouble::FailBinds(g, m, count) => Action::FailBinds { namespace, name: member(g, m), count },
                Trouble::AddNode(cpu) => Action::Create { object: node(format!("late{i}"), cpu), runs_ms: None },
                Trouble::Restart => Action::RestartScheduler(500),
                Trouble::ApiAway => Action::ApiAway(3_000),
            };
            simulator.push(*at_ms, action);
        }
        simulator
    }

    /// Whether the empty cluster holds so many members.
    fn holds(&self, gang: &Gang) -> bool {
        let late =
            self.troubles.iter().filter_map(|(_, t)| if let Trouble::AddNode(cpu) = t { Some(cpu) } else { None });
        self.nodes.iter().chain(late).map(|cpu| cpu / gang.cpu).sum::<i64>() >= i64::from(gang.min)
    }

    /// Whether whoever is left, can't run.
    fn is_over(&self, simulator: &Simulator) -> bool {
        simulator.state().pods().all(|pod| {
            let gang = gang_of(pod.key.name()).map(|g| &self.gangs[g]);
            pod.phase == "Succeeded" || !pod.waiting && gang.is_some_and(|gang| !self.holds(gang))
        })
    }

    fn check(&self, start: &StartPlugin) -> Result<(), TestCaseError> {
        let mut simulator = self.simulator(start);
        let nodes = (0..self.nodes.len()).map(|n| format!("n{n}")).collect::<Vec<_>>();
        while let Some(next) = simulator.next_event_time().filter(|&next| next <= END_MS) {
            simulator.run_until(next);
            for node in &nodes {
                let free = simulator.state().free(node, "cpu").unwrap_or(0);
                prop_assert!(free >= 0, "{node} is oversubscribed by {} at {next} ms", -free);
            }
            if next > EVENTS_END_MS && self.is_over(&simulator) {
                break;
            }
        }
        let shown = || simulator.trace().to_string();
        prop_assert_eq!(simulator.state().crashed(), None);
        self.check_trace(&simulator).map_err(|e| TestCaseError::fail(format!("{e}\n{}", shown())))?;
        for pod in simulator.state().pods() {
            prop_assert!(!pod.waiting, "{} is held at the end\n{}", pod.key, shown());
        }
        Ok(())
    }

    /// No gang that came later starts before one that waits for room and could have it.
    fn check_order(&self, waits: &[Option<i64>], bound: &[Vec<(i64, &str)>]) -> Result<(), String> {
        let start = |g: usize| bound[g].first().map_or(i64::MAX, |(at, _)| *at);
        for g in (0..self.gangs.len()).filter(|&g| self.holds(&self.gangs[g])) {
            let Some(since) = waits[g].filter(|since| *since < start(g)) else { continue };
            for (h, other) in self.gangs.iter().enumerate() {
                let later = other.at_ms > since;
                if later && start(h) < start(g) {
                    return Err(format!(
                        "gang g{g} waits for room since {since} ms, and g{h} starts before it at {} ms",
                        start(h)
                    ));
                }
            }
        }
        Ok(())
    }

    /// What the trace must say; the text of the error names what it doesn't.
    fn check_trace(&self, simulator: &Simulator) -> Result<(), String> {
        let mut held: BTreeMap<&str, i64> = BTreeMap::new();
        // Per gang: who has a node by when, and who was lost by a deletion, an eviction, a failed binding or a restart.
        let mut bound: Vec<Vec<(i64, &str)>> = vec![vec![]; self.gangs.len()];
        let mut lost: Vec<Vec<&str>> = vec![vec![]; self.gangs.len()];
        let mut evicted: Vec<(i64, &str)> = vec![];
        let mut restarted = false;
        // Since when a gang waits for room.
        let mut waits: Vec<Option<i64>> = vec![None; self.gangs.len()];
        for record in simulator.trace().records() {
            let at = record.at_ms;
            if let Some((pod, since)) = held.iter().find(|(_, since)| at - **since > HOLD_MS) {
                return Err(format!("{pod} is held since {since} ms, at {at} ms still"));
            }
            match &record.what {
                What::Waiting { pod, .. } => {
                    held.insert(pod.name(), at);
                }
                What::Allowed { pod } | What::Rejected { pod, .. } => {
                    held.remove(pod.name());
                }
                What::SchedulerStopped { .. } => {
                    held.clear();
                    restarted = true;
                }
                What::Bound { pod, .. } => {
                    if let Some(g) = gang_of(pod.name()) {
                        bound[g].push((at, pod.name()));
                    }
                }
                What::BindFailed { pod, .. } => {
                    if let Some(g) = gang_of(pod.name()) {
                        lost[g].push(pod.name());
                    }
                }
                What::Evicted { pod, by, .. } => {
                    if let Some(g) = gang_of(pod.name()) {
                        lost[g].push(pod.name());
                    }
                    evicted.push((at, by.rsplit('/').next().unwrap_or(by)));
                }
                What::Terminating { object } | What::Deleted { object } => {
                    let name = object.rsplit('/').next().unwrap_or_default();
                    held.remove(name);
                    if let Some(g) = gang_of(name) {
                        lost[g].push(name);
                    }
                }
                What::Event { regarding, note, .. } if note.contains("can't start: room for") => {
                    if let Some(g) = regarding.strip_prefix("podgroup/default/g").and_then(|g| g.parse::<usize>().ok())
                    {
                        waits[g] = waits[g].or(Some(at));
                    }
                }
                What::GuestFault { call, reason } => return Err(format!("guest fault in {call}: {reason}")),
                _ => {}
            }
        }
        if self.strict {
            self.check_order(&waits, &bound)?;
        }
        for (g, gang) in self.gangs.iter().enumerate() {
            lost[g].sort_unstable();
            lost[g].dedup();
            if let Some(&(first, _)) = bound[g].first()
                && !restarted
            {
                let together = bound[g].iter().filter(|(at, _)| *at <= first + BINDING_MS).count();
                if together + lost[g].len() < gang.min as usize {
                    return Err(format!("gang g{g} starts with {together} of {} at {first} ms", gang.min));
                }
            }
            let phase =
                |name: &str| simulator.state().pods().find(|p| p.key.name() == name).map(|p| p.phase.to_owned());
            if lost[g].is_empty() && self.holds(gang) {
                let late = (0..(gang.min + gang.extra) as usize)
                    .map(|m| member(g, m))
                    .find(|m| phase(m).as_deref() != Some("Succeeded"));
                if let Some(late) = late {
                    return Err(format!("{late} has not run to its end: {:?}", phase(&late)));
                }
            }
        }
        for (at, by) in evicted {
            let Some(g) = gang_of(by) else { continue };
            let started = bound[g].iter().any(|(bound, _)| *bound >= at && *bound <= at + VICTIM_MS);
            if !started && lost[g].is_empty() {
                return Err(format!("a pod was evicted at {at} ms for {by}, whose gang doesn't start"));
            }
        }
        Ok(())
    }
}

/// Plays random worlds, with the built plugin so configured; without it, outside of CI, there is nothing to test.
fn play(cases: u32, config: &'static str, worlds: impl Strategy<Value = World>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/guest/plugin.wasm");
    let wasm = std::fs::read(&file);
    assert!(wasm.is_ok() || std::env::var_os("CI").is_none(), "{}: build it with `make guests`", file.display());
    let Ok(wasm) = wasm else { return };
    let wasm: Rc<[u8]> = wasm.into();
    let start: StartPlugin = Rc::new(move || {
        let options = Options { config: config.to_owned(), ..Options::default() };
        let guest = Guest::load(&wasm, options).map_err(|e| e.to_string())?;
        Ok(Box::new(guest) as Box<dyn Plugin>)
    });
    let default = ProptestConfig::default();
    let set = |name| std::env::var_os(name).is_some();
    let config = ProptestConfig {
        cases: if set("PROPTEST_CASES") { default.cases } else { cases },
        rng_seed: if set("PROPTEST_RNG_SEED") { default.rng_seed } else { RngSeed::Fixed(1) },
        source_file: Some(file!()),
        ..default
    };
    let outcome = TestRunner::new(config).run(&worlds, |world| world.check(&start));
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn gangs_start_whole_and_all_that_fit_run() {
    play(1500, "", calm());
}

#[test]
fn troubles_leave_no_part_and_no_hold_behind() {
    play(1000, "", troubled());
}

#[test]
fn strict_order_starts_all_that_fit_too() {
    play(700, r#"{"fairness":"strict"}"#, strict());
}
