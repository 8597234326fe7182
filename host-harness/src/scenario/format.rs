//! The scenario file: what it may hold, read strictly; see `docs/scenarios.md`.

use std::collections::BTreeMap;

use kube_scheduler_sdk::Quantity;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::pattern::{Count, Pattern, Ref, expand_range};
use crate::input::document::{Error, Value};
use crate::input::duration::Millis;
use crate::input::{quantity, strict};

/// `apiVersion` of a scenario.
pub(super) const API_VERSION: &str = "tutti.dev/v1";
/// `kind` of a scenario.
pub(super) const KIND: &str = "Scenario";
/// The label that makes a pod a member of a group.
pub const GROUP_LABEL: &str = "scheduling.x-k8s.io/pod-group";
/// How long a pod runs, on the pod.
pub const DURATION_ANNOTATION: &str = "tutti.dev/duration";
/// The pod works only while all pods of its namespace with the same value run.
pub const COLLECTIVE_ANNOTATION: &str = "tutti.dev/collective";
/// So long after the first pod of a collective runs, all must run, or its controller makes them all anew.
pub const START_TIMEOUT_ANNOTATION: &str = "tutti.dev/start-timeout";
/// When a pod, or the pods of a workload, come, on the object.
pub const ARRIVE_ANNOTATION: &str = "tutti.dev/arrive";

/// What happens, and what must come of it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The trouble it guards against.
    pub about: String,
    /// The row of `docs/cases.md`.
    pub case: Option<String>,
    /// Why it can't run on a real cluster, if it can't.
    pub harness_only: Option<String>,
    /// The plugin's arguments as JSON.
    pub config: Option<String>,
    /// Length of the run.
    pub until: Millis,
    /// What happens, in the order of the file.
    pub steps: Vec<Step>,
    /// What must hold.
    pub expect: Vec<Expectation>,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub struct Step {
    /// Line of the file.
    pub line: u32,
    /// Since the start, or since `when` came to hold.
    pub at: Millis,
    /// Time between the objects of a `create`.
    pub every: Millis,
    /// What it waits for.
    pub when: Option<Conditions>,
    /// The order of its objects must not matter.
    pub any_order: bool,
    /// What it does.
    pub action: Action,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Objects as the API server would store them, defaults apart.
    Create(Vec<Json>),
    /// Delete these.
    Delete(Vec<Ref>),
    /// Merge these.
    Patch(Vec<(Ref, Json)>),
    /// End these pods with `Succeeded` or `Failed`.
    Finish(Vec<(Pattern, String)>),
    /// Refuse so many bindings of each of these pods.
    FailBinds(Vec<(Pattern, u32)>),
    /// The API server doesn't answer the scheduler for so long.
    ApiAway(Millis),
    /// The scheduler is down for so long and has forgotten everything after.
    RestartScheduler(Millis),
}

/// Something that must hold.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// Line of the file.
    pub line: u32,
    /// When.
    pub moment: Moment,
    /// Start of the window of the counting conditions.
    pub since: Millis,
    /// What.
    pub conditions: Conditions,
}

/// When an expectation must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At this moment, after all that happens at it.
    At(Millis),
    /// At some moment up to this one.
    By(Millis),
    /// At every moment of `[from, to)`.
    Always(Millis, Millis),
    /// At no moment of `[from, to)`.
    Never(Millis, Millis),
}

