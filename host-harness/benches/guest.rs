//! What calls into a guest cost.
//!
//! First a table of fuel (about one unit per wasm instruction) and of memory, the same on every machine; then criterion's
//! times, which aren't. The example and the plugin come from `out/guest`, built by `tools/build-guest node-number
//! tutti-plugin`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use host_harness::bridge::{self, Bridge, Identity};
use host_harness::guest::{Event, Guest, Host, ImageState, LogLine, Options, Pod};
use k8s_pb::api::core::v1 as core;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use kube_scheduler_abi::bridge::v1;
use prost::Message as _;

/// A scheduler that knows nothing and has no bridge.
struct Nothing;

impl Host for Nothing {
    fn node(&mut self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn nodes(&mut self) -> Vec<Cow<'_, [u8]>> {
        Vec::new()
    }

    fn image_states(&mut self, _: &str) -> Option<BTreeMap<String, ImageState>> {
        None
    }

    fn log(&mut self, _: LogLine) {}

    fn event(&mut self, _: Event) {}

    fn waiting_pod(&mut self, _: &str) -> Option<Cow<'_, [u8]>> {
        None
    }

    fn reject_waiting_pod(&mut self, _: &str) -> bool {
        false
    }

    fn bridge(&mut self, _: &[u8], _: bool) -> Option<Vec<u8>> {
        None
    }
}

/// An ordinary pod of about a kilobyte, `annotations` bytes more.
fn pod(annotations: usize) -> Vec<u8> {
    let text = |s: &str| Some(s.to_owned());
    let container = core::Container {
        name: text("main"),
        image: text("registry.example/app:1.2.3"),
        env: (0..16)
            .map(|i| core::EnvVar { name: Some(format!("VARIABLE_{i}")), value: text("a value"), ..Default::default() })
            .collect(),
        ..Default::default()
    };
    let metadata = meta::ObjectMeta {
        name: text("web-7"),
        namespace: text("default"),
        uid: text("5d2f9c3e-0000-4000-8000-000000000007"),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        annotations: [("note".to_owned(), "x".repeat(annotations))].into(),
        ..Default::default()
    };
    let spec = core::PodSpec { containers: vec![container], ..Default::default() };
    core::Pod { metadata: Some(metadata), spec: Some(spec), ..Default::default() }.encode_to_vec()
}

const EMPTY: &str = r#"(module (memory (export "memory") 1)
  (func (export "filter") (result i32) (i32.const 0))
  (func (export "postfilter") (result i64) (i64.const 2)))"#;

const READ: &str = r#"(module (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "filter") (result i32) (drop (call $pod (i32.const 1024) (i32.const 100000))) (i32.const 0))
  (func (export "postfilter") (result i64) (i64.const 2)))"#;

const UID: &str = "5d2f9c3e-0000-4000-8000-000000000007";

fn small(text: &str) -> Guest {
    let bytes = wat::parse_str(text).expect("a module");
    Guest::load(&bytes, Options::default()).expect("loads")
}

fn pod_of(protobuf: &[u8]) -> Pod<'_> {
    Pod { uid: UID, protobuf }
}

/// A built guest, None (with a word on how to get it) when it isn't there.
fn built(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/guest").join(name);
    let bytes = std::fs::read(&path);
    if bytes.is_err() {
        eprintln!("{} is not built and left out; see tools/build-guest", path.display());
    }
    bytes.ok()
}

/// One pod's way through every point the guest has a say in, with ten nodes.
fn cycle(guest: &mut Guest, pod: Pod<'_>) {
    let names: Vec<String> = (0..10).map(|i| format!("node-{i}")).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let host = &mut Nothing;
    let exports = guest.exports();
    let has = |export| exports.has(export);
    use kube_scheduler_abi::Export as E;
    let skips = |code: i32| code == kube_scheduler_abi::Code::Skip as i32;
    let filters = !has(E::PreFilter) || !skips(guest.prefilter(host, pod).expect("prefilter").status.code);
    for node in nodes.iter().filter(|_| has(E::Filter) && filters) {
        black_box(guest.filter(host, pod, node).expect("filter"));
    }
    let scores = !has(E::PreScore) || !skips(guest.prescore(host, pod, &nodes).expect("prescore").code);
    for node in nodes.iter().filter(|_| has(E::Score) && scores) {
        black_box(guest.score(host, pod, node).expect("score"));
    }
    if has(E::Reserve) {
        guest.reserve(host, pod, nodes[0]).expect("reserve");
    }
    if has(E::Permit) {
        guest.permit(host, pod, nodes[0]).expect("permit");
    }
    if has(E::Bind) {
        guest.prebind(host, pod, nodes[0]).expect("prebind");
        guest.bind(host, pod, nodes[0]).expect("bind");
        guest.postbind(host, pod, nodes[0]).expect("postbind");
    }
}

