//! What holds whatever happens.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::pod::Place;
use super::*;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Something that happens, to pods and nodes by number.
fn event() -> impl Strategy<Value = Vec<Action>> {
    let name = |i: u8| format!("p{i}");
    let patch = |i: usize, unschedulable: bool| {
        Action::Patch(ObjectRef::node(NODES[i]), json!({"spec": {"unschedulable": unschedulable}}))
    };
    prop_oneof![
        8 => (any::<u8>(), 100..3000_i64, 0..3, proptest::option::of(0..5000_i64), 0..8).prop_map(
            move |(i, cpu, priority, ends, held)| {
                let mut with = json!({"spec": {"priority": priority}});
                if held == 0 {
                    with["metadata"] = json!({"finalizers": ["example.com/held"]});
                }
                vec![runs(&name(i), cpu, ends, with)]
            }
        ),
        2 => any::<u8>().prop_map(move |i| vec![Action::Delete(ObjectRef::pod("default", &name(i)))]),
        1 => (0..3_usize, any::<bool>()).prop_map(move |(i, to)| vec![patch(i, to)]),
        1 => (0..3_usize).prop_map(|i| vec![Action::Delete(ObjectRef::node(NODES[i]))]),
        1 => (0..3_usize).prop_map(|i| vec![node(NODES[i], 4, json!({}))]),
        1 => (any::<u8>(), 1..3_u32).prop_map(move |(i, count)| {
            let (namespace, name) = ("default".to_owned(), name(i));
            vec![runs(&name, 500, None, json!({})), Action::FailBinds { namespace, name, count }]
        }),
        1 => (0..3000_i64).prop_map(|ms| vec![Action::ApiAway(ms)]),
        1 => (0..3000_i64).prop_map(|ms| vec![Action::RestartScheduler(ms)]),
    ]
}

fn check(s: &Simulator) {
    for name in NODES {
        for resource in ["cpu", "pods"] {
            assert!(
                s.state().free(name, resource).is_none_or(|free| free >= 0),
                "{name} is over-committed: {resource}"
            );
        }
    }
    let core = &s.world.core;
    let mut counted = BTreeSet::new();
    for info in &core.nodes {
        for (id, _) in &info.pods {
            let entry = core.pod(*id);
            assert!(counted.insert(*id), "{} is counted twice", entry.key);
            // A pod deleted while it is being bound keeps its room until the binding fails.
            let there = entry.exists && !entry.info.pod.is_terminal();
            assert!(there || entry.scheduling.assumed.is_some(), "{} is gone and takes room", entry.key);
        }
    }
    for id in core.by_key.values().filter(|_| core.up) {
        let entry = core.pod(*id);
        let pod = &entry.info.pod;
        let queued = matches!(entry.scheduling.place, Place::Active | Place::Backoff(_) | Place::Unschedulable);
        let key = &entry.key;
        if pod.is_terminal() || pod.metadata.deletion_timestamp.is_some() {
            assert!(!queued || !pod.is_terminal(), "{key} has ended and is queued");
        } else if pod.spec.node_name.is_empty() {
            assert!(queued != counted.contains(id), "{key} is in one place, neither in two nor lost");
        } else {
            assert!(!queued, "{key} has its node and is queued");
            assert!(counted.contains(id), "{key} takes room on its node");
        }
    }
}

fn simulate(events: &[(i64, Vec<Action>)], seed: u64) -> Simulator {
    let mut s = Simulator::new(SimConfig { seed, ..SimConfig::default() }, None).unwrap();
    NODES.iter().for_each(|name| s.push(0, node(name, 4, json!({}))));
    let mut at = 0;
    for (pause, actions) in events {
        at += pause;
        actions.iter().for_each(|action| s.push(at, action.clone()));
        s.run_until(at);
        check(&s);
    }
    s.run_until(at + 5_000);
    check(&s);
    // With room for all, no pod is left behind: two minutes are enough for a few refused bindings and their backoffs.
    s.push(at + 5_000, node("spare", 1000, json!({"status": {"allocatable": {"memory": "10Ti", "pods": "1000"}}})));
    s.run_until(at + 120_000);
    check(&s);
    for pod in s.world.core.by_key.values().map(|id| &s.world.core.pod(*id).info.pod) {
        let terminating = pod.metadata.deletion_timestamp.is_some();
        assert!(terminating || !pod.spec.node_name.is_empty(), "{} was left behind:\n{}", pod.metadata.name, s.trace());
    }
    s
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_counted_twice(events in prop::collection::vec((0..2000_i64, event()), 1..60), seed in 0..3_u64) {
        let s = simulate(&events, seed);
        let times: Vec<i64> = s.trace().records().iter().map(|r| r.at_ms).collect();
        prop_assert!(times.is_sorted(), "time goes on");
        prop_assert_eq!(s.trace().to_string(), simulate(&events, seed).trace().to_string());
    }
}
