//! A host that knows two nodes, one waiting pod and a bridge that answers backwards.

use std::borrow::Cow;
use std::collections::BTreeMap;

use host_harness::guest::{Event, Host, ImageState, LogLine};

pub(crate) struct FakeHost {
    pub(crate) lines: Vec<LogLine>,
    pub(crate) events: Vec<Event>,
    pub(crate) rejected: Vec<String>,
    pub(crate) bridge: bool,
    /// What the bridge was asked.
    pub(crate) asked: Vec<Vec<u8>>,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self { lines: Vec::new(), events: Vec::new(), rejected: Vec::new(), bridge: true, asked: Vec::new() }
    }
}

impl Host for FakeHost {
    fn node(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        ["node-1", "node-2"].into_iter().find(|n| *n == name).map(|n| n.as_bytes().into())
    }

    fn nodes(&mut self) -> Vec<Cow<'_, [u8]>> {
        vec![b"node-1"[..].into(), b"node-2"[..].into()]
    }

    fn image_states(&mut self, node: &str) -> Option<BTreeMap<String, ImageState>> {
        let image = ImageState { size: 5, nodes: vec!["node-1".into()] };
        (node == "node-1").then(|| BTreeMap::from([("a".into(), image)]))
    }

    fn log(&mut self, line: LogLine) {
        self.lines.push(line);
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn waiting_pod(&mut self, uid: &str) -> Option<Cow<'_, [u8]>> {
        (uid == "w1").then(|| b"waiting pod"[..].into())
    }

    fn reject_waiting_pod(&mut self, uid: &str) -> bool {
        self.rejected.push(uid.to_owned());
        uid == "w1"
    }

    fn bridge(&mut self, request: &[u8], in_scheduling: bool) -> Option<Vec<u8>> {
        self.asked.push(request.to_vec());
        let backwards = request.iter().rev().copied();
        let verdict: &[u8] = if in_scheduling { b" yes" } else { b" no" };
        self.bridge.then(|| backwards.chain(verdict.iter().copied()).collect())
    }
}
