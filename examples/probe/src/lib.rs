//! Logs all that a host tells a plugin, at every extension point: to see what a pod's life looks like from inside a guest,
//! and to check a host against the contract (`kube_scheduler_sdk::testing::contract`).
//!
//! It changes nothing unless a pod's annotations ask for it:
//!
//! | annotation | asks for |
//! |---|---|
//! | `probe/answer` | this code, at every point that can answer it |
//! | `probe/nodes` | PreFilter keeps the pod to these nodes (commas between them), PostFilter nominates the first |
//! | `probe/score` | this score |
//! | `probe/wait` | Permit holds the pod for so many milliseconds |
//! | `probe/other` | Permit looks for the waiting pod of this uid, and rejects it if there is `probe/reject` |

use core::fmt::Display;
use core::time::Duration;

use kube_scheduler_sdk::bridge::Bridge;
use kube_scheduler_sdk::host::{Event, ObjectReference, node_score_list};
use kube_scheduler_sdk::prelude::*;

/// The plugin.
#[derive(Debug)]
pub struct Probe {
    config: String,
    bridge: Bridge,
}

plugin!(
    Probe: Enqueue, PreFilter, PreFilterExtensions, Filter, PostFilter, PreScore, Score, Reserve, Permit, PreBind, Bind,
    PostBind
);

fn log(point: &str, pairs: &[(&str, &dyn Display)]) {
    let mut all: Vec<(&str, &dyn Display)> = vec![("point", &point)];
    all.extend_from_slice(pairs);
    klog::info("probe", &all);
}

/// The refusal that the pod asks for.
fn answer(pod: Pod<'_>) -> Result<(), Status> {
    const ASKED: &str = "the pod asked for it";
    Err(match pod.annotation("probe/answer")? {
        Some("Error") => Status::error(ASKED),
        Some("Unschedulable") => Status::unschedulable(ASKED),
        Some("UnschedulableAndUnresolvable") => Status::unresolvable(ASKED),
        Some("Pending") => Status::pending(ASKED),
        _ => return Ok(()),
    })
}

/// Whether the pod asks to be skipped.
fn skipped(pod: Pod<'_>) -> Result<bool, Status> {
    Ok(pod.annotation("probe/answer")? == Some("Skip"))
}

/// A number that the pod asks for.
fn number(pod: Pod<'_>, annotation: &str) -> Result<Option<i64>, Status> {
    let Some(text) = pod.annotation(annotation)? else { return Ok(None) };
    text.parse().map(Some).map_err(|e| Status::error(format!("annotation {annotation}: {e}")))
}

impl Plugin for Probe {
    fn new(config: &Config) -> Result<Self, Status> {
        Ok(Self { config: config.as_str()?.into(), bridge: Bridge::new(Vec::new()) })
    }
}

impl EnqueueExtensions for Probe {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        log("enqueue", &[("config", &self.config)]);
        vec![
            ClusterEvent { resource: EventResource::Node, action: Action::ADD.or(Action::UPDATE_NODE_LABEL) },
            ClusterEvent { resource: EventResource::Pod, action: Action::DELETE },
        ]
    }
}

impl PreFilterPlugin for Probe {
    fn pre_filter(&self, cx: &CycleContext) -> Result<PreFilterResult, Status> {
        let pod = cx.pod()?;
        let bridge = match self.bridge.hello() {
            Ok(hello) => hello.plugin.clone(),
            Err(e) => e.to_string(),
        };
        let requests = pod_requests(pod)?;
        log(
            "prefilter",
            &[
                ("pod", &pod.name()?),
                ("namespace", &pod.namespace()?),
                ("uid", &pod.uid()?),
                ("cpu", &requests.get("cpu")),
                ("memory", &requests.get("memory")),
                ("nodes", &cx.node_list().get().items()?.count()),
                ("bridge", &bridge),
            ],
        );
        answer(pod)?;
        Ok(match pod.annotation("probe/nodes")? {
            Some(nodes) => PreFilterResult::Nodes(nodes.split(',').map(str::to_owned).collect()),
            None if skipped(pod)? => PreFilterResult::Skip,
            None => PreFilterResult::AllNodes,
        })
    }
}

impl PreFilterExtensions for Probe {
    fn add_pod(&self, cx: &TargetContext) -> Result<(), Status> {
        log("addpod", &[("target", &cx.target_pod()?.name()?), ("node", &cx.node_name()?)]);
        answer(cx.pod()?)
    }

    fn remove_pod(&self, cx: &TargetContext) -> Result<(), Status> {
        log("removepod", &[("target", &cx.target_pod()?.name()?), ("node", &cx.node_name()?)]);
        answer(cx.pod()?)
    }
}

