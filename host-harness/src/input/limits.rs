//! What the input asks for and the harness doesn't do, or can't know: said, never passed over.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::load::Loaded;

/// A note for each such thing.
pub(super) fn of(loaded: &Loaded) -> Vec<String> {
    let mut notes: Vec<String> = loaded.configuration.iter().flat_map(|c| c.notes.clone()).collect();
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let claims: BTreeSet<(&str, &str)> = of_kind(loaded, "PersistentVolumeClaim").map(name).collect();
    let classes: BTreeSet<&str> = of_kind(loaded, "PriorityClass").map(|class| name(class).1).collect();
    // A scenario may bring it later.
    let lacks_class = |class: &str| {
        !class.is_empty() && !class.starts_with("system-") && !classes.contains(class) && loaded.scenarios.is_empty()
    };
    for pod in of_kind(loaded, "Pod") {
        let (namespace, pod_name) = name(pod);
        let mut find = |what: String| {
            found.entry(what).or_insert_with(|| (0, format!("{namespace}/{pod_name}"))).0 += 1;
        };
        let spec = &pod["spec"];
        if spec["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty()) {
            find("not simulated: dynamic resource allocation (resourceClaims) of".to_owned());
        }
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if ended || spec["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            continue;
        }
        let absent = |volume: &Json| {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
            claim.is_some_and(|claim| !claims.contains(&(namespace, claim)))
        };
        if let Some(class) = spec["priorityClassName"].as_str().filter(|class| lacks_class(class)) {
            let what = match spec["priority"].as_i64() {
                Some(_) => "which keeps the priority it carries:",
                None => "without which the API server refuses",
            };
            find(format!("the input lacks PriorityClass {class} (`kubectl get priorityclasses -o yaml`), {what}"));
        }
        if spec["volumes"].as_array().into_iter().flatten().any(absent) {
            find(
                "the input lacks a PersistentVolumeClaim (`kubectl get pvc,pv,storageclasses -A -o yaml`), which keeps waiting"
                    .to_owned(),
            );
        }
        let scheduler = spec["schedulerName"].as_str().unwrap_or("default-scheduler");
        if let Some(configuration) = &loaded.configuration
            && !configuration.profiles.contains_key(scheduler)
        {
            find(format!("no profile of the configuration has the schedulerName {scheduler}, which leaves alone"));
        }
    }
    notes.extend(found.into_iter().map(|(what, (count, first))| match count {
        1 => format!("{what} pod {first}"),
        _ => format!("{what} {count} pods, {first} first"),
    }));
    notes
}

fn of_kind<'a>(loaded: &'a Loaded, kind: &'static str) -> impl Iterator<Item = &'a Json> {
    loaded.arrivals.iter().map(|arrival| &arrival.object).filter(move |object| object["kind"] == kind)
}

fn name(object: &Json) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}
