//! Checks manifests as `kubectl --validate=strict` does: every field must exist in Kubernetes and have its type.
//!
//! The typed objects of [`k8s_openapi`] are the schema, so a field that exists but that the harness doesn't model is fine.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps, batch, core, policy, scheduling, storage};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::document::{Error, Value};

/// What the harness does with objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is part of the simulated cluster.
    Modelled,
    /// Its controller would make pods of it.
    Workload,
    /// It has a part in scheduling that the harness doesn't play: what lacks.
    NotSimulated(&'static str),
    /// It has no part in scheduling.
    NoPart,
}

/// A kind of object, as its API version and name tell it.
#[derive(Clone, Copy)]
pub struct Kind {
    /// `v1`, `apps/v1`, …
    pub api_version: &'static str,
    /// `Pod`, `Job`, …
    pub kind: &'static str,
    /// Whether it lives in a namespace.
    pub namespaced: bool,
    /// What it is for.
    pub used: Use,
    check: fn(&Value, &mut Vec<(String, u32)>) -> Result<(), Error>,
}

/// Every kind that is read.
pub const KINDS: &[Kind] = &[
    kind::<core::v1::Node>("v1", "Node", false, Use::Modelled),
    kind::<core::v1::Pod>("v1", "Pod", true, Use::Modelled),
    kind::<scheduling::v1::PriorityClass>("scheduling.k8s.io/v1", "PriorityClass", false, Use::Modelled),
    kind::<policy::v1::PodDisruptionBudget>("policy/v1", "PodDisruptionBudget", true, Use::Modelled),
    kind::<Custom<PodGroupSpec>>("scheduling.x-k8s.io/v1alpha1", "PodGroup", true, Use::Modelled),
    kind::<Custom<VolcanoPodGroupSpec>>("scheduling.volcano.sh/v1beta1", "PodGroup", true, Use::Modelled),
    kind::<Custom<QueueSpec>>("scheduling.volcano.sh/v1beta1", "Queue", false, Use::Modelled),
    kind::<core::v1::Namespace>("v1", "Namespace", false, Use::Modelled),
    kind::<core::v1::Service>("v1", "Service", true, Use::Modelled),
    kind::<core::v1::PersistentVolumeClaim>("v1", "PersistentVolumeClaim", true, Use::Modelled),
    kind::<core::v1::PersistentVolume>("v1", "PersistentVolume", false, Use::Modelled),
    kind::<storage::v1::StorageClass>("storage.k8s.io/v1", "StorageClass", false, Use::Modelled),
    kind::<batch::v1::Job>("batch/v1", "Job", true, Use::Workload),
    kind::<core::v1::ReplicationController>("v1", "ReplicationController", true, Use::Workload),
    kind::<apps::v1::ReplicaSet>("apps/v1", "ReplicaSet", true, Use::Workload),
    kind::<apps::v1::Deployment>("apps/v1", "Deployment", true, Use::Workload),
    kind::<apps::v1::StatefulSet>("apps/v1", "StatefulSet", true, Use::Workload),
    left_out("apps/v1", "DaemonSet", true, Use::NotSimulated(NO_PODS)),
    left_out("batch/v1", "CronJob", true, Use::NotSimulated(NO_PODS)),
    left_out("storage.k8s.io/v1", "CSINode", false, Use::NotSimulated("limits of volumes per node")),
    left_out("storage.k8s.io/v1", "CSIStorageCapacity", true, Use::NotSimulated("capacity of storage")),
    left_out("resource.k8s.io/v1beta1", "ResourceClaim", true, Use::NotSimulated(DYNAMIC)),
    left_out("resource.k8s.io/v1beta1", "ResourceClaimTemplate", true, Use::NotSimulated(DYNAMIC)),
    left_out("resource.k8s.io/v1beta1", "ResourceSlice", false, Use::NotSimulated(DYNAMIC)),
    left_out("resource.k8s.io/v1beta1", "DeviceClass", false, Use::NotSimulated(DYNAMIC)),
    left_out("v1", "LimitRange", true, Use::NotSimulated("its defaults; pods of a dump have them")),
    left_out("v1", "ResourceQuota", true, Use::NotSimulated("quota at admission")),
    left_out("node.k8s.io/v1", "RuntimeClass", false, Use::NotSimulated("its overhead; pods of a dump have it")),
    left_out("storage.k8s.io/v1", "CSIDriver", false, Use::NoPart),
    left_out("storage.k8s.io/v1", "VolumeAttachment", false, Use::NoPart),
    left_out("apps/v1", "ControllerRevision", true, Use::NoPart),
    left_out("v1", "ConfigMap", true, Use::NoPart),
    left_out("v1", "Secret", true, Use::NoPart),
    left_out("v1", "ServiceAccount", true, Use::NoPart),
    left_out("v1", "Endpoints", true, Use::NoPart),
    left_out("v1", "Event", true, Use::NoPart),
    left_out("events.k8s.io/v1", "Event", true, Use::NoPart),
    left_out("discovery.k8s.io/v1", "EndpointSlice", true, Use::NoPart),
    left_out("rbac.authorization.k8s.io/v1", "Role", true, Use::NoPart),
    left_out("rbac.authorization.k8s.io/v1", "RoleBinding", true, Use::NoPart),
    left_out("rbac.authorization.k8s.io/v1", "ClusterRole", false, Use::NoPart),
    left_out("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false, Use::NoPart),
    left_out("networking.k8s.io/v1", "Ingress", true, Use::NoPart),
    left_out("networking.k8s.io/v1", "NetworkPolicy", true, Use::NoPart),
    left_out("autoscaling/v2", "HorizontalPodAutoscaler", true, Use::NoPart),
    left_out("coordination.k8s.io/v1", "Lease", true, Use::NoPart),
    left_out("apiextensions.k8s.io/v1", "CustomResourceDefinition", false, Use::NoPart),
];

const NO_PODS: &str = "its controller; give its pods";
const DYNAMIC: &str = "dynamic resource allocation";

const fn kind<T: DeserializeOwned>(api_version: &'static str, kind: &'static str, namespaced: bool, used: Use) -> Kind {
    Kind {
        api_version,
        kind,
        namespaced,
        used,
        check: |value, unknown| value.read_noting_unknown::<T>(unknown).map(drop),
    }
}

/// A kind whose objects aren't looked at.
const fn left_out(api_version: &'static str, kind: &'static str, namespaced: bool, used: Use) -> Kind {
    Kind { api_version, kind, namespaced, used, check: |_, _| Ok(()) }
}

/// The kind that the object says it is; `None` for a custom resource that nothing is known of.
///
/// # Errors
/// `apiVersion` or `kind` lacks, or the two name nothing that is read and look like a slip; the text lists what could be
/// meant.
pub fn kind_of(object: &Value) -> Result<Option<&'static Kind>, Error> {
    let field = |name: &str| {
        let value = object.get(name).ok_or_else(|| Error::new(object.line, format!("the object has no {name}")))?;
        value.as_str().ok_or_else(|| Error::new(value.line, format!("{name} is not a string")))
    };
    let (api_version, kind) = (field("apiVersion")?, field("kind")?);
    if let Some(known) = KINDS.iter().find(|k| k.api_version == api_version && k.kind == kind) {
        return Ok(Some(known));
    }
    let line = object.get("kind").map(|v| v.line);
    let versions: Vec<_> = KINDS.iter().filter(|k| k.kind == kind).map(|k| k.api_version).collect();
    if !versions.is_empty() {
        let message = format!("{kind} of {api_version} is not read; use {}", versions.join(" or "));
        return Err(Error::new(line, message));
    }
    // Kubernetes' own groups have no dot, or end so; a group that something is read of is known, too.
    let group = |version: &'_ str| version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    let own = group(api_version);
    let custom = own.contains('.') && !own.ends_with(".k8s.io") && KINDS.iter().all(|k| group(k.api_version) != own);
    if custom {
        return Ok(None);
    }
    let read = |k: &&Kind| matches!(k.used, Use::Modelled | Use::Workload);
    let mut known: Vec<_> = KINDS.iter().filter(read).map(|k| k.kind).collect();
    known.dedup();
    Err(Error::new(line, format!("unknown kind {kind} of {api_version}; read are {}", known.join(", "))))
}

