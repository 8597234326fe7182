//! Field numbers: a message that k8s-pb writes with every field set reads back whole.

use k8s_pb::api::core::v1 as core;
use k8s_pb::apimachinery::pkg::api::resource;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use kube_scheduler_sdk::api::{self, Malformed, Message as _};
use kube_scheduler_sdk::testing::{container, node, pod};
use prost::Message;

use crate::fuzz::Same;

fn s(text: &str) -> Option<String> {
    Some(text.into())
}

fn strings(text: &str) -> Vec<String> {
    vec![text.into()]
}

fn pairs() -> std::collections::BTreeMap<String, String> {
    [("key".to_owned(), "value".to_owned())].into()
}

fn quantities() -> std::collections::BTreeMap<String, resource::Quantity> {
    [("cpu".to_owned(), resource::Quantity { string: s("1500m") })].into()
}

fn time() -> Option<meta::Time> {
    Some(meta::Time { seconds: Some(1_700_000_000), nanos: Some(5) })
}

fn metadata() -> meta::ObjectMeta {
    meta::ObjectMeta {
        name: s("name"),
        generate_name: s("generate-"),
        namespace: s("namespace"),
        uid: s("uid"),
        resource_version: s("7"),
        generation: Some(3),
        creation_timestamp: time(),
        deletion_timestamp: time(),
        labels: pairs(),
        annotations: pairs(),
        owner_references: vec![meta::OwnerReference {
            api_version: s("batch/v1"),
            kind: s("Job"),
            name: s("job"),
            uid: s("uid"),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }],
        finalizers: strings("finalizer"),
        ..Default::default()
    }
}

fn selector() -> Option<meta::LabelSelector> {
    Some(meta::LabelSelector {
        match_labels: pairs(),
        match_expressions: vec![meta::LabelSelectorRequirement {
            key: s("key"),
            operator: s("In"),
            values: strings("value"),
        }],
    })
}

fn node_term() -> core::NodeSelectorTerm {
    let requirement =
        || vec![core::NodeSelectorRequirement { key: s("key"), operator: s("In"), values: strings("value") }];
    core::NodeSelectorTerm { match_expressions: requirement(), match_fields: requirement() }
}

fn pod_term() -> core::PodAffinityTerm {
    core::PodAffinityTerm {
        label_selector: selector(),
        namespaces: strings("namespace"),
        topology_key: s("zone"),
        namespace_selector: selector(),
        match_label_keys: strings("key"),
        mismatch_label_keys: strings("key"),
    }
}

fn weighted() -> Vec<core::WeightedPodAffinityTerm> {
    vec![core::WeightedPodAffinityTerm { weight: Some(5), pod_affinity_term: Some(pod_term()) }]
}

fn resources() -> Option<core::ResourceRequirements> {
    Some(core::ResourceRequirements { limits: quantities(), requests: quantities(), ..Default::default() })
}

fn a_container() -> core::Container {
    core::Container {
        name: s("main"),
        image: s("image"),
        ports: vec![core::ContainerPort {
            name: s("http"),
            host_port: Some(80),
            container_port: Some(8080),
            protocol: s("TCP"),
            host_ip: s("10.0.0.1"),
        }],
        resources: resources(),
        image_pull_policy: s("Always"),
        restart_policy: s("Always"),
        ..Default::default()
    }
}

fn a_container_status() -> core::ContainerStatus {
    core::ContainerStatus {
        name: s("main"),
        ready: Some(true),
        restart_count: Some(2),
        image: s("image:1"),
        started: Some(true),
        allocated_resources: quantities(),
        resources: resources(),
        ..Default::default()
    }
}

