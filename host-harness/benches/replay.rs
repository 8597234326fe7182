//! Replays a large cluster, with and without the plugin of `out/guest`: pods per second of wall time and of processor time,
//! which other work on the machine disturbs less, and that a pod costs as much among many gangs as among few.

use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use host_harness::guest::{Guest, Options};
use host_harness::scheduler::{Action, Plugin, SimConfig, Simulator, StartPlugin};
use serde_json::json;

const NODES: u32 = 5_000;
const PODS: u32 = 20_000;

fn plugin() -> Option<StartPlugin> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/guest/plugin.wasm");
    let Ok(bytes) = std::fs::read(&path) else {
        eprintln!("{} is not built and left out; see tools/build-guest", path.display());
        return None;
    };
    let bytes: Rc<[u8]> = bytes.into();
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
    measure(c, "replay/alone", None);
    if let Some(plugin) = plugin() {
        measure(c, "replay/plugin", Some(plugin));
    }
}

fn measure(c: &mut Criterion, name: &str, plugin: Option<StartPlugin>) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(u64::from(PODS))).sample_size(10).warm_up_time(Duration::from_millis(1));
    for gangs in [250, 2_500] {
        let (cpu, rounds_done) = (Cell::new(0.0), Cell::new(0));
        group.bench_with_input(BenchmarkId::from_parameter(gangs), &gangs, |b, &gangs| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                for _ in 0..rounds {
                    let mut simulator = prepare(gangs, plugin.clone());
                    let (start, cpu_start) = (Instant::now(), cpu_seconds());
                    simulator.run_until(3_600_000);
                    spent += start.elapsed();
                    cpu.set(cpu.get() + cpu_seconds() - cpu_start);
                    rounds_done.set(rounds_done.get() + 1);
                    let bound = simulator.state().pods().filter(|p| !p.node.is_empty()).count();
                    assert_eq!(bound, PODS as usize, "all pods find a node");
                    black_box(simulator.trace().records().len());
                }
                spent
            });
        });
        let pods = f64::from(PODS * rounds_done.get()) / cpu.get();
        println!(
            "{name}/{gangs}: {pods:.0} pods per second of processor time; peak RSS so far {} MiB",
            peak_rss_kib() / 1024
        );
    }
    group.finish();
}

/// Processor time of this process; 0 where there is no /proc.
fn cpu_seconds() -> f64 {
    // User and system time in hundredths of a second, the 12th and 13th field after the name in brackets.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// `VmHWM` of this process, KiB; 0 where there is no /proc.
fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

criterion_group!(benches, replay);
criterion_main!(benches);