/// Conditions that must all hold.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Pods that have a node.
    pub bound: Vec<(Pattern, Count)>,
    /// Pods in phase Running.
    pub running: Vec<(Pattern, Count)>,
    /// Pods held at Permit.
    pub waiting: Vec<(Pattern, Count)>,
    /// Pods that are in the API.
    pub exists: Vec<(Pattern, Count)>,
    /// Free room of nodes: node, resource, quantity.
    pub free: Vec<(String, String, Quantity)>,
    /// Text in the message of the PodScheduled condition.
    pub reason: Vec<(Pattern, String)>,
    /// Text in an event about an object.
    pub event: Vec<(Ref, String)>,
    /// Fields of an object.
    pub object: Vec<(Ref, Json)>,
    /// Pods let go in one release.
    pub together: Vec<Pattern>,
    /// Scheduling cycles.
    pub attempts: Vec<(Pattern, Count)>,
    /// Pods deleted by preemption.
    pub evicted: Vec<(Pattern, Count)>,
    /// Warning events.
    pub warnings: Vec<(Ref, Count)>,
    /// At least one of these holds; empty: no such demand.
    pub any_of: Vec<Conditions>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileText {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    case: Option<String>,
    harness_only: Option<String>,
    config: Option<BTreeMap<String, Json>>,
    until: Option<Millis>,
    steps: Vec<StepText>,
    expect: Vec<ExpectText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepText {
    #[serde(default)]
    at: Millis,
    #[serde(default)]
    every: Millis,
    when: Option<ConditionsText>,
    #[serde(default)]
    any_order: bool,
    create: Option<Vec<ItemText>>,
    delete: Option<Vec<String>>,
    patch: Option<Vec<PatchText>>,
    finish: Option<BTreeMap<String, String>>,
    fail_binds: Option<BTreeMap<String, u32>>,
    api_away: Option<Millis>,
    restart_scheduler: Option<Millis>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchText {
    object: String,
    with: Json,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ItemText {
    node: Option<Names>,
    allocatable: Option<BTreeMap<String, Json>>,
    labels: Option<BTreeMap<String, String>>,
    taints: Option<Json>,
    pod: Option<Names>,
    group: Option<String>,
    requests: Option<BTreeMap<String, Json>>,
    runs: Option<Millis>,
    #[serde(default)]
    collective: bool,
    start_timeout: Option<Millis>,
    priority: Option<i32>,
    node_name: Option<String>,
    pod_group: Option<Names>,
    min_member: Option<i32>,
    manifest: Option<Json>,
    with: Option<Json>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, as text in quotes where YAML reads something else (n, y, no, 1)")]
enum Names {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExpectText {
    at: Option<String>,
    by: Option<Millis>,
    always: Option<String>,
    never: Option<String>,
    #[serde(default)]
    since: Millis,
    #[serde(default)]
    bound: Counts,
    #[serde(default)]
    running: Counts,
    #[serde(default)]
    waiting: Counts,
    #[serde(default)]
    exists: Counts,
    #[serde(default)]
    free: BTreeMap<String, BTreeMap<String, Json>>,
    #[serde(default)]
    reason: BTreeMap<String, String>,
    #[serde(default)]
    event: BTreeMap<String, String>,
    #[serde(default)]
    object: BTreeMap<String, Json>,
    #[serde(default)]
    together: Vec<String>,
    #[serde(default)]
    attempts: Counts,
    #[serde(default)]
    evicted: Counts,
    #[serde(default)]
    warnings: Counts,
    #[serde(default)]
    any_of: Vec<ConditionsText>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConditionsText {
    bound: Counts,
    running: Counts,
    waiting: Counts,
    exists: Counts,
    free: BTreeMap<String, BTreeMap<String, Json>>,
    reason: BTreeMap<String, String>,
    event: BTreeMap<String, String>,
    object: BTreeMap<String, Json>,
    together: Vec<String>,
    attempts: Counts,
    evicted: Counts,
    warnings: Counts,
    any_of: Vec<ConditionsText>,
}

type Counts = BTreeMap<String, CountText>;

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or a comparison in quotes such as \">= 2\"")]
enum CountText {
    Exact(u64),
    Compared(String),
}

/// Whether the document says that it is a scenario.
#[must_use]
pub fn is_scenario(document: &Value) -> bool {
    let api = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    api == API_VERSION || (document.get("kind").and_then(Value::as_str) == Some(KIND) && api.starts_with("tutti.dev/"))
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// Every fault that can be told apart, each with its line.
    pub fn read(document: &Value) -> Result<Self, Vec<Error>> {
        let text = |key| document.get(key).and_then(Value::as_str);
        for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            if text(key) != Some(want) {
                let line = document.get(key).map_or(document.line, |v| v.line);
                return Err(vec![Error::new(line, format!("{key} is not {want}"))]);
            }
        }
        let file: FileText = document.read().map_err(|e| vec![e])?;
        let until = file.until.unwrap_or(Millis(60_000));
        let mut errors = Vec::new();
        let line_of = |list: &str, i: usize| {
            document.get(list).and_then(Value::as_list).and_then(|l| l.get(i)).map_or(document.line, |v| v.line)
        };
        let mut steps = Vec::new();
        for (i, step) in file.steps.into_iter().enumerate() {
            let lines = document.get("steps").and_then(Value::as_list).and_then(|l| l.get(i)?.get("create")?.as_list());
            match step.read(line_of("steps", i), lines.unwrap_or_default(), until) {
                Ok(step) => steps.push(step),
                Err(more) => errors.extend(more),
            }
        }
        let mut expect = Vec::new();
        for (i, expectation) in file.expect.into_iter().enumerate() {
            let line = line_of("expect", i);
            match expectation.read(line, until) {
                Ok(expectation) => expect.push(expectation),
                Err(message) => errors.push(Error::new(line, message)),
            }
        }
        if file.about.trim().is_empty() {
            errors.push(Error::new(document.line, "about is empty; say what trouble the scenario guards against"));
        }
        if !errors.is_empty() {
            errors.sort_by_key(|e| e.line);
            return Err(errors);
        }
        let config = file.config.map(|c| Json::Object(c.into_iter().collect()).to_string());
        let about = file.about.trim().to_owned();
        Ok(Self { about, case: file.case, harness_only: file.harness_only, config, until, steps, expect })
    }
}

impl StepText {
    fn read(self, line: u32, items: &[Value], until: Millis) -> Result<Step, Vec<Error>> {
        let one = |message: String| vec![Error::new(line, message)];
        let mut actions = Vec::new();
        let mut errors = Vec::new();
        if let Some(create) = self.create {
            let mut objects = Vec::new();
            for (i, item) in create.into_iter().enumerate() {
                let line = items.get(i).map_or(line, |v| v.line);
                match item.expand(line) {
                    Ok(made) => objects.extend(made),
                    Err(more) => errors.extend(more),
                }
            }
            actions.push(Action::Create(objects));
        }
        if let Some(delete) = self.delete {
            actions.push(Action::Delete(parse_all(&delete, Ref::parse).map_err(one)?));
        }
        if let Some(patch) = self.patch {
            let patches = patch.into_iter().map(|p| Ok((Ref::parse(&p.object)?, p.with)));
            actions.push(Action::Patch(patches.collect::<Result<_, _>>().map_err(one)?));
        }
        if let Some(finish) = self.finish {
            let mut pods = Vec::new();
            for (pattern, phase) in finish {
                if phase != "Succeeded" && phase != "Failed" {
                    return Err(one(format!("{pattern}: a pod finishes with Succeeded or Failed, not with `{phase}`")));
                }
                pods.push((Pattern::parse(&pattern).map_err(one)?, phase));
            }
            actions.push(Action::Finish(pods));
        }
        if let Some(fail) = self.fail_binds {
            let pods = fail.into_iter().map(|(pattern, n)| Ok((Pattern::parse(&pattern)?, n)));
            actions.push(Action::FailBinds(pods.collect::<Result<_, _>>().map_err(one)?));
        }
        actions.extend(self.api_away.map(Action::ApiAway));
        actions.extend(self.restart_scheduler.map(Action::RestartScheduler));
        let when = self.when.map(ConditionsText::read).transpose().map_err(one)?;
        if !errors.is_empty() {
            return Err(errors);
        }
        if when.is_none() && self.at > until {
            return Err(one(format!("the step is at {} but the run ends at {until}; see the field until", self.at)));
        }
        let count = actions.len();
        let mut actions = actions.into_iter();
        match (actions.next(), count) {
            (Some(action), 1) => {
                Ok(Step { line, at: self.at, every: self.every, when, any_order: self.any_order, action })
            }
            _ => Err(one(format!(
                "a step has exactly one action of create, delete, patch, finish, failBinds, apiAway and \
                 restartScheduler; this one has {count}"
            ))),
        }
    }
}

impl ItemText {
    /// The objects that the item stands for, each checked as `kubectl` would.
    fn expand(self, line: u32) -> Result<Vec<Json>, Vec<Error>> {
        let one = |message: &str| Err(vec![Error::new(line, message)]);
        let node_field = self.allocatable.is_some() || self.labels.is_some() || self.taints.is_some();
        let pod_field = self.group.is_some()
            || self.requests.is_some()
            || self.runs.is_some()
            || self.collective
            || self.start_timeout.is_some()
            || self.priority.is_some()
            || self.node_name.is_some();
        let what = [self.node.is_some(), self.pod.is_some(), self.pod_group.is_some(), self.manifest.is_some()];
        if what.iter().filter(|&&w| w).count() != 1 {
            return one("an item is one of node, pod, podGroup and manifest");
        }
        if node_field && self.node.is_none() {
            return one("allocatable, labels and taints are fields of a node");
        }
        if pod_field && self.pod.is_none() {
            return one("group, requests, runs, collective, startTimeout, priority and nodeName are fields of a pod");
        }
        if self.collective && self.group.is_none() || self.start_timeout.is_some() && !self.collective {
            return one("collective needs a group, and startTimeout needs collective");
        }
        if self.min_member.is_some() && self.pod_group.is_none() {
            return one("minMember is a field of a podGroup");
        }
        let with = self.with.clone();
        let mut objects = self.objects().map_err(|message| vec![Error::new(line, message)])?;
        let mut errors = Vec::new();
        for object in &mut objects {
            if let Some(patch) = &with {
                merge(object, patch);
            }
            // Ranges make many alike: one of them tells all there is to say.
            if !errors.is_empty() {
                continue;
            }
            let value = Value::from_json(object, line);
            match strict::kind_of(&value) {
                Ok(Some(kind)) => errors.extend(strict::check(&value, kind)),
                Ok(None) => {
                    errors.push(Error::new(line, "a custom resource that is not known has no part in a scenario"))
                }
                Err(e) => errors.push(e),
            }
        }
        if errors.is_empty() { Ok(objects) } else { Err(errors) }
    }

    fn objects(self) -> Result<Vec<Json>, String> {
        if let Some(manifest) = self.manifest {
            return Ok(vec![manifest]);
        }
        if let Some(names) = self.node {
            let mut allocatable = self.allocatable.unwrap_or_default();
            allocatable.entry("pods".to_owned()).or_insert_with(|| json!("110"));
            let mut spec = json!({});
            if let Some(taints) = self.taints {
                spec["taints"] = taints;
            }
            return names.each(false, |_, name| {
                json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": name, "labels": with_hostname(self.labels.as_ref(), name)},
                    "spec": spec,
                    "status": {
                        "capacity": allocatable, "allocatable": allocatable,
                        "conditions": [{"type": "Ready", "status": "True"}],
                    },
                })
            });
        }
        if let Some(names) = self.pod_group {
            let spec = self.min_member.map_or_else(|| json!({}), |n| json!({"minMember": n}));
            return names.each(true, |namespace, name| {
                json!({
                    "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
                    "metadata": {"name": name, "namespace": namespace}, "spec": spec,
                })
            });
        }
        let Some(names) = self.pod else { return Ok(Vec::new()) };
        let mut metadata = json!({});
        if let Some(runs) = self.runs {
            metadata["annotations"][DURATION_ANNOTATION] = json!(runs.to_string());
        }
        if let Some(timeout) = self.start_timeout {
            metadata["annotations"][START_TIMEOUT_ANNOTATION] = json!(timeout.to_string());
        }
        if let Some(group) = self.group {
            if self.collective {
                metadata["annotations"][COLLECTIVE_ANNOTATION] = json!(group);
            }
            metadata["labels"] = json!({GROUP_LABEL: group});
        }
        let mut spec = json!({"containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": self.requests.unwrap_or_default()},
        }]});
        if let Some(priority) = self.priority {
            spec["priority"] = json!(priority);
        }
        if let Some(node) = self.node_name {
            spec["nodeName"] = json!(node);
        }
        names.each(true, |namespace, name| {
            let mut metadata = metadata.clone();
            metadata["name"] = json!(name);
            metadata["namespace"] = json!(namespace);
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        })
    }
}

