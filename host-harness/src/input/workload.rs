//! The pods that the controllers of Jobs, ReplicaSets, Deployments and StatefulSets would make.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::load::{Arrival, Loaded, Problem};

/// More than the largest clusters run.
const MOST_PODS: i64 = 1_000_000;

/// Adds the pods of the workloads. A workload whose pods are already in the input makes none: the input is then a dump of a
/// cluster where its controller has run.
///
/// # Errors
/// Numbers of pods that no cluster has, and pods whose names stand in the input already.
pub(super) fn expand(loaded: &mut Loaded, workloads: &[Arrival]) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    let pod_name = |pod: &Json| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    };
    let pods = loaded.arrivals.iter().filter(|a| a.object["kind"] == "Pod");
    let mut names: BTreeSet<(String, String)> = pods.map(|a| pod_name(&a.object)).collect();
    let owners: BTreeSet<String> =
        loaded.arrivals.iter().chain(workloads).flat_map(|a| owner_keys(&a.object).collect::<Vec<_>>()).collect();
    for workload in workloads {
        let object = &workload.object;
        if owners.contains(&key(&object["kind"], &object["metadata"]["namespace"], &object["metadata"]["name"])) {
            continue;
        }
        let count = match object["kind"].as_str() {
            Some("Job") => parallelism(object),
            _ => object["spec"]["replicas"].as_i64().unwrap_or(1),
        };
        let what = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        let mut problem = |message: String| {
            let line = Some(workload.origin.line);
            problems.push(Problem { file: workload.origin.file.to_string(), line, message });
        };
        if !(0..=MOST_PODS).contains(&count) {
            problem(format!("{what} asks for {count} pods; it must be from 0 to {MOST_PODS}"));
            continue;
        }
        let later = object["spec"]["completions"].as_i64().unwrap_or(0) - count;
        if object["kind"] == "Job" && count > 0 && later > 0 {
            loaded.notes.push(format!(
                "{}: {what} makes its first {count} pods only; the {later} that follow when those end aren't simulated",
                workload.origin
            ));
        }
        if object["spec"]["volumeClaimTemplates"].as_array().is_some_and(|claims| !claims.is_empty()) {
            loaded.notes.push(format!(
                "{}: {what} has volumeClaimTemplates, which aren't simulated: its pods come without those volumes",
                workload.origin
            ));
        }
        if object["kind"] == "StatefulSet" && count > 1 && object["spec"]["podManagementPolicy"] != "Parallel" {
            loaded.notes.push(format!(
                "{}: {what} makes its pods one after another (podManagementPolicy OrderedReady), so a gang of them never \
                 completes; the replay makes them at once, as with Parallel",
                workload.origin,
            ));
        }
        // Its selector says which pods belong together, where the scheduler spreads them by default.
        if let Some(controller) = controller(object) {
            loaded.arrivals.push(Arrival { object: controller, ..workload.clone() });
        }
        for index in 0..count {
            let object = pod(object, index);
            let (namespace, name) = pod_name(&object);
            if !names.insert((namespace.clone(), name.clone())) {
                problem(format!(
                    "{what} makes the pod {namespace}/{name}, which stands in the input already; rename one"
                ));
                break;
            }
            loaded.arrivals.push(Arrival { object, ..workload.clone() });
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
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
fn parallelism(job: &Json) -> i64 {
    let ended = job["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True");
    if ended || job["spec"]["suspend"] == true {
        return 0;
    }
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    job["spec"]["completions"].as_i64().map_or(parallelism, |completions| {
        parallelism.min(completions.saturating_sub(job["status"]["succeeded"].as_i64().unwrap_or(0)).max(0))
    })
}

/// With the labels that its controller gives it, which other pods may select.
fn pod(workload: &Json, index: i64) -> Json {
    let template = &workload["spec"]["template"];
    let meta = &workload["metadata"];
    let (name, uid) = (text(&meta["name"]), text(&meta["uid"]));
    let index = match workload["kind"].as_str() {
        Some("StatefulSet") => index + workload["spec"]["ordinals"]["start"].as_i64().unwrap_or(0),
        _ => index,
    };
    let mut metadata = template["metadata"].clone();
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["name"] = json!(format!("{name}-{index}"));
    metadata["namespace"] = meta["namespace"].clone();
    let (version, kind) = owner_kind(workload);
    metadata["ownerReferences"] = json!([{
        "apiVersion": version, "kind": kind, "name": name, "controller": true, "uid": uid,
    }]);
    if workload["kind"] == "Job" {
        for prefix in ["", "batch.kubernetes.io/"] {
            metadata["labels"][format!("{prefix}job-name")] = json!(name);
            metadata["labels"][format!("{prefix}controller-uid")] = json!(uid);
        }
        if workload["spec"]["completionMode"] == "Indexed" {
            for place in ["labels", "annotations"] {
                metadata[place]["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
            }
        }
    }
    if workload["kind"] == "StatefulSet" {
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = metadata["name"].clone();
        metadata["labels"]["apps.kubernetes.io/pod-index"] = json!(index.to_string());
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
