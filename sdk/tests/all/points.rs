//! Each extension point, from what the plugin answers to what the scheduler gets.

use std::cell::Cell;
use std::time::Duration;

use kube_scheduler_sdk::prelude::*;
use kube_scheduler_sdk::testing::{FakeHost, Guest, Verdict, node, pod};

/// Answers as its configuration says.
struct Puppet {
    answer: String,
    calls: Cell<u32>,
}

plugin!(Puppet: Enqueue, PreFilter, PreFilterExtensions, Filter, PostFilter, PreScore, Score, Reserve, Permit, PreBind, Bind, PostBind);

impl Plugin for Puppet {
    fn new(config: &Config) -> Result<Self, Status> {
        match config.as_str()? {
            "broken" => Err(Status::error("guestConfig: broken")),
            answer => Ok(Self { answer: answer.into(), calls: Cell::new(0) }),
        }
    }
}

impl Puppet {
    fn answer(&self) -> Result<(), Status> {
        self.calls.set(self.calls.get() + 1);
        match self.answer.as_str() {
            "error" => Err(Status::error("an error")),
            "unschedulable" => Err(Status::unschedulable("unschedulable")),
            "unresolvable" => Err(Status::unresolvable("unresolvable")),
            "pending" => Err(Status::pending("pending")),
            _ => Ok(()),
        }
    }
}

impl EnqueueExtensions for Puppet {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent { resource: EventResource::Pod, action: Action::ADD.or(Action::DELETE) }]
    }
}

impl PreFilterPlugin for Puppet {
    fn pre_filter(&self, _: &CycleContext) -> Result<PreFilterResult, Status> {
        self.answer()?;
        Ok(match self.answer.strip_prefix("nodes:") {
            Some(names) => {
                PreFilterResult::Nodes(names.split(',').filter(|n| *n != "none").map(str::to_owned).collect())
            }
            None if self.answer == "skip" => PreFilterResult::Skip,
            None => PreFilterResult::AllNodes,
        })
    }
}

impl PreFilterExtensions for Puppet {
    fn add_pod(&self, cx: &TargetContext) -> Result<(), Status> {
        Err(Status::unschedulable(format!("+{} on {}", cx.target_pod()?.name()?, cx.node_name()?)))
    }

    fn remove_pod(&self, cx: &TargetContext) -> Result<(), Status> {
        Err(Status::unschedulable(format!("-{} for {}", cx.target_pod()?.name()?, cx.pod()?.name()?)))
    }
}

impl FilterPlugin for Puppet {
    fn filter(&self, cx: &NodeContext) -> Result<(), Status> {
        cx.node()?.name()?;
        self.answer()
    }
}

impl PostFilterPlugin for Puppet {
    fn post_filter(&self, cx: &PostFilterContext) -> Result<PostFilterResult, Status> {
        self.answer()?;
        Ok(match self.answer.as_str() {
            "clear" => PostFilterResult::ClearNomination(Status::unschedulable("cleared")),
            "done" => PostFilterResult::Done,
            _ => PostFilterResult::Nominate(cx.node_to_status_map()?.swap_remove(0).0),
        })
    }
}

impl PreScorePlugin for Puppet {
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status> {
        self.answer()?;
        Ok(if cx.filtered_nodes()?.len() > 1 { PreScoreResult::Score } else { PreScoreResult::Skip })
    }
}

impl ScorePlugin for Puppet {
    fn score(&self, _: &NodeContext) -> Result<i64, Status> {
        self.answer()?;
        Ok(self.answer.parse().unwrap_or(0))
    }
}

impl ReservePlugin for Puppet {
    fn reserve(&self, cx: &NodeContext) -> Result<(), Status> {
        assert_eq!(cx.pod()?.spec()?.node_name()?, cx.node_name()?);
        self.answer()
    }

    fn unreserve(&self, _: &BindingContext) -> Result<(), Status> {
        self.answer()
    }
}

impl PermitPlugin for Puppet {
    fn permit(&self, _: &NodeContext) -> Result<PermitResult, Status> {
        self.answer()?;
        Ok(match self.answer.strip_prefix("wait:") {
            Some(micros) => PermitResult::Wait(Duration::from_micros(micros.parse().unwrap_or(0))),
            None => PermitResult::Allow,
        })
    }
}

impl PreBindPlugin for Puppet {
    fn pre_bind(&self, _: &BindingContext) -> Result<(), Status> {
        self.answer()
    }
}

impl BindPlugin for Puppet {
    fn bind(&self, cx: &BindingContext) -> Result<BindResult, Status> {
        self.answer()?;
        assert_eq!(cx.pod()?.spec()?.node_name()?, cx.node_name()?);
        Ok(if self.answer == "bound" { BindResult::Bound } else { BindResult::Skip })
    }
}

impl PostBindPlugin for Puppet {
    fn post_bind(&self, _: &BindingContext) -> Result<(), Status> {
        self.answer()
    }
}

fn guest(answer: &str) -> Guest<Puppet> {
    Guest::new(FakeHost::new().config(answer).node(node("n")))
}

fn verdict(code: Code, reason: &str) -> Verdict {
    Verdict { code, reason: reason.into() }
}

