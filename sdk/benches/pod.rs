//! What reading a pod costs: by the SDK's reader in place, and by prost into its own structs.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_pb::api::core::v1 as core;
use kube_scheduler_sdk::api::{Message as _, Pod, pod_requests};
use kube_scheduler_sdk::testing::{container, pod};
use prost::Message as _;

/// A pod of a training job: about 2 KiB.
fn training_pod() -> Vec<u8> {
    let labelled = (0..12).fold(pod("job-worker-0"), |p, i| p.label(&format!("example.com/label-{i}"), "some-value"));
    labelled
        .label("pod-group", "job")
        .annotation("kubectl.kubernetes.io/last-applied-configuration", &"x".repeat(1000))
        .owner("batch/v1", "Job", "job")
        .cpu("8")
        .memory("64Gi")
        .request("nvidia.com/gpu", "8")
        .sidecar(&container("metrics").request("cpu", "100m"))
        .toleration("nvidia.com/gpu", "NoSchedule")
        .to_bytes()
}

fn bench(c: &mut Criterion) {
    let bytes = training_pod();
    let mut group = c.benchmark_group(format!("pod of {} bytes", bytes.len()));
    group.bench_function("uid and one label", |b| {
        b.iter(|| {
            let pod = Pod::from_bytes(black_box(&bytes));
            (pod.uid().map(str::len), pod.label("pod-group").map(|l| l.map(str::len)))
        });
    });
    group.bench_function("requests", |b| {
        b.iter(|| pod_requests(Pod::from_bytes(black_box(&bytes))).map(|r| r.get("cpu")));
    });
    group.bench_function("all by prost", |b| b.iter(|| core::Pod::decode(black_box(&bytes[..]))));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
