//! Which node refuses which pod, and in what words.

use super::*;

fn taint(effect: &str) -> Json {
    json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}})
}

fn requires(key: &str, operator: &str, values: Json) -> Json {
    let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    json!({"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }}}})
}

fn port(port: i32, ip: &str, protocol: &str) -> Json {
    let ports = json!([{"hostPort": port, "containerPort": port, "hostIP": ip, "protocol": protocol}]);
    json!({"spec": {"containers": [{"name": "main", "ports": ports}]}})
}

fn container(name: &str, resource: &str, amount: &str) -> Json {
    json!({"name": name, "resources": {"requests": {resource: amount}}})
}

#[test]
fn one_pod_on_one_node() {
    let none = || json!({});
    let asks = |resource, amount| json!({"spec": {"containers": [container("main", resource, amount)]}});
    let with_init = |policy: &str, init: &str| {
        let mut init = container("init", "cpu", init);
        if !policy.is_empty() {
            init["restartPolicy"] = json!(policy);
        }
        json!({"spec": {"initContainers": [init], "containers": [container("main", "cpu", "2")]}})
    };
    let tolerates = |toleration: Json| json!({"spec": {"tolerations": [toleration]}});
    let gpus = || json!({"status": {"allocatable": {"nvidia.com/gpu": "2"}}});
    let labelled = || json!({"metadata": {"labels": {"zone": "a", "cores": "8"}}});
    let affinity = "node(s) didn't match Pod's node affinity/selector";
    let untolerated = "node(s) had untolerated taint {k: v}";
    // What, the node, the pod, the reason ("": it fits).
    let cases = [
        ("all of the cpu", none(), asks("cpu", "4"), ""),
        ("a milli more", none(), asks("cpu", "4001m"), "Insufficient cpu"),
        ("memory", none(), asks("memory", "65Gi"), "Insufficient memory"),
        ("an extended resource", gpus(), asks("nvidia.com/gpu", "2"), ""),
        ("more of it than there is", gpus(), asks("nvidia.com/gpu", "3"), "Insufficient nvidia.com/gpu"),
        ("one that no node has", none(), asks("nvidia.com/gpu", "1"), "Insufficient nvidia.com/gpu"),
        ("no place for a pod", json!({"status": {"allocatable": {"pods": "0"}}}), none(), "Too many pods"),
        ("an init container within its turn", none(), with_init("", "4"), ""),
        ("an init container too large", none(), with_init("", "5"), "Insufficient cpu"),
        ("a sidecar beside the container", none(), with_init("Always", "2"), ""),
        ("a sidecar too large beside it", none(), with_init("Always", "3"), "Insufficient cpu"),
        ("overhead", none(), json!({"spec": {"overhead": {"cpu": "4"}}}), "Insufficient cpu"),
        ("cordoned", json!({"spec": {"unschedulable": true}}), none(), "node(s) were unschedulable"),
        (
            "cordoned, and the pod tolerates that",
            json!({"spec": {"unschedulable": true}}),
            tolerates(json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})),
            "",
        ),
        ("NoSchedule", taint("NoSchedule"), none(), untolerated),
        ("NoExecute", taint("NoExecute"), none(), untolerated),
        ("PreferNoSchedule", taint("PreferNoSchedule"), none(), ""),
        ("tolerated by value", taint("NoSchedule"), tolerates(json!({"key": "k", "value": "v"})), ""),
        ("another value", taint("NoSchedule"), tolerates(json!({"key": "k", "value": "w"})), untolerated),
        (
            "another effect",
            taint("NoSchedule"),
            tolerates(json!({"key": "k", "value": "v", "effect": "NoExecute"})),
            untolerated,
        ),
        ("everything tolerated", taint("NoExecute"), tolerates(json!({"operator": "Exists"})), ""),
        ("selector", labelled(), json!({"spec": {"nodeSelector": {"zone": "a"}}}), ""),
        ("another selector", labelled(), json!({"spec": {"nodeSelector": {"zone": "b"}}}), affinity),
        ("In", labelled(), requires("zone", "In", json!(["b", "a"])), ""),
        ("not In", labelled(), requires("zone", "In", json!(["b"])), affinity),
        ("NotIn", labelled(), requires("zone", "NotIn", json!(["a"])), affinity),
        ("NotIn of a label it lacks", labelled(), requires("rack", "NotIn", json!(["a"])), ""),
        ("Exists", labelled(), requires("rack", "Exists", json!([])), affinity),
        ("DoesNotExist", labelled(), requires("rack", "DoesNotExist", json!([])), ""),
        ("Gt", labelled(), requires("cores", "Gt", json!(["7"])), ""),
        ("Gt the same", labelled(), requires("cores", "Gt", json!(["8"])), affinity),
        ("Lt", labelled(), requires("cores", "Lt", json!(["9"])), ""),
    ];
    for (what, with_node, with_pod, reason) in cases {
        let s = settled([node("n1", 4, with_node), pod("p", 100, with_pod)]);
        if reason.is_empty() {
            assert_eq!(node_of(&s, "p"), "n1", "{what}: {}", reason_of(&s, "p"));
        } else {
            assert_eq!(node_of(&s, "p"), "", "{what}");
            let want = format!("0/1 nodes are available: 1 {reason}. preemption: ");
            assert!(reason_of(&s, "p").starts_with(&want), "{what}: {}", reason_of(&s, "p"));
        }
    }
}