fn with_hostname(labels: Option<&BTreeMap<String, String>>, name: &str) -> BTreeMap<String, String> {
    let mut labels = labels.cloned().unwrap_or_default();
    labels.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| name.to_owned());
    labels
}

impl Names {
    /// Makes an object of each namespace and name.
    fn each(self, namespaced: bool, make: impl Fn(&str, &str) -> Json) -> Result<Vec<Json>, String> {
        let texts = match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        };
        let mut objects = Vec::new();
        for text in texts {
            for name in expand_range(&text)? {
                let (namespace, name) = name.split_once('/').unwrap_or(("default", &name));
                if !is_name(name) || !is_name(namespace) || (text.contains('/') && !namespaced) {
                    return Err(format!("`{text}` is not a name; use lower-case letters, digits, `-` and `.`"));
                }
                objects.push(make(namespace, name));
            }
        }
        Ok(objects)
    }
}

/// Whether the API server takes it for the name of an object (a DNS subdomain).
fn is_name(name: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 253
        && name.starts_with(edge)
        && name.ends_with(edge)
        && name.chars().all(|c| edge(c) || c == '-' || c == '.')
}

impl ExpectText {
    fn read(self, line: u32, until: Millis) -> Result<Expectation, String> {
        let time = |text: &str| if text == "end" { Ok(until) } else { Millis::parse(text) };
        let span = |text: &str| {
            let (from, to) =
                text.split_once("..").ok_or_else(|| format!("`{text}` is not a span; write 0s..20s or 5s..end"))?;
            let (from, to) = (time(from)?, time(to)?);
            if from < to { Ok((from, to)) } else { Err(format!("the span {text} is empty")) }
        };
        let moment = match (self.at, self.by, self.always, self.never) {
            (Some(at), None, None, None) => Moment::At(time(&at)?),
            (None, Some(by), None, None) => Moment::By(by),
            (None, None, Some(always), None) => span(&always).map(|(from, to)| Moment::Always(from, to))?,
            (None, None, None, Some(never)) => span(&never).map(|(from, to)| Moment::Never(from, to))?,
            _ => return Err("an expectation has exactly one time of at, by, always and never".to_owned()),
        };
        let last = match moment {
            Moment::At(t) | Moment::By(t) | Moment::Always(_, t) | Moment::Never(_, t) => t,
        };
        if last > until {
            return Err(format!("the expectation is about {last} but the run ends at {until}; see the field until"));
        }
        let conditions = ConditionsText {
            bound: self.bound,
            running: self.running,
            waiting: self.waiting,
            exists: self.exists,
            free: self.free,
            reason: self.reason,
            event: self.event,
            object: self.object,
            together: self.together,
            attempts: self.attempts,
            evicted: self.evicted,
            warnings: self.warnings,
            any_of: self.any_of,
        }
        .read()?;
        Ok(Expectation { line, moment, since: self.since, conditions })
    }
}