#[test]
fn statuses() {
    let p = pod("p");
    for (answer, expected) in [
        ("", verdict(Code::Success, "")),
        ("error", verdict(Code::Error, "an error")),
        ("unschedulable", verdict(Code::Unschedulable, "unschedulable")),
        ("unresolvable", verdict(Code::UnschedulableAndUnresolvable, "unresolvable")),
        ("pending", verdict(Code::Pending, "pending")),
        ("broken", verdict(Code::Error, "guestConfig: broken")),
    ] {
        let guest = guest(answer);
        assert_eq!(guest.pre_filter(&p).0, expected);
        assert_eq!(guest.filter(&p, "n"), expected);
        assert_eq!(guest.pre_score(&p, &["n", "m"]), expected);
        assert_eq!(guest.score(&p, "n"), (expected.clone(), 0));
        assert_eq!(guest.reserve(&p, "n"), expected);
        assert_eq!(guest.permit(&p, "n"), (expected.clone(), Duration::ZERO));
        assert_eq!(guest.pre_bind(&p, "n"), expected);
        let skipped = if answer.is_empty() { verdict(Code::Skip, "") } else { expected };
        assert_eq!(guest.bind(&p, "n"), skipped);
    }
}

#[test]
fn where_a_failure_can_only_be_logged_it_is() {
    for (answer, lines) in [("", 0), ("error", 2), ("broken", 3)] {
        let guest = guest(answer);
        guest.unreserve(&pod("p"), "n");
        guest.post_bind(&pod("p"), "n");
        assert_eq!(guest.host().logs().len(), lines, "{answer}: {:?}", guest.host().logs());
    }
}

#[test]
fn pre_filter_results() {
    let p = pod("p");
    assert_eq!(guest("nodes:a,b").pre_filter(&p), (verdict(Code::Success, ""), Some(vec!["a".into(), "b".into()])));
    assert_eq!(guest("").pre_filter(&p), (verdict(Code::Success, ""), None));
    assert_eq!(guest("skip").pre_filter(&p), (verdict(Code::Skip, ""), None));
    // The host takes an empty list for all nodes, so none must be a refusal.
    assert_eq!(guest("nodes:none").pre_filter(&p).0.code, Code::UnschedulableAndUnresolvable);
    // A nameless node would be skipped, and might leave the list empty.
    assert_eq!(guest("nodes:a,").pre_filter(&p).0.code, Code::Error);
}

#[test]
fn post_filter_results() {
    let refused = [("m", Code::Unschedulable)];
    let p = pod("p");
    assert_eq!(guest("").post_filter(&p, &refused), (verdict(Code::Success, ""), Some("m".into())));
    assert_eq!(
        guest("clear").post_filter(&p, &refused),
        (verdict(Code::Unschedulable, "cleared"), Some(String::new()))
    );
    assert_eq!(guest("done").post_filter(&p, &refused), (verdict(Code::Success, ""), None));
    assert_eq!(guest("unschedulable").post_filter(&p, &refused), (verdict(Code::Unschedulable, "unschedulable"), None));
}

#[test]
fn scores_are_0_to_100() {
    for (answer, code, score) in
        [("0", Code::Success, 0), ("100", Code::Success, 100), ("101", Code::Error, 0), ("-1", Code::Error, 0)]
    {
        let (verdict, got) = guest(answer).score(&pod("p"), "n");
        assert_eq!((verdict.code, got), (code, score), "{answer}: {}", verdict.reason);
    }
    assert_eq!(guest("").pre_score(&pod("p"), &["n"]).code, Code::Skip);
}

#[test]
fn waits_are_never_nothing() {
    for (answer, expected) in [("wait:90000000", 90_000), ("wait:1", 1), ("wait:0", 1)] {
        assert_eq!(guest(answer).permit(&pod("p"), "n"), (verdict(Code::Wait, ""), Duration::from_millis(expected)));
    }
}

#[test]
fn pre_filter_extensions() {
    let guest = guest("");
    assert_eq!(guest.add_pod(&pod("p"), &pod("q"), "n").reason, "+q on n");
    assert_eq!(guest.remove_pod(&pod("p"), &pod("q"), "n").reason, "-q for p");
}

#[test]
fn enqueue() {
    assert_eq!(guest("").enqueue(), [(EventResource::Pod as u32, Action::ADD.or(Action::DELETE))]);
    assert_eq!(guest("broken").enqueue(), [], "the host's default stands");
}

#[test]
fn the_pod_is_read_anew_in_each_call() {
    let guest = guest("");
    assert_eq!(guest.add_pod(&pod("p"), &pod("q"), "n").reason, "+q on n");
    assert_eq!(guest.remove_pod(&pod("other"), &pod("r"), "n").reason, "-r for other");
}

#[test]
#[should_panic(expected = "node reads the snapshot")]
fn the_fake_host_finds_reads_of_the_snapshot_beside_the_cycle() {
    struct Careless;
    impl Plugin for Careless {
        fn new(_: &Config) -> Result<Self, Status> {
            Ok(Self)
        }
    }
    impl PostBindPlugin for Careless {
        fn post_bind(&self, cx: &BindingContext) -> Result<(), Status> {
            let _ = kube_scheduler_sdk::host::node(cx.node_name()?);
            Ok(())
        }
    }
    Guest::<Careless>::new(FakeHost::new()).post_bind(&pod("p"), "n");
}
