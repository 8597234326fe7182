//! Plays the scripts of `testdata/bridge` (its README tells their form) against the bridge.
//!
//! `UPDATE_GOLDEN=1` writes replies and effects into the scripts instead of comparing them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use host_harness::bridge::{Bridge, Cluster, Demand, Identity, Phase, Pod, Victim};
use kube_scheduler_abi::bridge::v1;
use libtest_mimic::{Arguments, Failed, Trial};
use prost::Message as _;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage};
use serde_json::{Map, Value, json};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pool = messages(&root);
    let mut scripts: Vec<_> = std::fs::read_dir(root.join("testdata/bridge"))
        .expect("testdata/bridge")
        .map(|entry| entry.expect("directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    scripts.sort();
    let trials = scripts.into_iter().map(|path| {
        let (name, pool) = (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), pool.clone());
        Trial::test(name, move || run(&path, &pool))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn messages(root: &Path) -> DescriptorPool {
    let proto = root.join("abi/proto");
    let files = protox::compile([proto.join("bridge/v1/bridge.proto")], [proto]).expect("bridge.proto compiles");
    DescriptorPool::from_file_descriptor_set(files).expect("bridge.proto is whole")
}

fn run(path: &Path, pool: &DescriptorPool) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let mut script: Value = serde_json::from_str(&text)?;
    let mut stage = Stage::new();
    let steps = script["steps"].as_array_mut().ok_or("no steps")?;
    for (i, step) in steps.iter_mut().enumerate() {
        let step = step.as_object_mut().ok_or(format!("step {i} is no object"))?;
        stage.play(step, pool).map_err(|e| format!("step {i}: {e}"))?;
    }
    let played = serde_json::to_string_pretty(&script)? + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &played)?;
    } else if played != text {
        let differs = played.lines().zip(text.lines()).enumerate().find(|(_, (a, b))| a != b);
        let (line, (got, want)) = differs.unwrap_or((0, ("lines more or less", "")));
        return Err(format!("line {}:\n  want {}\n  got  {}", line + 1, want.trim(), got.trim()).into());
    }
    Ok(())
}

/// The bridge and the cluster of one script.
struct Stage {
    bridge: Bridge,
    cluster: Fake,
}

impl Stage {
    fn new() -> Self {
        let identity =
            Identity { plugin: "Tutti".into(), profile: "default-scheduler".into(), kubernetes: "v1.32.5".into() };
        Self { bridge: Bridge::new(identity), cluster: Fake::default() }
    }

    /// Plays one step and writes what it led to into it.
    fn play(&mut self, step: &mut Map<String, Value>, pool: &DescriptorPool) -> Result<(), String> {
        let (kind, value) = step.iter().next().map(|(k, v)| (k.clone(), v.clone())).ok_or("empty")?;
        let Self { bridge, cluster } = self;
        match kind.as_str() {
            "now_ms" => cluster.now_ms = value.as_i64().ok_or("no number")?,
            "pod" => {
                cluster.pods.insert(text(&value["metadata"]["uid"]), value.clone());
                bridge.pod_changed(&pod_facts(&value), cluster);
                if !cluster.effects.is_empty() {
                    step.insert("effects".into(), cluster.take_effects());
                }
            }
            "gone" => {
                cluster.pods.remove(&text(&value));
                bridge.pod_deleted(&text(&value));
            }
            "decided" => {
                cluster.decided.insert(text(&value));
            }
            "protected" => {
                cluster.protected.insert(text(&value));
            }
            "unevictable" => {
                cluster.unevictable.insert(text(&value));
            }
            "held_on" => {
                cluster.places = serde_json::from_value(value).map_err(|e| e.to_string())?;
            }
            "node_gone" => {
                bridge.node_gone(&text(&value), cluster);
                step.insert("effects".into(), cluster.take_effects());
            }
            "nodes" => cluster.nodes = value.as_array().cloned().ok_or("no list")?,
            "object" => cluster.objects.push(value),
            "served" => cluster.served.push(value),
            "object_changed" => {
                let resource = resource(&value["resource"]);
                let (namespace, name) = (text(&value["namespace"]), text(&value["name"]));
                bridge.object_changed(&resource, &namespace, &name, cluster);
                step.insert("effects".into(), cluster.take_effects());
            }
            "fire" => {
                bridge.fire(cluster);
                step.insert("effects".into(), cluster.take_effects());
                step.insert("next_timer_ms".into(), json!(bridge.next_timer()));
            }
            "request" => {
                let message = pool.get_message_by_name("tutti.bridge.v1.Request").ok_or("no Request")?;
                let request = DynamicMessage::parse_text_format(message, &text(&value)).map_err(|e| e.to_string())?;
                let length = request.encoded_len();
                // Encoded anew, since the order of a map's entries is free.
                let request = v1::Request::decode(&request.encode_to_vec()[..]).map_err(|e| e.to_string())?;
                if request.encoded_len() != length {
                    return Err("the generated messages lack a field of bridge.proto".into());
                }
                let request = request.encode_to_vec();
                let in_scheduling = step.get("in_scheduling").is_none_or(|v| v == true);
                let response = bridge.handle(&request, in_scheduling, cluster);
                step.insert("request_hex".into(), hex(&request).into());
                state(step, &response, pool)?;
                step.insert("response_hex".into(), hex(&response).into());
                step.insert("effects".into(), cluster.take_effects());
            }
            "request_bytes" => {
                let response = bridge.handle(&unhex(&text(&value)), true, cluster);
                state(step, &response, pool)?;
            }
            other => return Err(format!("unknown step {other:?}")),
        }
        Ok(())
    }
}