impl ConditionsText {
    fn read(self) -> Result<Conditions, String> {
        let conditions = Conditions {
            bound: counts(self.bound, Pattern::parse)?,
            running: counts(self.running, Pattern::parse)?,
            waiting: counts(self.waiting, Pattern::parse)?,
            exists: counts(self.exists, Pattern::parse)?,
            free: self
                .free
                .into_iter()
                .flat_map(|(node, resources)| {
                    resources.into_iter().map(move |(resource, amount)| {
                        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
                        Ok((node.clone(), resource, quantity(&text)?))
                    })
                })
                .collect::<Result<_, String>>()?,
            reason: keyed(self.reason, Pattern::parse)?,
            event: keyed(self.event, Ref::parse)?,
            object: keyed(self.object, Ref::parse)?,
            together: parse_all(&self.together, Pattern::parse)?,
            attempts: counts(self.attempts, Pattern::parse)?,
            evicted: counts(self.evicted, Pattern::parse)?,
            warnings: counts(self.warnings, Ref::parse)?,
            any_of: self.any_of.into_iter().map(Self::read).collect::<Result<_, _>>()?,
        };
        if conditions.is_empty() {
            Err("nothing is asked for; name at least one condition".to_owned())
        } else {
            Ok(conditions)
        }
    }
}

