use super::{LabelSelector, ObjectMeta, Time};
use crate::Quantity;
use crate::wire::{Map, Repeated, Result, messages};

messages! {
    /// A pod. The scheduler's name, namespace, uid, labels and annotations are at hand on the pod itself.
    Pod {
        /// Metadata.
        metadata: ObjectMeta<'a> = 1;
        /// What is wanted.
        spec: PodSpec<'a> = 2;
        /// What is.
        status: PodStatus<'a> = 3;
    }

    /// What a pod asks for.
    PodSpec {
        /// Volumes.
        volumes: Repeated<'a, Volume<'a>> = 1;
        /// Containers that run side by side.
        containers: Repeated<'a, Container<'a>> = 2;
        /// Containers that run before the others, one after the other; those that restart always are sidecars.
        init_containers: Repeated<'a, Container<'a>> = 20;
        /// `Always`, `OnFailure` or `Never`.
        restart_policy: &'a str = 3;
        /// Grace at deletion.
        termination_grace_period_seconds: Option<i64> = 4;
        /// How long the pod may be active.
        active_deadline_seconds: Option<i64> = 5;
        /// Labels the node must have.
        node_selector: Map<'a, &'a str> = 7;
        /// Service account.
        service_account_name: &'a str = 8;
        /// The node, once there is one.
        node_name: &'a str = 10;
        /// Uses the node's network, so container ports are host ports.
        host_network: bool = 11;
        /// Affinity.
        affinity: Option<Affinity<'a>> = 18;
        /// Which profile schedules the pod.
        scheduler_name: &'a str = 19;
        /// Tolerations.
        tolerations: Repeated<'a, Toleration<'a>> = 22;
        /// Name of the priority class.
        priority_class_name: &'a str = 24;
        /// Priority, resolved from the class.
        priority: Option<i32> = 25;
        /// `PreemptLowerPriority` (also when absent) or `Never`.
        preemption_policy: Option<&'a str> = 31;
        /// What the runtime takes beside the containers.
        overhead: Map<'a, Quantity> = 32;
        /// Topology spread.
        topology_spread_constraints: Repeated<'a, TopologySpreadConstraint<'a>> = 33;
        /// Runtime class.
        runtime_class_name: Option<&'a str> = 29;
        /// Gates that keep the pod out of the queue.
        scheduling_gates: Repeated<'a, PodSchedulingGate<'a>> = 38;
        /// Claims of Dynamic Resource Allocation.
        resource_claims: Repeated<'a, PodResourceClaim<'a>> = 39;
        /// Pod-level resources (Kubernetes 1.32, alpha; beta from 1.34).
        resources: Option<ResourceRequirements<'a>> = 40;
    }

    /// What a pod is at.
    PodStatus {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: &'a str = 1;
        /// Conditions.
        conditions: Repeated<'a, PodCondition<'a>> = 2;
        /// For people.
        message: &'a str = 3;
        /// One word.
        reason: &'a str = 4;
        /// When the kubelet took the pod.
        start_time: Option<Time<'a>> = 7;
        /// The containers; none before the kubelet took the pod.
        container_statuses: Repeated<'a, ContainerStatus<'a>> = 8;
        /// `Guaranteed`, `Burstable` or `BestEffort`.
        qos_class: &'a str = 9;
        /// The init containers.
        init_container_statuses: Repeated<'a, ContainerStatus<'a>> = 10;
        /// The node a preemption made room on.
        nominated_node_name: &'a str = 11;
        /// How a change of a running pod's resources goes: `Proposed`, `InProgress`, `Deferred`, `Infeasible` or nothing
        /// (Kubernetes up to 1.32; conditions from 1.33 on).
        resize: &'a str = 14;
        /// The claims made for the pod's `resource_claims`.
        resource_claim_statuses: Repeated<'a, PodResourceClaimStatus<'a>> = 15;
    }

    /// A container as the kubelet has it.
    ContainerStatus {
        /// Name.
        name: &'a str = 1;
        /// Passes its readiness check.
        ready: bool = 4;
        /// How often it was restarted.
        restart_count: i32 = 5;
        /// Image.
        image: &'a str = 6;
        /// Passed its start-up check; absent: not known.
        started: Option<bool> = 9;
        /// What the node set aside.
        allocated_resources: Map<'a, Quantity> = 10;
        /// What the runtime has configured.
        resources: Option<ResourceRequirements<'a>> = 11;
    }

    /// The claim made for one of the pod's `resource_claims`.
    PodResourceClaimStatus {
        /// Name in the pod.
        name: &'a str = 1;
        /// Name of the claim; absent: none is needed.
        resource_claim_name: Option<&'a str> = 2;
    }

    /// One condition of a pod.
    PodCondition {
        /// Type, such as `PodScheduled`.
        type_: &'a str = 1;
        /// `True`, `False` or `Unknown`.
        status: &'a str = 2;
        /// When it last changed.
        last_transition_time: Option<Time<'a>> = 4;
        /// One word.
        reason: &'a str = 5;
        /// For people.
        message: &'a str = 6;
    }

    /// A container.
    Container {
        /// Name.
        name: &'a str = 1;
        /// Image.
        image: &'a str = 2;
        /// Ports.
        ports: Repeated<'a, ContainerPort<'a>> = 6;
        /// Resources.
        resources: ResourceRequirements<'a> = 8;
        /// `Always`, `Never` or `IfNotPresent`.
        image_pull_policy: &'a str = 14;
        /// Of an init container, `Always`: it is a sidecar.
        restart_policy: Option<&'a str> = 24;
    }

    /// A port of a container.
    ContainerPort {
        /// Name.
        name: &'a str = 1;
        /// Port on the node, 0: none.
        host_port: i32 = 2;
        /// Port in the pod.
        container_port: i32 = 3;
        /// `TCP`, `UDP` or `SCTP`.
        protocol: &'a str = 4;
        /// Address on the node, empty: all.
        host_ip: &'a str = 5;
    }

    /// Requests and limits.
    ResourceRequirements {
        /// At most.
        limits: Map<'a, Quantity> = 1;
        /// At least.
        requests: Map<'a, Quantity> = 2;
    }

    /// Affinity of a pod.
    Affinity {
        /// To nodes.
        node_affinity: Option<NodeAffinity<'a>> = 1;
        /// To pods.
        pod_affinity: Option<PodAffinity<'a>> = 2;
        /// Away from pods; has the same shape.
        pod_anti_affinity: Option<PodAffinity<'a>> = 3;
    }

    /// Affinity to nodes.
    NodeAffinity {
        /// `requiredDuringSchedulingIgnoredDuringExecution`.
        required: Option<NodeSelector<'a>> = 1;
        /// `preferredDuringSchedulingIgnoredDuringExecution`.
        preferred: Repeated<'a, PreferredSchedulingTerm<'a>> = 2;
    }

    /// Terms of which one must match.
    NodeSelector {
        /// The terms.
        node_selector_terms: Repeated<'a, NodeSelectorTerm<'a>> = 1;
    }

    /// Requirements that must all match; none at all matches nothing.
    NodeSelectorTerm {
        /// On labels.
        match_expressions: Repeated<'a, NodeSelectorRequirement<'a>> = 1;
        /// On fields; there is only `metadata.name`.
        match_fields: Repeated<'a, NodeSelectorRequirement<'a>> = 2;
    }

    /// One requirement.
    NodeSelectorRequirement {
        /// Label or field.
        key: &'a str = 1;
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        operator: &'a str = 2;
        /// Values.
        values: Repeated<'a, &'a str> = 3;
    }

    /// A weighted term.
    PreferredSchedulingTerm {
        /// 1 to 100.
        weight: i32 = 1;
        /// The term.
        preference: NodeSelectorTerm<'a> = 2;
    }

    /// Affinity to pods, or away from them.
    PodAffinity {
        /// `requiredDuringSchedulingIgnoredDuringExecution`.
        required: Repeated<'a, PodAffinityTerm<'a>> = 1;
        /// `preferredDuringSchedulingIgnoredDuringExecution`.
        preferred: Repeated<'a, WeightedPodAffinityTerm<'a>> = 2;
    }

    /// Pods to be near to, or away from.
    PodAffinityTerm {
        /// Which pods; absent matches none.
        label_selector: Option<LabelSelector<'a>> = 1;
        /// In these namespaces.
        namespaces: Repeated<'a, &'a str> = 2;
        /// Node label that says what near means.
        topology_key: &'a str = 3;
        /// In the namespaces that match.
        namespace_selector: Option<LabelSelector<'a>> = 4;
        /// Labels whose value must equal this pod's.
        match_label_keys: Repeated<'a, &'a str> = 5;
        /// Labels whose value must differ.
        mismatch_label_keys: Repeated<'a, &'a str> = 6;
    }

    /// A weighted term.
    WeightedPodAffinityTerm {
        /// 1 to 100.
        weight: i32 = 1;
        /// The term.
        pod_affinity_term: PodAffinityTerm<'a> = 2;
    }

    /// A toleration.
    Toleration {
        /// Taint key, empty with `Exists`: all.
        key: &'a str = 1;
        /// `Exists` or `Equal` (also when empty).
        operator: &'a str = 2;
        /// For `Equal`.
        value: &'a str = 3;
        /// Taint effect, empty: all.
        effect: &'a str = 4;
        /// For `NoExecute`.
        toleration_seconds: Option<i64> = 5;
    }

    /// How pods spread over domains.
    TopologySpreadConstraint {
        /// Greatest difference allowed.
        max_skew: i32 = 1;
        /// Node label that says the domain.
        topology_key: &'a str = 2;
        /// `DoNotSchedule` or `ScheduleAnyway`.
        when_unsatisfiable: &'a str = 3;
        /// Which pods count.
        label_selector: Option<LabelSelector<'a>> = 4;
        /// Fewest domains.
        min_domains: Option<i32> = 5;
        /// `Honor` or `Ignore`.
        node_affinity_policy: Option<&'a str> = 6;
        /// `Honor` or `Ignore`.
        node_taints_policy: Option<&'a str> = 7;
        /// Labels whose value must equal this pod's.
        match_label_keys: Repeated<'a, &'a str> = 8;
    }

    /// A volume.
    Volume {
        /// Name.
        name: &'a str = 1;
        /// Where it comes from.
        volume_source: VolumeSource<'a> = 2;
    }

    /// Where a volume comes from. Read here: the sources that decide where a pod can run.
    VolumeSource {
        /// A disk of Google's cloud.
        gce_persistent_disk: Option<GcePersistentDiskVolumeSource<'a>> = 3;
        /// A disk of Amazon's cloud.
        aws_elastic_block_store: Option<AwsElasticBlockStoreVolumeSource<'a>> = 4;
        /// An iSCSI disk.
        iscsi: Option<IscsiVolumeSource<'a>> = 8;
        /// A claim.
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource<'a>> = 10;
        /// A Ceph block device.
        rbd: Option<RbdVolumeSource<'a>> = 11;
        /// An inline volume of a CSI driver.
        csi: Option<CsiVolumeSource<'a>> = 28;
        /// Bytes of a generic ephemeral volume; its claim is named `<pod>-<volume>`.
        ephemeral: Option<&'a [u8]> = 29;
    }

    /// A claim in the pod's namespace.
    PersistentVolumeClaimVolumeSource {
        /// Its name.
        claim_name: &'a str = 1;
        /// Read-only.
        read_only: bool = 2;
    }

    /// A disk of Google's cloud.
    GcePersistentDiskVolumeSource {
        /// Its name.
        pd_name: &'a str = 1;
        /// Read-only.
        read_only: bool = 4;
    }

    /// A disk of Amazon's cloud.
    AwsElasticBlockStoreVolumeSource {
        /// Its id.
        volume_id: &'a str = 1;
        /// Read-only.
        read_only: bool = 4;
    }

    /// An iSCSI disk.
    IscsiVolumeSource {
        /// The portal, `ip:port`.
        target_portal: &'a str = 1;
        /// The qualified name.
        iqn: &'a str = 2;
        /// The unit.
        lun: i32 = 3;
        /// Read-only.
        read_only: bool = 6;
    }

    /// A Ceph block device.
    RbdVolumeSource {
        /// The cluster's monitors.
        monitors: Repeated<'a, &'a str> = 1;
        /// The image.
        image: &'a str = 2;
        /// The pool.
        pool: &'a str = 4;
        /// Read-only.
        read_only: bool = 8;
    }

    /// An inline volume of a CSI driver.
    CsiVolumeSource {
        /// The driver.
        driver: &'a str = 1;
        /// Read-only; absent: no.
        read_only: Option<bool> = 2;
    }

    /// A gate.
    PodSchedulingGate {
        /// Its name.
        name: &'a str = 1;
    }

    /// A claim of Dynamic Resource Allocation.
    PodResourceClaim {
        /// Name in the pod.
        name: &'a str = 1;
        /// Name of the claim.
        resource_claim_name: Option<&'a str> = 3;
        /// Name of the template.
        resource_claim_template_name: Option<&'a str> = 4;
    }
}

