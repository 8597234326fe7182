//! Services and controllers: which pods belong together, for the scheduler's default spreading.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::action::ObjectRef;
use crate::objects::{LabelSelector, Pod};

/// Selectors of Services, ReplicaSets, StatefulSets and ReplicationControllers, by namespace, kind and name.
#[derive(Debug, Default)]
pub(super) struct Selectors(BTreeMap<(String, String, String), LabelSelector>);

impl Selectors {
    /// An object came or changed, or (None) is gone.
    pub(super) fn update(&mut self, reference: &ObjectRef, object: Option<&Json>) {
        let labels_alone = matches!(reference.kind.as_str(), "Service" | "ReplicationController");
        if !labels_alone && !matches!(reference.kind.as_str(), "ReplicaSet" | "StatefulSet") {
            return;
        }
        let key = (reference.namespace.clone(), reference.kind.clone(), reference.name.clone());
        let selector = object.map_or(&Json::Null, |o| &o["spec"]["selector"]);
        let selector = if labels_alone {
            serde_json::from_value(selector.clone())
                .map(|match_labels| LabelSelector { match_labels, ..LabelSelector::default() })
        } else {
            serde_json::from_value(selector.clone())
        };
        // A Service without a selector matches nothing.
        match selector {
            Ok(selector) => self.0.insert(key, selector),
            Err(_) => self.0.remove(&key),
        };
    }

    /// What selects the pods that belong together with this one; None: it stands alone.
    pub(super) fn of(&self, pod: &Pod) -> Option<LabelSelector> {
        if self.0.is_empty() {
            return None;
        }
        let namespace = &pod.metadata.namespace;
        let first = (namespace.clone(), "Service".to_owned(), String::new());
        let services = self.0.range(first..).take_while(|((ns, kind, _), _)| ns == namespace && kind == "Service");
        let services = services.map(|(_, s)| s).filter(|s| s.matches(&pod.metadata.labels));
        let owner = pod.metadata.owner_references.iter().find(|o| o.controller == Some(true));
        let owner = owner.and_then(|o| self.0.get(&(namespace.clone(), o.kind.clone(), o.name.clone())));
        let mut together = LabelSelector::default();
        for selector in services.chain(owner) {
            together.match_labels.extend(selector.match_labels.clone());
            together.match_expressions.extend(selector.match_expressions.iter().cloned());
        }
        (together != LabelSelector::default()).then_some(together)
    }
}
