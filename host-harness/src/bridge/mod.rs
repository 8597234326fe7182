//! The bridge: what `bridge.proto` offers a guest, over a simulated cluster.
//!
//! [`Bridge`] keeps one entry per group, with counts per state and role that every pod event adjusts, so that no request
//! walks a group unless it must. Like its Go twin it holds no gang policy. It never calls the guest, and what it asks of
//! the [`Cluster`] must not either.

mod nodes;
mod table;

use std::collections::BTreeMap;

use kube_scheduler_abi::bridge::{VERSION, v1};
use prost::Message as _;
use v1::error::Code;
use v1::request::Call;
use v1::response::Result as Reply;

use self::table::Table;

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

    /// The node where a pod that is held at Permit has its place.
    fn held_on(&self, uid: &str) -> Option<&str>;

    /// Nominates a pod for a node, in the scheduler's memory and in the pod's status.
    fn nominate_pod(&mut self, uid: &str, node: &str);

    /// What a pod asks of a node; None when the lister doesn't have it.
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

    /// Allocatable less requested of each resource, node by node, milli for cpu. With a priority, room held by pods of a
    /// lower one counts as free.
    fn nodes_free(&self, indices: &[u32], resources: &[String], evict_below: Option<i32>) -> Vec<i64>;

    /// The pods that are nominated for the node at `index` and have at least this priority: uid, and requests of the asked
    /// resources.
    fn node_nominated(&self, index: u32, resources: &[String], priority: i32) -> Vec<(String, Vec<i64>)>;

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
    /// Node selector, node affinity and tolerations in some canonical form: equal texts, equal constraints. Not the node
    /// name: only a placed pod has one, and it is no demand of its own.
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

/// The calls served, by the field names of `Request.call`.
const CALLS: [&str; 18] = [
    "hello",
    "now",
    "group_get",
    "group_allow",
    "group_leave",
    "group_reject",
    "group_activate",
    "group_backoff",
    "group_block",
    "group_members",
    "object_get",
    "nodes_free",
    "nodes_victims",
    "pods_evict",
    "event_record",
    "metric_add",
    "metric_observe",
    "group_shapes",
];

/// The bridge.
#[derive(Debug)]
pub struct Bridge {
    identity: Identity,
    table: Table,
    metrics: BTreeMap<(String, BTreeMap<String, String>), Metric>,
}