/// Writes a response as text, unless the text that stands there says the same: the order of a map's entries is free.
fn state(step: &mut Map<String, Value>, response: &[u8], pool: &DescriptorPool) -> Result<(), String> {
    let message = pool.get_message_by_name("tutti.bridge.v1.Response").ok_or("no Response")?;
    let response = DynamicMessage::decode(message.clone(), response).map_err(|e| e.to_string())?;
    let stated = step.get("response").and_then(Value::as_str);
    if !stated.is_some_and(|s| DynamicMessage::parse_text_format(message, s).is_ok_and(|s| s == response)) {
        let format = FormatOptions::new().print_message_fields_in_index_order(true);
        step.insert("response".into(), response.to_text_format_with_options(&format).into());
    }
    Ok(())
}

/// A cluster made of manifests, which notes what the bridge does to it.
#[derive(Default)]
struct Fake {
    now_ms: i64,
    pods: BTreeMap<String, Value>,
    nodes: Vec<Value>,
    objects: Vec<Value>,
    served: Vec<Value>,
    decided: BTreeSet<String>,
    protected: BTreeSet<String>,
    unevictable: BTreeSet<String>,
    places: BTreeMap<String, String>,
    effects: Vec<String>,
}

impl Fake {
    fn take_effects(&mut self) -> Value {
        json!(std::mem::take(&mut self.effects))
    }

    fn on_node(&self, index: u32) -> impl Iterator<Item = &Value> {
        let name = text(&self.nodes[index as usize]["metadata"]["name"]);
        self.pods.values().filter(move |pod| pod["spec"]["nodeName"] == name.as_str())
    }

    fn requests(&self, pod: &Value, resource: &str) -> i64 {
        let demand = self.demand(&text(&pod["metadata"]["uid"]));
        demand.and_then(|d| d.requests.get(resource).copied()).unwrap_or(0)
    }
}

impl Cluster for Fake {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn can_allow(&self, uid: &str) -> Result<(), String> {
        if self.decided.contains(uid) { Err("decided".into()) } else { Ok(()) }
    }

    fn allow(&mut self, uid: &str) {
        self.effects.push(format!("allow {uid}"));
    }

    fn reject(&mut self, uid: &str, reason: &str) {
        self.effects.push(format!("reject {uid}: {reason}"));
    }

    fn activate(&mut self, uids: &[String]) {
        self.effects.push(format!("activate {}", uids.join(" ")));
    }

    fn held_on(&self, uid: &str) -> Option<&str> {
        self.places.get(uid).map(String::as_str)
    }

    fn nominate_pod(&mut self, uid: &str, node: &str) {
        self.effects.push(format!("nominate {uid} for {node}"));
    }

    fn evict(&mut self, uid: &str, preemptor_uid: &str, reason: &str) -> Result<(), String> {
        if !self.pods.contains_key(uid) {
            return Err("not found".into());
        }
        if self.unevictable.contains(uid) {
            return Err("refused".into());
        }
        self.effects.push(format!("evict {uid} for {preemptor_uid}: {reason}"));
        Ok(())
    }

    fn demand(&self, uid: &str) -> Option<Demand> {
        let spec = &self.pods.get(uid)?["spec"];
        let mut requests = BTreeMap::from([("pods".to_owned(), 1)]);
        for container in spec["containers"].as_array().into_iter().flatten() {
            for (name, value) in container["resources"]["requests"].as_object().into_iter().flatten() {
                *requests.entry(name.clone()).or_default() += quantity(name, value);
            }
        }
        Some(Demand { requests, constraints: format!("{} {}", spec["nodeSelector"], spec["tolerations"]) })
    }

    fn object(&self, asked: &v1::Resource, namespace: &str, name: &str) -> v1::Object {
        let of_resource = self.objects.iter().filter(|o| resource(&o["resource"]) == *asked);
        let found = of_resource
            .map(|o| &o["json"])
            .find(|json| text(&json["metadata"]["namespace"]) == namespace && text(&json["metadata"]["name"]) == name);
        let served = found.is_some() || self.served.iter().any(|r| resource(r) == *asked);
        found.map_or(v1::Object { served, ..Default::default() }, |json| v1::Object {
            served,
            found: true,
            uid: text(&json["metadata"]["uid"]),
            resource_version: text(&json["metadata"]["resourceVersion"]),
            json: json.to_string().into_bytes(),
        })
    }

