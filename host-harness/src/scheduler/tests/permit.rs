//! Holding pods at Permit, with a plugin that holds each pod of a group until all its members wait.

use std::cell::RefCell;
use std::collections::BTreeMap;

use kube_scheduler_abi::bridge::v1;
use kube_scheduler_abi::{Action as Bits, Code, Export};
use prost::Message;

use super::*;
use crate::guest::{CallError, Host, Permit, Pod, PostFilter, PreFilter, Score, Status};

/// Holds members of groups (label `g`) until `members` of one group wait.
struct Holder {
    members: u32,
    wait_ms: u32,
    log: Rc<RefCell<Vec<String>>>,
}

fn success() -> Status {
    Status { code: Code::Success as i32, reason: String::new() }
}

impl Holder {
    fn ask(host: &mut dyn Host, call: v1::request::Call) -> v1::response::Result {
        let request = v1::Request { version: 1, call: Some(call) }.encode_to_vec();
        let reply = host.bridge(&request, true).unwrap();
        v1::Response::decode(&*reply).unwrap().result.unwrap()
    }

    fn hello(host: &mut dyn Host) {
        let value_from = Some(v1::group_source::ValueFrom::Label("g".into()));
        let sources = vec![v1::GroupSource { prefix: "g".into(), value_from, ..v1::GroupSource::default() }];
        Self::ask(host, v1::request::Call::Hello(v1::Hello { sources }));
    }

    fn saw(&self, what: &str, pod: Pod<'_>) {
        self.log.borrow_mut().push(format!("{what} {}", pod.uid));
    }
}

impl Plugin for Holder {
    fn implements(&self, point: Export) -> bool {
        matches!(point, Export::Reserve | Export::Unreserve | Export::Permit | Export::PostBind | Export::Enqueue)
    }
    fn enqueue(&mut self, _: &mut dyn Host) -> Result<Vec<(u32, Bits)>, CallError> {
        Ok(vec![(0, Bits::ADD.or(Bits::DELETE)), (1, Bits::ADD)])
    }
    fn permit(&mut self, host: &mut dyn Host, pod: Pod<'_>, _: &str) -> Result<Permit, CallError> {
        let decoded = crate::objects::Pod::decode(pod.protobuf).unwrap();
        let Some(group) = decoded.metadata.labels.get("g") else {
            return Ok(Permit { status: success(), wait_ms: 0 });
        };
        Self::hello(host);
        let key = format!("g/default/{group}");
        let quorum = v1::Quorum { key, at_least: self.members, ..v1::Quorum::default() };
        let call = v1::GroupAllow { quorums: vec![quorum], uid: pod.uid.into(), join_until_ms: i64::MAX / 2 };
        let v1::response::Result::GroupAllow(reply) = Self::ask(host, v1::request::Call::GroupAllow(call)) else {
            panic!("another reply");
        };
        let code = if reply.allowed { Code::Success } else { Code::Wait };
        Ok(Permit { status: Status { code: code as i32, reason: String::new() }, wait_ms: self.wait_ms })
    }
    fn reserve(&mut self, _: &mut dyn Host, pod: Pod<'_>, _: &str) -> Result<Status, CallError> {
        self.saw("reserve", pod);
        Ok(success())
    }
    fn unreserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, _: &str) -> Result<(), CallError> {
        self.saw("unreserve", pod);
        let decoded = crate::objects::Pod::decode(pod.protobuf).unwrap();
        assert!(!decoded.spec.node_name.is_empty(), "the assumed pod has its node");
        let key = format!("g/default/{}", decoded.metadata.labels["g"]);
        Self::ask(host, v1::request::Call::GroupLeave(v1::GroupLeave { key, uid: pod.uid.into() }));
        Ok(())
    }
    fn postbind(&mut self, _: &mut dyn Host, pod: Pod<'_>, _: &str) -> Result<(), CallError> {
        self.saw("postbind", pod);
        Ok(())
    }
    fn prefilter(&mut self, _: &mut dyn Host, _: Pod<'_>) -> Result<PreFilter, CallError> {
        unreachable!("not implemented")
    }
    fn addpod(&mut self, _: &mut dyn Host, _: Pod<'_>, _: Pod<'_>, _: &str) -> Result<Status, CallError> {
        unreachable!("not implemented")
    }
    fn removepod(&mut self, _: &mut dyn Host, _: Pod<'_>, _: Pod<'_>, _: &str) -> Result<Status, CallError> {
        unreachable!("not implemented")
    }
    fn filter(&mut self, _: &mut dyn Host, _: Pod<'_>, _: &str) -> Result<Status, CallError> {
        unreachable!("not implemented")
    }
    fn postfilter(&mut self, _: &mut dyn Host, _: Pod<'_>, _: &BTreeMap<String, i32>) -> Result<PostFilter, CallError> {
        unreachable!("not implemented")
    }
    fn prescore(&mut self, _: &mut dyn Host, _: Pod<'_>, _: &[&str]) -> Result<Status, CallError> {
        unreachable!("not implemented")
    }
    fn score(&mut self, _: &mut dyn Host, _: Pod<'_>, _: &str) -> Result<Score, CallError> {
        unreachable!("not implemented")
    }
    fn normalizescore(&mut self, _: &mut dyn Host, _: Pod<'_>, _: &mut [(String, i64)]) -> Result<Status, CallError> {
        unreachable!("not implemented")
    }
    fn prebind(&mut self, _: &mut dyn Host, _: Pod<'_>, _: &str) -> Result<Status, CallError> {
        unreachable!("not implemented")
    }
}