impl FilterPlugin for Probe {
    fn filter(&self, cx: &NodeContext) -> Result<(), Status> {
        let node = cx.node()?;
        let mut images = String::new();
        for image in cx.node_image_states(cx.node_name()?)? {
            images.push_str(&format!("{}={}/{};", image.name, image.size, image.num_nodes));
        }
        log(
            "filter",
            &[
                ("node", &node.name()?),
                ("zone", &node.label("zone")?.unwrap_or("none")),
                ("cpu", &node.allocatable("cpu")?.unwrap_or_default()),
                ("images", &images),
            ],
        );
        answer(cx.pod()?)
    }
}

impl PostFilterPlugin for Probe {
    fn post_filter(&self, cx: &PostFilterContext) -> Result<PostFilterResult, Status> {
        let mut codes = String::new();
        for (node, code) in cx.node_to_status_map()? {
            codes.push_str(&format!("{node}={};", code.name()));
        }
        log("postfilter", &[("codes", &codes)]);
        let pod = cx.pod()?;
        if let Err(status) = answer(pod) {
            return Ok(PostFilterResult::ClearNomination(status));
        }
        match pod.annotation("probe/nodes")?.and_then(|nodes| nodes.split(',').next()) {
            Some(node) => Ok(PostFilterResult::Nominate(node.into())),
            None => Err(Status::unschedulable("the probe makes no room")),
        }
    }
}

impl PreScorePlugin for Probe {
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status> {
        log("prescore", &[("nodes", &cx.filtered_nodes()?.join(","))]);
        answer(cx.pod()?)?;
        Ok(if skipped(cx.pod()?)? { PreScoreResult::Skip } else { PreScoreResult::Score })
    }
}

impl ScorePlugin for Probe {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        log("score", &[("node", &cx.node_name()?), ("scores", &node_score_list()?.len())]);
        answer(cx.pod()?)?;
        Ok(number(cx.pod()?, "probe/score")?.unwrap_or(MIN_NODE_SCORE))
    }
}

impl ReservePlugin for Probe {
    fn reserve(&self, cx: &NodeContext) -> Result<(), Status> {
        log("reserve", &[("node", &cx.node_name()?), ("assumed", &cx.pod()?.spec()?.node_name()?)]);
        answer(cx.pod()?)
    }

    fn unreserve(&self, cx: &BindingContext) -> Result<(), Status> {
        log("unreserve", &[("pod", &cx.pod()?.name()?), ("node", &cx.node_name()?)]);
        Ok(())
    }
}

impl PermitPlugin for Probe {
    fn permit(&self, cx: &NodeContext) -> Result<PermitResult, Status> {
        let pod = cx.pod()?;
        let other = pod.annotation("probe/other")?.unwrap_or("none");
        let waits = match cx.get_waiting_pod(other)? {
            Some(pod) => pod.get().name()?.to_owned(),
            None => "not waiting".to_owned(),
        };
        let rejected = pod.annotation("probe/reject")?.is_some() && cx.reject_waiting_pod(other);
        log("permit", &[("node", &cx.node_name()?), ("other", &waits), ("rejected", &rejected)]);
        answer(pod)?;
        Ok(match number(pod, "probe/wait")? {
            Some(ms) => PermitResult::Wait(Duration::from_millis(ms.unsigned_abs())),
            None => PermitResult::Allow,
        })
    }
}

impl PreBindPlugin for Probe {
    fn pre_bind(&self, cx: &BindingContext) -> Result<(), Status> {
        log("prebind", &[("pod", &cx.pod()?.name()?), ("node", &cx.node_name()?)]);
        answer(cx.pod()?)
    }
}

impl BindPlugin for Probe {
    fn bind(&self, cx: &BindingContext) -> Result<BindResult, Status> {
        log("bind", &[("pod", &cx.pod()?.name()?), ("node", &cx.node_name()?)]);
        answer(cx.pod()?)?;
        Ok(BindResult::Skip)
    }
}

impl PostBindPlugin for Probe {
    fn post_bind(&self, cx: &BindingContext) -> Result<(), Status> {
        let pod = cx.pod()?;
        log("postbind", &[("pod", &pod.name()?), ("node", &cx.node_name()?)]);
        let regarding = ObjectReference {
            kind: "Pod",
            api_version: "v1",
            name: pod.name()?,
            namespace: pod.namespace()?,
            uid: pod.uid()?,
            resource_version: pod.metadata()?.resource_version()?,
        };
        let event =
            Event { regarding, reason: "Probed", action: "Binding", note: "the probe saw it", ..Event::default() };
        cx.eventf(&event);
        Ok(())
    }
}