fn full_pod() -> core::Pod {
    core::Pod {
        metadata: Some(metadata()),
        spec: Some(core::PodSpec {
            volumes: vec![core::Volume {
                name: s("data"),
                volume_source: Some(core::VolumeSource {
                    gce_persistent_disk: Some(core::GcePersistentDiskVolumeSource {
                        pd_name: s("disk"),
                        read_only: Some(true),
                        ..Default::default()
                    }),
                    aws_elastic_block_store: Some(core::AwsElasticBlockStoreVolumeSource {
                        volume_id: s("vol-1"),
                        read_only: Some(true),
                        ..Default::default()
                    }),
                    iscsi: Some(core::IscsiVolumeSource {
                        target_portal: s("10.0.0.1:3260"),
                        iqn: s("iqn.2001-04.com.example"),
                        lun: Some(3),
                        read_only: Some(true),
                        ..Default::default()
                    }),
                    rbd: Some(core::RbdVolumeSource {
                        monitors: strings("10.0.0.1"),
                        image: s("image"),
                        pool: s("pool"),
                        read_only: Some(true),
                        ..Default::default()
                    }),
                    csi: Some(core::CSIVolumeSource {
                        driver: s("driver"),
                        read_only: Some(true),
                        ..Default::default()
                    }),
                    persistent_volume_claim: Some(core::PersistentVolumeClaimVolumeSource {
                        claim_name: s("claim"),
                        read_only: Some(true),
                    }),
                    ephemeral: Some(core::EphemeralVolumeSource {
                        volume_claim_template: Some(core::PersistentVolumeClaimTemplate {
                            metadata: Some(metadata()),
                            ..Default::default()
                        }),
                    }),
                    ..Default::default()
                }),
            }],
            containers: vec![a_container()],
            init_containers: vec![a_container()],
            restart_policy: s("Never"),
            termination_grace_period_seconds: Some(30),
            active_deadline_seconds: Some(60),
            node_selector: pairs(),
            service_account_name: s("account"),
            node_name: s("node"),
            host_network: Some(true),
            affinity: Some(core::Affinity {
                node_affinity: Some(core::NodeAffinity {
                    required_during_scheduling_ignored_during_execution: Some(core::NodeSelector {
                        node_selector_terms: vec![node_term()],
                    }),
                    preferred_during_scheduling_ignored_during_execution: vec![core::PreferredSchedulingTerm {
                        weight: Some(5),
                        preference: Some(node_term()),
                    }],
                }),
                pod_affinity: Some(core::PodAffinity {
                    required_during_scheduling_ignored_during_execution: vec![pod_term()],
                    preferred_during_scheduling_ignored_during_execution: weighted(),
                }),
                pod_anti_affinity: Some(core::PodAntiAffinity {
                    required_during_scheduling_ignored_during_execution: vec![pod_term()],
                    preferred_during_scheduling_ignored_during_execution: weighted(),
                }),
            }),
            scheduler_name: s("scheduler"),
            tolerations: vec![core::Toleration {
                key: s("key"),
                operator: s("Equal"),
                value: s("value"),
                effect: s("NoExecute"),
                toleration_seconds: Some(300),
            }],
            priority_class_name: s("high"),
            priority: Some(-7),
            preemption_policy: s("Never"),
            overhead: quantities(),
            topology_spread_constraints: vec![core::TopologySpreadConstraint {
                max_skew: Some(1),
                topology_key: s("zone"),
                when_unsatisfiable: s("DoNotSchedule"),
                label_selector: selector(),
                min_domains: Some(2),
                node_affinity_policy: s("Honor"),
                node_taints_policy: s("Ignore"),
                match_label_keys: strings("key"),
            }],
            runtime_class_name: s("kata"),
            scheduling_gates: vec![core::PodSchedulingGate { name: s("gate") }],
            resource_claims: vec![core::PodResourceClaim {
                name: s("gpu"),
                resource_claim_name: s("claim"),
                resource_claim_template_name: s("template"),
            }],
            resources: resources(),
            ..Default::default()
        }),
        status: Some(core::PodStatus {
            phase: s("Pending"),
            conditions: vec![core::PodCondition {
                r#type: s("PodScheduled"),
                status: s("False"),
                last_transition_time: time(),
                reason: s("Unschedulable"),
                message: s("message"),
                ..Default::default()
            }],
            message: s("message"),
            reason: s("reason"),
            start_time: time(),
            container_statuses: vec![a_container_status()],
            init_container_statuses: vec![a_container_status()],
            resize: s("Deferred"),
            resource_claim_statuses: vec![core::PodResourceClaimStatus {
                name: s("gpu"),
                resource_claim_name: s("claim"),
            }],
            qos_class: s("Burstable"),
            nominated_node_name: s("node"),
            ..Default::default()
        }),
    }
}