#[test]
fn host_ports() {
    let cases = [
        ("the same port", port(80, "", "TCP"), port(80, "", "TCP"), false),
        ("another port", port(80, "", "TCP"), port(81, "", "TCP"), true),
        ("another protocol", port(80, "", "TCP"), port(80, "", "UDP"), true),
        ("another address", port(80, "10.0.0.1", "TCP"), port(80, "10.0.0.2", "TCP"), true),
        ("any address", port(80, "10.0.0.1", "TCP"), port(80, "0.0.0.0", "TCP"), false),
    ];
    for (what, first, second, fits) in cases {
        let s = settled([node("n1", 4, json!({})), pod("a", 0, first), pod("b", 0, second)]);
        assert_eq!(node_of(&s, "b") == "n1", fits, "{what}");
        let want = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
        assert!(fits || reason_of(&s, "b").starts_with(want), "{what}: {}", reason_of(&s, "b"));
    }
}

/// Nodes a1 and a2 in zone a, b1 in zone b.
fn zones() -> Vec<Action> {
    let in_zone = |name: &str| node(name, 4, json!({"metadata": {"labels": {"zone": &name[..1]}}}));
    vec![in_zone("a1"), in_zone("a2"), in_zone("b1")]
}

fn on(name: &str, node: &str, with: Json) -> Action {
    let mut all = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeName": node}});
    self::core::merge(&mut all, &with);
    pod(name, 100, all)
}

#[test]
fn topology_spread() {
    let spread = |min_domains: Json| {
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": min_domains,
            "labelSelector": {"matchLabels": {"app": "x"}},
        }]}})
    };
    let s = settled(zones().into_iter().chain([on("e", "a1", json!({})), pod("p", 0, spread(Json::Null))]));
    assert_eq!(node_of(&s, "p"), "b1");

    let cordon = Action::Patch(ObjectRef::node("b1"), json!({"spec": {"unschedulable": true}}));
    let more = [cordon, on("e", "a1", json!({})), pod("p", 0, spread(Json::Null))];
    let s = settled(zones().into_iter().chain(more));
    let want = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match pod topology spread \
                constraints.";
    assert!(reason_of(&s, "p").starts_with(want), "{}", reason_of(&s, "p"));

    // Of three domains wanted there are two: the third counts as empty.
    let more = [on("e", "a1", json!({})), on("f", "b1", json!({})), pod("p", 0, spread(json!(3)))];
    let s = settled(zones().into_iter().chain(more));
    assert_eq!(node_of(&s, "p"), "");

    let s = settled([node("bare", 4, json!({})), pod("p", 0, spread(Json::Null))]);
    let want =
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label).";
    assert!(reason_of(&s, "p").starts_with(want), "{}", reason_of(&s, "p"));
}

#[test]
fn affinity_between_pods() {
    let term = |field: &str, app: &str, key: &str| {
        let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
        json!({"metadata": {"labels": {"app": "x"}}, "spec": {"affinity": {
            field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        }}})
    };
    // What, pods that are there, the pod, where it may go.
    let cases: [(&str, Vec<Action>, Json, &[&str]); 6] = [
        ("near", vec![on("e", "b1", json!({}))], term("podAffinity", "x", "zone"), &["b1"]),
        ("near nobody", vec![], term("podAffinity", "other", "zone"), &[]),
        ("near its own kind, as the first", vec![], term("podAffinity", "x", "zone"), &["a1", "a2", "b1"]),
        ("far in the zone", vec![on("e", "a1", json!({}))], term("podAntiAffinity", "x", "zone"), &["b1"]),
        (
            "far on the node",
            vec![on("e", "a1", json!({})), on("f", "b1", json!({}))],
            term("podAntiAffinity", "x", "kubernetes.io/hostname"),
            &["a2"],
        ),
        (
            "others want to be far",
            vec![on("e", "b1", term("podAntiAffinity", "x", "zone"))],
            json!({"metadata": {"labels": {"app": "x"}}}),
            &["a1", "a2"],
        ),
    ];
    for (what, there, with, may) in cases {
        let s = settled(zones().into_iter().chain(there).chain([pod("p", 0, with)]));
        let node = node_of(&s, "p");
        assert!(if may.is_empty() { node.is_empty() } else { may.contains(&node) }, "{what}: {node:?}");
    }
}

#[test]
fn affinity_across_namespaces() {
    let namespace = |name: &str, team: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}});
        Action::Create { object, runs_ms: None }
    };
    let near = |selector: Json| {
        let term = json!({
            "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}, "namespaceSelector": selector,
        });
        json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
    };
    let other = || on("e", "b1", json!({"metadata": {"namespace": "other"}}));
    // What, the selector, where the pod goes ("": nowhere).
    for (what, selector, want) in [
        ("its own namespace alone", Json::Null, ""),
        ("all", json!({}), "b1"),
        ("by label", json!({"matchLabels": {"team": "red"}}), "b1"),
        ("by another label", json!({"matchLabels": {"team": "blue"}}), ""),
        ("by name", json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}}), "b1"),
    ] {
        let more = [namespace("other", "red"), other(), pod("p", 0, near(selector))];
        let s = settled(zones().into_iter().chain(more));
        assert_eq!(node_of(&s, "p"), want, "{what}: {}", reason_of(&s, "p"));
    }
    // One that isn't in the API has its name; a label may come later.
    let by_team = near(json!({"matchLabels": {"team": "red"}}));
    let by_name = near(json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}}));
    let mut s = settled(zones().into_iter().chain([other(), pod("named", 0, by_name), pod("p", 0, by_team)]));
    assert_eq!([node_of(&s, "named"), node_of(&s, "p")], ["b1", ""]);
    s.push(1000, namespace("other", "red"));
    s.push(2000, Action::Patch(ObjectRef::node("a1"), json!({"metadata": {"labels": {"more": "1"}}})));
    s.run_until(9000);
    assert_eq!(node_of(&s, "p"), "b1", "{}", reason_of(&s, "p"));
}
