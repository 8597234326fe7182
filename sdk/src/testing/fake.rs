use std::cell::RefCell;
use std::collections::BTreeMap;

use kube_scheduler_abi::{Code, Import, Severity, bridge, klog, names};

use super::Host;
use super::build::{NodeBuilder, PodBuilder, Writer};
use crate::json;

/// One line a plugin logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Info or error.
    pub severity: Severity,
    /// The message.
    pub message: String,
    /// Keys and values.
    pub pairs: Vec<(String, String)>,
}

impl LogLine {
    /// The value under a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

type Bridge = Box<dyn FnMut(&[u8]) -> Vec<u8>>;

/// What one call is about, and what it handed over.
#[derive(Default)]
pub(super) struct Call {
    pub(super) pod: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) node_name: String,
    pub(super) filtered_nodes: Vec<String>,
    pub(super) statuses: Vec<(String, Code)>,
    /// Unreserve, PreBind, Bind, PostBind: the snapshot is being rewritten meanwhile.
    pub(super) beside_cycle: bool,
    pub(super) written: BTreeMap<Import, Vec<u8>>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<String, NodeBuilder>,
    waiting: BTreeMap<String, Vec<u8>>,
    config: String,
    severity: i32,
    logs: Vec<LogLine>,
    events: Vec<String>,
    bridge: Option<Bridge>,
    call: Call,
}

