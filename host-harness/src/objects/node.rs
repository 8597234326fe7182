//! Nodes.

use std::collections::BTreeMap;

use super::{ObjectMeta, Quantity, Time, messages};

messages! {
    /// A node.
    Node {
        metadata: ObjectMeta = [message, required, tag = "1"],
        spec: NodeSpec = [message, required, tag = "2"],
        status: NodeStatus = [message, required, tag = "3"],
    }

    /// `spec` of a node.
    NodeSpec {
        #[serde(rename = "providerID")]
        provider_id: String = [string, tag = "3"],
        unschedulable: bool = [bool, tag = "4"],
        taints: Vec<Taint> = [message, repeated, tag = "5"],
    }

    /// What keeps pods away.
    Taint {
        key: String = [string, tag = "1"],
        value: String = [string, tag = "2"],
        effect: String = [string, tag = "3"],
        time_added: Option<Time> = [message, optional, tag = "4"],
    }

    /// `status` of a node.
    NodeStatus {
        capacity: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "1"],
        allocatable: BTreeMap<String, Quantity> = [btree_map = "string, message", tag = "2"],
        conditions: Vec<NodeCondition> = [message, repeated, tag = "4"],
        images: Vec<ContainerImage> = [message, repeated, tag = "8"],
    }

    /// A condition of a node.
    NodeCondition {
        r#type: String = [string, tag = "1"],
        status: String = [string, tag = "2"],
        last_transition_time: Option<Time> = [message, optional, tag = "4"],
        reason: String = [string, tag = "5"],
        message: String = [string, tag = "6"],
    }

    /// An image that a node has.
    ContainerImage {
        names: Vec<String> = [string, repeated, tag = "1"],
        size_bytes: i64 = [int64, tag = "2"],
    }
}
