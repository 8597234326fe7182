//! Label selectors.

use std::collections::BTreeMap;

use super::messages;

messages! {
    /// Labels that an object must have.
    LabelSelector {
        match_labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "1"],
        match_expressions: Vec<LabelSelectorRequirement> = [message, repeated, tag = "2"],
    }

    /// A requirement on one label.
    LabelSelectorRequirement {
        key: String = [string, tag = "1"],
        operator: String = [string, tag = "2"],
        values: Vec<String> = [string, repeated, tag = "3"],
    }
}

impl LabelSelector {
    /// Whether the labels meet all that is asked; an empty selector asks nothing.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| {
                let value = labels.get(&r.key);
                match r.operator.as_str() {
                    "In" => value.is_some_and(|v| r.values.contains(v)),
                    "NotIn" => value.is_none_or(|v| !r.values.contains(v)),
                    "Exists" => value.is_some(),
                    "DoesNotExist" => value.is_none(),
                    _ => false,
                }
            })
    }
}