fn holding(members: u32, wait_ms: u32) -> (Simulator, Rc<RefCell<Vec<String>>>) {
    let log = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&log);
    let start: StartPlugin =
        Rc::new(move || Ok(Box::new(Holder { members, wait_ms, log: Rc::clone(&shared) }) as Box<dyn Plugin>));
    (Simulator::new(SimConfig::default(), Some(start)).unwrap(), log)
}

fn member(name: &str) -> Action {
    pod(name, 1000, json!({"metadata": {"uid": name, "labels": {"g": "x"}}}))
}

/// A member for which there is no room beside the others; while it's there, a quorum may still be met.
fn big(name: &str, milli_cpu: i64) -> Action {
    pod(name, milli_cpu, json!({"metadata": {"uid": name, "labels": {"g": "x"}}}))
}

fn waiting(s: &Simulator) -> usize {
    s.state().pods().filter(|p| p.waiting).count()
}

#[test]
fn all_members_are_let_go_at_one_moment() {
    let (mut s, log) = holding(3, 60_000);
    s.push(0, node("n1", 4, json!({})));
    s.push(0, member("a"));
    s.push(0, member("b"));
    s.push(0, big("c", 3000));
    s.run_until(500);
    assert_eq!(waiting(&s), 2);
    assert_eq!(s.state().free("n1", "cpu"), Some(2000), "held pods take room");
    s.push(1000, node("n2", 4, json!({})));
    s.run_until(3000);
    assert_eq!(waiting(&s), 0);
    let released: Vec<_> = s.state().pods().map(|p| p.released_ms).collect();
    assert!(released[0].is_some() && released.iter().all(|&ms| ms == released[0]), "{released:?}");
    assert!(s.state().pods().all(|p| !p.node.is_empty() && p.phase == "Running"));
    assert_eq!(log.borrow().iter().filter(|l| l.starts_with("postbind")).count(), 3);
}

#[test]
fn the_time_at_permit_ends() {
    let (mut s, log) = holding(2, 1500);
    s.push(0, node("n1", 4, json!({})));
    s.push(0, member("a"));
    s.push(0, big("b", 9000));
    s.run_until(1499);
    assert_eq!(waiting(&s), 1);
    s.run_until(1500);
    assert_eq!(waiting(&s), 0);
    assert_eq!(s.state().free("n1", "cpu"), Some(4000));
    assert!(log.borrow().contains(&"unreserve a".to_owned()));
    let want = "0/1 nodes are available: 1 rejected due to timeout after waiting 1.5s at plugin Tutti.";
    assert_eq!(reason_of(&s, "a"), want);
}

