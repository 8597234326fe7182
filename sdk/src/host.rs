//! Every function of the host, safe, one by one. The contexts that extension points get offer those that work there;
//! come here for what they lack.
//!
//! Where a function "reads the snapshot" it must only be called while a pod's scheduling cycle runs, which is in every
//! extension point but Unreserve, PreBind, Bind and PostBind: beside the cycle the snapshot is being rewritten, and
//! reading it then can crash the scheduler.

use kube_scheduler_abi::{Code, bridge};

use crate::buffer::{HostBytes, NodeBuf, NodeListBuf, PodBuf};
use crate::json::{self, Reader};
use crate::wire::{self, Result};
use crate::{Config, Status, raw};

/// The pod of this call; none in `enqueue`.
#[must_use]
pub fn current_pod() -> Option<PodBuf> {
    non_empty(HostBytes::read(raw::current_pod, &[])).map(PodBuf::new)
}

/// The pod that joins or leaves the node; in AddPod and RemovePod only.
#[must_use]
pub fn target_pod() -> Option<PodBuf> {
    non_empty(HostBytes::read(raw::target_pod, &[])).map(PodBuf::new)
}

/// The name of this call's node; empty where there is none.
#[must_use]
pub fn current_node_name() -> HostBytes {
    HostBytes::read(raw::current_node_name, &[])
}

/// A node by name. Reads the snapshot.
#[must_use]
pub fn node(name: &str) -> Option<NodeBuf> {
    // Such a name is a request to the bridge, never a node.
    if name.as_bytes().first() == Some(&bridge::MARK) {
        return None;
    }
    node_by_bytes(name.as_bytes()).map(NodeBuf::new)
}

pub(crate) fn node_by_bytes(name: &[u8]) -> Option<HostBytes> {
    non_empty(HostBytes::read(raw::node, name))
}

/// Every node. Reads the snapshot, and marshals the whole cluster at each call: tens of MB with thousands of nodes.
#[must_use]
pub fn node_list() -> NodeListBuf {
    NodeListBuf::new(HostBytes::read(raw::node_list, &[]))
}

/// The names of the nodes that passed Filter; in PreScore only.
///
/// # Errors
/// The host's JSON is malformed.
pub fn filtered_nodes() -> Result<Vec<String>> {
    let bytes = HostBytes::read(raw::filtered_node_list, &[]);
    let mut names = Vec::new();
    let mut reader = Reader::new(&bytes);
    if !reader.null() {
        reader.array(&mut |r| {
            names.push(r.string()?);
            Ok(())
        })?;
    }
    reader.end()?;
    Ok(names)
}

/// Why each node was refused, without the reasons; in PostFilter only. A node that no plugin looked at is absent.
///
/// # Errors
/// The host's JSON is malformed.
pub fn node_to_status_map() -> Result<Vec<(String, Code)>> {
    let mut codes = Vec::new();
    integers(&HostBytes::read(raw::node_to_status_map, &[]), |name, code| {
        let code = i32::try_from(code).ok().and_then(Code::from_i32);
        codes.push((name, code.unwrap_or(Code::Error)));
    })?;
    Ok(codes)
}

/// The scores of NormalizeScore. This SDK offers no such extension point (see the crate's documentation), so here for
/// completeness.
///
/// # Errors
/// The host's JSON is malformed.
pub fn node_score_list() -> Result<Vec<(String, i64)>> {
    let mut scores = Vec::new();
    integers(&HostBytes::read(raw::node_score_list, &[]), |name, score| scores.push((name, score)))?;
    Ok(scores)
}

/// An image on a node, and how many nodes of the cluster have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageState {
    /// The image's name.
    pub name: String,
    /// Bytes.
    pub size: i64,
    /// Nodes that have it.
    pub num_nodes: i64,
}

/// The images on a node; empty when there is no such node. Reads the snapshot.
///
/// # Errors
/// The host's JSON is malformed.
pub fn node_image_states(node: &str) -> Result<Vec<ImageState>> {
    let bytes = HostBytes::read(raw::node_image_states, node.as_bytes());
    let mut images = Vec::new();
    let mut reader = Reader::new(&bytes);
    if !reader.null() {
        reader.object(&mut |name, r| {
            let mut image = ImageState { name, size: 0, num_nodes: 0 };
            if !r.null() {
                r.object(&mut |key, r| {
                    match key.as_str() {
                        "Size" => image.size = r.integer()?,
                        "NumNodes" => image.num_nodes = r.integer()?,
                        _ => r.skip()?,
                    }
                    Ok(())
                })?;
            }
            images.push(image);
            Ok(())
        })?;
    }
    reader.end()?;
    Ok(images)
}