fn full_node() -> core::Node {
    core::Node {
        metadata: Some(metadata()),
        spec: Some(core::NodeSpec {
            provider_id: s("cloud://1"),
            unschedulable: Some(true),
            taints: vec![core::Taint { key: s("key"), value: s("value"), effect: s("NoSchedule"), time_added: time() }],
            ..Default::default()
        }),
        status: Some(core::NodeStatus {
            capacity: quantities(),
            allocatable: quantities(),
            conditions: vec![core::NodeCondition {
                r#type: s("Ready"),
                status: s("True"),
                last_transition_time: time(),
                reason: s("reason"),
                message: s("message"),
                ..Default::default()
            }],
            addresses: vec![core::NodeAddress { r#type: s("Hostname"), address: s("node") }],
            node_info: Some(core::NodeSystemInfo {
                kernel_version: s("6.1"),
                os_image: s("Debian"),
                container_runtime_version: s("containerd://2"),
                kubelet_version: s("v1.32.5"),
                operating_system: s("linux"),
                architecture: s("arm64"),
                ..Default::default()
            }),
            images: vec![core::ContainerImage { names: strings("image:1"), size_bytes: Some(9) }],
            ..Default::default()
        }),
    }
}

/// What a field reads as when it is absent, in the readers' debug output. A reader whose field number is wrong shows one
/// of these, and so does a field that the fixtures above forgot.
fn assert_nothing_is_absent(debug: &str) {
    for absent in ["\"\"", "None", "[]", ": Ok(0)", "Ok(false)", "Err("] {
        assert!(!debug.contains(absent), "{absent} in {debug}");
    }
}

#[test]
fn every_field_reads_back() {
    let bytes = full_pod().encode_to_vec();
    let ours = api::Pod::from_bytes(&bytes);
    ours.same(&full_pod()).expect("readable");
    assert_nothing_is_absent(&format!("{ours:?}"));

    let list = core::NodeList {
        metadata: Some(meta::ListMeta { resource_version: s("9"), ..Default::default() }),
        items: vec![full_node(), full_node()],
    };
    let bytes = list.encode_to_vec();
    let ours = api::NodeList::from_bytes(&bytes);
    ours.same(&list).expect("readable");
    assert_nothing_is_absent(&format!("{ours:?}"));
}

#[test]
fn fuzzing_starts_from_every_field() {
    crate::is_generated("fuzz/seeds/pod/every-field", &full_pod().encode_to_vec());
    crate::is_generated("fuzz/seeds/node/every-field", &full_node().encode_to_vec());
}

#[test]
fn an_empty_message_reads_as_defaults() {
    let nothing = api::Pod::from_bytes(&[]);
    nothing.same(&core::Pod::default()).expect("readable");
    assert_eq!(nothing.label("a"), Ok(None));
    assert_eq!(nothing.spec().and_then(|s| s.priority()), Ok(None));
}

#[test]
fn malformed_bytes_are_errors() {
    let name = |bytes: &[u8]| api::Pod::from_bytes(bytes).name().map(str::to_owned);
    for (bytes, expected) in [
        (&[0x0a][..], Malformed::Truncated),
        (&[0x0a, 5, 1], Malformed::Truncated),
        (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Malformed::Varint),
        (&[0x02, 0], Malformed::FieldNumber),
        (&[0x08, 1], Malformed::WireType { field: 1 }),
        (&[0x0f], Malformed::WireType { field: 1 }),
        (&[0x0a, 3, 0x0a, 1, 0xff], Malformed::Utf8 { field: 1 }),
        (&[0x0a, 0, 0x0a, 0], Malformed::Repeated { field: 1 }),
    ] {
        assert_eq!(name(bytes), Err(expected), "{bytes:x?}");
    }
}

#[test]
fn what_is_not_asked_for_may_be_malformed() {
    // metadata.name, then metadata.uid that is not UTF-8.
    let bytes = [0x0a, 6, 0x0a, 1, b'n', 0x2a, 1, 0xff];
    assert_eq!(api::Pod::from_bytes(&bytes).name(), Ok("n"));
    assert!(api::Pod::from_bytes(&bytes).uid().is_err());
}

#[test]
fn builders_write_what_prost_reads() {
    let bytes = pod("p").uid("u").label("a", "b").cpu("2").priority(-1).node_name("n").deleted(5).to_bytes();
    let theirs = core::Pod::decode(&bytes[..]).expect("a pod");
    let (metadata, spec) = (theirs.metadata.expect("metadata"), theirs.spec.expect("spec"));
    assert_eq!((metadata.name(), metadata.namespace(), metadata.uid()), ("p", "default", "u"));
    assert_eq!(metadata.deletion_timestamp.and_then(|t| t.seconds), Some(5));
    assert_eq!((spec.priority, spec.node_name()), (Some(-1), "n"));
    let requests = spec.containers[0].resources.as_ref().map(|r| r.requests["cpu"].string());
    assert_eq!(requests, Some("2"));

    let bytes = node("n").resource("cpu", "4").taint("k", "v", "NoSchedule").unschedulable().to_bytes();
    let theirs = core::Node::decode(&bytes[..]).expect("a node");
    assert_eq!(theirs.status.expect("status").allocatable["cpu"].string(), "4");
    assert_eq!(theirs.spec.expect("spec").unschedulable, Some(true));
}

#[test]
fn claims_are_named() {
    let bytes = full_pod().encode_to_vec();
    let volume = api::Pod::from_bytes(&bytes).spec().and_then(|s| s.volumes()).expect("volumes").next();
    assert_eq!(volume.expect("one").and_then(|v| v.claim_name("p")), Ok(Some("claim".into())));

    let ephemeral = core::Volume {
        name: s("scratch"),
        volume_source: Some(core::VolumeSource { ephemeral: Some(Default::default()), ..Default::default() }),
    };
    let bytes = ephemeral.encode_to_vec();
    assert_eq!(api::Volume::from_bytes(&bytes).claim_name("p"), Ok(Some("p-scratch".into())));
}

#[test]
fn requests_are_counted_as_the_scheduler_counts() {
    let c = |cpu: &str| container("c").request("cpu", cpu);
    let cases = [
        ("one container", pod("p").cpu("2"), "2"),
        ("containers add up", pod("p").cpu("2").container(&c("500m")), "2500m"),
        ("a small init container is free", pod("p").cpu("2").init_container(&c("1")), "2"),
        ("a large one counts alone", pod("p").cpu("2").init_container(&c("3")).init_container(&c("4")), "4"),
        ("sidecars run beside the containers", pod("p").cpu("2").sidecar(&c("1")), "3"),
        (
            "and beside the init containers after them",
            pod("p").cpu("1").init_container(&c("4")).sidecar(&c("1")).init_container(&c("4")),
            "5",
        ),
        ("overhead comes on top", pod("p").cpu("2").overhead("cpu", "250m"), "2250m"),
        ("nothing", pod("p"), "0"),
    ];
    for (what, pod, expected) in cases {
        let bytes = pod.to_bytes();
        let requests = api::pod_requests(api::Pod::from_bytes(&bytes)).expect(what);
        assert_eq!(requests.get("cpu").to_string(), expected, "{what}");
    }

    // The pod's own requests stand in for the containers', where it has them.
    let mut own = full_pod();
    let spec = own.spec.as_mut().expect("spec");
    spec.overhead.clear();
    spec.resources = Some(core::ResourceRequirements {
        requests: [("memory".to_owned(), resource::Quantity { string: s("1Gi") })].into(),
        ..Default::default()
    });
    let bytes = own.encode_to_vec();
    let requests = api::pod_requests(api::Pod::from_bytes(&bytes)).expect("readable");
    assert_eq!(format!("{:#} {}", requests.get("memory"), requests.get("cpu")), "1Gi 3");
}