impl Conditions {
    fn is_empty(&self) -> bool {
        self.bound.is_empty()
            && self.running.is_empty()
            && self.waiting.is_empty()
            && self.exists.is_empty()
            && self.free.is_empty()
            && self.reason.is_empty()
            && self.event.is_empty()
            && self.object.is_empty()
            && self.together.is_empty()
            && self.attempts.is_empty()
            && self.evicted.is_empty()
            && self.warnings.is_empty()
            && self.any_of.is_empty()
    }
}

fn keyed<K, V>(map: BTreeMap<String, V>, parse: impl Fn(&str) -> Result<K, String>) -> Result<Vec<(K, V)>, String> {
    map.into_iter().map(|(key, value)| Ok((parse(&key)?, value))).collect()
}

fn counts<K>(map: Counts, parse: impl Fn(&str) -> Result<K, String>) -> Result<Vec<(K, Count)>, String> {
    map.into_iter()
        .map(|(key, count)| {
            let count = match count {
                CountText::Exact(n) => Count::exactly(n),
                CountText::Compared(text) => Count::parse(&text)?,
            };
            Ok((parse(&key)?, count))
        })
        .collect()
}

fn parse_all<T>(texts: &[String], parse: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    texts.iter().map(|text| parse(text)).collect()
}

/// JSON merge patch, RFC 7386.
pub fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Json::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.shift_remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Json::Null), value);
        }
    }
}

