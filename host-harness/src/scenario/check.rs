//! Judges a run by a scenario's expectations, moment by moment.

use std::fmt::Write as _;

use kube_scheduler_sdk::Quantity;
use serde_json::Value as Json;

use super::format::{Conditions, Expectation, Moment, Scenario, holds};
use super::pattern::{Count, Pattern, Ref};
use crate::input::duration::Millis;

/// A pod, as conditions see it.
#[derive(Clone, Copy, Debug)]
pub struct PodState<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The node it is bound to; empty: none.
    pub node: &'a str,
    /// `status.phase`.
    pub phase: &'a str,
    /// Held at Permit.
    pub waiting: bool,
    /// The message of its PodScheduled condition.
    pub message: &'a str,
    /// When it was let go, if it is bound.
    pub released: Option<Millis>,
}

/// Something that is counted: a scheduling cycle or an eviction of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Happening<'a> {
    /// When.
    pub time: Millis,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// The pod's name.
    pub name: &'a str,
}

/// An event of the API.
#[derive(Clone, Copy, Debug)]
pub struct EventState<'a> {
    /// When it was last recorded.
    pub time: Millis,
    /// Kind of the object it is about.
    pub kind: &'a str,
    /// The object's API group.
    pub group: &'a str,
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// Of type Warning.
    pub warning: bool,
    /// Its reason.
    pub reason: &'a str,
    /// Its note.
    pub note: &'a str,
}

/// What a run shows of the cluster at a moment.
pub trait Observed {
    /// The pods in the API.
    fn pods<'a>(&'a self) -> Box<dyn Iterator<Item = PodState<'a>> + 'a>;
    /// The objects that a reference names.
    fn objects(&self, object: &Ref) -> Vec<Json>;
    /// Allocatable less requested by bound and waiting pods, milli for cpu, else whole; `None`: no such node.
    fn free(&self, node: &str, resource: &str) -> Option<i64>;
    /// The events so far.
    fn events<'a>(&'a self) -> Box<dyn Iterator<Item = EventState<'a>> + 'a>;
    /// The scheduling cycles so far.
    fn cycles<'a>(&'a self) -> Box<dyn Iterator<Item = Happening<'a>> + 'a>;
    /// The evictions so far.
    fn evictions<'a>(&'a self) -> Box<dyn Iterator<Item = Happening<'a>> + 'a>;
}

/// An expectation that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Line of the scenario.
    pub line: u32,
    /// What was expected, when, and what was found.
    pub message: String,
}

/// Follows one run.
#[derive(Debug)]
pub struct Checker<'a> {
    open: Vec<Open<'a>>,
    failures: Vec<Failure>,
}

#[derive(Debug)]
struct Open<'a> {
    expectation: &'a Expectation,
    /// What was wrong at the last look of a `by`.
    last: String,
}

impl<'a> Checker<'a> {
    /// For a run of this scenario.
    #[must_use]
    pub fn new(scenario: &'a Scenario) -> Self {
        let open = scenario.expect.iter().map(|expectation| Open { expectation, last: String::new() }).collect();
        Self { open, failures: Vec::new() }
    }

    /// Looks at the cluster as it is from `now` until the next look at `next`.
    pub fn look(&mut self, now: Millis, next: Millis, cluster: &dyn Observed) {
        let failures = &mut self.failures;
        self.open.retain_mut(|open| {
            let Expectation { line, moment, since, conditions } = open.expectation;
            let mut fail = |message: String| failures.push(Failure { line: *line, message });
            match *moment {
                Moment::At(at) if now <= at && at < next => {
                    if let Err(found) = conditions.judge(cluster, *since) {
                        fail(format!("at {at}: {found}"));
                    }
                    false
                }
                Moment::By(by) if now <= by => match conditions.judge(cluster, *since) {
                    Ok(()) => false,
                    Err(found) if next > by => {
                        fail(format!("by {by}: {found}"));
                        false
                    }
                    Err(found) => {
                        open.last = found;
                        true
                    }
                },
                Moment::Always(from, to) if now < to && next > from => match conditions.judge(cluster, *since) {
                    Ok(()) => true,
                    Err(found) => {
                        fail(format!("always from {from} to {to}, but at {}: {found}", now.max(from)));
                        false
                    }
                },
                Moment::Never(from, to) if now < to && next > from => match conditions.judge(cluster, *since) {
                    Ok(()) => {
                        fail(format!("never from {from} to {to}, but at {} all of it held", now.max(from)));
                        false
                    }
                    Err(_) => true,
                },
                _ => true,
            }
        });
    }

    /// What did not hold, by line. A moment that the run never reached counts as not held.
    #[must_use]
    pub fn finish(mut self) -> Vec<Failure> {
        for open in &self.open {
            let message = match open.expectation.moment {
                Moment::At(at) => format!("at {at}: the run ended before"),
                Moment::By(by) => format!("by {by}: {}", open.last),
                Moment::Always(..) | Moment::Never(..) => continue,
            };
            self.failures.push(Failure { line: open.expectation.line, message });
        }
        self.failures.sort_by_key(|f| f.line);
        self.failures
    }
}