impl<'a> Pod<'a> {
    /// `metadata.name`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn name(self) -> Result<&'a str> {
        self.metadata()?.name()
    }

    /// `metadata.namespace`.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn namespace(self) -> Result<&'a str> {
        self.metadata()?.namespace()
    }

    /// `metadata.uid`: what to key a pod by.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn uid(self) -> Result<&'a str> {
        self.metadata()?.uid()
    }

    /// A label.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn label(self, key: &str) -> Result<Option<&'a str>> {
        self.metadata()?.labels()?.get(key)
    }

    /// An annotation.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn annotation(self, key: &str) -> Result<Option<&'a str>> {
        self.metadata()?.annotations()?.get(key)
    }
}

impl<'a> Volume<'a> {
    /// The name of the claim this volume needs in a pod of this name, if it needs one: of the claim it names, or of the
    /// one that Kubernetes makes for a generic ephemeral volume.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn claim_name(self, pod_name: &str) -> Result<Option<std::borrow::Cow<'a, str>>> {
        let source = self.volume_source()?;
        if let Some(claim) = source.persistent_volume_claim()? {
            return Ok(Some(claim.claim_name()?.into()));
        }
        Ok(match source.ephemeral()? {
            Some(_) => Some(format!("{pod_name}-{}", self.name()?).into()),
            None => None,
        })
    }
}

impl Container<'_> {
    /// Whether this init container keeps running beside the others.
    ///
    /// # Errors
    /// The bytes are malformed.
    pub fn is_sidecar(self) -> Result<bool> {
        Ok(self.restart_policy()? == Some("Always"))
    }
}
