//! The host calls against the fake host, flaws of the real one included.

use std::rc::Rc;

use kube_scheduler_sdk::host::{self, Event, ImageState, ObjectReference};
use kube_scheduler_sdk::klog;
use kube_scheduler_sdk::testing::{FakeHost, container, node, pod, with};

fn on<T>(host: FakeHost, run: impl FnOnce() -> T) -> (T, Rc<FakeHost>) {
    let host = Rc::new(host);
    (with(Rc::clone(&host) as _, run), host)
}

#[test]
fn nodes() {
    let large = (0..300).fold(node("large"), |n, i| n.label(&format!("label-{i}"), "some value"));
    on(FakeHost::new().node(node("a").label("zone", "z")).node(large), || {
        let a = host::node("a").expect("a node");
        assert_eq!(a.get().label("zone"), Ok(Some("z")));
        let large = host::node("large").expect("larger than the first buffer");
        assert_eq!(large.get().label("label-299"), Ok(Some("some value")));
        assert_eq!(a.get().name(), Ok("a"), "a second read leaves the first alone");
        assert!(host::node("none").is_none());
        assert!(host::node("!anything").is_none(), "a request to the bridge is no node");
        let names: Vec<_> = host::node_list()
            .get()
            .items()
            .expect("items")
            .map(|n| n.and_then(|n| n.name()).map(str::to_owned))
            .collect();
        assert_eq!(names, [Ok("a".into()), Ok("large".into())]);
    });
}

#[test]
fn image_states() {
    let host = FakeHost::new().node(node("a").image("x:1", 5).image("\"y\"", 7)).node(node("b").image("x:1", 5));
    on(host, || {
        let state = |name: &str, size, num_nodes| ImageState { name: name.into(), size, num_nodes };
        assert_eq!(host::node_image_states("a"), Ok(vec![state("\"y\"", 7, 1), state("x:1", 5, 2)]));
        assert_eq!(host::node_image_states("none"), Ok(vec![]));
    });
}

#[test]
fn waiting_pods() {
    let padded = (0..2000).fold(pod("big"), |p, i| p.annotation(&format!("annotation-{i}"), "of some length"));
    let host = FakeHost::new().waiting(&pod("a").container(&container("x"))).waiting(&padded);
    let (_, host) = on(host, || {
        let a = host::get_waiting_pod("uid-a").expect("readable").expect("waiting");
        assert_eq!(a.get().name(), Ok("a"));
        let big = host::get_waiting_pod("uid-big").expect("readable").expect("waiting");
        assert_eq!(big.get().annotation("annotation-1999"), Ok(Some("of some length")));
        assert!(host::get_waiting_pod("uid-none").expect("readable").is_none());
        assert!(host::reject_waiting_pod("uid-a"));
        assert!(!host::reject_waiting_pod("uid-a"), "it waits no more");
    });
    assert_eq!(host.waiting_uids(), ["uid-big"]);
}

#[test]
fn events() {
    let regarding = ObjectReference { kind: "Pod", name: "p", uid: "u", ..ObjectReference::default() };
    let event = Event { regarding, warning: true, reason: "Full", note: "100% \"full\"\n", ..Event::default() };
    let ((), host) = on(FakeHost::new(), || host::eventf(&event));
    let json: serde_json::Value = serde_json::from_str(&host.events()[0]).expect("JSON");
    assert_eq!(json["Eventtype"], "Warning");
    assert_eq!(json["RegardingReference"]["UID"], "u");
    // Once formatted by the host, the note is what was meant.
    assert_eq!(json["Note"], "100%% \"full\"\n");
}

#[test]
fn log_lines_get_through() {
    for (threshold, expected) in [(0, 3), (2, 2), (3, 0)] {
        let ((), host) = on(FakeHost::new().log_severity(threshold), || {
            klog::info("an info", &[("empty", &""), ("nul", &"a\0b"), ("n", &7)]);
            klog::error("an error", &[("k", &"v")]);
            klog::error("without pairs", &[]);
        });
        let logs = host.logs();
        assert_eq!(logs.len(), expected, "threshold {threshold}: {logs:?}");
        if threshold == 0 {
            assert_eq!(
                (logs[0].value("empty"), logs[0].value("nul"), logs[0].value("n")),
                (Some("\"\""), Some("a b"), Some("7"))
            );
        }
    }
}

#[test]
fn no_pod_is_an_error_not_a_crash() {
    on(FakeHost::new(), || {
        assert!(host::current_pod().is_none());
        assert!(host::target_pod().is_none());
        assert!(host::current_node_name().is_empty());
        assert_eq!(host::filtered_nodes(), Ok(vec![]));
        assert_eq!(host::node_to_status_map(), Ok(vec![]));
        assert_eq!(host::node_score_list(), Ok(vec![]));
        assert_eq!(host::config().as_str(), Ok(""));
    });
}