impl Conditions {
    /// Whether all hold; the error says what was found instead.
    ///
    /// # Errors
    /// What was wanted and what is there, for each condition that doesn't hold.
    pub fn judge(&self, cluster: &dyn Observed, since: Millis) -> Result<(), String> {
        let mut wrong = String::new();
        let mut differs =
            |what: &str, whose: &dyn std::fmt::Display, want: &dyn std::fmt::Display, have: &dyn std::fmt::Display| {
                let _ = write!(
                    wrong,
                    "{}{what} of {whose} wanted {want}, found {have}",
                    if wrong.is_empty() { "" } else { "; " }
                );
            };
        let pods = |pattern: &Pattern, test: &dyn Fn(&PodState<'_>) -> bool| {
            cluster.pods().filter(|p| pattern.matches(p.namespace, p.name) && test(p)).count() as u64
        };
        let tests: [(&str, &[(Pattern, Count)], &dyn Fn(&PodState<'_>) -> bool); 4] = [
            ("bound", &self.bound, &|p| !p.node.is_empty()),
            ("running", &self.running, &|p| p.phase == "Running"),
            ("waiting", &self.waiting, &|p| p.waiting),
            ("exists", &self.exists, &|_| true),
        ];
        for (what, wanted, test) in tests {
            for (pattern, count) in wanted {
                let have = pods(pattern, test);
                if !count.holds(have) {
                    differs(what, pattern, count, &have);
                }
            }
        }
        for (node, resource, amount) in &self.free {
            let have = cluster.free(node, resource);
            let cpu = resource == "cpu";
            let want = if cpu { amount.milli_value() } else { amount.value() };
            if have != Some(want) {
                let text = |n| if cpu { Quantity::from_milli(n) } else { Quantity::from_units(n) }.to_string();
                differs(&format!("free {resource}"), node, amount, &have.map_or("no such node".to_owned(), text));
            }
        }
        for (pattern, text) in &self.reason {
            let mut any = false;
            for pod in cluster.pods().filter(|p| pattern.matches(p.namespace, p.name)) {
                any = true;
                if !pod.message.contains(text.as_str()) {
                    differs("reason", &pod.name, &format!("…{text}…"), &format!("\"{}\"", pod.message));
                }
            }
            if !any {
                differs("reason", pattern, &format!("…{text}…"), &"no such pod");
            }
        }
        for (object, text) in &self.event {
            let about: Vec<_> = cluster
                .events()
                .filter(|e| e.time >= since && object.matches(e.kind, e.group, e.namespace, e.name))
                .collect();
            if !about.iter().any(|e| e.note.contains(text.as_str()) || e.reason.contains(text.as_str())) {
                let have = about.last().map_or("none".to_owned(), |e| format!("last {}: {}", e.reason, e.note));
                differs("event", object, &format!("…{text}…"), &have);
            }
        }
        for (object, fields) in &self.object {
            let found = cluster.objects(object);
            if found.is_empty() {
                differs("object", object, fields, &"none");
            }
            for have in found.iter().filter(|have| !holds(have, fields)) {
                differs("object", object, fields, &pick(have, fields));
            }
        }
        for pattern in &self.together {
            let mut times: Vec<_> =
                cluster.pods().filter(|p| pattern.matches(p.namespace, p.name)).filter_map(|p| p.released).collect();
            times.sort_unstable();
            times.dedup();
            if times.len() > 1 {
                let times: Vec<_> = times.iter().map(ToString::to_string).collect();
                differs("release", pattern, &"one", &format!("{} at {}", times.len(), times.join(", ")));
            }
        }
        let tally = |pattern: &Pattern, happenings: &mut dyn Iterator<Item = Happening<'_>>| {
            happenings.filter(|h| h.time >= since && pattern.matches(h.namespace, h.name)).count() as u64
        };
        for (pattern, count) in &self.attempts {
            let have = tally(pattern, &mut *cluster.cycles());
            if !count.holds(have) {
                differs("attempts", pattern, count, &have);
            }
        }
        for (pattern, count) in &self.evicted {
            let have = tally(pattern, &mut *cluster.evictions());
            if !count.holds(have) {
                differs("evicted", pattern, count, &have);
            }
        }
        for (object, count) in &self.warnings {
            let about = |e: &EventState<'_>| {
                e.warning && e.time >= since && object.matches(e.kind, e.group, e.namespace, e.name)
            };
            let warnings: Vec<_> = cluster.events().filter(about).collect();
            if !count.holds(warnings.len() as u64) {
                let last = warnings.last().map_or(String::new(), |e| format!(", last {}: {}", e.reason, e.note));
                differs("warnings", object, count, &format!("{}{last}", warnings.len()));
            }
        }
        if !self.any_of.is_empty() {
            let found: Vec<_> = self.any_of.iter().map_while(|one| one.judge(cluster, since).err()).collect();
            if found.len() == self.any_of.len() {
                let _ = write!(wrong, "{}none of: {}", if wrong.is_empty() { "" } else { "; " }, found.join(" | "));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// The fields of `object` that `like` names.
fn pick(object: &Json, like: &Json) -> Json {
    match like {
        Json::Object(like) => like.iter().map(|(key, like)| (key.clone(), pick(&object[key], like))).collect(),
        _ => object.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::parse;

    /// A cluster of pods on nodes: name, node.
    struct Pods(Vec<(&'static str, &'static str)>);

    impl Observed for Pods {
        fn pods<'a>(&'a self) -> Box<dyn Iterator<Item = PodState<'a>> + 'a> {
            Box::new(self.0.iter().map(|&(name, node)| PodState {
                namespace: "default",
                name,
                node,
                phase: if node.is_empty() { "Pending" } else { "Running" },
                waiting: false,
                message: "0/1 nodes",
                released: (!node.is_empty()).then_some(Millis(5)),
            }))
        }
        fn objects(&self, _: &Ref) -> Vec<Json> {
            vec![serde_json::json!({"status": {"phase": "Running"}})]
        }
        fn free(&self, node: &str, _: &str) -> Option<i64> {
            (node == "n1").then_some(1500)
        }
        fn events<'a>(&'a self) -> Box<dyn Iterator<Item = EventState<'a>> + 'a> {
            Box::new(std::iter::empty())
        }
        fn cycles<'a>(&'a self) -> Box<dyn Iterator<Item = Happening<'a>> + 'a> {
            Box::new((0..3).map(|i| Happening { time: Millis(i), namespace: "default", name: "a-0" }))
        }
        fn evictions<'a>(&'a self) -> Box<dyn Iterator<Item = Happening<'a>> + 'a> {
            Box::new(std::iter::empty())
        }
    }

    /// Runs an expectation against nothing bound until 10 s, then a-0 bound.
    fn failures(expectation: &str) -> Vec<String> {
        let text = format!("apiVersion: tutti.dev/v1\nkind: Scenario\nabout: x\nsteps: []\nexpect:\n- {expectation}\n");
        let scenario = Scenario::read(&parse(&text).unwrap()[0]).unwrap();
        let mut checker = Checker::new(&scenario);
        checker.look(Millis(0), Millis(10_000), &Pods(vec![("a-0", ""), ("a-1", "")]));
        checker.look(Millis(10_000), Millis(60_001), &Pods(vec![("a-0", "n1"), ("a-1", "")]));
        checker.finish().into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn expectations_hold_or_say_what_was_found() {
        for (expectation, want) in [
            ("{at: 9s, bound: {a-*: 0}}", ""),
            ("{at: 10s, bound: {a-*: 1}}", ""),
            ("{at: end, bound: {a-*: 2}}", "at 1m: bound of a-* wanted 2, found 1"),
            ("{by: 10s, bound: {a-0: 1}}", ""),
            ("{by: 9s, bound: {a-0: 1}}", "by 9s: bound of a-0 wanted 1, found 0"),
            ("{always: 0s..10s, bound: {a-*: 0}}", ""),
            ("{always: 0s..11s, bound: {a-*: 0}}", "always from 0s to 11s, but at 10s: bound of a-* wanted 0, found 1"),
            ("{never: 0s..10s, bound: {a-0: '> 0'}}", ""),
            ("{never: 0s..end, bound: {a-0: '> 0'}}", "never from 0s to 1m, but at 10s all of it held"),
            ("{at: end, free: {n1: {cpu: 1500m}}}", ""),
            ("{at: end, free: {n1: {cpu: 2}}}", "at 1m: free cpu of n1 wanted 2, found 1500m"),
            ("{at: end, reason: {a-1: 0/1}}", ""),
            ("{at: end, reason: {a-1: lacks}}", "at 1m: reason of a-1 wanted …lacks…, found \"0/1 nodes\""),
            (
                "{at: end, object: {podgroup/g: {status: {phase: Pending}}}}",
                "at 1m: object of podgroup/g wanted {\"status\":{\"phase\":\"Pending\"}}, found {\"status\":{\"phase\":\"Running\"}}",
            ),
            ("{at: end, attempts: {a-0: '<= 2'}}", "at 1m: attempts of a-0 wanted <= 2, found 3"),
            ("{at: end, since: 1ms, attempts: {a-0: 2}}", ""),
            ("{at: end, warnings: {podgroup/*: 0}, evicted: {'*': 0}, together: [a-*]}", ""),
            ("{at: end, anyOf: [{bound: {a-0: 0}}, {bound: {a-0: 1}}]}", ""),
            (
                "{at: end, anyOf: [{bound: {a-0: 0}}, {exists: {a-*: 3}}]}",
                "at 1m: none of: bound of a-0 wanted 0, found 1 | exists of a-* wanted 3, found 2",
            ),
        ] {
            assert_eq!(failures(expectation).join("\n"), want, "{expectation}");
        }
    }
}
