//! Prefers the nodes whose name ends in the same digit as the pod's name: `job-3` goes to `node-3` or `node-13`.
//!
//! The classic first plugin, here in Rust. `guestConfig: '{"reverse": true}'` prefers all the others instead.

use std::cell::Cell;

use kube_scheduler_sdk::prelude::*;
use serde::Deserialize;

/// The plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeNumber {
    /// Prefer the nodes that don't match.
    reverse: bool,
    /// The pod's digit, from PreScore. Score runs on the same instance in the same cycle, so it need not read the pod for
    /// every node.
    #[serde(skip)]
    digit: Cell<Option<char>>,
}

plugin!(NodeNumber: Enqueue, PreScore, Score);

impl Plugin for NodeNumber {
    fn new(config: &Config) -> Result<Self, Status> {
        config.parse()
    }
}

impl EnqueueExtensions for NodeNumber {
    /// A new node may have the right number.
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent { resource: EventResource::Node, action: Action::ADD }]
    }
}

impl PreScorePlugin for NodeNumber {
    /// Without a digit there is nothing to match, so no node needs to be looked at.
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status> {
        let digit = last_digit(cx.pod()?.name()?);
        self.digit.set(digit);
        Ok(if digit.is_some() { PreScoreResult::Score } else { PreScoreResult::Skip })
    }
}

impl ScorePlugin for NodeNumber {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        let same = last_digit(cx.node_name()?) == self.digit.get();
        Ok(if same != self.reverse { 10 } else { 0 })
    }
}

fn last_digit(name: &str) -> Option<char> {
    name.chars().next_back().filter(char::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use kube_scheduler_sdk::testing::{FakeHost, Guest, pod};

    use super::*;

    fn guest(config: &str) -> Guest<NodeNumber> {
        Guest::new(FakeHost::new().config(config))
    }

    #[test]
    fn scores() {
        let cases = [
            ("", "job-3", "node-3", 10),
            ("", "job-3", "node-13", 10),
            ("", "job-3", "node-4", 0),
            ("", "job-3", "gateway", 0),
            (r#"{"reverse": true}"#, "job-3", "node-3", 0),
            (r#"{"reverse": true}"#, "job-3", "node-4", 10),
        ];
        for (config, pod_name, node, expected) in cases {
            let (guest, pod) = (guest(config), pod(pod_name));
            assert!(guest.pre_score(&pod, &[node, "other"]).is_success());
            let (verdict, score) = guest.score(&pod, node);
            assert!(verdict.is_success(), "{verdict:?}");
            assert_eq!(score, expected, "{config} {pod_name} {node}");
        }
    }

    #[test]
    fn a_pod_without_a_digit_is_skipped() {
        assert_eq!(guest("").pre_score(&pod("job"), &["node-1", "node-2"]).code, Code::Skip);
        assert_eq!(guest("").pre_score(&pod("job-1"), &["node-1", "node-2"]).code, Code::Success);
    }

    #[test]
    fn a_misspelt_field_is_named() {
        let guest = guest("{\n  \"revers\": true\n}");
        let (verdict, _) = guest.score(&pod("job-1"), "node-1");
        assert_eq!(verdict.code, Code::Error);
        assert_eq!(verdict.reason, "guestConfig: unknown field `revers`, expected `reverse` at line 2 column 3");
        assert_eq!(guest.host().logs().len(), 1, "the log tells it once");
    }
}
