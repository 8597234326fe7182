//! A kube-scheduler plugin: prefers nodes that carry a label.
//!
//! Build it with `cargo build --release --target wasm32-unknown-unknown`, test it with `cargo test`.

use kube_scheduler_sdk::prelude::*;
use serde::Deserialize;

/// The plugin, and its `guestConfig`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct {{Name}} {
    /// The label that makes a node preferred.
    label: String,
}

// The extension points that the scheduler calls. Each has a trait; the compiler says what lacks.
plugin!({{Name}}: Score);

impl Default for {{Name}} {
    fn default() -> Self {
        Self { label: "preferred".into() }
    }
}

impl Plugin for {{Name}} {
    fn new(config: &Config) -> Result<Self, Status> {
        config.parse()
    }
}

impl ScorePlugin for {{Name}} {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        Ok(if cx.node()?.label(&self.label)?.is_some() { MAX_NODE_SCORE } else { MIN_NODE_SCORE })
    }
}

#[cfg(test)]
mod tests {
    use kube_scheduler_sdk::testing::{FakeHost, Guest, node, pod};

    use super::*;

    #[test]
    fn the_labelled_node_is_preferred() {
        let host = FakeHost::new()
            .config(r#"{"label": "fast"}"#)
            .node(node("a").label("fast", "yes"))
            .node(node("b"));
        let guest = Guest::<{{Name}}>::new(host);
        assert_eq!(guest.score(&pod("p"), "a").1, 100);
        assert_eq!(guest.score(&pod("p"), "b").1, 0);
    }

    #[test]
    fn a_misspelt_configuration_is_refused_by_name() {
        let guest = Guest::<{{Name}}>::new(FakeHost::new().config(r#"{"lable": "fast"}"#));
        let (verdict, _) = guest.score(&pod("p"), "a");
        assert_eq!(verdict.code, Code::Error);
        assert!(verdict.reason.contains("unknown field `lable`"), "{}", verdict.reason);
    }
}