/// The plugin's configuration.
#[must_use]
pub fn config() -> Config {
    Config::new(HostBytes::read(raw::get_config, &[]))
}

/// Rejects a pod that waits at Permit; whether it waited.
///
/// The stock extension rejects under an empty plugin name: no cluster event then wakes the pod, only the flush after
/// five minutes. With the bridge, use its `group_reject`.
#[must_use]
pub fn reject_waiting_pod(uid: &str) -> bool {
    let mut out = [0; 8];
    raw::reject_waiting_pod(uid.as_bytes(), &mut out);
    u64::from_le_bytes(out) != 0
}

/// A pod that waits at Permit, as it was when its cycle began.
///
/// # Errors
/// The pod is malformed, or larger than any API server stores.
pub fn get_waiting_pod(uid: &str) -> Result<Option<PodBuf>, Status> {
    const UNTOUCHED: u8 = 0xff;
    const LARGEST: usize = 4 << 20;
    let mut size = 16 << 10;
    while size <= LARGEST {
        let mut bytes = HostBytes::spare(size);
        // The function says neither whether nor how much it wrote. No message starts with 0xff, none holds a field 0.
        let buffer = bytes.buffer_mut();
        buffer.fill(0);
        buffer[0] = UNTOUCHED;
        raw::get_waiting_pod(uid.as_bytes(), buffer);
        match bytes[0] {
            UNTOUCHED => size = bytes.len() * 4,
            0 => return Ok(None),
            _ => {
                let len = wire::zero_padded_len(&bytes)?;
                bytes.truncate(len);
                return Ok(Some(PodBuf::new(bytes)));
            }
        }
    }
    Err(Status::error(format!("waiting pod {uid} is larger than {LARGEST} bytes")))
}

/// What an Event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference<'a> {
    /// Kind, such as `Pod`.
    pub kind: &'a str,
    /// Group and version, such as `v1`.
    pub api_version: &'a str,
    /// Name.
    pub name: &'a str,
    /// Namespace; empty for cluster-wide objects.
    pub namespace: &'a str,
    /// Uid.
    pub uid: &'a str,
    /// Version.
    pub resource_version: &'a str,
}

/// An Event to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// About what.
    pub regarding: ObjectReference<'a>,
    /// What else it concerns.
    pub related: ObjectReference<'a>,
    /// Type Warning, else Normal.
    pub warning: bool,
    /// Why, in one word such as `FailedScheduling`.
    pub reason: &'a str,
    /// What was tried, in one word such as `Scheduling`.
    pub action: &'a str,
    /// For people.
    pub note: &'a str,
}

/// Records an Event.
///
/// The stock extension formats the note, with an argument too many: `%` is doubled here so that it stays itself, and a
/// tail `%!(EXTRA <nil>)` stays. With the bridge, use its `event_record`, or this: the bridge repairs it.
pub fn eventf(event: &Event<'_>) {
    let mut json = Vec::with_capacity(256);
    let mut field = |key: &str, value: &str| {
        json.push(if json.is_empty() { b'{' } else { b',' });
        json::push_string(&mut json, key);
        json.push(b':');
        json::push_string(&mut json, value);
    };
    field("Eventtype", if event.warning { "Warning" } else { "Normal" });
    field("Reason", event.reason);
    field("Action", event.action);
    field("Note", &event.note.replace('%', "%%"));
    for (key, object) in [("RegardingReference", &event.regarding), ("RelatedReference", &event.related)] {
        json.push(b',');
        json::push_string(&mut json, key);
        let mut separator = b":{".as_slice();
        for (key, value) in [
            ("Kind", object.kind),
            ("APIVersion", object.api_version),
            ("Name", object.name),
            ("Namespace", object.namespace),
            ("UID", object.uid),
            ("ResourceVersion", object.resource_version),
        ] {
            json.extend_from_slice(separator);
            json::push_string(&mut json, key);
            json.push(b':');
            json::push_string(&mut json, value);
            separator = b",";
        }
        json.push(b'}');
    }
    json.push(b'}');
    raw::eventf(&json);
}

fn non_empty(bytes: HostBytes) -> Option<HostBytes> {
    (!bytes.is_empty()).then_some(bytes)
}

/// Reads a map of names to numbers.
fn integers(bytes: &[u8], mut entry: impl FnMut(String, i64)) -> Result<()> {
    let mut reader = Reader::new(bytes);
    if !reader.null() {
        reader.object(&mut |name, r| {
            entry(name, r.integer()?);
            Ok(())
        })?;
    }
    reader.end()
}
