//! Which of two nodes is the better one.

use super::node::NodeInfo;
use super::pod::PodInfo;
use super::resource::Resources;
use super::score::{balanced_allocation, least_allocated, normalize};
use super::*;

#[test]
fn of_resources() {
    // Node of 4 cores and 64Gi. cpu and memory asked for, those in use, and the two scores worked out by hand from
    // upstream's formulas; a request of nothing counts as 100m and 200Mi where free room is compared.
    let cases = [
        (("1", "16Gi"), ("0", "0"), 75, 100),
        (("1", "0"), ("0", "0"), 87, 87),
        (("2", "32Gi"), ("1", "16Gi"), 25, 100),
        (("1", "0"), ("3", "0"), 49, 50),
        (("4", "0"), ("1", "0"), 49, 50),
    ];
    for ((cpu, memory), (used_cpu, used_memory), least, balanced) in cases {
        let mut resources = Resources::default();
        let mut pod = |cpu: &str, memory: &str| {
            let mut requests = serde_json::Map::new();
            for (name, amount) in [("cpu", cpu), ("memory", memory)] {
                if amount != "0" {
                    requests.insert(name.to_owned(), json!(amount));
                }
            }
            let object = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}});
            PodInfo::new(serde_json::from_value(object).unwrap(), &mut resources, Rc::default())
        };
        let (new, there) = (pod(cpu, memory), pod(used_cpu, used_memory));
        let mut info = NodeInfo::new("n1");
        let object = json!({"status": {"allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"}}});
        info.set_node(Some(Rc::new(serde_json::from_value(object).unwrap())), &mut resources);
        if used_cpu != "0" {
            info.add(PodId(0), &there);
        }
        let got = (least_allocated(&new, &info), balanced_allocation(&new, &info));
        assert_eq!(got, (least, balanced), "{cpu} {memory} beside {used_cpu} {used_memory}");
    }
}

#[test]
fn scaled() {
    let cases = [
        (vec![1, 2, 4], false, vec![25, 50, 100]),
        (vec![1, 2, 4], true, vec![75, 50, 0]),
        (vec![0, 0], false, vec![0, 0]),
        (vec![0, 0], true, vec![100, 100]),
        (vec![1, 3], false, vec![33, 100]),
    ];
    for (mut scores, reverse, want) in cases {
        let given = scores.clone();
        normalize(&mut scores, reverse);
        assert_eq!(scores, want, "{given:?} {reverse}");
    }
}

#[test]
fn between_two_nodes() {
    let there = |node: &str, cpu: &str| {
        json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        })
    };
    let label = json!({"matchLabels": {"app": "x"}});
    let near_term =
        json!([{"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": label}}]);
    let near = |kind: &str| json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": near_term}}}});
    let prefers_node = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}},
    ]}}}});
    let spread = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": label,
    }]}});
    let image = json!({"status": {"images": [{"names": ["registry/app:1"], "sizeBytes": 500_000_000}]}});
    let uses_image = json!({"spec": {"containers": [{"name": "main", "image": "registry/app:1"}]}});
    let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    // What, more of n1, a pod that is there, the pod, where it goes. Free room alone would choose otherwise or not at all.
    let cases = [
        ("free room", json!({}), there("n1", "1"), json!({}), "n2"),
        ("a taint to be avoided", tainted, there("n2", "2"), json!({}), "n2"),
        ("preferred affinity to the node", json!({}), there("n1", "1"), prefers_node, "n1"),
        ("preferred affinity to a pod", json!({}), there("n1", "1"), near("podAffinity"), "n1"),
        ("preferred anti-affinity to a pod", json!({}), there("n2", "0"), near("podAntiAffinity"), "n1"),
        ("spread that may be broken", json!({}), there("n2", "0"), spread, "n1"),
        ("the image is there", image, there("n3", "0"), uses_image, "n1"),
    ];
    for (what, with, other, with_pod, want) in cases {
        for seed in 0..4 {
            let mut s = Simulator::new(SimConfig { seed, ..SimConfig::default() }, None).unwrap();
            for action in [
                node("n1", 4, with.clone()),
                node("n2", 4, json!({})),
                pod("other", 0, other.clone()),
                pod("p", 100, with_pod.clone()),
            ] {
                s.push(0, action);
            }
            s.run_until(500);
            assert_eq!(node_of(&s, "p"), want, "{what}, seed {seed}");
        }
    }
}

/// Pods of a Service or of a ReplicaSet spread without a word of their own: over nodes, and over zones, which counts more
/// than the free room on a large node.
#[test]
fn pods_that_belong_together_spread_by_default() {
    let zone = |name: &str, zone: &str, cpu: i64| {
        node(name, cpu, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
    };
    let object = |version: &str, kind: &str, selector: Json| {
        let metadata = json!({"name": "web", "namespace": "default"});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"selector": selector}});
        Action::Create { object, runs_ms: None }
    };
    let owned = json!({"metadata": {"labels": {"app": "x"}, "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true},
    ]}});
    let labelled = json!({"metadata": {"labels": {"app": "x"}}});
    let service = || object("v1", "Service", json!({"app": "x"}));
    let set = || object("apps/v1", "ReplicaSet", json!({"matchLabels": {"app": "x"}}));
    // What, the object, the pod, the zones that pods are in at the end.
    for (what, with, template, zones) in [
        ("nothing", None, &labelled, 1),
        ("a Service", Some(service()), &labelled, 2),
        ("a Service of others", Some(object("v1", "Service", json!({"app": "y"}))), &labelled, 1),
        ("a Service without selector", Some(object("v1", "Service", Json::Null)), &labelled, 1),
        ("a ReplicaSet", Some(set()), &owned, 2),
        ("a ReplicaSet that isn't theirs", Some(set()), &labelled, 1),
    ] {
        let nodes = [zone("big-1", "a", 64), zone("big-2", "a", 64), zone("small", "b", 4)];
        let pods = (0..4).map(|i| pod(&format!("p{i}"), 1000, template.clone()));
        let s = settled(nodes.into_iter().chain(with).chain(pods));
        let in_b = (0..4).filter(|i| node_of(&s, &format!("p{i}")) == "small").count();
        assert_eq!(1 + usize::from(in_b > 0), zones, "{what}: {in_b} in the small zone");
    }
}
