//! Keeps pods to nodes that have some labels and lack others, whatever their values, for a whole profile:
//!
//! ```json
//! {"presentLabels": ["gpu"], "absentLabels": ["maintenance"]}
//! ```

use kube_scheduler_sdk::prelude::*;
use serde::Deserialize;

/// The plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct NodeLabel {
    present_labels: Vec<String>,
    absent_labels: Vec<String>,
}

plugin!(NodeLabel: Enqueue, PreFilter, Filter);

impl Plugin for NodeLabel {
    fn new(config: &Config) -> Result<Self, Status> {
        let plugin: Self = config.parse()?;
        match plugin.present_labels.iter().find(|label| plugin.absent_labels.contains(label)) {
            Some(label) => Err(Status::error(format!(
                "guestConfig: label {label} is in presentLabels and in absentLabels, so no node can ever pass"
            ))),
            None => Ok(plugin),
        }
    }
}

impl EnqueueExtensions for NodeLabel {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent { resource: EventResource::Node, action: Action::ADD.or(Action::UPDATE_NODE_LABEL) }]
    }
}

impl PreFilterPlugin for NodeLabel {
    /// Without labels to look for, Filter needs no calls.
    fn pre_filter(&self, _: &CycleContext) -> Result<PreFilterResult, Status> {
        let idle = self.present_labels.is_empty() && self.absent_labels.is_empty();
        Ok(if idle { PreFilterResult::Skip } else { PreFilterResult::AllNodes })
    }
}

impl FilterPlugin for NodeLabel {
    fn filter(&self, cx: &NodeContext) -> Result<(), Status> {
        let node = cx.node()?;
        for label in &self.present_labels {
            if node.label(label)?.is_none() {
                // The same words for every node, so that the scheduler can count them. No preemption gives a node a label.
                return Err(Status::unresolvable(format!("node(s) lacked the label {label}")));
            }
        }
        for label in &self.absent_labels {
            if node.label(label)?.is_some() {
                return Err(Status::unresolvable(format!("node(s) had the label {label}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube_scheduler_sdk::testing::{FakeHost, Guest, Verdict, node, pod};

    use super::*;

    fn guest(config: &str) -> Guest<NodeLabel> {
        Guest::new(
            FakeHost::new()
                .config(config)
                .node(node("plain"))
                .node(node("gpu").label("gpu", ""))
                .node(node("broken").label("gpu", "a100").label("maintenance", "today")),
        )
    }

    #[test]
    fn filters() {
        let guest = guest(r#"{"presentLabels": ["gpu"], "absentLabels": ["maintenance"]}"#);
        let refused = |reason: &str| Verdict { code: Code::UnschedulableAndUnresolvable, reason: reason.into() };
        assert_eq!(guest.pre_filter(&pod("p")).0.code, Code::Success);
        assert_eq!(guest.filter(&pod("p"), "gpu").code, Code::Success);
        assert_eq!(guest.filter(&pod("p"), "plain"), refused("node(s) lacked the label gpu"));
        assert_eq!(guest.filter(&pod("p"), "broken"), refused("node(s) had the label maintenance"));
    }

    #[test]
    fn a_node_that_left_is_an_error_not_a_crash() {
        let verdict = guest(r#"{"presentLabels": ["gpu"]}"#).filter(&pod("p"), "gone");
        assert_eq!(verdict, Verdict { code: Code::Error, reason: "node gone is not in the snapshot".into() });
    }

    #[test]
    fn without_labels_it_skips() {
        assert_eq!(guest("").pre_filter(&pod("p")).0.code, Code::Skip);
    }

    #[test]
    fn a_contradiction_is_refused() {
        let (verdict, _) = guest(r#"{"presentLabels": ["gpu"], "absentLabels": ["gpu"]}"#).pre_filter(&pod("p"));
        assert_eq!(verdict.code, Code::Error);
        assert!(verdict.reason.contains("label gpu is in presentLabels and in absentLabels"), "{}", verdict.reason);
    }
}
