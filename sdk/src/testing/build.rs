//! Builders that write protobuf, as the host would.

use crate::wire;

/// Writes one message.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn integer(&mut self, field: u32, value: i64) {
        wire::push_varint(&mut self.0, u64::from(field) << 3, value as u64);
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        wire::push_bytes(&mut self.0, field, bytes);
    }

    fn string(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn pair(&mut self, field: u32, key: &str, value: &str) {
        self.message(field, |m| {
            m.string(1, key);
            m.string(2, value);
        });
    }

    fn quantity(&mut self, field: u32, resource: &str, quantity: &str) {
        self.message(field, |m| {
            m.string(1, resource);
            m.message(2, |m| m.string(1, quantity));
        });
    }
}

/// A container under construction.
#[derive(Clone, Debug, Default)]
pub struct ContainerBuilder {
    fields: Writer,
    resources: Writer,
}

/// A container with this name.
#[must_use]
pub fn container(name: &str) -> ContainerBuilder {
    let mut fields = Writer::default();
    fields.string(1, name);
    ContainerBuilder { fields, resources: Writer::default() }
}

impl ContainerBuilder {
    /// Sets the image.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.fields.string(2, image);
        self
    }

    /// Adds a request.
    #[must_use]
    pub fn request(mut self, resource: &str, quantity: &str) -> Self {
        self.resources.quantity(2, resource, quantity);
        self
    }

    /// Adds a limit.
    #[must_use]
    pub fn limit(mut self, resource: &str, quantity: &str) -> Self {
        self.resources.quantity(1, resource, quantity);
        self
    }

    /// Adds a port that the node opens, TCP.
    #[must_use]
    pub fn host_port(mut self, port: i32) -> Self {
        self.fields.message(6, |m| {
            m.integer(2, i64::from(port));
            m.integer(3, i64::from(port));
            m.string(4, "TCP");
        });
        self
    }

    fn write(&self, spec: &mut Writer, field: u32, sidecar: bool) {
        spec.message(field, |m| {
            m.0.extend_from_slice(&self.fields.0);
            m.bytes(8, &self.resources.0);
            if sidecar {
                m.string(24, "Always");
            }
        });
    }
}

/// A pod under construction. Of what can stand but once, the last counts.
#[derive(Clone, Debug)]
pub struct PodBuilder {
    name: String,
    namespace: String,
    uid: String,
    meta: Writer,
    spec: Writer,
    status: Writer,
    /// The first container.
    main: ContainerBuilder,
    node_affinity: Writer,
}

/// A pod with this name in namespace `default`, with uid `uid-<name>` and one container named `main`.
#[must_use]
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("uid-{name}"),
        meta: Writer::default(),
        spec: Writer::default(),
        status: Writer::default(),
        main: container("main"),
        node_affinity: Writer::default(),
    }
}