    fn record_event(&mut self, e: &v1::EventRecord) {
        let kind = if e.warning { "Warning" } else { "Normal" };
        self.effects.push(format!("event {}/{}/{} {kind} {}: {}", e.kind, e.namespace, e.name, e.reason, e.note));
    }

    fn snapshot(&self) -> (u64, u32) {
        (1, self.nodes.len() as u32)
    }

    fn node_name(&self, index: u32) -> &str {
        self.nodes[index as usize]["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn node_label(&self, index: u32, key: &str) -> Option<&str> {
        self.nodes[index as usize]["metadata"]["labels"][key].as_str()
    }

    fn node_admits(&self, index: u32, uid: &str) -> bool {
        let node = &self.nodes[index as usize];
        let selector = self.pods.get(uid).and_then(|p| p["spec"]["nodeSelector"].as_object());
        node["spec"]["unschedulable"] != true
            && selector.into_iter().flatten().all(|(k, v)| node["metadata"]["labels"][k] == *v)
    }

    fn nodes_free(&self, indices: &[u32], resources: &[String], evict_below: Option<i32>) -> Vec<i64> {
        let stays = |pod: &&Value| evict_below.is_none_or(|p| priority(pod) >= p);
        let used = |index: u32, name: &str| -> i64 {
            self.on_node(index).filter(stays).map(|pod| self.requests(pod, name)).sum()
        };
        let free = |index: u32, name: &String| {
            quantity(name, &self.nodes[index as usize]["status"]["allocatable"][name]) - used(index, name)
        };
        indices.iter().flat_map(|index| resources.iter().map(move |name| free(*index, name))).collect()
    }

    fn node_nominated(&self, index: u32, resources: &[String], least: i32) -> Vec<(String, Vec<i64>)> {
        let node = self.node_name(index);
        let nominated = self.pods.values().filter(|pod| pod["status"]["nominatedNodeName"] == node);
        nominated
            .filter(|pod| priority(pod) >= least)
            .map(|pod| (text(&pod["metadata"]["uid"]), resources.iter().map(|r| self.requests(pod, r)).collect()))
            .collect()
    }

    fn node_victims(&self, index: u32, resources: &[String], below: i32) -> Vec<Victim> {
        let victim = |pod: &Value| {
            let uid = text(&pod["metadata"]["uid"]);
            Victim {
                priority: priority(pod),
                start_ms: time_ms(&pod["status"]["startTime"]),
                requests: resources.iter().map(|r| self.requests(pod, r)).collect(),
                protected: self.protected.contains(&uid),
                terminating: !pod["metadata"]["deletionTimestamp"].is_null(),
                uid,
            }
        };
        self.on_node(index).filter(|pod| priority(pod) < below).map(victim).collect()
    }
}

fn pod_facts(pod: &Value) -> Pod {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let strings = |v: &Value| v.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), text(v))).collect();
    Pod {
        uid: text(&metadata["uid"]),
        namespace: text(&metadata["namespace"]),
        name: text(&metadata["name"]),
        labels: strings(&metadata["labels"]),
        annotations: strings(&metadata["annotations"]),
        created_ms: time_ms(&metadata["creationTimestamp"]),
        terminating: !metadata["deletionTimestamp"].is_null(),
        gated: spec["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()),
        node: text(&spec["nodeName"]),
        phase: match pod["status"]["phase"].as_str() {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Pending,
        },
        priority: priority(pod),
    }
}

fn priority(pod: &Value) -> i32 {
    pod["spec"]["priority"].as_i64().unwrap_or(0) as i32
}

fn resource(value: &Value) -> v1::Resource {
    v1::Resource { group: text(&value["group"]), version: text(&value["version"]), resource: text(&value["resource"]) }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `1970-01-01THH:MM:SSZ`, the only day the scripts know.
fn time_ms(value: &Value) -> i64 {
    let Some(clock) = value.as_str().and_then(|t| t.strip_prefix("1970-01-01T")?.strip_suffix('Z')) else { return 0 };
    clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().expect("a time")) * 1000
}

/// A whole quantity, or cpu in whole cores or with the suffix `m`; milli for cpu.
fn quantity(name: &str, value: &Value) -> i64 {
    let Some(figure) = value.as_str() else { return 0 };
    let (digits, milli) = figure.strip_suffix('m').map_or((figure, false), |d| (d, true));
    let n: i64 = digits.parse().expect("a whole quantity");
    if name == "cpu" && !milli { n * 1000 } else { n }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}
