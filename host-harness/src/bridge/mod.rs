//! The bridge: what `bridge.proto` offers a guest, over a simulated cluster.
//!
//! [`Bridge`] keeps one entry per group, with counts per state and role that every pod event adjusts, so that no request
//! walks a group unless it must. Like its Go twin it holds no gang policy. It never calls the guest, and what it asks of
//! the [`Cluster`] must not either.

use std::collections::BTreeMap;

use kube_scheduler_abi::bridge::v1;

/// What the bridge needs of the scheduler and the API server.
pub trait Cluster {
    /// The clock, Unix milliseconds.
    fn now_ms(&self) -> i64;

    /// Whether a pod held at Permit can still be let go: it is in the lister, has no deletionTimestamp, and neither its
    /// timeout nor anyone else has decided it yet.
    ///
    /// # Errors
    /// Why not, a few words.
    fn can_allow(&self, uid: &str) -> Result<(), String>;

    /// Lets a pod go that is held at Permit.
    fn allow(&mut self, uid: &str);

    /// Rejects a pod held at Permit, under the plugin's name.
    fn reject(&mut self, uid: &str, reason: &str);

    /// Moves pods to the active queue; those that aren't parked stay where they are.
    fn activate(&mut self, uids: &[String]);

    /// Deletes a pod, with a DisruptionTarget condition. One that is being deleted already is no error.
    ///
    /// # Errors
    /// Why it can't be, a few words.
    fn evict(&mut self, uid: &str, preemptor_uid: &str, reason: &str) -> Result<(), String>;

    /// What a pod that isn't bound asks of a node; None when the lister doesn't have it.
    fn demand(&self, uid: &str) -> Option<Demand>;

    /// An object by resource, namespace ("" for a cluster-wide one) and name.
    fn object(&self, resource: &v1::Resource, namespace: &str, name: &str) -> v1::Object;

    /// Records an event.
    fn record_event(&mut self, event: &v1::EventRecord);

    /// The generation of the node snapshot, and how many nodes it has.
    fn snapshot(&self) -> (u64, u32);

    /// The name of the snapshot's node at `index`.
    fn node_name(&self, index: u32) -> &str;

    /// A label of the snapshot's node at `index`.
    fn node_label(&self, index: u32, key: &str) -> Option<&str>;

    /// Whether the node at `index` admits the pod by what doesn't change with load: node name, selector and affinity,
    /// taints, unschedulable.
    fn node_admits(&self, index: u32, uid: &str) -> bool;

    /// Allocatable less requested of each resource on the node at `index`, milli for cpu. With a priority, room held by
    /// pods of a lower one counts as free.
    fn node_free(&self, index: u32, resources: &[String], evict_below: Option<i32>) -> Vec<i64>;

    /// The pods on the node at `index` of a priority below `priority`, in any order.
    fn node_victims(&self, index: u32, resources: &[String], priority: i32) -> Vec<Victim>;
}

/// A pod that could be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.priority`.
    pub priority: i32,
    /// `status.startTime`, Unix milliseconds; when it was assumed if it hasn't started.
    pub start_ms: i64,
    /// Requests of the asked resources.
    pub requests: Vec<i64>,
    /// A PodDisruptionBudget forbids its eviction now.
    pub protected: bool,
    /// Whether there is a deletionTimestamp.
    pub terminating: bool,
}

/// What a pod asks of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Effective requests, as the scheduler counts them: milli for cpu, bytes for memory and storage, else whole; "pods"
    /// is 1.
    pub requests: BTreeMap<String, i64>,
    /// Node name, node selector, node affinity and tolerations in some canonical form: equal texts, equal constraints.
    pub constraints: String,
}

/// Who runs the bridge.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The plugin's name in the profile.
    pub plugin: String,
    /// The profile's `schedulerName`.
    pub profile: String,
    /// For example `v1.32.5`.
    pub kubernetes: String,
}

/// What the bridge must know of a pod, as the API server shows it (an assumed node isn't shown).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kubernetes' own names")]
pub struct Pod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// `metadata.creationTimestamp`, Unix milliseconds.
    pub created_ms: i64,
    /// Whether there is a deletionTimestamp.
    pub terminating: bool,
    /// Whether there are scheduling gates.
    pub gated: bool,
    /// `spec.nodeName`, "" for none.
    pub node: String,
    pub phase: Phase,
    pub priority: i32,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kubernetes' own names")]
pub enum Phase {
    #[default]
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// A series of one metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// `metric_add`.
    Counter(f64),
    /// `metric_observe`: every observation, in order.
    Histogram(Vec<f64>),
}

/// The table of groups.
#[derive(Debug)]
pub struct Bridge {}

#[expect(unused_variables, reason = "bodies follow")]
impl Bridge {
    /// An empty table.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        todo!()
    }

    /// Serves one request: an encoded [`v1::Request`] in, an encoded [`v1::Response`] out. `in_scheduling` is whether the
    /// export that asks may read the node snapshot.
    pub fn handle(&mut self, request: &[u8], in_scheduling: bool, cluster: &mut dyn Cluster) -> Vec<u8> {
        todo!()
    }

    /// A pod was added or updated.
    pub fn pod_changed(&mut self, pod: &Pod) {
        todo!()
    }

    /// A pod is gone from the API.
    pub fn pod_deleted(&mut self, uid: &str) {
        todo!()
    }

    /// A custom resource was added, updated or deleted: activates the unscheduled members of the group it describes.
    pub fn object_changed(&mut self, resource: &v1::Resource, namespace: &str, name: &str, cluster: &mut dyn Cluster) {
        todo!()
    }

    /// When [`Bridge::fire`] is due next, Unix milliseconds.
    #[must_use]
    pub fn next_timer(&self) -> Option<i64> {
        todo!()
    }

    /// Does what is due at the cluster's clock: deadlines of holds, ends of backoffs.
    pub fn fire(&mut self, cluster: &mut dyn Cluster) {
        todo!()
    }

    /// What the guest counted and observed, by name and labels.
    #[must_use]
    pub fn metrics(&self) -> &BTreeMap<(String, BTreeMap<String, String>), Metric> {
        todo!()
    }
}
