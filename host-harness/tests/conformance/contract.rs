//! The SDK's contract of a host, on this one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use host_harness::guest::{Event, Guest, Host, ImageState, LogLine, Options, Pod, Status};
use kube_scheduler_abi::Export;
use kube_scheduler_sdk::testing::contract::{self, Outcome, Step};
use kube_scheduler_sdk::testing::{NodeBuilder, PodBuilder};

/// What stands behind the contract: its nodes and its waiting pod, no bridge.
struct Cluster {
    nodes: [NodeBuilder; 2],
    waiting: Option<PodBuilder>,
    lines: Vec<LogLine>,
    events: Vec<Event>,
}

impl Host for Cluster {
    fn node(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.nodes.iter().find(|node| node.get_name() == name).map(|node| node.to_bytes().into())
    }

    fn nodes(&mut self) -> Vec<Cow<'_, [u8]>> {
        self.nodes.iter().map(|node| node.to_bytes().into()).collect()
    }

    fn image_states(&mut self, node: &str) -> Option<BTreeMap<String, ImageState>> {
        let node = self.nodes.iter().find(|n| n.get_name() == node)?;
        let state = |(name, size): &(String, i64)| {
            let holders = self.nodes.iter().filter(|n| n.images().iter().any(|(image, _)| image == name));
            let nodes = holders.map(|n| n.get_name().to_owned()).collect();
            (name.clone(), ImageState { size: *size, nodes })
        };
        Some(node.images().iter().map(state).collect())
    }

    fn log(&mut self, line: LogLine) {
        self.lines.push(line);
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn waiting_pod(&mut self, uid: &str) -> Option<Cow<'_, [u8]>> {
        self.waiting.as_ref().filter(|pod| pod.get_uid() == uid).map(|pod| pod.to_bytes().into())
    }

    fn reject_waiting_pod(&mut self, uid: &str) -> bool {
        self.waiting.take_if(|pod| pod.get_uid() == uid).is_some()
    }

    fn bridge(&mut self, _: &[u8], _: bool) -> Option<Vec<u8>> {
        None
    }
}

fn call(guest: &mut Guest, host: &mut Cluster, step: &Step) -> (Status, String) {
    let (node, target) = (contract::NODE, contract::target());
    let assumed = matches!(
        step.export,
        Export::Reserve | Export::Permit | Export::Unreserve | Export::PreBind | Export::Bind | Export::PostBind
    );
    let pod = if assumed { step.pod().node_name(node) } else { step.pod() };
    let (bytes, other) = (pod.to_bytes(), target.to_bytes());
    let pod = Pod { uid: pod.get_uid(), protobuf: &bytes };
    let target = Pod { uid: target.get_uid(), protobuf: &other };
    let none = Status { code: 0, reason: String::new() };
    let plain = |status| (status, String::new());
    let answer = match step.export {
        Export::Enqueue => guest.enqueue(host).map(|events| (none, contract::events(&events))),
        Export::PreFilter => guest.prefilter(host, pod).map(|r| (r.status, contract::node_names(r.nodes))),
        Export::AddPod => guest.addpod(host, pod, target, node).map(plain),
        Export::RemovePod => guest.removepod(host, pod, target, node).map(plain),
        Export::Filter => guest.filter(host, pod, node).map(plain),
        Export::PostFilter => {
            let statuses = contract::STATUSES.map(|(node, code)| (node.to_owned(), code as i32));
            guest.postfilter(host, pod, &statuses.into()).map(|r| (r.status, contract::nomination(r.nominated)))
        }
        Export::PreScore => guest.prescore(host, pod, &contract::FILTERED).map(plain),
        Export::Score => guest.score(host, pod, node).map(|r| (r.status, r.score.to_string())),
        Export::Reserve => guest.reserve(host, pod, node).map(plain),
        Export::Permit => guest.permit(host, pod, node).map(|r| (r.status, r.wait_ms.to_string())),
        Export::Unreserve => guest.unreserve(host, pod, node).map(|()| plain(none)),
        Export::PreBind => guest.prebind(host, pod, node).map(plain),
        Export::Bind => guest.bind(host, pod, node).map(plain),
        Export::PostBind => guest.postbind(host, pod, node).map(|()| plain(none)),
        Export::NormalizeScore => unreachable!("no guest of the SDK exports it"),
    };
    answer.unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn the_harness_keeps_it() {
    let Some(wasm) = crate::built("probe.wasm") else { return };
    let mut guest = Guest::load(&wasm, Options { config: contract::CONFIG.into(), ..Options::default() })
        .unwrap_or_else(|e| panic!("{e}"));
    let mut host =
        Cluster { nodes: contract::nodes(), waiting: Some(contract::waiting()), lines: Vec::new(), events: Vec::new() };
    contract::check(|step| {
        let (status, result) = call(&mut guest, &mut host, step);
        let log = host.lines.drain(..).map(|line| line.pairs).collect();
        Outcome { code: status.code, reason: status.reason, result, log }
    });
    assert_eq!(host.events.len(), 1);
    assert_eq!(guest.usage().binding, 0, "every instance was given back");
}
