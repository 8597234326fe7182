//! What all objects have.

use std::collections::BTreeMap;

use super::{Time, messages};

messages! {
    /// `metadata`.
    ObjectMeta {
        name: String = [string, tag = "1"],
        generate_name: String = [string, tag = "2"],
        namespace: String = [string, tag = "3"],
        uid: String = [string, tag = "5"],
        resource_version: String = [string, tag = "6"],
        creation_timestamp: Option<Time> = [message, optional, tag = "8"],
        deletion_timestamp: Option<Time> = [message, optional, tag = "9"],
        labels: BTreeMap<String, String> = [btree_map = "string, string", tag = "11"],
        annotations: BTreeMap<String, String> = [btree_map = "string, string", tag = "12"],
        owner_references: Vec<OwnerReference> = [message, repeated, tag = "13"],
        finalizers: Vec<String> = [string, repeated, tag = "14"],
    }

    /// Who owns an object.
    OwnerReference {
        kind: String = [string, tag = "1"],
        name: String = [string, tag = "3"],
        uid: String = [string, tag = "4"],
        api_version: String = [string, tag = "5"],
        controller: Option<bool> = [bool, optional, tag = "6"],
    }
}
