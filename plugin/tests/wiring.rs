//! The plugin behind its exports, on a scheduler whose bridge answers from a script.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use kube_scheduler_abi::Code;
use kube_scheduler_sdk::bridge::{request::Call, response::Result as Reply, *};
use kube_scheduler_sdk::testing::{FakeHost, Guest, PodBuilder, pod};
use plugin::Gang;
use plugin::gang::hold::Backoff;

const GROUP: &str = "scheduling.x-k8s.io/pod-group";

/// What the scripted bridge answers, and what it was asked.
#[derive(Default)]
struct Script {
    state: GroupState,
    shapes: Vec<Shape>,
    allowed: bool,
    left: i32,
    /// Free cpu (milli) per node, and what its domain is.
    nodes: Vec<(i64, &'static str)>,
    members: Vec<Member>,
    asked: Vec<&'static str>,
    notes: Vec<String>,
    whole: i64,
}

type Shared = Rc<RefCell<Script>>;

fn answer(script: &mut Script, call: Call) -> Reply {
    let mut asked = |name| script.asked.push(name);
    match call {
        Call::GroupGet(_) => {
            asked("get");
            Reply::GroupGet(script.state.clone())
        }
        Call::GroupShapes(_) => {
            Reply::GroupShapes(GroupShapesReply { resources: vec!["cpu".into()], shapes: script.shapes.clone() })
        }
        Call::GroupAllow(allow) => {
            asked("allow");
            assert_eq!(allow.join_until_ms, script.state.now_ms + 60_000);
            Reply::GroupAllow(GroupAllowReply { allowed: script.allowed, ..GroupAllowReply::default() })
        }
        Call::GroupLeave(_) => Reply::GroupLeave(GroupLeaveReply { was: script.left, still_waiting: 0 }),
        Call::GroupReject(_) => {
            asked("reject");
            Reply::GroupReject(CountReply::default())
        }
        Call::GroupActivate(_) => {
            asked("activate");
            Reply::GroupActivate(CountReply::default())
        }
        Call::GroupBackoff(backoff) => {
            asked("backoff");
            script.state.note = backoff.note;
            script.state.attempt = backoff.attempt;
            script.state.backoff_until_ms = backoff.until_ms;
            Reply::Done(Done {})
        }
        Call::GroupMembers(_) => Reply::GroupMembers(GroupMembersReply {
            total: script.members.len() as u32,
            members: script.members.clone(),
        }),
        Call::NodesFree(call) => Reply::NodesFree(NodesFreeReply {
            free: script.nodes.iter().map(|(free, _)| if call.evict_lower { script.whole } else { *free }).collect(),
            names: (0..script.nodes.len()).map(|i| format!("n{i}")).collect(),
            domains: script.nodes.iter().map(|(_, domain)| (*domain).into()).collect(),
            ..NodesFreeReply::default()
        }),
        Call::EventRecord(event) => {
            script.notes.push(format!("{}: {}", event.reason, event.note));
            Reply::Done(Done {})
        }
        Call::GroupBlock(_) => {
            asked("block");
            Reply::Done(Done {})
        }
        Call::MetricAdd(_) | Call::MetricObserve(_) => Reply::Done(Done {}),
        other => panic!("not in the script: {other:?}"),
    }
}

fn gang(config: &str, script: Script) -> (Guest<Gang>, Shared) {
    let script = Rc::new(RefCell::new(script));
    let shared = Rc::clone(&script);
    let host = FakeHost::new().config(config).bridge(move |call| answer(&mut shared.borrow_mut(), call));
    (Guest::new(host), script)
}

fn state(unscheduled: u32, waiting: u32, running: u32) -> GroupState {
    GroupState {
        total: Some(Counts { unscheduled, waiting, running, ..Counts::default() }),
        now_ms: 1_000_000,
        object: Some(Object {
            served: true,
            found: true,
            json: br#"{"spec":{"minMember":3}}"#.to_vec(),
            ..Object::default()
        }),
        ..GroupState::default()
    }
}

fn member(i: u32) -> PodBuilder {
    pod(&format!("ga-{i}")).namespace("ns").uid(&format!("u{i}")).label(GROUP, "ga").cpu("1")
}

fn shape(unscheduled: u32) -> Vec<Shape> {
    vec![Shape { unscheduled, requests: vec![1000], ..Shape::default() }]
}

#[test]
fn ordinary_pods_cost_no_call() {
    let (guest, script) = gang("", Script::default());
    let plain = pod("p").namespace("ns").uid("u").label("app", "x");
    assert_eq!(guest.pre_filter(&plain).0.code, Code::Skip);
    assert_eq!(guest.pre_score(&plain, &["n0"]).code, Code::Skip);
    assert!(guest.reserve(&plain, "n0").is_success());
    assert!(guest.permit(&plain, "n0").0.is_success());
    assert_eq!(guest.bind(&plain, "n0").code, Code::Skip);
    guest.post_bind(&plain, "n0");
    guest.unreserve(&plain, "n0");
    assert_eq!(guest.post_filter(&plain, &[]), (verdict(Code::Unschedulable, ""), None));
    assert!(script.borrow().asked.is_empty());
}

fn verdict(code: Code, reason: &str) -> kube_scheduler_sdk::testing::Verdict {
    kube_scheduler_sdk::testing::Verdict { code, reason: reason.into() }
}

#[test]
fn without_the_bridge_gangs_are_refused_and_others_are_not() {
    let guest = Guest::<Gang>::new(FakeHost::new());
    assert_eq!(guest.pre_filter(&pod("p").uid("u")).0.code, Code::Skip);
    let (refused, _) = guest.pre_filter(&member(0));
    assert_eq!(refused.code, Code::UnschedulableAndUnresolvable);
    assert!(refused.reason.contains("has no Tutti bridge"), "{}", refused.reason);
    assert_eq!(guest.post_filter(&member(0), &[]).0, verdict(Code::UnschedulableAndUnresolvable, ""));
}

#[test]
fn a_wrong_configuration_is_named_to_gangs_only() {
    let (guest, _) = gang(r#"{"timeout": 3}"#, Script::default());
    assert_eq!(guest.pre_filter(&pod("p").uid("u")).0.code, Code::Skip);
    let (refused, _) = guest.pre_filter(&member(0));
    assert_eq!(refused.code, Code::UnschedulableAndUnresolvable);
    assert!(refused.reason.contains("timeout"), "{}", refused.reason);
}

#[test]
fn a_pod_of_two_gangs_is_refused() {
    let (guest, _) = gang("", Script::default());
    let (refused, _) = guest.pre_filter(&member(0).annotation("scheduling.k8s.io/group-name", "gb"));
    assert_eq!(refused.code, Code::UnschedulableAndUnresolvable);
    assert!(refused.reason.contains("names two gangs"), "{}", refused.reason);
}

#[test]
fn too_few_members_are_told_once_and_start_no_backoff() {
    let (guest, script) = gang("", Script { state: state(2, 0, 0), ..Script::default() });
    let text = "gang ns/ga is incomplete: have 2 of 3 members";
    for _ in 0..2 {
        assert_eq!(guest.pre_filter(&member(0)).0, verdict(Code::UnschedulableAndUnresolvable, text));
    }
    let script = script.borrow();
    assert_eq!(script.notes, [format!("GangUnschedulable: {text}")]);
    // A time at which the others are woken to say the same, in no one's way.
    assert!(!Backoff::from_state(script.state.attempt, script.state.backoff_until_ms).is_in_force(1_000_000));
}

#[test]
fn objects_that_lack_are_told_apart() {
    for (served, text) in [(true, "PodGroup ga not found"), (false, "install the PodGroup CRD")] {
        let mut state = state(3, 0, 0);
        state.object = Some(Object { served, ..Object::default() });
        let (guest, _) = gang("", Script { state, ..Script::default() });
        let (refused, _) = guest.pre_filter(&member(0));
        assert_eq!(refused.code, Code::UnschedulableAndUnresolvable);
        assert!(refused.reason.contains(text), "{}", refused.reason);
    }
}

#[test]
fn the_first_is_held_and_wakes_the_others() {
    let nodes = vec![(3000, "")];
    let (guest, script) = gang("", Script { state: state(3, 0, 0), shapes: shape(3), nodes, ..Script::default() });
    assert_eq!(guest.pre_filter(&member(0)).0.code, Code::Skip);
    let (held, wait) = guest.permit(&member(0), "n0");
    assert_eq!((held.code, wait), (Code::Wait, Duration::from_secs(65)));
    assert!(script.borrow().asked.contains(&"activate"));

    // On another instance, as each held pod keeps its own.
    script.borrow_mut().state = state(1, 2, 0);
    script.borrow_mut().allowed = true;
    script.borrow_mut().asked.clear();
    assert!(guest.sibling().permit(&member(2), "n0").0.is_success());
    assert_eq!(script.borrow().asked, ["get", "allow"]);
    assert!(script.borrow().notes.last().is_some_and(|note| note.starts_with("GangStarted")));
}

#[test]
fn what_cannot_fit_holds_nobody_and_keeps_its_reason_while_it_stands_back() {
    let script = Script { state: state(3, 0, 0), shapes: shape(3), nodes: vec![(2500, "")], ..Script::default() };
    let (guest, script) = gang(r#"{"preemption": false}"#, script);
    let text = "gang ns/ga can't start: room for 2 of the 3 missing members: lacks cpu 500m (3 wanted, 2500m free)";
    let (refused, _) = guest.pre_filter(&member(0));
    assert_eq!(refused, verdict(Code::UnschedulableAndUnresolvable, text));
    assert!(script.borrow().state.backoff_until_ms > 1_000_000);
    script.borrow_mut().asked.clear();
    assert_eq!(guest.pre_filter(&member(1)).0, verdict(Code::UnschedulableAndUnresolvable, text));
    assert_eq!(script.borrow().asked, ["get"]);
    assert_eq!(script.borrow().notes.len(), 1);
}

#[test]
fn a_member_without_a_node_makes_the_held_give_way() {
    let script = Script { state: state(1, 2, 0), shapes: shape(1), nodes: vec![(5000, "")], ..Script::default() };
    let (guest, script) = gang("", script);
    assert_eq!(guest.pre_filter(&member(2)).0.code, Code::Skip);
    let (refused, nominated) = guest.post_filter(&member(2), &[("n0", Code::Unschedulable)]);
    assert_eq!(refused.code, Code::UnschedulableAndUnresolvable);
    assert_eq!(refused.reason, "gang ns/ga can't start: member ga-2 finds no node, so 2 held members give way");
    assert_eq!(nominated.as_deref(), Some(""));
    let asked = script.borrow().asked.clone();
    let at = |name| asked.iter().position(|a| *a == name);
    // Who is rejected must find the backoff.
    assert!(at("backoff") < at("reject") && at("reject").is_some(), "{asked:?}");
}

#[test]
fn growth_is_left_to_the_scheduler() {
    let (guest, script) = gang("", Script { state: state(1, 0, 3), ..Script::default() });
    assert_eq!(guest.pre_filter(&member(3)).0.code, Code::Skip);
    assert_eq!(guest.post_filter(&member(3), &[]).0.code, Code::Unschedulable);
    assert_eq!(script.borrow().asked, ["get", "get"]);
}

#[test]
fn a_place_given_up_concerns_the_others() {
    use group_leave_reply::Was;
    for (was, rejects, backs_off) in [
        (Was::Nothing, false, false),
        (Was::Waiting, true, true),
        (Was::Released, false, true),
        (Was::Rejected, false, false),
    ] {
        let (guest, script) = gang("", Script { state: state(1, 1, 0), left: was.into(), ..Script::default() });
        guest.unreserve(&member(0), "n0");
        let asked = &script.borrow().asked;
        assert_eq!((asked.contains(&"reject"), asked.contains(&"backoff")), (rejects, backs_off), "{was:?}: {asked:?}");
    }
}

#[test]
fn a_deadline_makes_the_gang_stand_back_once() {
    use group_leave_reply::Was;
    let (guest, script) = gang("", Script { state: state(3, 0, 0), left: Was::Rejected.into(), ..Script::default() });
    guest.unreserve(&member(0), "n0");
    guest.sibling().unreserve(&member(1), "n0");
    let script = script.borrow();
    assert_eq!(script.asked.iter().filter(|asked| **asked == "backoff").count(), 1);
    assert_eq!(
        script.notes,
        ["GangUnschedulable: gang ns/ga was not whole within 60s (the plugin's defaultTimeoutSeconds)"]
    );
}

#[test]
fn scores_pack_and_keep_together() {
    let script = || Script {
        state: state(3, 0, 0),
        shapes: shape(3),
        nodes: vec![(4000, "a"), (2000, "a"), (8000, "b")],
        whole: 8000,
        ..Script::default()
    };
    let scores = |config: &str, script: Script| {
        let (guest, _) = gang(config, script);
        assert!(guest.pre_score(&member(0), &["n0", "n1", "n2"]).is_success());
        ["n0", "n1", "n2", "elsewhere"].map(|node| guest.score(&member(0), node).1)
    };
    assert_eq!(scores(r#"{"binpack": {"cpu": 1}}"#, script()), [62, 87, 12, 0]);
    // Domain a holds six more, b eight: both hold all three, a is tighter.
    let [a, also_a, b, none] = scores(r#"{"topologyKey": "zone"}"#, script());
    assert!(a == also_a && a > b && b > none, "{a} {also_a} {b} {none}");
    let mut settled = script();
    settled.members = vec![Member { node: "n2".into(), ..Member::default() }];
    assert_eq!(scores(r#"{"topologyKey": "zone"}"#, settled), [0, 0, 100, 0]);
}

#[test]
fn a_gang_described_by_its_pods() {
    let mut state = state(2, 0, 0);
    state.object = None;
    state.facts = BTreeMap::new();
    let koordinator = |min: &str| {
        pod("ga-0")
            .namespace("ns")
            .uid("u0")
            .annotation("gang.scheduling.koordinator.sh/name", "ga")
            .annotation("gang.scheduling.koordinator.sh/min-available", min)
    };
    let (guest, script) = gang("", Script { state, ..Script::default() });
    assert!(guest.pre_filter(&koordinator("3")).0.reason.ends_with("have 2 of 3 members"));
    assert!(guest.pre_filter(&koordinator("-1")).0.reason.ends_with("is -1; it must not be negative"));
    // The oldest member speaks for all.
    script.borrow_mut().state.facts = [("gang.scheduling.koordinator.sh/min-available".into(), "4".into())].into();
    assert!(guest.pre_filter(&koordinator("3")).0.reason.ends_with("have 2 of 4 members"));
}
