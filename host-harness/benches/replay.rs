//! Replays a large cluster: pods per second, and that the cost of a pod doesn't grow with the number of gangs.
//!
//! `TUTTI_PLUGIN` names a plugin.wasm; without it the scheduler runs alone.

use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use host_harness::guest::{Guest, Options};
use host_harness::scheduler::{Action, Plugin, SimConfig, Simulator, StartPlugin};
use serde_json::json;

const NODES: u32 = 5_000;
const PODS: u32 = 20_000;

fn plugin() -> Option<StartPlugin> {
    let path = std::env::var_os("TUTTI_PLUGIN")?;
    let bytes: Rc<[u8]> = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).into();
    Some(Rc::new(move || {
        let guest = Guest::load(&bytes, Options::default()).map_err(|e| e.to_string())?;
        Ok(Box::new(guest) as Box<dyn Plugin>)
    }))
}

/// A cluster and its pods, gang by gang, before any pod is scheduled.
fn prepare(gangs: u32, plugin: Option<StartPlugin>) -> Simulator {
    let mut simulator = Simulator::new(SimConfig::default(), plugin).unwrap_or_else(|e| panic!("{e}"));
    let mut create = |object| simulator.push(0, Action::Create { object, runs_ms: None });
    for i in 0..NODES {
        create(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{i}")},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        }));
    }
    for gang in 0..gangs {
        create(json!({
            "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": format!("g{gang}"), "namespace": "default"}, "spec": {"minMember": PODS / gangs},
        }));
    }
    for i in 0..PODS {
        create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("p{i}"), "namespace": "default",
                "labels": {"scheduling.x-k8s.io/pod-group": format!("g{}", i / (PODS / gangs))},
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        }));
    }
    simulator
}

fn replay(c: &mut Criterion) {
    let plugin = plugin();
    let mut group = c.benchmark_group(if plugin.is_some() { "replay/plugin" } else { "replay/alone" });
    group.throughput(Throughput::Elements(u64::from(PODS))).sample_size(10).warm_up_time(Duration::from_millis(1));
    for gangs in [250, 2_500] {
        group.bench_with_input(BenchmarkId::from_parameter(gangs), &gangs, |b, &gangs| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let mut simulator = prepare(gangs, plugin.clone());
                    let start = Instant::now();
                    simulator.run_until(3_600_000);
                    spent += start.elapsed();
                    let bound = simulator.state().pods().filter(|p| !p.node.is_empty()).count();
                    assert_eq!(bound, PODS as usize, "all pods find a node");
                    black_box(simulator.trace().records().len());
                }
                spent
            });
        });
        println!("peak RSS so far: {} MiB", peak_rss_kib() / 1024);
    }
    group.finish();
}

/// `VmHWM` of this process, KiB; 0 where there is no /proc.
fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

criterion_group!(benches, replay);
criterion_main!(benches);