/// A host in the test's own thread: nodes, waiting pods, configuration, and what the plugin logged.
///
/// It answers as the extension does, its flaws included: what `log` drops is dropped, `get_waiting_pod` says no length,
/// and reading the snapshot where that can crash the scheduler panics here.
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

    /// Adds a node to the snapshot.
    #[must_use]
    pub fn node(self, node: NodeBuilder) -> Self {
        self.with(|s| {
            s.nodes.insert(node.get_name().into(), node);
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

    /// Sets `logSeverity`.
    #[must_use]
    pub fn log_severity(self, threshold: i32) -> Self {
        self.with(|s| s.severity = threshold)
    }

    /// Puts a bridge behind the host. `answer` gets an encoded request and gives the encoded response.
    #[must_use]
    pub fn raw_bridge(self, answer: impl FnMut(&[u8]) -> Vec<u8> + 'static) -> Self {
        self.with(|s| s.bridge = Some(Box::new(answer)))
    }

    /// Puts a bridge behind the host. It answers Hello by itself, as one that serves every call, and the rest by
    /// `answer`.
    #[cfg(feature = "bridge")]
    #[must_use]
    pub fn bridge(
        self,
        mut answer: impl FnMut(crate::bridge::request::Call) -> crate::bridge::response::Result + 'static,
    ) -> Self {
        use kube_scheduler_abi::bridge::v1::{Error, HelloReply, Request, Response, error, request, response};
        use prost::Message as _;

        self.raw_bridge(move |bytes| {
            let result = match Request::decode(bytes).map(|r| r.call) {
                Ok(Some(request::Call::Hello(_))) => response::Result::Hello(HelloReply {
                    version: bridge::VERSION,
                    plugin: "fake".into(),
                    profile: "fake".into(),
                    kubernetes: "v0.0.0".into(),
                    calls: crate::bridge::CALLS.iter().map(|&c| c.into()).collect(),
                }),
                Ok(Some(call)) => answer(call),
                _ => response::Result::Error(Error {
                    code: error::Code::BadRequest.into(),
                    message: "the request can't be read, or holds no call".into(),
                }),
            };
            Response { result: Some(result) }.encode_to_vec()
        })
    }

    /// The lines logged so far.
    #[must_use]
    pub fn logs(&self) -> Vec<LogLine> {
        self.0.borrow().logs.clone()
    }

    /// The Events recorded so far, as JSON.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.0.borrow().events.clone()
    }

    /// The uids of the pods that wait.
    #[must_use]
    pub fn waiting_uids(&self) -> Vec<String> {
        self.0.borrow().waiting.keys().cloned().collect()
    }

    /// Begins a call; gives back the one before.
    pub(super) fn begin(&self, call: Call) -> Call {
        std::mem::replace(&mut self.0.borrow_mut().call, call)
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

impl State {
    fn reply(&mut self, import: Import, key: &[u8]) -> Vec<u8> {
        let snapshot = matches!(import, Import::Node | Import::NodeList | Import::NodeImageStates)
            && key.first() != Some(&bridge::MARK);
        assert!(
            !(snapshot && self.call.beside_cycle),
            "{} reads the snapshot, which is being rewritten while Unreserve, PreBind, Bind and PostBind run: \
             this can crash the scheduler",
            import.name()
        );
        let node = |key: &[u8]| std::str::from_utf8(key).ok().and_then(|name| self.nodes.get(name));
        match import {
            Import::Node => match (key, &mut self.bridge) {
                ([bridge::MARK, request @ ..], Some(bridge)) => {
                    let reply = bridge(request);
                    let mut node = Writer::default();
                    node.message(1, |m| m.bytes(1, &reply));
                    node.into_bytes()
                }
                _ => node(key).map(NodeBuilder::to_bytes).unwrap_or_default(),
            },
            Import::NodeList => {
                let mut list = Writer::default();
                self.nodes.values().for_each(|node| list.bytes(2, &node.to_bytes()));
                list.into_bytes()
            }
            Import::NodeImageStates => match node(key) {
                None => b"null".to_vec(),
                Some(node) => object(node.images().iter().map(|(name, size)| {
                    let holders = self.nodes.values().filter(|n| n.images().iter().any(|(other, _)| other == name));
                    let names = holders.map(|n| (n.get_name().to_owned(), "{}".to_owned()));
                    let nodes = names.collect::<Vec<_>>();
                    let (num, nodes) = (nodes.len(), String::from_utf8_lossy(&object(nodes)).into_owned());
                    (name.clone(), format!(r#"{{"Size":{size},"NumNodes":{num},"Nodes":{nodes}}}"#))
                })),
            },
            Import::GetConfig => self.config.clone().into_bytes(),
            Import::CurrentPod => self.call.pod.clone(),
            Import::TargetPod => self.call.target.clone(),
            Import::CurrentNodeName => self.call.node_name.clone().into_bytes(),
            Import::FilteredNodeList => {
                let mut list = vec![b'['];
                for (i, name) in self.call.filtered_nodes.iter().enumerate() {
                    if i > 0 {
                        list.push(b',');
                    }
                    json::push_string(&mut list, name);
                }
                list.push(b']');
                list
            }
            Import::NodeToStatusMap => {
                object(self.call.statuses.iter().map(|(node, code)| (node.clone(), (*code as i32).to_string())))
            }
            Import::NodeScoreList => b"{}".to_vec(),
            _ => panic!("{} is no reading function", import.name()),
        }
    }
}

/// A JSON object of values that are JSON, sorted by key as Go sorts it.
fn object(entries: impl IntoIterator<Item = (String, String)>) -> Vec<u8> {
    let mut out = vec![b'{'];
    for (key, value) in BTreeMap::from_iter(entries) {
        if out.len() > 1 {
            out.push(b',');
        }
        json::push_string(&mut out, &key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    out
}

impl Host for FakeHost {
    fn read(&self, import: Import, key: &[u8], buf: &mut [u8]) -> usize {
        let reply = self.0.borrow_mut().reply(import, key);
        if let Some(room) = buf.get_mut(..reply.len()) {
            room.copy_from_slice(&reply);
        }
        reply.len()
    }

    fn write(&self, import: Import, bytes: &[u8]) {
        let mut state = self.0.borrow_mut();
        if import == Import::Eventf {
            state.events.push(String::from_utf8_lossy(bytes).into_owned());
        } else {
            state.call.written.insert(import, bytes.to_vec());
        }
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
        let mut state = self.0.borrow_mut();
        let passes = if pairs.is_empty() { klog::log_passes } else { klog::logs_passes };
        let severity = match severity {
            0 => Severity::Info,
            2 => Severity::Error,
            // The host prints no others.
            _ => return,
        };
        if !passes(severity as i32, state.severity) {
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entries: Vec<_> = names::iter(pairs).map(text).collect();
        let pairs = entries.chunks(2).map(|p| (p[0].clone(), p.get(1).cloned().unwrap_or_default())).collect();
        state.logs.push(LogLine { severity, message: text(message), pairs });
    }

    fn severity(&self) -> i32 {
        self.0.borrow().severity
    }
}