/// Whether `object` holds at least the fields of `subset`, with its values; lists must be equal.
#[must_use]
pub fn holds(object: &Json, subset: &Json) -> bool {
    match (object, subset) {
        (Json::Object(object), Json::Object(subset)) => {
            subset.iter().all(|(key, want)| object.get(key).map_or(want.is_null(), |have| holds(have, want)))
        }
        (have, want) => have == want,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::parse;

    const HEAD: &str = "apiVersion: tutti.dev/v1\nkind: Scenario\nabout: x\n";

    fn read(rest: &str) -> Result<Scenario, Vec<String>> {
        let docs = parse(&format!("{HEAD}{rest}")).map_err(|e| vec![e.to_string()])?;
        Scenario::read(&docs[0]).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn items_become_objects() {
        let scenario = read(
            "steps:\n- create:\n  - {node: 'n{1..2}', allocatable: {cpu: 4}}\n  - {podGroup: live/ga, minMember: 2}\n  \
             - {pod: 'live/ga-{0..1}', group: ga, requests: {cpu: 3}, runs: 30s, with: {spec: {schedulerName: x}}}\nexpect: []\n",
        )
        .unwrap();
        let Action::Create(objects) = &scenario.steps[0].action else { panic!("not a create") };
        let names: Vec<_> = objects.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["n1", "n2", "ga", "ga-0", "ga-1"]);
        let pod = &objects[4];
        assert_eq!(pod["metadata"]["namespace"], "live");
        assert_eq!(pod["metadata"]["annotations"]["tutti.dev/duration"], "30s");
        assert_eq!(pod["spec"]["schedulerName"], "x");
        assert_eq!(objects[0]["status"]["allocatable"]["pods"], "110");
    }

    #[test]
    fn faults_name_their_line() {
        for (rest, want) in [
            ("steps: []\nexpect: []\nextra: 1\n", "line 6: unknown field `extra`"),
            ("steps:\n- {at: -5s, delete: [pod/x]}\nexpect: []\n", "line 5: `-5s` is a negative duration"),
            ("steps:\n- {at: 5, delete: [pod/x]}\nexpect: []\n", "line 5: invalid type: integer `5`"),
            ("steps:\n- {at: 5s}\nexpect: []\n", "line 5: a step has exactly one action"),
            (
                "steps:\n- {at: 70s, delete: [pod/x]}\nexpect: []\n",
                "line 5: the step is at 1m10s but the run ends at 1m",
            ),
            (
                "steps:\n- create:\n  - {pod: x, minMember: 3}\nexpect: []\n",
                "line 6: minMember is a field of a podGroup",
            ),
            ("steps:\n- create:\n  - {pod: X}\nexpect: []\n", "line 6: `X` is not a name"),
            (
                "steps:\n- create:\n  - {pod: x, with: {spec: {nodSelector: {a: b}}}}\nexpect: []\n",
                "line 6: unknown field \"spec.nodSelector\"",
            ),
            ("steps: []\nexpect:\n- {bound: {x: 1}}\n", "line 6: an expectation has exactly one time"),
            ("steps: []\nexpect:\n- {at: end}\n", "line 6: nothing is asked for"),
            ("steps: []\nexpect:\n- {at: end, bound: {x: many}}\n", "line 6: `many` is not a count"),
            ("steps: []\nexpect:\n- {always: 5s..2s, bound: {x: 1}}\n", "line 6: the span 5s..2s is empty"),
            ("steps:\n- finish: {x: Running}\nexpect: []\n", "line 5: x: a pod finishes with Succeeded or Failed"),
        ] {
            let errors = read(rest).unwrap_err();
            assert!(errors[0].starts_with(want), "{rest}\n{errors:?}");
        }
    }

    #[test]
    fn merge_and_holds_follow_their_rules() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut object, &json!({"a": {"b": null, "e": {"f": 1}}, "d": [2]}));
        assert_eq!(object, json!({"a": {"c": 2, "e": {"f": 1}}, "d": [2]}));
        assert!(holds(&object, &json!({"a": {"e": {"f": 1}}, "x": null})));
        assert!(!holds(&object, &json!({"a": {"c": 3}})));
    }
}
