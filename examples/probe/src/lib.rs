//! Logs all that a host tells a plugin, at every extension point: to see what a pod's life looks like from inside a guest,
//! and to check a host against the contract (`kube_scheduler_sdk::testing::contract`).
//!
//! It changes nothing unless a pod's annotations ask for it: `probe/node` keeps the pod to a node and nominates it there,
//! `probe/other` with `probe/reject` rejects the waiting pod of that uid.

use core::fmt::Display;

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

impl Plugin for Probe {
    fn new(config: &Config) -> Result<Self, Status> {
        Ok(Self { config: config.as_str()?.into(), bridge: Bridge::new(Vec::new()) })
    }
}

impl EnqueueExtensions for Probe {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        log("Enqueue", &[("config", &self.config)]);
        Vec::new()
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
            "PreFilter",
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
        Ok(match pod.annotation("probe/node")? {
            Some(node) => PreFilterResult::Nodes(vec![node.into()]),
            None => PreFilterResult::AllNodes,
        })
    }
}

impl PreFilterExtensions for Probe {
    fn add_pod(&self, cx: &TargetContext) -> Result<(), Status> {
        log("AddPod", &[("target", &cx.target_pod()?.name()?), ("node", &cx.node_name()?)]);
        Ok(())
    }

    fn remove_pod(&self, cx: &TargetContext) -> Result<(), Status> {
        log("RemovePod", &[("target", &cx.target_pod()?.name()?), ("node", &cx.node_name()?)]);
        Ok(())
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
            "Filter",
            &[
                ("node", &node.name()?),
                ("zone", &node.label("zone")?.unwrap_or("none")),
                ("cpu", &node.allocatable("cpu")?.unwrap_or_default()),
                ("images", &images),
            ],
        );
        Ok(())
    }
}

impl PostFilterPlugin for Probe {
    fn post_filter(&self, cx: &PostFilterContext) -> Result<PostFilterResult, Status> {
        let mut codes = String::new();
        for (node, code) in cx.node_to_status_map()? {
            codes.push_str(&format!("{node}={};", code.name()));
        }
        log("PostFilter", &[("codes", &codes)]);
        match cx.pod()?.annotation("probe/node")? {
            Some(node) => Ok(PostFilterResult::Nominate(node.into())),
            None => Err(Status::unschedulable("the probe makes no room")),
        }
    }
}

impl PreScorePlugin for Probe {
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status> {
        log("PreScore", &[("nodes", &cx.filtered_nodes()?.join(","))]);
        Ok(PreScoreResult::Score)
    }
}

impl ScorePlugin for Probe {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        log("Score", &[("node", &cx.node_name()?), ("scores", &node_score_list()?.len())]);
        Ok(MIN_NODE_SCORE)
    }
}

impl ReservePlugin for Probe {
    fn reserve(&self, cx: &NodeContext) -> Result<(), Status> {
        log("Reserve", &[("node", &cx.node_name()?), ("assumed", &cx.pod()?.spec()?.node_name()?)]);
        Ok(())
    }

    fn unreserve(&self, cx: &BindingContext) -> Result<(), Status> {
        log("Unreserve", &[("pod", &cx.pod()?.name()?), ("node", &cx.node_name()?)]);
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
        log("Permit", &[("node", &cx.node_name()?), ("other", &waits), ("rejected", &rejected)]);
        Ok(PermitResult::Allow)
    }
}

impl PreBindPlugin for Probe {
    fn pre_bind(&self, cx: &BindingContext) -> Result<(), Status> {
        log("PreBind", &[("pod", &cx.pod()?.name()?), ("node", &cx.node_name()?)]);
        Ok(())
    }
}

impl BindPlugin for Probe {
    fn bind(&self, cx: &BindingContext) -> Result<BindResult, Status> {
        log("Bind", &[("pod", &cx.pod()?.name()?), ("node", &cx.node_name()?)]);
        Ok(BindResult::Skip)
    }
}

impl PostBindPlugin for Probe {
    fn post_bind(&self, cx: &BindingContext) -> Result<(), Status> {
        let pod = cx.pod()?;
        log("PostBind", &[("pod", &pod.name()?), ("node", &cx.node_name()?)]);
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
