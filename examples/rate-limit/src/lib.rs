//! Lets at most so many pods of a class start in an interval, so that a burst of jobs does not storm a registry or a
//! licence server. Pods of one value of a label in one namespace are a class:
//!
//! ```json
//! {"label": "rate-limit", "pods": 10, "intervalSeconds": 60}
//! ```
//!
//! A guest has no clock, and what its instance remembers is gone with the next Permit, so both come from the bridge: the
//! class is a group, its backoff is the end of the interval, its attempt the number of pods let go. When the interval ends the
//! host wakes the class. The bridge takes one set of groups per scheduler, so this plugin and Tutti don't share one.
//!
//! **Without the bridge** nothing is limited: every pod passes, and each instance says so in the log once.

use std::cell::Cell;

use kube_scheduler_sdk::bridge::read::GroupState;
use kube_scheduler_sdk::bridge::{Bridge, Error, GroupBackoff, GroupGet, GroupSource, GroupStateBuf, group_source};
use kube_scheduler_sdk::prelude::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Limit {
    label: String,
    pods: u32,
    interval_seconds: u32,
}

impl Default for Limit {
    fn default() -> Self {
        Self { label: "rate-limit".into(), pods: 10, interval_seconds: 60 }
    }
}

/// The plugin.
#[derive(Debug)]
pub struct RateLimit {
    limit: Limit,
    bridge: Bridge,
    told: Cell<bool>,
}

plugin!(RateLimit: PreFilter, Permit);

impl Plugin for RateLimit {
    fn new(config: &Config) -> Result<Self, Status> {
        let limit: Limit = config.parse()?;
        if limit.label.is_empty() || limit.pods == 0 || limit.interval_seconds == 0 {
            return Err(Status::error(
                "guestConfig: label must not be empty, pods and intervalSeconds must be at least 1",
            ));
        }
        let class = GroupSource {
            prefix: "rate".into(),
            value_from: Some(group_source::ValueFrom::Label(limit.label.clone())),
            ..GroupSource::default()
        };
        Ok(Self { limit, bridge: Bridge::new(vec![class]), told: Cell::new(false) })
    }
}

/// A class that has a limit, as it stands.
struct Class<'a> {
    name: &'a str,
    key: String,
    state: GroupStateBuf,
}

impl RateLimit {
    /// The pod's class; `None` where nothing is limited.
    fn class<'a>(&self, pod: Pod<'a>) -> Result<Option<Class<'a>>, Status> {
        let Some(name) = pod.label(&self.limit.label)? else { return Ok(None) };
        let key = format!("rate/{}/{name}", pod.namespace()?);
        let get = GroupGet { key: key.clone(), uid: pod.uid()?.into(), with_object: false };
        match self.bridge.group_state(&get) {
            Ok(state) => Ok(Some(Class { name, key, state })),
            Err(Error::Absent) => {
                if !self.told.replace(true) {
                    klog::error("no pod is rate limited", &[("reason", &Error::Absent)]);
                }
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The end of the interval in milliseconds, and the pods let go in it so far.
    fn interval(&self, state: GroupState<'_>) -> Result<(i64, u32), Status> {
        let (now, until) = (state.now_ms()?, state.backoff_until_ms()?);
        let (until, used) = if until > now {
            (until, state.attempt()?)
        } else {
            (now + i64::from(self.limit.interval_seconds) * 1000, 0)
        };
        if used >= self.limit.pods {
            let seconds = (until - now + 999) / 1000;
            return Err(Status::unresolvable(format!(
                "{used} pods of the class started already, more may in {seconds} s"
            )));
        }
        Ok((until, used))
    }
}

impl PreFilterPlugin for RateLimit {
    /// Refuses early what Permit would refuse, and holds no node for it.
    fn pre_filter(&self, cx: &CycleContext) -> Result<PreFilterResult, Status> {
        if let Some(class) = self.class(cx.pod()?)? {
            self.interval(class.state.get()).map_err(|status| status.context(class.name))?;
        }
        Ok(PreFilterResult::Skip)
    }
}

impl PermitPlugin for RateLimit {
    fn permit(&self, cx: &NodeContext) -> Result<PermitResult, Status> {
        if let Some(class) = self.class(cx.pod()?)? {
            let (until_ms, used) = self.interval(class.state.get()).map_err(|status| status.context(class.name))?;
            self.bridge.group_backoff(GroupBackoff {
                key: class.key,
                until_ms,
                attempt: used + 1,
                note: String::new(),
            })?;
        }
        Ok(PermitResult::Allow)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use kube_scheduler_sdk::bridge::{Done, GroupState, request, response};
    use kube_scheduler_sdk::testing::{FakeHost, Guest, PodBuilder, pod};

    use super::*;

    /// A bridge with one group, at a time that the test sets.
    fn guest(now: &Rc<Cell<i64>>) -> Guest<RateLimit> {
        let clock = Rc::clone(now);
        let mut group = GroupState::default();
        Guest::new(FakeHost::new().config(r#"{"pods": 2, "intervalSeconds": 10}"#).bridge(move |call| match call {
            request::Call::GroupGet(get) => {
                assert_eq!(get.key, "rate/default/registry");
                response::Result::GroupGet(GroupState { now_ms: clock.get(), ..group.clone() })
            }
            request::Call::GroupBackoff(set) => {
                (group.backoff_until_ms, group.attempt) = (set.until_ms, set.attempt);
                response::Result::Done(Done {})
            }
            other => panic!("unexpected {other:?}"),
        }))
    }

    fn limited(name: &str) -> PodBuilder {
        pod(name).label("rate-limit", "registry")
    }

    #[test]
    fn the_third_pod_waits_for_the_next_interval() {
        let now = Rc::new(Cell::new(1_000_000));
        let guest = guest(&now);
        for name in ["a", "b"] {
            assert_eq!(guest.pre_filter(&limited(name)).0.code, Code::Skip);
            // Each Permit may run on an instance of its own.
            assert_eq!(guest.sibling().permit(&limited(name), "n").0.code, Code::Success);
        }
        let (verdict, _) = guest.pre_filter(&limited("c"));
        assert_eq!(verdict.code, Code::UnschedulableAndUnresolvable);
        assert_eq!(verdict.reason, "registry: 2 pods of the class started already, more may in 10 s");
        now.set(1_004_500);
        let (verdict, _) = guest.permit(&limited("c"), "n");
        assert_eq!(verdict.reason, "registry: 2 pods of the class started already, more may in 6 s");
        now.set(1_010_000);
        assert_eq!(guest.permit(&limited("c"), "n").0.code, Code::Success);
    }

    #[test]
    fn other_pods_pass() {
        let guest = guest(&Rc::new(Cell::new(0)));
        assert_eq!(guest.pre_filter(&pod("p")).0.code, Code::Skip);
        assert_eq!(guest.permit(&pod("p"), "n").0.code, Code::Success);
    }

    #[test]
    fn without_a_bridge_every_pod_passes_and_the_log_says_so_once() {
        let guest = Guest::<RateLimit>::new(FakeHost::new());
        for _ in 0..3 {
            assert_eq!(guest.permit(&limited("p"), "n").0.code, Code::Success);
        }
        let logs = guest.host().logs();
        assert_eq!(logs.len(), 1, "{logs:?}");
        assert_eq!(logs[0].message, "no pod is rate limited");
    }

    #[test]
    fn a_limit_of_none_is_refused() {
        let guest = Guest::<RateLimit>::new(FakeHost::new().config(r#"{"pods": 0}"#));
        assert_eq!(guest.pre_filter(&limited("p")).0.code, Code::Error);
    }
}
