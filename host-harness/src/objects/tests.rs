use k8s_pb::api::core::v1 as pb;
use prost::Message;
use serde_json::json;

use super::*;

#[test]
fn protobuf_is_upstreams() {
    let json = json!({
        "metadata": {
            "name": "a", "generateName": "a-", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-31T08:00:00Z", "deletionTimestamp": "2026-01-31T08:00:01Z",
            "labels": {"l": "1"}, "annotations": {"a": "2"}, "finalizers": ["f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "ju", "controller": true}],
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "i", "restartPolicy": "Always",
                "ports": [{"name": "p", "hostPort": 80, "containerPort": 81, "protocol": "TCP", "hostIP": "1.2.3.4"}],
                "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
            }],
            "initContainers": [{"name": "init"}],
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "nodeSelector": {"k": "v"}, "nodeName": "n1",
            "hostNetwork": true, "schedulerName": "s", "priorityClassName": "pc", "priority": 3,
            "preemptionPolicy": "Never", "overhead": {"cpu": "1"}, "schedulingGates": [{"name": "g"}],
            "resources": {"requests": {"cpu": "2"}},
            "tolerations": [{"key": "t", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 9}],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
                "labelSelector": {"matchLabels": {"l": "1"}}, "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Ignore", "matchLabelKeys": ["x"],
            }],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
                        "matchExpressions": [{"key": "e", "operator": "In", "values": ["1"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                    }]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 4, "preference": {"matchExpressions": [{"key": "e", "operator": "Exists"}]},
                    }],
                },
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": {
                    "topologyKey": "zone", "namespaces": ["a"], "matchLabelKeys": ["m"], "mismatchLabelKeys": ["mm"],
                    "namespaceSelector": {"matchExpressions": [{"key": "z", "operator": "Exists"}]},
                }}]},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "host", "labelSelector": {"matchLabels": {"l": "2"}},
                }]},
            },
        },
        "status": {
            "phase": "Running", "nominatedNodeName": "n2", "message": "m", "reason": "r",
            "startTime": "2026-01-31T08:00:02Z",
            "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "why",
                "lastTransitionTime": "2026-01-31T08:00:03Z",
            }],
        },
    });
    let pod: Pod = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&pod).unwrap(), json, "nothing of the JSON is lost");
    let theirs = pb::Pod::decode(&*pod.encode_to_vec()).unwrap();
    assert_eq!(Pod::decode(&*theirs.encode_to_vec()).unwrap(), pod, "nothing of ours is unknown to upstream");
    // What upstream knows by name is where it should be: a number mixed up with one of the same type shows here.
    let (meta, spec, status) = (theirs.metadata.unwrap(), theirs.spec.unwrap(), theirs.status.unwrap());
    assert_eq!((meta.name(), meta.generate_name(), meta.namespace()), ("a", "a-", "n"));
    assert_eq!((meta.uid(), meta.resource_version(), meta.finalizers[0].as_str()), ("u", "7", "f"));
    assert_eq!((meta.labels["l"].as_str(), meta.annotations["a"].as_str()), ("1", "2"));
    assert_eq!(meta.creation_timestamp.unwrap().seconds() + 1, meta.deletion_timestamp.unwrap().seconds());
    let owner = &meta.owner_references[0];
    assert_eq!((owner.api_version(), owner.kind(), owner.name(), owner.uid()), ("v1", "Job", "j", "ju"));
    assert_eq!((spec.scheduler_name(), spec.node_name(), spec.priority_class_name()), ("s", "n1", "pc"));
    assert_eq!((spec.priority(), spec.preemption_policy(), spec.restart_policy()), (3, "Never", "Never"));
    assert_eq!((spec.init_containers[0].name(), spec.scheduling_gates[0].name()), ("init", "g"));
    let port = &spec.containers[0].ports[0];
    assert_eq!((port.host_port(), port.container_port(), port.protocol(), port.host_ip()), (80, 81, "TCP", "1.2.3.4"));
    let resources = spec.containers[0].resources.as_ref().unwrap();
    assert_eq!((resources.requests["cpu"].string(), resources.limits["memory"].string()), ("500m", "1Gi"));
    let spread = &spec.topology_spread_constraints[0];
    assert_eq!((spread.topology_key(), spread.when_unsatisfiable()), ("zone", "DoNotSchedule"));
    assert_eq!((spread.node_affinity_policy(), spread.node_taints_policy()), ("Honor", "Ignore"));
    let affinity = spec.affinity.unwrap();
    assert!(affinity.node_affinity.unwrap().required_during_scheduling_ignored_during_execution.is_some());
    let near = affinity.pod_affinity.unwrap().preferred_during_scheduling_ignored_during_execution[0].clone();
    let term = near.pod_affinity_term.unwrap();
    assert_eq!((term.match_label_keys[0].as_str(), term.mismatch_label_keys[0].as_str()), ("m", "mm"));
    assert_eq!((status.phase(), status.nominated_node_name(), status.reason()), ("Running", "n2", "r"));
    assert_eq!(status.conditions[0].message(), "why");
}

