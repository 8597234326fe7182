//! The pods that the controllers of Jobs, ReplicaSets, Deployments and StatefulSets would make.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::load::{Arrival, Loaded};

/// Adds the pods of the workloads. A workload whose pods are already in the input makes none: the input is then a dump of a
/// cluster where its controller has run.
pub(super) fn expand(loaded: &mut Loaded, workloads: &[Arrival]) {
    let owners: BTreeSet<String> =
        loaded.arrivals.iter().chain(workloads).flat_map(|a| owner_keys(&a.object).collect::<Vec<_>>()).collect();
    for workload in workloads {
        let object = &workload.object;
        if owners.contains(&key(&object["kind"], &object["metadata"]["namespace"], &object["metadata"]["name"])) {
            continue;
        }
        let count = match object["kind"].as_str() {
            Some("Job") => parallelism(object),
            _ => object["spec"]["replicas"].as_u64().unwrap_or(1),
        };
        if object["kind"] == "StatefulSet" && count > 1 && object["spec"]["podManagementPolicy"] != "Parallel" {
            loaded.notes.push(format!(
                "{}: StatefulSet {} makes its pods one after another (podManagementPolicy OrderedReady), so a gang of them never \
                 completes; the replay makes them at once, as with Parallel",
                workload.origin,
                object["metadata"]["name"].as_str().unwrap_or_default()
            ));
        }
        // Its selector says which pods belong together, where the scheduler spreads them by default.
        if let Some(controller) = controller(object) {
            loaded.arrivals.push(Arrival { object: controller, ..workload.clone() });
        }
        for index in 0..count {
            loaded.arrivals.push(Arrival { object: pod(object, index), ..workload.clone() });
        }
    }
}

/// The object that the pods are owned by, if the scheduler reads it: a Deployment's pods are its ReplicaSet's.
fn controller(workload: &Json) -> Option<Json> {
    let (version, kind) = owner_kind(workload);
    let meta = json!({"name": workload["metadata"]["name"], "namespace": workload["metadata"]["namespace"]});
    let selector = &workload["spec"]["selector"];
    (kind != "Job")
        .then(|| json!({"apiVersion": version, "kind": kind, "metadata": meta, "spec": {"selector": selector}}))
}

/// API version and kind of the pods' owner.
fn owner_kind(workload: &Json) -> (&Json, &str) {
    match workload["kind"].as_str().unwrap_or_default() {
        "Deployment" => (&workload["apiVersion"], "ReplicaSet"),
        kind => (&workload["apiVersion"], kind),
    }
}

/// How many pods of a Job run at once: none of a suspended or finished one.
fn parallelism(job: &Json) -> u64 {
    let ended = job["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True");
    if ended || job["spec"]["suspend"] == true {
        return 0;
    }
    let parallelism = job["spec"]["parallelism"].as_u64().unwrap_or(1);
    job["spec"]["completions"].as_u64().map_or(parallelism, |completions| {
        parallelism.min(completions.saturating_sub(job["status"]["succeeded"].as_u64().unwrap_or(0)))
    })
}

fn pod(workload: &Json, index: u64) -> Json {
    let template = &workload["spec"]["template"];
    let meta = &workload["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let mut metadata = template["metadata"].clone();
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["name"] = json!(format!("{name}-{index}"));
    metadata["namespace"] = meta["namespace"].clone();
    let (version, kind) = owner_kind(workload);
    metadata["ownerReferences"] = json!([{
        "apiVersion": version, "kind": kind, "name": name, "controller": true,
        "uid": meta["uid"].as_str().unwrap_or_default(),
    }]);
    if workload["kind"] == "Job" {
        metadata["labels"]["batch.kubernetes.io/job-name"] = json!(name);
        if workload["spec"]["completionMode"] == "Indexed" {
            metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn owner_keys(object: &Json) -> impl Iterator<Item = String> + '_ {
    let namespace = &object["metadata"]["namespace"];
    object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(move |o| key(&o["kind"], namespace, &o["name"]))
}

fn key(kind: &Json, namespace: &Json, name: &Json) -> String {
    format!("{kind}/{namespace}/{name}")
}
