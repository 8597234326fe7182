//! Where claims and volumes let a pod go.

use super::*;

fn object(object: Json) -> Action {
    Action::Create { object, runs_ms: None }
}

fn class(name: &str, mode: &str, provisioner: &str, zones: Json) -> Action {
    let topologies = match zones {
        Json::Null => Json::Null,
        zones => json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": zones}]}]),
    };
    object(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner,
        "volumeBindingMode": mode, "allowedTopologies": topologies,
    }))
}

/// A claim for 10Gi; `volume` is what it is bound to.
fn claim(name: &str, class: &str, volume: &str, mode: &str) -> Action {
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "storageClassName": class, "volumeName": volume, "accessModes": [mode],
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": if volume.is_empty() { "Pending" } else { "Bound" }},
    }))
}

/// A volume of a class that only the node of this zone reaches.
fn volume(name: &str, class: &str, size: &str, zone: &str) -> Action {
    let term =
        json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]});
    object(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }))
}

fn user(name: &str, claim: &str) -> Action {
    pod(name, 100, json!({"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}))
}

/// Nodes a and b, each in the zone of its name.
fn nodes() -> Vec<Action> {
    let zone = |name: &str| node(name, 4, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": name}}}));
    vec![zone("a"), zone("b")]
}

const WAITS: &str = "WaitForFirstConsumer";
const NOBODY: &str = "kubernetes.io/no-provisioner";

#[test]
fn one_claim() {
    let everywhere = "all nodes";
    let none = "node(s) didn't find available persistent volumes to bind";
    // What, the objects, where the pod may go or the reason.
    let cases: [(&str, Vec<Action>, &str); 13] = [
        ("no such claim", vec![], "persistentvolumeclaim \"c\" not found"),
        ("to be bound at once, and isn't", vec![claim("c", "", "", "RWO")], "pod has unbound immediate"),
        ("bound", vec![claim("c", "", "v", "RWO"), volume("v", "", "10Gi", "b")], "b"),
        ("bound to what isn't there", vec![claim("c", "", "v", "RWO")], "bound to non-existent pv(s)"),
        ("bound where no node is", vec![claim("c", "", "v", "RWO"), volume("v", "", "1Gi", "x")], "affinity conflict"),
        (
            "a volume of an old zone label",
            vec![
                claim("c", "", "v", "RWO"),
                object(json!({
                    "apiVersion": "v1", "kind": "PersistentVolume",
                    "metadata": {"name": "v", "labels": {"failure-domain.beta.kubernetes.io/zone": "b__c"}}, "spec": {},
                })),
            ],
            "b",
        ),
        ("provisioned anywhere", vec![class("s", WAITS, "x", Json::Null), claim("c", "s", "", "RWO")], everywhere),
        ("provisioned in a zone", vec![class("s", WAITS, "x", json!(["b"])), claim("c", "s", "", "RWO")], "b"),
        ("nothing to bind", vec![class("s", WAITS, NOBODY, Json::Null), claim("c", "s", "", "RWO")], none),
        (
            "a local volume",
            vec![
                class("s", WAITS, NOBODY, Json::Null),
                claim("c", "s", "", "ReadWriteOnce"),
                volume("small", "s", "1Gi", "a"),
                volume("v", "s", "20Gi", "b"),
            ],
            "b",
        ),
        (
            "of another class",
            vec![
                class("s", WAITS, NOBODY, Json::Null),
                claim("c", "s", "", "ReadWriteOnce"),
                volume("v", "t", "20Gi", "b"),
            ],
            none,
        ),
        (
            "without the mode",
            vec![
                class("s", WAITS, NOBODY, Json::Null),
                claim("c", "s", "", "ReadWriteMany"),
                volume("v", "s", "20Gi", "b"),
            ],
            none,
        ),
        (
            "for one pod alone, which isn't there",
            vec![class("s", WAITS, "x", Json::Null), claim("c", "s", "", "ReadWriteOncePod")],
            everywhere,
        ),
    ];
    for (what, objects, want) in cases {
        let s = settled(nodes().into_iter().chain(objects).chain([user("p", "c")]));
        let (node, reason) = (node_of(&s, "p"), reason_of(&s, "p"));
        let right = if want == everywhere { !node.is_empty() } else { node == want || reason.contains(want) };
        assert!(right, "{what}: on {node:?}, {reason}");
    }
}

#[test]
fn a_binding_binds_the_claim() {
    // Two pods of one claim follow each other into the zone; two claims take two volumes, and a third finds none.
    let shared = [class("s", WAITS, "x", Json::Null), claim("c", "s", "", "RWX"), user("p", "c"), user("q", "c")];
    let s = settled(nodes().into_iter().chain(shared));
    assert!(!node_of(&s, "p").is_empty());
    assert_eq!(node_of(&s, "p"), node_of(&s, "q"));

    let local = [class("s", WAITS, NOBODY, Json::Null), volume("v", "s", "20Gi", "a"), volume("w", "s", "30Gi", "a")];
    let of = |name: &str| [claim(name, "s", "", "ReadWriteOnce"), user(&format!("of-{name}"), name)];
    let s = settled(nodes().into_iter().chain(local).chain(of("c")).chain(of("d")).chain(of("e")));
    assert_eq!([node_of(&s, "of-c"), node_of(&s, "of-d"), node_of(&s, "of-e")], ["a", "a", ""]);
    let claims = ObjectRef::core("PersistentVolumeClaim", "default", "c");
    assert_eq!(s.state().object(&claims).unwrap()["spec"]["volumeName"], "v");
    let volume = s.state().object(&ObjectRef::core("PersistentVolume", "", "w")).unwrap();
    assert_eq!(volume["spec"]["claimRef"]["name"], "d");
}

#[test]
fn a_claim_for_one_pod_alone() {
    let exclusive = [class("s", WAITS, "x", Json::Null), claim("c", "s", "", "ReadWriteOncePod"), user("p", "c")];
    let mut s = settled(nodes().into_iter().chain(exclusive).chain([user("q", "c")]));
    assert!(reason_of(&s, "q").contains("2 node has pod using PersistentVolumeClaim"), "{}", reason_of(&s, "q"));
    s.push(1000, Action::Delete(ObjectRef::pod("default", "p")));
    s.run_until(3000);
    assert!(!node_of(&s, "q").is_empty(), "{}", reason_of(&s, "q"));
    // One of higher priority takes it from the other.
    let mut important = json!({"spec": {"priority": 9}});
    let Action::Create { object, .. } = user("r", "c") else { unreachable!("a creation") };
    self::core::merge(&mut important, &object);
    s.push(4000, Action::Create { object: important, runs_ms: None });
    s.run_until(9000);
    assert!(!node_of(&s, "r").is_empty(), "{}", reason_of(&s, "r"));
}

#[test]
fn what_comes_later_is_an_event() {
    let mut s = settled(nodes().into_iter().chain([user("p", "c")]));
    s.push(1000, claim("c", "", "v", "RWO"));
    s.run_until(5000);
    assert!(reason_of(&s, "p").contains("non-existent pv(s)"), "{}", reason_of(&s, "p"));
    s.push(6000, volume("v", "", "10Gi", "b"));
    s.run_until(20_000);
    assert_eq!(node_of(&s, "p"), "b");
}