#[test]
fn a_hold_ends_when_too_few_members_are_left() {
    let (mut s, log) = holding(2, 60_000);
    s.push(0, node("n1", 4, json!({})));
    s.push(0, member("a"));
    s.push(0, big("b", 9000));
    s.push(100, Action::Delete(ObjectRef::pod("default", "b")));
    s.run_until(99);
    assert_eq!(waiting(&s), 1);
    s.run_until(101);
    assert_eq!((waiting(&s), s.state().free("n1", "cpu")), (0, Some(4000)));
    assert_eq!(log.borrow().last().unwrap(), "unreserve a");
}

#[test]
fn a_held_pod_that_is_deleted_gives_its_place_up() {
    let (mut s, log) = holding(3, 60_000);
    s.push(0, node("n1", 4, json!({})));
    s.push(0, member("a"));
    s.push(0, big("big-1", 9000));
    s.push(0, big("big-2", 9000));
    s.push(100, Action::Delete(ObjectRef::pod("default", "a")));
    s.run_until(100);
    assert_eq!(s.state().free("n1", "cpu"), Some(4000));
    assert_eq!(log.borrow().last().unwrap(), "unreserve a");
    // With a finalizer it only has its deletionTimestamp, and stays held.
    s.push(200, pod("b", 1000, json!({"metadata": {"uid": "b", "labels": {"g": "x"}, "finalizers": ["x/y"]}})));
    s.push(250, member("c"));
    s.push(300, Action::Delete(ObjectRef::pod("default", "b")));
    s.push(400, member("d"));
    s.run_until(500);
    assert_eq!(waiting(&s), 3, "a terminating member makes no quorum");
}

#[test]
fn a_restart_lets_held_pods_go_back() {
    let (mut s, _) = holding(2, 60_000);
    s.push(0, node("n1", 4, json!({})));
    s.push(0, member("a"));
    s.push(0, big("big", 9000));
    s.push(100, Action::RestartScheduler(100));
    s.run_until(99);
    assert_eq!(waiting(&s), 1);
    s.run_until(150);
    assert_eq!(waiting(&s), 0);
    s.push(1000, member("b"));
    s.run_until(2000);
    assert_eq!(s.state().pods().filter(|p| p.node == "n1").count(), 2);
}

#[test]
fn each_profile_has_its_say() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&log);
    let start: StartPlugin = Rc::new(move || {
        Ok(Box::new(Holder { members: 2, wait_ms: 60_000, log: Rc::clone(&shared) }) as Box<dyn Plugin>)
    });
    let other_profiles = BTreeMap::from([("plain".to_owned(), false), ("too".to_owned(), true)]);
    let mut s = Simulator::new(SimConfig { other_profiles, ..SimConfig::default() }, Some(start)).unwrap();
    s.push(0, node("n1", 9, json!({})));
    for (name, scheduler) in [("a", "default-scheduler"), ("b", "plain"), ("c", "nobody"), ("d", "too")] {
        let with = json!({"metadata": {"uid": name, "labels": {"g": "x"}}, "spec": {"schedulerName": scheduler}});
        s.push(if name == "d" { 1_000 } else { 0 }, pod(name, 1000, with));
    }
    s.run_until(500);
    assert_eq!(waiting(&s), 1, "a waits for another");
    assert_eq!(["b", "c"].map(|name| node_of(&s, name)), ["n1", ""], "one without the plugin, one of nobody");
    s.run_until(1_500);
    assert_eq!(["a", "d"].map(|name| node_of(&s, name)), ["n1", "n1"], "two profiles share a group");
    assert!(!log.borrow().iter().any(|line| line.ends_with(" b")), "{:?}", log.borrow());
}
