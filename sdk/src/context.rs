//! What an extension point may ask. Each type offers what works at its points and nothing else; all of it is looked up
//! when asked for, so a plugin that never asks for the pod never pays for it.

use core::cell::OnceCell;
use core::ops::Deref;

use kube_scheduler_abi::Code;

use crate::Status;
use crate::api::{Node, Pod};
use crate::buffer::{HostBytes, NodeBuf, NodeListBuf, PodBuf};
use crate::host::{self, Event, ImageState};

/// Any call about a pod.
#[derive(Debug, Default)]
pub struct PodContext {
    pod: OnceCell<PodBuf>,
}

impl PodContext {
    /// The pod. From Reserve on it carries its node in `spec.nodeName`.
    ///
    /// # Errors
    /// The host names no pod for this call.
    pub fn pod(&self) -> Result<Pod<'_>, Status> {
        lazily(&self.pod, || host::current_pod().ok_or_else(|| Status::error("the host names no pod for this call")))
            .map(PodBuf::get)
    }

    /// Rejects another pod, one that waits at Permit. See [`host::reject_waiting_pod`].
    #[must_use]
    pub fn reject_waiting_pod(&self, uid: &str) -> bool {
        host::reject_waiting_pod(uid)
    }

    /// Another pod, one that waits at Permit. See [`host::get_waiting_pod`].
    ///
    /// # Errors
    /// The pod can't be read.
    pub fn get_waiting_pod(&self, uid: &str) -> Result<Option<PodBuf>, Status> {
        host::get_waiting_pod(uid)
    }

    /// Records an Event. See [`host::eventf`].
    pub fn eventf(&self, event: &Event<'_>) {
        host::eventf(event);
    }
}

/// A call in the scheduling cycle, where the snapshot of the nodes may be read.
#[derive(Debug, Default)]
pub struct CycleContext {
    base: PodContext,
}

impl Deref for CycleContext {
    type Target = PodContext;

    fn deref(&self) -> &PodContext {
        &self.base
    }
}

impl CycleContext {
    /// A node by name.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<NodeBuf> {
        host::node(name)
    }

    /// Every node: tens of MB with thousands of nodes, marshalled anew at each call. Prefer a call per node.
    #[must_use]
    pub fn node_list(&self) -> NodeListBuf {
        host::node_list()
    }

    /// The images on a node.
    ///
    /// # Errors
    /// The host's answer can't be read.
    pub fn node_image_states(&self, node: &str) -> Result<Vec<ImageState>, Status> {
        Ok(host::node_image_states(node)?)
    }
}

/// A call of the scheduling cycle about the pod on one node.
#[derive(Debug, Default)]
pub struct NodeContext {
    base: CycleContext,
    name: OnceCell<HostBytes>,
    node: OnceCell<NodeBuf>,
}

impl Deref for NodeContext {
    type Target = CycleContext;

    fn deref(&self) -> &CycleContext {
        &self.base
    }
}

impl NodeContext {
    /// The node's name.
    ///
    /// # Errors
    /// The host names no node for this call.
    pub fn node_name(&self) -> Result<&str, Status> {
        node_name(&self.name)
    }

    /// The node as the snapshot has it. What a preemption dry run takes from it or adds to it does not show.
    ///
    /// # Errors
    /// The host names no node for this call, or the snapshot lacks it.
    pub fn node(&self) -> Result<Node<'_>, Status> {
        lazily(&self.node, || {
            let name = self.node_name()?;
            host::node(name).ok_or_else(|| Status::error(format!("node {name} is not in the snapshot")))
        })
        .map(NodeBuf::get)
    }
}

/// PreScore.
#[derive(Debug, Default)]
pub struct PreScoreContext {
    base: CycleContext,
}

impl Deref for PreScoreContext {
    type Target = CycleContext;

    fn deref(&self) -> &CycleContext {
        &self.base
    }
}

impl PreScoreContext {
    /// The names of the nodes that passed Filter.
    ///
    /// # Errors
    /// The host's answer can't be read.
    pub fn filtered_nodes(&self) -> Result<Vec<String>, Status> {
        Ok(host::filtered_nodes()?)
    }
}

/// PostFilter.
#[derive(Debug, Default)]
pub struct PostFilterContext {
    base: CycleContext,
}

impl Deref for PostFilterContext {
    type Target = CycleContext;

    fn deref(&self) -> &CycleContext {
        &self.base
    }
}

impl PostFilterContext {
    /// With which code each node was refused; nodes that no plugin looked at are absent.
    ///
    /// # Errors
    /// The host's answer can't be read.
    pub fn node_to_status_map(&self) -> Result<Vec<(String, Code)>, Status> {
        Ok(host::node_to_status_map()?)
    }
}

/// AddPod and RemovePod: another pod joins or leaves the node, for the sake of a what-if.
#[derive(Debug, Default)]
pub struct TargetContext {
    base: NodeContext,
    target: OnceCell<PodBuf>,
}

impl Deref for TargetContext {
    type Target = NodeContext;

    fn deref(&self) -> &NodeContext {
        &self.base
    }
}

impl TargetContext {
    /// The pod that joins or leaves.
    ///
    /// # Errors
    /// The host names no such pod.
    pub fn target_pod(&self) -> Result<Pod<'_>, Status> {
        lazily(&self.target, || host::target_pod().ok_or_else(|| Status::error("the host names no target pod")))
            .map(PodBuf::get)
    }
}

/// Unreserve, PreBind, Bind and PostBind. They run beside the scheduling cycle of other pods, so the snapshot must not
/// be read here and can't be.
#[derive(Debug, Default)]
pub struct BindingContext {
    base: PodContext,
    name: OnceCell<HostBytes>,
}

impl Deref for BindingContext {
    type Target = PodContext;

    fn deref(&self) -> &PodContext {
        &self.base
    }
}

impl BindingContext {
    /// The node's name.
    ///
    /// # Errors
    /// The host names no node for this call.
    pub fn node_name(&self) -> Result<&str, Status> {
        node_name(&self.name)
    }
}

fn node_name(cell: &OnceCell<HostBytes>) -> Result<&str, Status> {
    match core::str::from_utf8(cell.get_or_init(host::current_node_name)) {
        Ok("") => Err(Status::error("the host names no node for this call")),
        Ok(name) => Ok(name),
        Err(_) => Err(Status::error("the host names a node that is not UTF-8")),
    }
}

fn lazily<T>(cell: &OnceCell<T>, get: impl FnOnce() -> Result<T, Status>) -> Result<&T, Status> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = get()?;
    Ok(cell.get_or_init(|| value))
}