/// Checks an object against its kind: all its faults, by line.
pub fn check(object: &Value, kind: &Kind) -> Vec<Error> {
    let mut unknown = Vec::new();
    let mut errors = Vec::new();
    if let Err(e) = (kind.check)(object, &mut unknown) {
        errors.push(e);
    }
    // A newer cluster reports more than is known here; of a Node's status, which people write, it matters.
    unknown.retain(|(path, _)| kind.kind == "Node" || !path.starts_with("status."));
    errors.extend(unknown.into_iter().map(|(path, line)| Error::new(line, format!("unknown field \"{path}\""))));
    errors.sort_by_key(|e| e.line);
    errors
}

/// A custom resource of which the spec matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the fields are the schema")]
struct Custom<Spec> {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Json>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the fields are the schema")]
struct PodGroupSpec {
    min_member: Option<i32>,
    min_resources: Option<BTreeMap<String, Quantity>>,
    schedule_timeout_seconds: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the fields are the schema")]
struct VolcanoPodGroupSpec {
    min_member: Option<i32>,
    min_task_member: Option<BTreeMap<String, i32>>,
    queue: Option<String>,
    priority_class_name: Option<String>,
    min_resources: Option<BTreeMap<String, Quantity>>,
    network_topology: Option<Json>,
    sub_group_policy: Option<Json>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "the fields are the schema")]
struct QueueSpec {
    weight: Option<i32>,
    capability: Option<BTreeMap<String, Quantity>>,
    deserved: Option<BTreeMap<String, Quantity>>,
    guarantee: Option<Json>,
    reclaimable: Option<bool>,
    priority: Option<i32>,
    parent: Option<String>,
    affinity: Option<Json>,
    #[serde(rename = "type")]
    queue_type: Option<String>,
    extend_clusters: Option<Json>,
    dequeue_strategy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::parse;