impl Bridge {
    /// A bridge that knows no pod yet.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, table: Table::default(), metrics: BTreeMap::new() }
    }

    /// Serves one request: an encoded [`v1::Request`] in, an encoded [`v1::Response`] out. `in_scheduling` is whether the
    /// export that asks may read the node snapshot.
    pub fn handle(&mut self, request: &[u8], in_scheduling: bool, cluster: &mut dyn Cluster) -> Vec<u8> {
        let result = self.serve(request, in_scheduling, cluster).unwrap_or_else(Reply::Error);
        v1::Response { result: Some(result) }.encode_to_vec()
    }

    fn serve(&mut self, bytes: &[u8], in_scheduling: bool, cluster: &mut dyn Cluster) -> Result<Reply, v1::Error> {
        let request = v1::Request::decode(bytes)
            .map_err(|e| error(Code::BadRequest, format!("the request doesn't decode: {e}")))?;
        if request.version != VERSION {
            let message = format!("version {} asked, version {VERSION} is spoken here", request.version);
            return Err(error(Code::UnsupportedVersion, message));
        }
        let Some(call) = request.call else {
            return Err(error(Code::BadRequest, "the request holds no call that this version knows"));
        };
        let table = &mut self.table;
        Ok(match call {
            Call::Hello(call) => {
                table.declare(call.sources)?;
                Reply::Hello(v1::HelloReply {
                    version: VERSION,
                    plugin: self.identity.plugin.clone(),
                    profile: self.identity.profile.clone(),
                    kubernetes: self.identity.kubernetes.clone(),
                    calls: CALLS.map(String::from).to_vec(),
                })
            }
            Call::Now(_) => Reply::Now(v1::NowReply { unix_ms: cluster.now_ms() }),
            Call::GroupGet(call) => {
                if in_scheduling {
                    table.in_cycle(&call.uid);
                }
                Reply::GroupGet(table.get(&call, cluster))
            }
            Call::GroupAllow(call) => Reply::GroupAllow(table.allow(&call, bytes, cluster)?),
            Call::GroupLeave(call) => Reply::GroupLeave(table.leave(&call)),
            Call::GroupReject(call) => {
                let count = table.reject(&call.key, &call.reason, cluster);
                Reply::GroupReject(v1::CountReply { count })
            }
            Call::GroupActivate(call) => {
                let count = table.activate(&call.key, &call.except_uid, cluster);
                Reply::GroupActivate(v1::CountReply { count })
            }
            Call::GroupBackoff(call) => {
                table.back_off(call);
                Reply::Done(v1::Done {})
            }
            Call::GroupBlock(call) => {
                table.block(call, cluster.now_ms());
                Reply::Done(v1::Done {})
            }
            Call::GroupMembers(call) => Reply::GroupMembers(table.members(&call)),
            Call::GroupShapes(call) => {
                if in_scheduling {
                    table.in_cycle(&call.uid);
                }
                Reply::GroupShapes(table.shapes(&call, cluster))
            }
            Call::ObjectGet(call) => {
                let Some(resource) = &call.resource else {
                    return Err(error(Code::BadRequest, "object_get names no resource"));
                };
                Reply::ObjectGet(cluster.object(resource, &call.namespace, &call.name))
            }
            Call::NodesFree(_) | Call::NodesVictims(_) if !in_scheduling => {
                let message = "the node snapshot can't be read from Unreserve, PreBind, Bind or PostBind";
                return Err(error(Code::NotAllowedHere, message));
            }
            Call::NodesFree(call) => Reply::NodesFree(nodes::free(&call, cluster)?),
            Call::NodesVictims(call) => Reply::NodesVictims(nodes::victims(&call, table, cluster)?),
            Call::PodsEvict(call) => Reply::PodsEvict(table.evict(&call, cluster)),
            Call::EventRecord(call) => {
                cluster.record_event(&call);
                Reply::Done(v1::Done {})
            }
            Call::MetricAdd(call) => {
                self.count(call);
                Reply::Done(v1::Done {})
            }
            Call::MetricObserve(call) => {
                self.observe(call);
                Reply::Done(v1::Done {})
            }
        })
    }

    /// A pod was added or updated. A held one that has left its group is rejected.
    pub fn pod_changed(&mut self, pod: &Pod, cluster: &mut dyn Cluster) {
        self.table.pod_changed(pod, cluster);
    }

    /// A pod is gone from the API.
    pub fn pod_deleted(&mut self, uid: &str) {
        self.table.pod_deleted(uid);
    }

    /// A node is gone: who is held on it is rejected.
    pub fn node_gone(&mut self, name: &str, cluster: &mut dyn Cluster) {
        self.table.node_gone(name, cluster);
    }

    /// A custom resource was added, updated or deleted: activates the unscheduled members of the group it describes.
    pub fn object_changed(&mut self, resource: &v1::Resource, namespace: &str, name: &str, cluster: &mut dyn Cluster) {
        self.table.object_changed(resource, namespace, name, cluster);
    }

    /// When [`Bridge::fire`] is due next, Unix milliseconds.
    #[must_use]
    pub fn next_timer(&self) -> Option<i64> {
        self.table.next_timer()
    }

    /// Does what is due at the cluster's clock: deadlines of holds, ends of backoffs.
    pub fn fire(&mut self, cluster: &mut dyn Cluster) {
        self.table.fire(cluster);
    }

    /// What the guest counted and observed, by name and labels.
    #[must_use]
    pub fn metrics(&self) -> &BTreeMap<(String, BTreeMap<String, String>), Metric> {
        &self.metrics
    }

    fn count(&mut self, call: v1::MetricAdd) {
        if call.value.is_finite() && call.value >= 0.0 && valid_metric(&call.name, &call.labels) {
            let series = self.metrics.entry((call.name, call.labels)).or_insert(Metric::Counter(0.0));
            if let Metric::Counter(total) = series {
                *total += call.value;
            }
        }
    }

    fn observe(&mut self, call: v1::MetricObserve) {
        if call.value.is_finite() && valid_metric(&call.name, &call.labels) {
            let series = self.metrics.entry((call.name, call.labels)).or_insert(Metric::Histogram(Vec::new()));
            if let Metric::Histogram(values) = series {
                values.push(call.value);
            }
        }
    }
}

fn error(code: Code, message: impl Into<String>) -> v1::Error {
    v1::Error { code: code.into(), message: message.into() }
}

/// Whether Prometheus takes these names.
fn valid_metric(name: &str, labels: &BTreeMap<String, String>) -> bool {
    let word = |s: &str, colon: bool| {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || (colon && c == ':');
        s.starts_with(letter) && s.chars().all(|c| letter(c) || c.is_ascii_digit())
    };
    word(name, true) && labels.keys().all(|l| word(l, false) && !l.starts_with("__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_add_up_and_bad_ones_are_dropped() {
        let mut bridge =
            Bridge::new(Identity { plugin: "p".into(), profile: "d".into(), kubernetes: "v1.32.5".into() });
        let labels = |name: &str| BTreeMap::from([(name.to_owned(), "x".to_owned())]);
        for (name, label, value) in [
            ("a_total", "l", 1.0),
            ("a_total", "l", 2.5),
            ("a_total", "l", -1.0),
            ("a_total", "l", f64::NAN),
            ("a_total", "__l", 1.0),
            ("a_total", "l-l", 1.0),
            ("1a_total", "l", 1.0),
            ("", "l", 1.0),
        ] {
            bridge.count(v1::MetricAdd { name: name.into(), labels: labels(label), value, ..Default::default() });
        }
        for (name, value) in [("b_seconds", 2.0), ("b_seconds", 1.0), ("b_seconds", f64::INFINITY), ("a_total", 9.0)] {
            bridge.observe(v1::MetricObserve { name: name.into(), labels: labels("l"), value, ..Default::default() });
        }
        let series: Vec<_> =
            bridge.metrics().iter().map(|((name, _), metric)| (name.as_str(), metric.clone())).collect();
        assert_eq!(series, [("a_total", Metric::Counter(3.5)), ("b_seconds", Metric::Histogram(vec![2.0, 1.0]))]);
    }
}
