//! Readers of a group's state, over the reply's bytes. What each field means says `bridge.proto`.

use crate::wire::{Map, messages};

messages! {
    /// The state of a group; [`group_get`](super::Bridge::group_get) gives the same as a whole.
    GroupState {
        total: Counts<'a> = 1;
        roles: Map<'a, Counts<'a>> = 2;
        now_ms: i64 = 3;
        oldest_member_ms: i64 = 4;
        backoff_until_ms: i64 = 5;
        attempt: u32 = 6;
        deadline_ms: i64 = 7;
        released: bool = 8;
        blocked_since_ms: i64 = 9;
        other_holders: u32 = 10;
        head: Option<Blocked<'a>> = 11;
        object: Option<Object<'a>> = 12;
        note: &'a str = 13;
        facts: Map<'a, &'a str> = 14;
    }
    /// Members by state.
    Counts {
        gated: u32 = 1;
        unscheduled: u32 = 2;
        waiting: u32 = 3;
        bound: u32 = 4;
        running: u32 = 5;
        succeeded: u32 = 6;
        failed: u32 = 7;
        terminating: u32 = 8;
    }
    /// A blocked group.
    Blocked {
        key: &'a str = 1;
        rank: i64 = 2;
        since_ms: i64 = 3;
        note: &'a [u8] = 4;
    }
    /// The group's object.
    Object {
        served: bool = 1;
        found: bool = 2;
        uid: &'a str = 3;
        resource_version: &'a str = 4;
        json: &'a [u8] = 5;
    }
}
