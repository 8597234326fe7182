//! What can happen to the cluster from outside the scheduler.

use std::fmt;

use serde_json::Value as Json;

/// Names an object of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The API group, "" for the core one.
    pub group: String,
    /// The kind, as in `PodGroup`.
    pub kind: String,
    /// The namespace, "" for a cluster-wide object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// A pod.
    #[must_use]
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::core("Pod", namespace, name)
    }

    /// A node.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self::core("Node", "", name)
    }

    /// An object of the core group.
    #[must_use]
    pub fn core(kind: &str, namespace: &str, name: &str) -> Self {
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        Self { group: String::new(), kind, namespace, name }
    }

    /// The object that a manifest describes.
    ///
    /// # Errors
    /// It has no kind, apiVersion or name.
    pub fn of(object: &Json) -> Result<Self, String> {
        let text = |value: &Json, what: &str| match value.as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(format!("the object has no {what}")),
        };
        let api_version = text(&object["apiVersion"], "apiVersion")?;
        let kind = text(&object["kind"], "kind")?;
        let name = text(&object["metadata"]["name"], "metadata.name")?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        Ok(Self { group, kind, namespace, name })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.to_lowercase();
        match self.namespace.as_str() {
            "" => write!(f, "{kind}/{}", self.name),
            namespace => write!(f, "{kind}/{namespace}/{}", self.name),
        }
    }
}

/// Something that happens to the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates an object from its manifest. A pod may carry how long it runs.
    Create {
        /// The manifest.
        object: Json,
        /// Of a pod: how long after it began to run it ends with Succeeded, in milliseconds.
        runs_ms: Option<i64>,
    },
    /// Deletes an object, as `kubectl delete --wait=false`.
    Delete(ObjectRef),
    /// Applies a JSON merge patch; `status` in it goes to the status subresource.
    Patch(ObjectRef, Json),
    /// Ends a pod, with phase `Succeeded` or `Failed`.
    Finish {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The phase.
        phase: String,
    },
    /// The API server refuses the next bindings of a pod.
    FailBinds {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// How many.
        count: u32,
    },
    /// Every request of the scheduler to the API server fails for so many milliseconds.
    ApiAway(i64),
    /// The scheduler stops now and starts again after so many milliseconds, with nothing left in memory.
    RestartScheduler(i64),
}