    fn faults(text: &str) -> Vec<String> {
        let docs = parse(text).unwrap();
        match kind_of(&docs[0]) {
            Ok(kind) => kind.iter().flat_map(|kind| check(&docs[0], kind)).map(|e| e.to_string()).collect(),
            Err(e) => vec![e.to_string()],
        }
    }

    #[test]
    fn names_the_field_and_the_line() {
        let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n{spec}");
        for (text, want) in [
            (pod("  containers:\n  - name: m\n    image: i\n"), vec![]),
            (pod("  containers: []\n  nodeSelectr: {a: b}\n"), vec!["line 7: unknown field \"spec.nodeSelectr\""]),
            (
                pod("  containers:\n  - name: m\n    resources:\n      request: {cpu: 1}\n"),
                vec!["line 9: unknown field \"spec.containers.0.resources.request\""],
            ),
            (
                pod("  containers:\n  - name: m\n    resources:\n      requests:\n        cpu: 1Ki5\n"),
                vec!["line 10: `1Ki5` is not a quantity; write a number with a suffix of m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi or Ei, as in 500m or 2Gi"],
            ),
            (pod("  containers: []\n  priority: high\n"), vec!["line 7: invalid type: string \"high\", expected i32"]),
            ("apiVersion: v1\nkind: Pd\n".to_owned(), vec![
                "line 2: unknown kind Pd of v1; read are Node, Pod, PriorityClass, PodDisruptionBudget, PodGroup, Queue, Namespace, Service, PersistentVolumeClaim, PersistentVolume, StorageClass, Job, ReplicationController, ReplicaSet, Deployment, StatefulSet",
            ]),
            ("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n".to_owned(), vec![]),
            ("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {a: b}\n".to_owned(), vec![]),
            (pod("  containers: []\nstatus: {phase: Pending, newInTheNextVersion: 1}\n"), vec![]),
            (
                "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec: {minMember: 2}\n\
                 status: {phase: Running, scheduled: 2}\n"
                    .to_owned(),
                vec![],
            ),
            (
                "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g}\n\
                 spec: {minMember: 2, networkTopology: {mode: hard}, subGroupPolicy: [{name: a}]}\nstatus: {phase: Running}\n"
                    .to_owned(),
                vec![],
            ),
            (
                "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n\
                 spec: {weight: 2, guarantee: {resource: {cpu: 1}}, affinity: {}, extendClusters: []}\nstatus: {state: Open}\n"
                    .to_owned(),
                vec![],
            ),
            ("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus:\n  allocatabel: {cpu: 1}\n".to_owned(), vec![
                "line 5: unknown field \"status.allocatabel\"",
            ]),
            ("apiVersion: v1\nkind: PodGroup\n".to_owned(), vec![
                "line 2: PodGroup of v1 is not read; use scheduling.x-k8s.io/v1alpha1 or scheduling.volcano.sh/v1beta1",
            ]),
            (
                "apiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\nspec:\n  minMembers: 3\n".to_owned(),
                vec!["line 5: unknown field \"spec.minMembers\""],
            ),
        ] {
            assert_eq!(faults(&text), want, "{text}");
        }
    }
}