#[test]
fn node_protobuf_is_upstreams() {
    let json = json!({
        "metadata": {"name": "n1", "labels": {"zone": "z"}},
        "spec": {
            "providerID": "p", "unschedulable": true,
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-31T08:00:00Z"}],
        },
        "status": {
            "capacity": {"cpu": "8"}, "allocatable": {"cpu": "4"},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-01-31T08:00:00Z",
            }],
            "images": [{"names": ["a:1"], "sizeBytes": 5}],
        },
    });
    let node: Node = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&node).unwrap(), json);
    let theirs = pb::Node::decode(&*node.encode_to_vec()).unwrap();
    assert_eq!(Node::decode(&*theirs.encode_to_vec()).unwrap(), node);
    let (spec, status) = (theirs.spec.unwrap(), theirs.status.unwrap());
    assert_eq!((spec.provider_id(), spec.unschedulable(), spec.taints[0].effect()), ("p", true, "NoSchedule"));
    assert_eq!((status.capacity["cpu"].string(), status.allocatable["cpu"].string()), ("8", "4"));
    assert_eq!((status.images[0].size_bytes(), status.conditions[0].r#type()), (5, "Ready"));
}

#[test]
fn times() {
    for (text, seconds) in [
        ("1970-01-01T00:00:00Z", 0),
        ("2000-02-29T23:59:59Z", 951_868_799),
        ("2026-01-31T08:00:00.123456Z", 1_769_846_400),
        ("2026-01-31T10:00:00+02:00", 1_769_846_400),
        ("1969-12-31T23:59:59Z", -1),
    ] {
        assert_eq!(Time::parse(text).map(|t| t.seconds), Some(seconds), "{text}");
    }
    for text in ["", "2026-01-31", "2026-13-01T00:00:00Z", "2026-01-31T08:00:00", "2026-01-31T08:00:00.Z5"] {
        assert_eq!(Time::parse(text), None, "{text}");
    }
    for days in (-700_000..2_900_000).step_by(97) {
        let text = Time { seconds: days * 86_400 + 5, nanos: 0 }.to_string();
        assert_eq!(Time::parse(&text).map(|t| t.seconds), Some(days * 86_400 + 5), "{text}");
    }
}

#[test]
fn requests_are_effective() {
    let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let sidecar = |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    for (why, spec, want) in [
        ("sum of containers", json!({"containers": [container("1"), container("500m")]}), 1500),
        ("a large init container", json!({"containers": [container("1")], "initContainers": [container("3")]}), 3000),
        (
            "init containers run in turn",
            json!({"containers": [container("1")], "initContainers": [container("2"), container("2")]}),
            2000,
        ),
        ("a sidecar stays", json!({"containers": [container("1")], "initContainers": [sidecar("1")]}), 2000),
        (
            "an init container beside an earlier sidecar",
            json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("2")]}),
            3000,
        ),
        (
            "an init container before the sidecar",
            json!({"containers": [container("1")], "initContainers": [container("2"), sidecar("1")]}),
            2000,
        ),
        ("overhead on top", json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}), 1250),
        (
            "the pod's own request",
            json!({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": 1}}),
            5000,
        ),
    ] {
        let pod = Pod { spec: serde_json::from_value(spec).unwrap(), ..Pod::default() };
        assert_eq!(pod_requests(&pod)["cpu"].milli_value(), want, "{why}");
    }
    let pod = Pod {
        spec: serde_json::from_value(json!({"containers": [{"name": "a"}, container("1")]})).unwrap(),
        ..Pod::default()
    };
    assert_eq!(non_zero_requests(&pod), (1100, 400 << 20));
    assert!(pod_requests(&Pod::default()).is_empty());
}

#[test]
fn selectors() {
    let labels = [("a".to_owned(), "1".to_owned())].into();
    for (selector, want) in [
        (json!({}), true),
        (json!({"matchLabels": {"a": "1"}}), true),
        (json!({"matchLabels": {"a": "2"}}), false),
        (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}), true),
        (json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}), false),
        (json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), true),
        (json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}), false),
        (json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}), true),
    ] {
        let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(parsed.matches(&labels), want, "{selector}");
    }
}

#[test]
fn quantities_are_checked() {
    let read = |json| serde_json::from_value::<Quantity>(json).map(|q| q.string).map_err(|e| e.to_string());
    assert_eq!(read(json!("2Gi")), Ok("2Gi".to_owned()));
    assert_eq!(read(json!(2)), Ok("2".to_owned()));
    assert_eq!(read(json!(1.5)), Ok("1.5".to_owned()));
    assert!(read(json!("2GB")).unwrap_err().contains("not a quantity"));
    assert!(read(json!([1])).unwrap_err().contains("a quantity"));
}
