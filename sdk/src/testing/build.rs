//! Builders that write protobuf, as the host would.

/// Writes one message.
#[derive(Clone, Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(&mut self, field: u32, value: i64) {
        self.varint(u64::from(field) << 3);
        self.varint(value as u64);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn string(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
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

/// A pod under construction. Single fields are those last set.
#[derive(Clone, Debug)]
pub struct PodBuilder {
    name: String,
    namespace: String,
    uid: String,
    meta: Writer,
    spec: Writer,
    requests: Writer,
    image: String,
    node: String,
    priority: Option<i32>,
    status: Writer,
}

/// A pod with this name in namespace `default`, with uid `uid-<name>` and one container.
#[must_use]
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("uid-{name}"),
        meta: Writer::default(),
        spec: Writer::default(),
        requests: Writer::default(),
        image: String::new(),
        node: String::new(),
        priority: None,
        status: Writer::default(),
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

    /// Adds a request of the container.
    #[must_use]
    pub fn request(mut self, resource: &str, quantity: &str) -> Self {
        self.requests.quantity(2, resource, quantity);
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

    /// Sets the container's image.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.image = image.into();
        self
    }

    /// Sets the node, as the scheduler does when it assumes the pod there.
    #[must_use]
    pub fn node_name(mut self, node: &str) -> Self {
        self.node = node.into();
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
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
            m.message(2, |m| {
                m.string(1, "main");
                m.string(2, &self.image);
                m.bytes(8, &self.requests.0);
            });
            m.string(10, &self.node);
            if let Some(priority) = self.priority {
                m.integer(25, i64::from(priority));
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
}

/// A node with this name.
#[must_use]
pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder { name: name.into(), meta: Writer::default(), spec: Writer::default(), status: Writer::default() }
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

    /// Adds an image.
    #[must_use]
    pub fn image(mut self, name: &str, bytes: i64) -> Self {
        self.status.message(8, |m| {
            m.string(1, name);
            m.integer(2, bytes);
        });
        self
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
