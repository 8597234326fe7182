//! The calls that read the node snapshot.

use std::cmp::Reverse;

use kube_scheduler_abi::bridge::v1;
use v1::error::Code;

use super::table::Table;
use super::{Cluster, error};

/// Nodes in a reply whose request sets no limit.
const FREE_PAGE: u32 = 1000;
/// The same for [`victims`], whose nodes are larger.
const VICTIMS_PAGE: u32 = 200;

/// `nodes_free`.
pub(super) fn free(call: &v1::NodesFree, cluster: &dyn Cluster) -> Result<v1::NodesFreeReply, v1::Error> {
    let page = page(&call.uid, call.offset, call.limit, FREE_PAGE, cluster)?;
    let mut reply = v1::NodesFreeReply {
        generation: page.generation,
        nodes: page.nodes,
        next_offset: page.next,
        admitted: page.indices.len() as u32,
        ..Default::default()
    };
    reply.free = cluster.nodes_free(&page.indices, &call.resources, call.evict_lower.then_some(call.priority));
    for index in page.indices {
        if call.with_names {
            reply.names.push(cluster.node_name(index).to_owned());
        }
        if !call.topology_key.is_empty() {
            reply.domains.push(cluster.node_label(index, &call.topology_key).unwrap_or_default().to_owned());
        }
    }
    Ok(reply)
}

/// `nodes_victims`. A node without victims is listed too, for its free room.
pub(super) fn victims(
    call: &v1::NodesVictims,
    table: &Table,
    cluster: &dyn Cluster,
) -> Result<v1::NodesVictimsReply, v1::Error> {
    let page = page(&call.uid, call.offset, call.limit, VICTIMS_PAGE, cluster)?;
    let items = page.indices.into_iter().map(|index| {
        let mut victims = cluster.node_victims(index, &call.resources, call.priority);
        victims
            .sort_by(|a, b| (a.priority, Reverse(a.start_ms), &a.uid).cmp(&(b.priority, Reverse(b.start_ms), &b.uid)));
        let mut free = cluster.nodes_free(&[index], &call.resources, None);
        for (uid, requests) in cluster.node_nominated(index, &call.resources, call.priority) {
            if uid != call.uid && !table.group_of(&uid).is_some_and(|group| call.groups.iter().any(|own| own == group))
            {
                free.iter_mut().zip(requests).for_each(|(free, request)| *free -= request);
            }
        }
        v1::NodeVictims {
            name: cluster.node_name(index).to_owned(),
            free,
            victims: victims
                .into_iter()
                .map(|v| v1::Victim {
                    group: table.group_of(&v.uid).unwrap_or_default().to_owned(),
                    waiting: table.waits(&v.uid),
                    uid: v.uid,
                    priority: v.priority,
                    start_ms: v.start_ms,
                    requests: v.requests,
                    protected: v.protected,
                    terminating: v.terminating,
                })
                .collect(),
        }
    });
    Ok(v1::NodesVictimsReply {
        items: items.collect(),
        generation: page.generation,
        nodes: page.nodes,
        next_offset: page.next,
    })
}

struct Page {
    generation: u64,
    nodes: u32,
    next: u32,
    /// The nodes of the page that admit the pod.
    indices: Vec<u32>,
}

fn page(uid: &str, offset: u32, limit: u32, default: u32, cluster: &dyn Cluster) -> Result<Page, v1::Error> {
    if !uid.is_empty() && cluster.demand(uid).is_none() {
        return Err(error(Code::BadRequest, format!("no pod has the uid {uid:?}")));
    }
    let limit = if limit == 0 { default } else { limit } as usize;
    let (generation, nodes) = cluster.snapshot();
    let mut indices = Vec::new();
    let mut index = offset;
    while index < nodes && indices.len() < limit {
        if uid.is_empty() || cluster.node_admits(index, uid) {
            indices.push(index);
        }
        index += 1;
    }
    Ok(Page { generation, nodes, next: if index < nodes { index } else { 0 }, indices })
}
