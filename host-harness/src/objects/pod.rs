//! Pods.

use std::collections::BTreeMap;

use super::{LabelSelector, ObjectMeta, Quantity, Time, messages};

messages! {
    /// A pod.
    Pod {
        metadata: ObjectMeta = [message, required, tag = "1"],
        spec: PodSpec = [message, required, tag = "2"],
        status: PodStatus = [message, required, tag = "3"],
    }

    /// `spec` of a pod.
    PodSpec {
        volumes: Vec<Volume> = [message, repeated, tag = "1"],
        containers: Vec<Container> = [message, repeated, tag = "2"],
        restart_policy: String = [string, tag = "3"],
        termination_grace_period_seconds: Option<i64> = [int64, optional, tag = "4"],
        node_selector: BTreeMap<String, String> = [btree_map = "string, string", tag = "7"],
        node_name: String = [string, tag = "10"],
        host_network: bool = [bool, tag = "11"],
        affinity: Option<Affinity> = [message, optional, tag = "18"],
        scheduler_name: String = [string, tag = "19"],
        init_containers: Vec<Container> = [message, repeated, tag = "20"],
        tolerations: Vec<Toleration> = [message, repeated, tag = "22"],
        priority_class_name: String = [string, tag = "24"],
        priority: Option<i32> = [int32, optional, tag = "25"],
        preemption_policy: String = [string, tag = "31"],
        overhead: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "32"],
        topology_spread_constraints: Vec<TopologySpreadConstraint> = [message, repeated, tag = "33"],
        scheduling_gates: Vec<PodSchedulingGate> = [message, repeated, tag = "38"],
        resources: Option<ResourceRequirements> = [message, optional, tag = "40"],
    }

    /// A volume, as far as a claim stands behind it.
    Volume {
        name: String = [string, tag = "1"],
        #[serde(flatten)]
        source: VolumeSource = [message, required, tag = "2"],
    }

    /// What is behind a volume.
    VolumeSource {
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource> = [message, optional, tag = "10"],
        ephemeral: Option<EphemeralVolumeSource> = [message, optional, tag = "29"],
    }

    /// A claim of the pod's namespace.
    PersistentVolumeClaimVolumeSource {
        claim_name: String = [string, tag = "1"],
        read_only: bool = [bool, tag = "2"],
    }

    /// A claim made for the pod, `POD-VOLUME`.
    EphemeralVolumeSource {
        volume_claim_template: Option<PersistentVolumeClaimTemplate> = [message, optional, tag = "1"],
    }

    /// What such a claim is made of.
    PersistentVolumeClaimTemplate {
        metadata: ObjectMeta = [message, required, tag = "1"],
    }

    /// `status` of a pod.
    PodStatus {
        phase: String = [string, tag = "1"],
        conditions: Vec<PodCondition> = [message, repeated, tag = "2"],
        message: String = [string, tag = "3"],
        reason: String = [string, tag = "4"],
        start_time: Option<Time> = [message, optional, tag = "7"],
        nominated_node_name: String = [string, tag = "11"],
    }

    /// A condition of a pod.
    PodCondition {
        r#type: String = [string, tag = "1"],
        status: String = [string, tag = "2"],
        last_transition_time: Option<Time> = [message, optional, tag = "4"],
        reason: String = [string, tag = "5"],
        message: String = [string, tag = "6"],
    }

    /// A container.
    Container {
        name: String = [string, tag = "1"],
        image: String = [string, tag = "2"],
        ports: Vec<ContainerPort> = [message, repeated, tag = "6"],
        resources: ResourceRequirements = [message, required, tag = "8"],
        restart_policy: String = [string, tag = "24"],
    }

    /// A port of a container.
    ContainerPort {
        name: String = [string, tag = "1"],
        host_port: i32 = [int32, tag = "2"],
        container_port: i32 = [int32, tag = "3"],
        protocol: String = [string, tag = "4"],
        #[serde(rename = "hostIP")]
        host_ip: String = [string, tag = "5"],
    }

    /// Limits and requests.
    ResourceRequirements {
        limits: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "1"],
        requests: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "2"],
    }

    /// A taint that the pod bears.
    Toleration {
        key: String = [string, tag = "1"],
        operator: String = [string, tag = "2"],
        value: String = [string, tag = "3"],
        effect: String = [string, tag = "4"],
        toleration_seconds: Option<i64> = [int64, optional, tag = "5"],
    }

    /// A gate that keeps the pod out of scheduling.
    PodSchedulingGate {
        name: String = [string, tag = "1"],
    }

    /// Where the pod wants to be, and near or far from which pods.
    Affinity {
        node_affinity: Option<NodeAffinity> = [message, optional, tag = "1"],
        pod_affinity: Option<PodAffinity> = [message, optional, tag = "2"],
        pod_anti_affinity: Option<PodAffinity> = [message, optional, tag = "3"],
    }

    /// Affinity to nodes.
    NodeAffinity {
        required_during_scheduling_ignored_during_execution: Option<NodeSelector> = [message, optional, tag = "1"],
        preferred_during_scheduling_ignored_during_execution: Vec<PreferredSchedulingTerm> =
            [message, repeated, tag = "2"],
    }

    /// Terms of which one must match.
    NodeSelector {
        node_selector_terms: Vec<NodeSelectorTerm> = [message, repeated, tag = "1"],
    }

    /// Requirements that must all match.
    NodeSelectorTerm {
        match_expressions: Vec<NodeSelectorRequirement> = [message, repeated, tag = "1"],
        match_fields: Vec<NodeSelectorRequirement> = [message, repeated, tag = "2"],
    }

    /// A requirement on a label or field of a node.
    NodeSelectorRequirement {
        key: String = [string, tag = "1"],
        operator: String = [string, tag = "2"],
        values: Vec<String> = [string, repeated, tag = "3"],
    }

    /// A term with a weight.
    PreferredSchedulingTerm {
        weight: i32 = [int32, tag = "1"],
        preference: NodeSelectorTerm = [message, required, tag = "2"],
    }

    /// Affinity or anti-affinity to pods.
    PodAffinity {
        required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm> = [message, repeated, tag = "1"],
        preferred_during_scheduling_ignored_during_execution: Vec<WeightedPodAffinityTerm> =
            [message, repeated, tag = "2"],
    }

    /// Pods, and the node label that says what is near.
    PodAffinityTerm {
        label_selector: Option<LabelSelector> = [message, optional, tag = "1"],
        namespaces: Vec<String> = [string, repeated, tag = "2"],
        topology_key: String = [string, tag = "3"],
        namespace_selector: Option<LabelSelector> = [message, optional, tag = "4"],
        match_label_keys: Vec<String> = [string, repeated, tag = "5"],
        mismatch_label_keys: Vec<String> = [string, repeated, tag = "6"],
    }

    /// A term with a weight.
    WeightedPodAffinityTerm {
        weight: i32 = [int32, tag = "1"],
        pod_affinity_term: PodAffinityTerm = [message, required, tag = "2"],
    }

    /// How pods must spread over the values of a node label.
    TopologySpreadConstraint {
        max_skew: i32 = [int32, tag = "1"],
        topology_key: String = [string, tag = "2"],
        when_unsatisfiable: String = [string, tag = "3"],
        label_selector: Option<LabelSelector> = [message, optional, tag = "4"],
        min_domains: Option<i32> = [int32, optional, tag = "5"],
        node_affinity_policy: String = [string, tag = "6"],
        node_taints_policy: String = [string, tag = "7"],
        match_label_keys: Vec<String> = [string, repeated, tag = "8"],
    }
}

impl Pod {
    /// `spec.priority`, 0 unless given.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.status.phase == "Succeeded" || self.status.phase == "Failed"
    }

    /// The condition of a type.
    #[must_use]
    pub fn condition(&self, r#type: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|c| c.r#type == r#type)
    }
}
