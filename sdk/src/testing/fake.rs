use std::cell::RefCell;
use std::collections::BTreeMap;

use kube_scheduler_abi::{Import, bridge, names};

use super::{Host, NodeBuilder, PodBuilder};

/// One line a plugin logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// 0: info, 2: error.
    pub severity: i32,
    /// The message.
    pub message: String,
    /// Keys and values in turn.
    pub pairs: Vec<String>,
}

/// A request to the bridge in, its reply out, both encoded.
type Bridge = Box<dyn FnMut(&[u8]) -> Vec<u8>>;

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, Vec<u8>>,
    waiting: BTreeMap<String, Vec<u8>>,
    config: String,
    severity: i32,
    replies: BTreeMap<Import, Vec<u8>>,
    written: BTreeMap<Import, Vec<u8>>,
    logs: Vec<LogLine>,
    bridge: Option<Bridge>,
}

/// A host of one thread: nodes, waiting pods, configuration, and what the plugin logged and answered.
#[derive(Default)]
pub struct FakeHost(RefCell<State>);

impl FakeHost {
    /// A host with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, set: impl FnOnce(&mut State)) -> Self {
        set(self.0.get_mut());
        self
    }

    /// Adds a node.
    #[must_use]
    pub fn node(self, node: &NodeBuilder) -> Self {
        self.with(|s| {
            s.nodes.insert(node.get_name().into(), node.to_bytes());
        })
    }

    /// Adds a pod that waits at Permit.
    #[must_use]
    pub fn waiting(self, pod: &PodBuilder) -> Self {
        self.with(|s| {
            s.waiting.insert(pod.get_uid().into(), pod.to_bytes());
        })
    }

    /// Sets `guestConfig`.
    #[must_use]
    pub fn config(self, text: &str) -> Self {
        self.with(|s| s.config = text.into())
    }

    /// Sets what answers requests to the bridge: an encoded request in, an encoded response out.
    #[must_use]
    pub fn bridge(self, answer: impl FnMut(&[u8]) -> Vec<u8> + 'static) -> Self {
        self.with(|s| s.bridge = Some(Box::new(answer)))
    }

    /// Sets what a reading function answers.
    pub fn set(&self, import: Import, bytes: Vec<u8>) {
        self.0.borrow_mut().replies.insert(import, bytes);
    }

    /// What the plugin last handed to a writing function; forgotten thereby.
    pub fn take(&self, import: Import) -> Option<Vec<u8>> {
        self.0.borrow_mut().written.remove(&import)
    }

    /// The lines logged so far.
    #[must_use]
    pub fn logs(&self) -> Vec<LogLine> {
        self.0.borrow().logs.clone()
    }
}

impl std::fmt::Debug for FakeHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.borrow();
        f.debug_struct("FakeHost")
            .field("nodes", &state.nodes.keys())
            .field("logs", &state.logs)
            .finish_non_exhaustive()
    }
}

impl Host for FakeHost {
    fn read(&self, import: Import, key: &[u8], buf: &mut [u8]) -> usize {
        let mut state = self.0.borrow_mut();
        let State { nodes, replies, bridge, config, .. } = &mut *state;
        let reply = match (import, key) {
            (Import::Node, [bridge::MARK, request @ ..]) => bridge.as_mut().map(|answer| {
                // A node whose metadata.name is the response.
                let wrap = |inner: &[u8]| {
                    let mut outer = vec![0x0a];
                    let mut len = inner.len();
                    while len >= 0x80 {
                        outer.push(len as u8 | 0x80);
                        len >>= 7;
                    }
                    outer.push(len as u8);
                    outer.extend_from_slice(inner);
                    outer
                };
                wrap(&wrap(&answer(request)))
            }),
            (Import::Node, name) => std::str::from_utf8(name).ok().and_then(|name| nodes.get(name).cloned()),
            (Import::GetConfig, _) => Some(config.clone().into_bytes()),
            _ => replies.get(&import).cloned(),
        };
        let reply = reply.unwrap_or_default();
        if let Some(room) = buf.get_mut(..reply.len()) {
            room.copy_from_slice(&reply);
        }
        reply.len()
    }

    fn write(&self, import: Import, bytes: &[u8]) {
        self.0.borrow_mut().written.insert(import, bytes.to_vec());
    }

    fn keyed_out(&self, import: Import, key: &[u8], out: &mut [u8]) {
        let mut state = self.0.borrow_mut();
        let uid = String::from_utf8_lossy(key).into_owned();
        if import == Import::RejectWaitingPod {
            let waited = state.waiting.remove(&uid).is_some();
            out[..8].copy_from_slice(&u64::from(waited).to_le_bytes());
            return;
        }
        match state.waiting.get(&uid) {
            None => out[..8].fill(0),
            Some(pod) => {
                if let Some(room) = out.get_mut(..pod.len()) {
                    room.copy_from_slice(pod);
                }
            }
        }
    }

    fn logs(&self, severity: i32, message: &[u8], pairs: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.borrow_mut().logs.push(LogLine {
            severity,
            message: text(message),
            pairs: names::iter(pairs).map(text).collect(),
        });
    }

    fn severity(&self) -> i32 {
        self.0.borrow().severity
    }
}
