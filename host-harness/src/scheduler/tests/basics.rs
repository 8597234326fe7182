use super::*;

#[test]
fn a_pod_is_bound_runs_and_ends() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(5, runs("a", 1000, Some(100), json!({})));
    s.run_until(50);
    assert_eq!(s.state().free("n1", "cpu"), Some(3000));
    s.run_until(1000);
    assert_eq!(s.state().free("n1", "cpu"), Some(4000));
    assert_eq!(
        s.trace().to_string(),
        "    0.000 scheduler started
    0.000 created node/n1
    0.005 arrived default/a
    0.005 attempt default/a #1 -> n1
    0.006 bound default/a -> n1
    0.006 event pod/default/a Normal Scheduled: Successfully assigned default/a to n1
    0.006 running default/a
    0.106 finished default/a Succeeded
"
    );
}

#[test]
fn a_pod_without_room_waits_for_an_event_and_its_backoff() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, runs("a", 3000, Some(300), json!({})));
    s.push(0, pod("b", 3000, json!({})));
    s.run_until(200);
    assert_eq!(
        reason_of(&s, "b"),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims \
         found for incoming pod."
    );
    s.run_until(5000);
    assert_eq!(node_of(&s, "b"), "n1");
    let bound = s.trace().records().iter().rfind(|r| matches!(r.what, What::Bound { .. })).unwrap();
    // Backoff of 1 s from the failure on, and the backoff queue is looked at once a second.
    assert_eq!(bound.at_ms, 2001);
}

#[test]
fn higher_priority_goes_first_and_preempts() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, pod("low", 4000, json!({})));
    s.push(100, pod("never", 4000, json!({"spec": {"priority": 9, "preemptionPolicy": "Never"}})));
    s.run_until(200);
    assert_eq!(node_of(&s, "low"), "n1");
    assert!(reason_of(&s, "never").ends_with("preemption: not eligible due to preemptionPolicy=Never."));
    s.push(300, pod("high", 4000, json!({"spec": {"priority": 10}})));
    s.run_until(5000);
    assert_eq!(node_of(&s, "high"), "n1");
    assert!(s.state().pods().all(|p| p.key.name() != "low"));
    assert!(s.trace().to_string().contains("evicted default/low for default/high: preempted on n1"));
}

#[test]
fn a_restart_loses_memory_only() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, pod("a", 3000, json!({})));
    s.push(0, pod("b", 3000, json!({})));
    s.push(100, Action::RestartScheduler(500));
    s.push(200, Action::Delete(ObjectRef::pod("default", "a")));
    s.run_until(700);
    assert_eq!(node_of(&s, "b"), "n1");
    assert_eq!(s.state().free("n1", "cpu"), Some(1000));
}

#[test]
fn failed_bindings_are_tried_again() {
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, pod("a", 3000, json!({})));
    s.push(0, Action::FailBinds { namespace: "default".into(), name: "a".into(), count: 2 });
    s.run_until(60_000);
    assert_eq!(node_of(&s, "a"), "n1");
    assert_eq!(s.state().pods().next().unwrap().attempts, 3);
}

#[test]
fn a_deleted_pod_keeps_its_room_while_it_stops() {
    let grace = |seconds: Json| json!({"spec": {"terminationGracePeriodSeconds": seconds}});
    // Seconds, when the room is free again, whether by preemption.
    for (seconds, free_ms) in [(Json::Null, 1_000), (json!(0), 1_000), (json!(30), 31_000)] {
        for preempted in [false, true] {
            let mut s = simulator();
            s.push(0, node("n1", 4, json!({})));
            s.push(0, pod("a", 3000, grace(seconds.clone())));
            match preempted {
                true => s.push(1_000, pod("b", 3000, json!({"spec": {"priority": 9}}))),
                false => s.push(1_000, Action::Delete(ObjectRef::pod("default", "a"))),
            }
            s.run_until(free_ms - 1);
            assert_eq!(s.state().free("n1", "cpu"), Some(1000), "{seconds} {preempted}");
            s.run_until(free_ms + 12_000);
            assert!(!s.state().pods().any(|p| p.key.name() == "a"), "{seconds} {preempted}");
            assert_eq!(s.state().free("n1", "cpu"), Some(if preempted { 1000 } else { 4000 }), "{seconds} {preempted}");
        }
    }
    // One without a node goes at once, one that ends on its own goes then, and one that a finalizer keeps ends.
    let mut s = simulator();
    s.push(0, node("n1", 4, json!({})));
    s.push(0, pod("waits", 9000, grace(json!(30))));
    s.push(0, runs("ends", 100, Some(5_000), grace(json!(30))));
    let mut kept = grace(json!(30));
    kept["metadata"] = json!({"finalizers": ["x.dev/y"]});
    s.push(0, pod("kept", 100, kept));
    for name in ["waits", "ends", "kept"] {
        s.push(1_000, Action::Delete(ObjectRef::pod("default", name)));
    }
    let names = |s: &Simulator| s.state().pods().map(|p| p.key.name().to_owned()).collect::<Vec<_>>();
    s.run_until(1_001);
    assert_eq!(names(&s), ["ends", "kept"]);
    s.run_until(6_000);
    assert_eq!(names(&s), ["kept"]);
    s.run_until(31_000);
    assert_eq!(s.state().pods().map(|p| p.phase).collect::<Vec<_>>(), ["Failed"]);
}
