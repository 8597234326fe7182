//! What the SDK costs a plugin: fuel (about one unit per wasm instruction, the same on every machine) and memory.

use host_harness::guest::{Guest, Options, Pod};
use kube_scheduler_abi::Export;
use kube_scheduler_sdk::testing::{PodBuilder, container, pod};

use crate::host::FakeHost;

/// A pod of about 3 KB, as a controller makes them.
fn three_kilobytes(name: &str) -> PodBuilder {
    let side = container("proxy").image("registry.example/mesh/proxy:1.2.3").request("cpu", "100m");
    let pod = (0..44).fold(pod(name), |pod, i| {
        pod.annotation(&format!("example.com/note-{i}"), "some forty bytes of text, more or less")
    });
    pod.label("app", "web")
        .owner("apps/v1", "ReplicaSet", "web-5d2f9c3e")
        .cpu("2")
        .memory("4Gi")
        .image("registry.example/app:1.2.3")
        .container(&side)
        .toleration("node.kubernetes.io/not-ready", "NoExecute")
}

struct Measure {
    guest: Guest,
    host: FakeHost,
}

impl Measure {
    fn of(name: &str) -> Option<Self> {
        let wasm = crate::built(&format!("{name}.wasm"))?;
        let guest = Guest::load(&wasm, Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        Some(Self { guest, host: FakeHost::default() })
    }

    fn spent(&self) -> u64 {
        self.guest.fuel().values().map(|fuel| fuel.total).sum()
    }

    /// Fuel of the second run: the first makes the plugin and its buffers.
    fn second(&mut self, mut run: impl FnMut(&mut Guest, &mut FakeHost)) -> u64 {
        run(&mut self.guest, &mut self.host);
        let before = self.spent();
        run(&mut self.guest, &mut self.host);
        self.spent() - before
    }
}

#[test]
fn fuel_stays_within_its_budget() {
    let pod = three_kilobytes("job-7");
    let bytes = pod.to_bytes();
    assert!((2_950..3_150).contains(&bytes.len()), "{} bytes", bytes.len());
    let about = Pod { uid: pod.get_uid(), protobuf: &bytes };
    let nodes = ["n-0", "n-1", "n-2", "n-3", "n-4", "n-5", "n-6", "n-7", "n-8", "n-9"];
    let (Some(mut number), Some(mut label), Some(mut images)) =
        (Measure::of("node_number"), Measure::of("node_label"), Measure::of("image_locality"))
    else {
        return;
    };
    let spent = [
        // NodeLabel without labels to look for answers Skip.
        ("empty call", label.second(|guest, host| drop(guest.prefilter(host, about).expect("prefilter")))),
        (
            "pod of 3 KB, its name",
            number.second(|guest, host| drop(guest.prescore(host, about, &nodes).expect("prescore"))),
        ),
        (
            "node-number, a cycle on 10 nodes",
            number.second(|guest, host| {
                guest.prefilter(host, about).expect("prefilter");
                guest.prescore(host, about, &nodes).expect("prescore");
                let scores = nodes.map(|node| guest.score(host, about, node).expect("score").score);
                assert_eq!(scores, [0, 0, 0, 0, 0, 0, 0, 10, 0, 0]);
            }),
        ),
        (
            "image-locality, a cycle on 10 nodes",
            images.second(|guest, host| {
                guest.prefilter(host, about).expect("prefilter");
                guest.prescore(host, about, &nodes).expect("prescore");
                nodes.iter().for_each(|node| drop(guest.score(host, about, node).expect("score")));
            }),
        ),
    ];
    // Of the compiler that tools/build-guest takes in CI; another one differs a little.
    let budgets = [72, 4_141, 10_497, 30_846];
    let within = spent.iter().zip(budgets).all(|((_, spent), budget)| spent.abs_diff(budget) * 10 <= budget);
    assert!(within, "more than a tenth off: {spent:?} are spent, the budgets are {budgets:?}");
}

#[test]
fn an_instance_is_small() {
    for name in ["node_number", "node_label", "image_locality", "rate_limit", "probe"] {
        let Some(mut measure) = Measure::of(name) else { continue };
        let pod = three_kilobytes("job-7");
        let bytes = pod.to_bytes();
        for _ in 0..1000 {
            let about = Pod { uid: pod.get_uid(), protobuf: &bytes };
            measure.guest.prefilter(&mut measure.host, about).expect("prefilter");
            measure.guest.prescore(&mut measure.host, about, &["n-1", "n-7"]).expect("prescore");
            if measure.guest.implements(Export::Score) {
                measure.guest.score(&mut measure.host, about, "n-7").expect("score");
            }
            if measure.guest.implements(Export::Filter) {
                measure.guest.filter(&mut measure.host, about, "node-1").expect("filter");
            }
        }
        let usage = measure.guest.usage();
        assert_eq!(usage.instances, 1);
        assert!(usage.memory <= 256 << 10, "{name}: {} bytes", usage.memory);
    }
}
