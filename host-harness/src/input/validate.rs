//! Values of the right type that the API server refuses all the same. Such a pod would only look like one that can't be
//! scheduled.

use super::document::{Error, Node, Value};
use super::strict::{Kind, Use};
use crate::scenario::{ARRIVE_ANNOTATION, COLLECTIVE_ANNOTATION, DURATION_ANNOTATION, START_TIMEOUT_ANNOTATION};

const ANNOTATIONS: [&str; 4] =
    [ARRIVE_ANNOTATION, DURATION_ANNOTATION, COLLECTIVE_ANNOTATION, START_TIMEOUT_ANNOTATION];
const EFFECTS: &[&str] = &["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
const NODE_OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
const LABEL_OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Words that a field of a pod's spec may hold; `*` is each item of a list or value of a mapping.
const WORDS: &[(&[&str], &[&str])] = &[
    (&["restartPolicy"], &["Always", "OnFailure", "Never"]),
    (&["preemptionPolicy"], &["PreemptLowerPriority", "Never"]),
    (&["tolerations", "*", "operator"], &["", "Equal", "Exists"]),
    (&["tolerations", "*", "effect"], EFFECTS),
    (&["topologySpreadConstraints", "*", "whenUnsatisfiable"], &["DoNotSchedule", "ScheduleAnyway"]),
    (&["topologySpreadConstraints", "*", "labelSelector", "matchExpressions", "*", "operator"], LABEL_OPERATORS),
    (
        &["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms", "*", "matchExpressions", "*", "operator"],
        NODE_OPERATORS,
    ),
    (&["affinity", "nodeAffinity", PREFERRED, "*", "preference", "matchExpressions", "*", "operator"], NODE_OPERATORS),
    (
        &["affinity", "podAffinity", REQUIRED, "*", "labelSelector", "matchExpressions", "*", "operator"],
        LABEL_OPERATORS,
    ),
    (
        &["affinity", "podAntiAffinity", REQUIRED, "*", "labelSelector", "matchExpressions", "*", "operator"],
        LABEL_OPERATORS,
    ),
];

/// Numbers that a field of a pod's spec may hold, from and to.
const NUMBERS: &[(&[&str], i64, i64)] = &[
    (&["topologySpreadConstraints", "*", "maxSkew"], 1, i32::MAX as i64),
    (&["topologySpreadConstraints", "*", "minDomains"], 1, i32::MAX as i64),
    (&["containers", "*", "ports", "*", "containerPort"], 1, 65_535),
    (&["containers", "*", "ports", "*", "hostPort"], 0, 65_535),
    (&["terminationGracePeriodSeconds"], 0, i64::MAX),
];

/// Amounts, which aren't negative.
const POD_AMOUNTS: &[&[&str]] = &[
    &["containers", "*", "resources", "requests", "*"],
    &["containers", "*", "resources", "limits", "*"],
    &["initContainers", "*", "resources", "requests", "*"],
    &["initContainers", "*", "resources", "limits", "*"],
    &["overhead", "*"],
];

/// All such values of an object, by line.
pub(super) fn check(object: &Value, kind: &Kind) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut fault = |value: &Value, message: String| errors.push(Error::new(value.line, message));
    if let Some(name) = object.at(&["metadata", "name"])
        && let Some(text) = name.as_str()
        && !is_subdomain(text)
    {
        fault(
            name,
            format!(
                "the name `{text}` has more than lower-case letters, digits, - and ., or another than these ends it"
            ),
        );
    }
    let pod = match (kind.kind, kind.used) {
        ("Pod", _) => Some(object),
        (_, Use::Workload) => object.at(&["spec", "template"]),
        _ => None,
    };
    // A pod is its own template.
    let template = pod.filter(|_| kind.kind != "Pod");
    for place in [Some(object), template].into_iter().flatten() {
        let Some(Node::Map(annotations)) = place.at(&["metadata", "annotations"]).map(|a| &a.node) else { continue };
        for (key, value) in annotations {
            if key.name.starts_with("tutti.dev/") && !ANNOTATIONS.contains(&key.name.as_str()) {
                fault(value, format!("{} is no annotation of ours; there are {}", key.name, ANNOTATIONS.join(", ")));
            }
        }
    }
    if let Some(spec) = pod.and_then(|pod| pod.get("spec")) {
        for (path, words) in WORDS {
            each(spec, path, &mut |value| match value.as_str() {
                Some(word) if !words.contains(&word) => {
                    let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).copied().collect();
                    fault(value, format!("{} `{word}` is none of {}", last(path), words.join(", ")));
                }
                _ => {}
            });
        }
        for &(path, from, to) in NUMBERS {
            each(spec, path, &mut |value| {
                if let Node::Number(number) = &value.node
                    && !number.as_i64().is_some_and(|n| (from..=to).contains(&n))
                {
                    fault(value, format!("{} {number} is not from {from} to {to}", last(path)));
                }
            });
        }
        for path in POD_AMOUNTS {
            each(spec, path, &mut |value| amount(value, &mut fault));
        }
    }
    if kind.kind == "Node" {
        each(object, &["status", "allocatable", "*"], &mut |value| amount(value, &mut fault));
        each(object, &["spec", "taints", "*", "effect"], &mut |value| match value.as_str() {
            Some(word) if !EFFECTS[1..].contains(&word) => {
                fault(value, format!("effect `{word}` is none of {}", EFFECTS[1..].join(", ")));
            }
            _ => {}
        });
    }
    errors.sort_by_key(|e| e.line);
    errors
}