impl PodBuilder {
    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the uid.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = uid.into();
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.meta.pair(11, key, value);
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.meta.pair(12, key, value);
        self
    }

    /// Sets the creation, in seconds since 1970 UTC.
    #[must_use]
    pub fn created(mut self, seconds: i64) -> Self {
        self.meta.message(8, |m| m.integer(1, seconds));
        self
    }

    /// Makes the pod terminating, since so many seconds after 1970 UTC.
    #[must_use]
    pub fn deleted(mut self, seconds: i64) -> Self {
        self.meta.message(9, |m| m.integer(1, seconds));
        self
    }

    /// Adds the managing controller.
    #[must_use]
    pub fn owner(mut self, api_version: &str, kind: &str, name: &str) -> Self {
        self.meta.message(13, |m| {
            m.string(1, kind);
            m.string(3, name);
            m.string(4, &format!("uid-{name}"));
            m.string(5, api_version);
            m.integer(6, 1);
        });
        self
    }

    /// Adds a request of the first container.
    #[must_use]
    pub fn request(mut self, resource: &str, quantity: &str) -> Self {
        self.main = self.main.request(resource, quantity);
        self
    }

    /// Requests cpu.
    #[must_use]
    pub fn cpu(self, quantity: &str) -> Self {
        self.request("cpu", quantity)
    }

    /// Requests memory.
    #[must_use]
    pub fn memory(self, quantity: &str) -> Self {
        self.request("memory", quantity)
    }

    /// Sets the first container's image.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.main = self.main.image(image);
        self
    }

    /// Adds a container beside the first.
    #[must_use]
    pub fn container(mut self, container: &ContainerBuilder) -> Self {
        container.write(&mut self.spec, 2, false);
        self
    }

    /// Adds an init container.
    #[must_use]
    pub fn init_container(mut self, container: &ContainerBuilder) -> Self {
        container.write(&mut self.spec, 20, false);
        self
    }

    /// Adds a sidecar: an init container that restarts always.
    #[must_use]
    pub fn sidecar(mut self, container: &ContainerBuilder) -> Self {
        container.write(&mut self.spec, 20, true);
        self
    }

    /// Adds to what the runtime takes.
    #[must_use]
    pub fn overhead(mut self, resource: &str, quantity: &str) -> Self {
        self.spec.quantity(32, resource, quantity);
        self
    }

    /// Sets the node, as the scheduler does when it assumes the pod there.
    #[must_use]
    pub fn node_name(mut self, node: &str) -> Self {
        self.spec.string(10, node);
        self
    }

    /// Adds a label that the node must have.
    #[must_use]
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.spec.pair(7, key, value);
        self
    }

    /// Adds a term of required node affinity: one of the terms must match. `operator` is `In`, `Exists`, …
    #[must_use]
    pub fn node_affinity(mut self, key: &str, operator: &str, values: &[&str]) -> Self {
        self.node_affinity.message(1, |term| {
            term.message(1, |m| {
                m.string(1, key);
                m.string(2, operator);
                values.iter().for_each(|v| m.string(3, v));
            });
        });
        self
    }

    /// Adds a toleration of this taint, whatever its value.
    #[must_use]
    pub fn toleration(mut self, key: &str, effect: &str) -> Self {
        self.spec.message(22, |m| {
            m.string(1, key);
            m.string(2, "Exists");
            m.string(4, effect);
        });
        self
    }

    /// Adds a volume with a claim.
    #[must_use]
    pub fn claim(mut self, volume: &str, claim: &str) -> Self {
        self.spec.message(1, |m| {
            m.string(1, volume);
            m.message(2, |m| m.message(10, |m| m.string(1, claim)));
        });
        self
    }

    /// Adds a scheduling gate.
    #[must_use]
    pub fn scheduling_gate(mut self, name: &str) -> Self {
        self.spec.message(38, |m| m.string(1, name));
        self
    }

    /// Sets the scheduler.
    #[must_use]
    pub fn scheduler_name(mut self, name: &str) -> Self {
        self.spec.string(19, name);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.integer(25, i64::from(priority));
        self
    }

    /// Sets the priority class' name.
    #[must_use]
    pub fn priority_class_name(mut self, name: &str) -> Self {
        self.spec.string(24, name);
        self
    }

    /// Sets the preemption policy.
    #[must_use]
    pub fn preemption_policy(mut self, policy: &str) -> Self {
        self.spec.string(31, policy);
        self
    }

    /// Sets the phase.
    #[must_use]
    pub fn phase(mut self, phase: &str) -> Self {
        self.status.string(1, phase);
        self
    }

    /// Sets the nominated node.
    #[must_use]
    pub fn nominated_node_name(mut self, node: &str) -> Self {
        self.status.string(11, node);
        self
    }

    /// The uid.
    #[must_use]
    pub fn get_uid(&self) -> &str {
        &self.uid
    }

    /// The encoded pod.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut pod = Writer::default();
        pod.message(1, |m| {
            m.string(1, &self.name);
            m.string(3, &self.namespace);
            m.string(5, &self.uid);
            m.0.extend_from_slice(&self.meta.0);
        });
        pod.message(2, |m| {
            self.main.write(m, 2, false);
            if !self.node_affinity.0.is_empty() {
                m.message(18, |m| m.message(1, |m| m.bytes(1, &self.node_affinity.0)));
            }
            m.0.extend_from_slice(&self.spec.0);
        });
        pod.bytes(3, &self.status.0);
        pod.0
    }
}

/// A node under construction.
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    name: String,
    meta: Writer,
    spec: Writer,
    status: Writer,
    images: Vec<(String, i64)>,
}

/// A node with this name.
#[must_use]
pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder {
        name: name.into(),
        meta: Writer::default(),
        spec: Writer::default(),
        status: Writer::default(),
        images: Vec::new(),
    }
}

impl NodeBuilder {
    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.meta.pair(11, key, value);
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.meta.pair(12, key, value);
        self
    }

    /// Adds a resource, capacity and allocatable alike.
    #[must_use]
    pub fn resource(mut self, resource: &str, quantity: &str) -> Self {
        self.status.quantity(1, resource, quantity);
        self.status.quantity(2, resource, quantity);
        self
    }

    /// Cordons the node.
    #[must_use]
    pub fn unschedulable(mut self) -> Self {
        self.spec.integer(4, 1);
        self
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.spec.message(5, |m| {
            m.string(1, key);
            m.string(2, value);
            m.string(3, effect);
        });
        self
    }

    /// Adds a condition, such as `Ready` `True`.
    #[must_use]
    pub fn condition(mut self, condition: &str, status: &str) -> Self {
        self.status.message(4, |m| {
            m.string(1, condition);
            m.string(2, status);
        });
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn image(mut self, name: &str, bytes: i64) -> Self {
        self.status.message(8, |m| {
            m.string(1, name);
            m.integer(2, bytes);
        });
        self.images.push((name.into(), bytes));
        self
    }

    /// The images added.
    #[must_use]
    pub fn images(&self) -> &[(String, i64)] {
        &self.images
    }

    /// The name.
    #[must_use]
    pub fn get_name(&self) -> &str {
        &self.name
    }

    /// The encoded node.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut node = Writer::default();
        node.message(1, |m| {
            m.string(1, &self.name);
            m.0.extend_from_slice(&self.meta.0);
        });
        node.bytes(2, &self.spec.0);
        node.bytes(3, &self.status.0);
        node.0
    }
}
