//! Prefers the nodes whose name ends in the same digit as the pod's name: `job-3` goes to `node-3` or `node-13`.
//!
//! The classic first plugin, here in Rust. `guestConfig: '{"reverse": true}'` prefers all the others instead.

use kube_scheduler_sdk::prelude::*;
use serde::Deserialize;

/// The plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeNumber {
    /// Prefer the nodes that don't match.
    reverse: bool,
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
        Ok(if last_digit(cx.pod()?.name()?).is_some() { PreScoreResult::Score } else { PreScoreResult::Skip })
    }
}

impl ScorePlugin for NodeNumber {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        let pod = last_digit(cx.pod()?.name()?);
        let same = pod.is_some() && pod == last_digit(cx.node_name()?);
        Ok(if same != self.reverse { 10 } else { 0 })
    }
}

fn last_digit(name: &str) -> Option<char> {
    name.chars().next_back().filter(char::is_ascii_digit)
}