fn table() {
    println!("{:<16} {:>10} {:>8} {:>14} {:>14}", "guest", "export", "calls", "fuel per call", "memory, KiB");
    let bytes = pod(0);
    for name in ["node_number.wasm", "plugin.wasm"] {
        let Some(module) = built(name) else { continue };
        let mut guest = Guest::load(&module, Options::default()).expect("loads");
        (0..100).for_each(|_| cycle(&mut guest, pod_of(&bytes)));
        for (export, fuel) in guest.fuel() {
            let memory = guest.usage().memory / guest.usage().instances / 1024;
            println!("{name:<16} {:>10} {:>8} {:>14} {memory:>14}", export.name(), fuel.calls, fuel.total / fuel.calls);
        }
    }
}

fn calls(c: &mut Criterion) {
    table();
    let mut group = c.benchmark_group("call");
    let kilobyte = pod(0);
    let mut guest = small(EMPTY);
    group.bench_function("empty", |b| b.iter(|| guest.filter(&mut Nothing, pod_of(&kilobyte), "n")));
    for extra in [0, 16 << 10, 64 << 10] {
        let bytes = pod(extra);
        let mut guest = small(READ);
        let name = format!("read a pod of {} bytes", bytes.len());
        group.bench_function(name, |b| b.iter(|| guest.filter(&mut Nothing, pod_of(&bytes), "n")));
    }
    for (file, name) in [("node_number.wasm", "node-number"), ("plugin.wasm", "plugin, ordinary pod")] {
        let Some(module) = built(file) else { continue };
        let mut guest = Guest::load(&module, Options::default()).expect("loads");
        group.bench_function(format!("whole cycle on 10 nodes: {name}"), |b| {
            b.iter(|| cycle(&mut guest, pod_of(&kilobyte)));
        });
        group.bench_function(format!("load: {name}"), |b| {
            b.iter_batched(|| (), |()| Guest::load(&module, Options::default()), BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// The bridge's answers take as long for a gang of 10 as for one of 10,000.
fn groups(c: &mut Criterion) {
    let mut group = c.benchmark_group("group_get");
    for members in [10, 1_000, 10_000] {
        let identity = Identity { plugin: "p".into(), profile: "d".into(), kubernetes: "v1.32.5".into() };
        let mut bridge = Bridge::new(identity);
        let request = |call| v1::Request { version: 1, call: Some(call) }.encode_to_vec();
        let source = v1::GroupSource {
            prefix: "pg".into(),
            value_from: Some(v1::group_source::ValueFrom::Label("group".into())),
            ..Default::default()
        };
        let hello = request(v1::request::Call::Hello(v1::Hello { sources: vec![source] }));
        bridge.handle(&hello, true, &mut Still);
        for i in 0..members {
            let pod = bridge::Pod {
                uid: format!("u{i}"),
                namespace: "d".into(),
                labels: BTreeMap::from([("group".to_owned(), "a".to_owned())]),
                ..Default::default()
            };
            bridge.pod_changed(&pod, &mut Still);
        }
        let get = v1::GroupGet { key: "pg/d/a".into(), ..Default::default() };
        let get = request(v1::request::Call::GroupGet(get));
        group.bench_function(format!("{members} members"), |b| b.iter(|| bridge.handle(&get, true, &mut Still)));
    }
    group.finish();
}

/// A cluster that only has a clock.
struct Still;

impl bridge::Cluster for Still {
    fn now_ms(&self) -> i64 {
        0
    }

    fn can_allow(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn allow(&mut self, _: &str) {}

    fn reject(&mut self, _: &str, _: &str) {}

    fn activate(&mut self, _: &[String]) {}

    fn evict(&mut self, _: &str, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn held_on(&self, _: &str) -> Option<&str> {
        None
    }

    fn nominate_pod(&mut self, _: &str, _: &str) {}

    fn demand(&self, _: &str) -> Option<bridge::Demand> {
        None
    }

    fn object(&self, _: &v1::Resource, _: &str, _: &str) -> v1::Object {
        v1::Object::default()
    }

    fn record_event(&mut self, _: &v1::EventRecord) {}

    fn snapshot(&self) -> (u64, u32) {
        (0, 0)
    }

    fn node_name(&self, _: u32) -> &str {
        ""
    }

    fn node_label(&self, _: u32, _: &str) -> Option<&str> {
        None
    }

    fn node_admits(&self, _: u32, _: &str) -> bool {
        false
    }

    fn nodes_free(&self, _: &[u32], _: &[String], _: Option<i32>) -> Vec<i64> {
        Vec::new()
    }

    fn node_nominated(&self, _: u32, _: &[String], _: i32) -> Vec<(String, Vec<i64>)> {
        Vec::new()
    }

    fn node_victims(&self, _: u32, _: &[String], _: i32) -> Vec<bridge::Victim> {
        Vec::new()
    }
}

criterion_group!(benches, calls, groups);
criterion_main!(benches);
