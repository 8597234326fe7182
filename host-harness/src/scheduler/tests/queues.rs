//! Which pod is tried when.

use super::*;

/// When a pod was tried.
fn attempts(s: &Simulator, name: &str) -> Vec<i64> {
    let of = |record: &&Record| matches!(&record.what, What::Attempt { pod, .. } if pod.name() == name);
    s.trace().records().iter().filter(of).map(|record| record.at_ms).collect()
}

#[test]
fn priority_then_time() {
    let priority = |value: i32| json!({"spec": {"priority": value}});
    let s = settled([
        pod("low", 100, priority(0)),
        pod("high", 100, priority(5)),
        pod("low-later", 100, priority(0)),
        pod("high-later", 100, priority(5)),
        node("n1", 4, json!({})),
    ]);
    let bound: Vec<&str> = s
        .trace()
        .records()
        .iter()
        .filter_map(|r| if let What::Bound { pod, .. } = &r.what { Some(pod.name()) } else { None })
        .collect();
    assert_eq!(bound, ["high", "high-later", "low", "low-later"]);
}

#[test]
fn backoff_doubles_up_to_ten_seconds() {
    let mut s = simulator();
    s.push(0, pod("p", 100, json!({})));
    s.run_until(40_000);
    assert_eq!(attempts(&s, "p"), [0, 1_000, 3_000, 7_000, 15_000, 25_000, 35_000]);
}

#[test]
fn without_an_event_after_five_minutes() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, pod("p", 5_000, json!({})));
    s.run_until(700_000);
    // Looked for every 30 s; more than five minutes must have passed.
    assert_eq!(attempts(&s, "p"), [0, 330_000, 660_000]);
}

#[test]
fn gates() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, pod("p", 100, json!({"spec": {"schedulingGates": [{"name": "g"}]}})));
    s.run_until(1_000_000);
    assert_eq!(attempts(&s, "p"), Vec::<i64>::new());
    s.push(1_000_000, Action::Patch(ObjectRef::pod("default", "p"), json!({"spec": {"schedulingGates": null}})));
    s.run_until(1_000_100);
    assert_eq!((attempts(&s, "p"), node_of(&s, "p")), (vec![1_000_000], "n1"));
}

#[test]
fn events_that_may_help() {
    let patch = |what: Json| Action::Patch(ObjectRef::node("n1"), what);
    let needs_cpu = || json!({});
    let needs_label = || json!({"spec": {"nodeSelector": {"zone": "a"}}});
    let tainted = || json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    let more_cpu = || json!({"status": {"allocatable": {"cpu": "16"}}});
    // What, n1, the pod, how many milli it asks for, the event, whether the pod is tried again.
    let cases = [
        (
            "lacks cpu, a label comes",
            json!({}),
            needs_cpu(),
            5000,
            patch(json!({"metadata": {"labels": {"a": "b"}}})),
            false,
        ),
        ("lacks cpu, cpu comes", json!({}), needs_cpu(), 5000, patch(more_cpu()), true),
        ("lacks cpu, still too little comes", json!({}), needs_cpu(), 17_000, patch(more_cpu()), false),
        ("lacks cpu, a node too small comes", json!({}), needs_cpu(), 5000, node("n2", 4, json!({})), false),
        ("lacks cpu, a node large enough comes", json!({}), needs_cpu(), 5000, node("n2", 8, json!({})), true),
        ("lacks cpu, a pod ends", json!({}), needs_cpu(), 4000, Action::Delete(ObjectRef::pod("default", "e")), true),
        ("lacks a label, cpu comes", json!({}), needs_label(), 100, patch(more_cpu()), false),
        (
            "lacks a label, another comes",
            json!({}),
            needs_label(),
            100,
            patch(json!({"metadata": {"labels": {"zone": "b"}}})),
            false,
        ),
        (
            "lacks a label, it comes",
            json!({}),
            needs_label(),
            100,
            patch(json!({"metadata": {"labels": {"zone": "a"}}})),
            true,
        ),
        (
            "lacks a label, a pod ends",
            json!({}),
            needs_label(),
            100,
            Action::Delete(ObjectRef::pod("default", "e")),
            false,
        ),
        ("a taint, a pod ends", tainted(), needs_cpu(), 100, Action::Delete(ObjectRef::pod("default", "e")), false),
        ("a taint, it goes", tainted(), needs_cpu(), 100, patch(json!({"spec": {"taints": null}})), true),
        (
            "cordoned, it ends",
            json!({"spec": {"unschedulable": true}}),
            needs_cpu(),
            100,
            patch(json!({"spec": {"unschedulable": false}})),
            true,
        ),
    ];
    for (what, with_node, with_pod, cpu, event, again) in cases {
        let there = pod("e", 1000, json!({"spec": {"nodeName": "n1"}}));
        let mut s = settled([node("n1", 4, with_node), there, pod("p", cpu, with_pod)]);
        assert_eq!(attempts(&s, "p").len(), 1, "{what}");
        s.push(5_000, event);
        s.run_until(20_000);
        assert_eq!(attempts(&s, "p").get(1), again.then_some(&5_000), "{what}: {}", reason_of(&s, "p"));
    }
}

#[test]
fn nothing_is_preempted_while_the_api_is_away() {
    let mut s = settled([node("n1", 4, json!({})), pod("low", 4000, json!({}))]);
    s.push(1_000, Action::ApiAway(5_000));
    s.push(1_000, pod("high", 4000, json!({"spec": {"priority": 1}})));
    s.run_until(20_000);
    assert!(s.trace().records().iter().all(|r| !matches!(r.what, What::Evicted { .. } | What::Nominated { .. })));
    assert_eq!(node_of(&s, "low"), "n1");
}