fn amount(value: &Value, fault: &mut dyn FnMut(&Value, String)) {
    let text = match &value.node {
        Node::Text(text) => text.clone(),
        Node::Number(number) => number.to_string(),
        _ => return,
    };
    if text.starts_with('-') {
        fault(value, format!("the quantity {text} is negative"));
    }
}

fn last<'a>(path: &[&'a str]) -> &'a str {
    path.last().copied().unwrap_or_default()
}

/// Shows each value at the path.
fn each(value: &Value, path: &[&str], see: &mut dyn FnMut(&Value)) {
    match (path, &value.node) {
        ([], _) => see(value),
        (["*", rest @ ..], Node::List(items)) => items.iter().for_each(|item| each(item, rest, see)),
        (["*", rest @ ..], Node::Map(entries)) => entries.iter().for_each(|(_, item)| each(item, rest, see)),
        ([key, rest @ ..], _) => {
            if let Some(value) = value.get(key) {
                each(value, rest, see);
            }
        }
    }
}

/// A DNS subdomain as RFC 1123 has it, which most objects are named by.
fn is_subdomain(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253 && text.chars().all(inner) && text.starts_with(outer) && text.ends_with(outer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::parse;
    use crate::input::strict::kind_of;

    #[test]
    fn refuses_what_the_api_server_refuses() {
        let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  {spec}");
        for (text, want) in [
            (pod("tolerations: [{operator: exists}]"), "line 5: operator `exists` is none of Equal, Exists"),
            (pod("tolerations: [{operator: Exists, effect: Foo}]"), "line 5: effect `Foo` is none of NoSchedule"),
            (pod("tolerations: [{operator: Exists, effect: ''}]"), ""),
            (pod("topologySpreadConstraints: [{whenUnsatisfiable: Foo}]"), "line 5: whenUnsatisfiable `Foo`"),
            (pod("topologySpreadConstraints: [{maxSkew: 0}]"), "line 5: maxSkew 0 is not from 1"),
            (
                pod(&format!(
                    "affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: [{{operator: in}}]}}]}}}}}}"
                )),
                "line 5: operator `in` is none of In,",
            ),
            (pod("containers: [{ports: [{hostPort: 70000}]}]"), "line 5: hostPort 70000 is not from 0 to 65535"),
            (pod("containers: [{resources: {requests: {cpu: -4}}}]"), "line 5: the quantity -4 is negative"),
            (
                pod("restartPolicy: Never").replace("name: a", "name: P q"),
                "line 3: the name `P q` has more than lower-case letters",
            ),
            (
                pod("restartPolicy: Never").replace("name: a", "name: a, annotations: {tutti.dev/duratoin: 5s}"),
                "line 3: tutti.dev/duratoin is no annotation of ours; there are tutti.dev/arrive",
            ),
            (
                "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {taints: [{effect: Never}]}".to_owned(),
                "line 4: effect `Never` is none of NoSchedule",
            ),
            (
                "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {restartPolicy: Sometimes}}}"
                    .to_owned(),
                "line 4: restartPolicy `Sometimes` is none of",
            ),
        ] {
            let document = &parse(&text).unwrap()[0];
            let kind = kind_of(document).unwrap().unwrap();
            let errors: Vec<_> = check(document, kind).iter().map(ToString::to_string).collect();
            let found = errors.first().map_or("", String::as_str);
            assert!(found.starts_with(want) && errors.len() == usize::from(!want.is_empty()), "{text}\n{errors:?}");
        }
    }
}
