//! The bridge's messages on the wire, by field number.
//!
//! Prost's own code is made anew for each message and each place that uses one, which came to a quarter of a plugin's
//! size. Here a message says only which field stands under which number, and what a kind of field does exists once. A
//! guest writes requests and reads replies, so neither half is there for the other's messages. A test compares both with
//! prost, message by message.

use std::collections::BTreeMap;

use kube_scheduler_abi::bridge::v1::*;

use crate::wire::{Fields, Malformed, Result, Value, push_bytes, push_number, push_varint};

/// A message of a request.
pub(super) trait Put {
    /// Appends the fields.
    fn put_to(&self, out: &mut Vec<u8>);
}

/// A message of a reply.
pub(super) trait Take {
    /// Takes one field; an unknown one is left out.
    fn take_field(&mut self, number: u32, value: Value<'_>) -> Result<()>;
}

/// Fills a message.
pub(super) fn decode(message: &mut dyn Take, bytes: &[u8]) -> Result<()> {
    for entry in Fields::new(bytes) {
        let (number, value) = entry?;
        message.take_field(number, value)?;
    }
    Ok(())
}

/// A field of a request. Nothing is written where it has its default.
trait PutField {
    fn put(&self, number: u32, out: &mut Vec<u8>);
}

/// A field of a reply.
trait TakeField {
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()>;
}

#[inline(never)]
fn put_varint(number: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        push_varint(out, (number << 3).into(), value);
    }
}

/// Appends a field that is a message, the default included.
#[inline(never)]
pub(super) fn put_message(number: u32, out: &mut Vec<u8>, message: &dyn Put) {
    let mut bytes = Vec::new();
    message.put_to(&mut bytes);
    push_bytes(out, number, &bytes);
}

#[inline(never)]
fn varint(field: u32, value: Value<'_>) -> Result<u64> {
    match value {
        Value::Varint(v) => Ok(v),
        _ => Err(Malformed::WireType { field }),
    }
}

#[inline(never)]
fn bytes(field: u32, value: Value<'_>) -> Result<&[u8]> {
    match value {
        Value::Bytes(b) => Ok(b),
        _ => Err(Malformed::WireType { field }),
    }
}

#[inline(never)]
fn text(field: u32, value: Value<'_>) -> Result<String> {
    str::from_utf8(bytes(field, value)?).map(String::from).map_err(|_| Malformed::Utf8 { field })
}

macro_rules! put_varints {
    ($($type:ty: $write:expr;)*) => {$(
        impl PutField for $type {
            fn put(&self, number: u32, out: &mut Vec<u8>) {
                put_varint(number, $write(*self), out);
            }
        }
    )*};
}

// A negative int32 is written as 64 bits.
put_varints! {
    bool: u64::from;
    u32: u64::from;
    i32: |v| i64::from(v) as u64;
    i64: |v| v as u64;
}

macro_rules! take_varints {
    ($($type:ty: $read:expr;)*) => {$(
        impl TakeField for $type {
            fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
                *self = $read(varint(number, value)?);
                Ok(())
            }
        }
    )*};
}

// A reader truncates, as protobuf's do.
take_varints! {
    bool: |v| v != 0;
    u32: |v| v as u32;
    u64: |v| v;
    i32: |v| v as i32;
    i64: |v| v as i64;
}

impl PutField for f64 {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        // By its bits: -0 is not the default.
        if self.to_bits() != 0 {
            push_number(out, (number << 3 | 1).into());
            out.extend_from_slice(&self.to_le_bytes());
        }
    }
}

impl PutField for [u8] {
    #[inline(never)]
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            push_bytes(out, number, self);
        }
    }
}

impl PutField for Vec<u8> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        self.as_slice().put(number, out);
    }
}

impl TakeField for Vec<u8> {
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        *self = bytes(number, value)?.into();
        Ok(())
    }
}

impl PutField for String {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        self.as_bytes().put(number, out);
    }
}

impl TakeField for String {
    #[inline(never)]
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        *self = text(number, value)?;
        Ok(())
    }
}

impl PutField for Vec<String> {
    #[inline(never)]
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        for item in self {
            push_bytes(out, number, item.as_bytes());
        }
    }
}

impl TakeField for Vec<String> {
    #[inline(never)]
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        self.push(text(number, value)?);
        Ok(())
    }
}

/// `repeated sint64`, the only repeated numbers there are; packed, as proto3 packs.
impl TakeField for Vec<i64> {
    #[inline(never)]
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        let mut packed = match value {
            Value::Varint(v) => {
                self.push(zigzag(v));
                return Ok(());
            }
            value => Fields::new(bytes(number, value)?),
        };
        while let Some(v) = packed.next_packed() {
            self.push(zigzag(v?));
        }
        Ok(())
    }
}

const fn zigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

impl<M: Put> PutField for Option<M> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(message) = self {
            put_message(number, out, message);
        }
    }
}

impl<M: Take + Default> TakeField for Option<M> {
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        // What stands twice is merged.
        decode(self.get_or_insert_default(), bytes(number, value)?)
    }
}

macro_rules! lists_of {
    (put $($put:ty),*; take $($take:ty),*) => {
        $(impl PutField for Vec<$put> {
            fn put(&self, number: u32, out: &mut Vec<u8>) {
                for message in self {
                    put_message(number, out, message);
                }
            }
        })*
        $(impl TakeField for Vec<$take> {
            fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
                let mut message = <$take>::default();
                decode(&mut message, bytes(number, value)?)?;
                self.push(message);
                Ok(())
            }
        })*
    };
}

lists_of! {
    put GroupSource, Places, Quorum;
    take Lost, Member, NodeVictims, QuorumState, Shape, Victim
}

/// A message among the values of a map.
impl TakeField for Counts {
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        decode(self, bytes(number, value)?)
    }
}

impl<V: PutField> PutField for BTreeMap<String, V> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self {
            let mut entry = Vec::new();
            key.put(1, &mut entry);
            value.put(2, &mut entry);
            push_bytes(out, number, &entry);
        }
    }
}

impl<V: TakeField + Default> TakeField for BTreeMap<String, V> {
    fn fill(&mut self, value: Value<'_>, number: u32) -> Result<()> {
        let (mut key, mut of_key) = (String::new(), V::default());
        for field in Fields::new(bytes(number, value)?) {
            match field? {
                (1, value) => key.fill(value, 1)?,
                (2, value) => of_key.fill(value, 2)?,
                _ => {}
            }
        }
        self.insert(key, of_key);
        Ok(())
    }
}

/// One of two texts, each under its number.
macro_rules! oneofs {
    ($($type:path { $($number:literal: $variant:ident),* })*) => {$(
        impl PutField for Option<$type> {
            // The number is the variant's.
            fn put(&self, _: u32, out: &mut Vec<u8>) {
                use $type as Oneof;
                match self {
                    $(Some(Oneof::$variant(text)) => push_bytes(out, $number, text.as_bytes()),)*
                    None => {}
                }
            }
        }
    )*};
}
oneofs! {
    group_source::ValueFrom { 2: Label, 3: Annotation }
    group_source::RoleFrom { 5: RoleLabel, 6: RoleAnnotation }
}

/// Of a oneof the first number is named here.
macro_rules! requests {
    ($($type:ident { $($number:literal: $field:ident),* })*) => {
        $(
            impl Put for $type {
                fn put_to(&self, out: &mut Vec<u8>) {
                    let _ = &out;
                    $(self.$field.put($number, out);)*
                }
            }
        )*

        #[cfg(test)]
        const REQUESTS: &[(&str, tests::Compare)] = &[$((stringify!($type), tests::compare_put::<$type>)),*];
    };
}

macro_rules! replies {
    ($($type:ident { $($number:literal: $field:ident),* })*) => {
        $(
            impl Take for $type {
                fn take_field(&mut self, number: u32, value: Value<'_>) -> Result<()> {
                    let _ = value;
                    match number {
                        $($number => self.$field.fill(value, number),)*
                        _ => Ok(()),
                    }
                }
            }
        )*

        #[cfg(test)]
        const REPLIES: &[(&str, tests::Compare)] = &[$((stringify!($type), tests::compare_take::<$type>)),*];
    };
}

requests! {
    Hello { 1: sources }
    GroupSource { 1: prefix, 2: value_from, 4: object, 5: role_from, 7: facts }
    Resource { 1: group, 2: version, 3: resource }
    Now {}
    GroupGet { 1: key, 2: with_object, 3: uid }
    GroupAllow { 1: quorums, 2: uid, 3: join_until_ms }
    Quorum { 1: key, 2: at_least, 3: roles, 4: only_waiting, 5: count_succeeded }
    GroupLeave { 1: key, 2: uid }
    GroupReject { 1: key, 2: reason }
    GroupActivate { 1: key, 2: except_uid }
    GroupBackoff { 1: key, 2: until_ms, 3: attempt, 4: note }
    GroupBlock { 1: key, 2: clear, 3: rank, 4: note }
    GroupShapes { 1: key, 2: uid }
    GroupMembers { 1: key, 2: offset, 3: limit }
    ObjectGet { 1: resource, 2: namespace, 3: name }
    NodesFree { 1: uid, 2: resources, 3: offset, 4: limit, 5: with_names, 6: topology_key, 7: evict_lower, 8: priority }
    NodesVictims { 1: uid, 2: resources, 3: offset, 4: limit, 5: priority, 6: groups }
    PodsEvict { 1: uids, 2: preemptor_uid, 3: reason, 4: places }
    Places { 1: uid, 2: nodes }
    EventRecord { 1: resource, 2: kind, 3: namespace, 4: name, 5: uid, 6: warning, 7: reason, 8: note }
    MetricAdd { 1: name, 2: labels, 3: value, 4: help }
    MetricObserve { 1: name, 2: labels, 3: value, 4: help }
}

replies! {
    Error { 1: code, 2: message }
    Done {}
    CountReply { 1: count }
    HelloReply { 1: version, 2: plugin, 3: profile, 4: kubernetes, 5: calls }
    NowReply { 1: unix_ms }
    Counts { 1: gated, 2: unscheduled, 3: waiting, 4: bound, 5: running, 6: succeeded, 7: failed, 8: terminating }
    GroupState {
        1: total, 2: roles, 3: now_ms, 4: oldest_member_ms, 5: backoff_until_ms, 6: attempt, 7: deadline_ms,
        8: released, 9: blocked_since_ms, 10: other_holders, 11: head, 12: object, 13: note, 14: facts
    }
    Blocked { 1: key, 2: rank, 3: since_ms, 4: note }
    GroupAllowReply { 1: allowed, 2: released, 3: quorums, 4: lost }
    QuorumState { 1: have, 2: roles }
    Lost { 1: uid, 2: why }
    GroupLeaveReply { 1: was, 2: still_waiting }
    GroupShapesReply { 1: resources, 2: shapes }
    Shape { 1: unscheduled, 2: placed, 3: uid, 4: role, 5: priority, 6: requests }
    GroupMembersReply { 1: members, 2: total }
    Member { 1: uid, 2: name, 3: role, 4: state, 5: node, 6: priority }
    Object { 1: served, 2: found, 3: uid, 4: resource_version, 5: json }
    NodesFreeReply { 1: generation, 2: nodes, 3: next_offset, 4: free, 5: names, 6: domains, 7: admitted }
    NodesVictimsReply { 1: generation, 2: nodes, 3: next_offset, 4: items }
    NodeVictims { 1: name, 2: free, 3: victims }
    Victim { 1: uid, 2: priority, 3: start_ms, 4: requests, 5: group, 6: waiting, 7: protected, 8: terminating }
    PodsEvictReply { 1: evicted, 2: failed, 3: node }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor, Value as Reflected};

    use super::*;

    /// Compares one message with prost; what it was and what became of it.
    pub(super) type Compare = fn(&[u8]) -> Result<Vec<u8>>;

    /// Writes what prost has read.
    pub(super) fn compare_put<M: Put + prost::Message + Default>(bytes: &[u8]) -> Result<Vec<u8>> {
        let message = M::decode(bytes).map_err(|_| Malformed::Truncated)?;
        let mut out = Vec::new();
        message.put_to(&mut out);
        Ok(out)
    }

    /// Reads, and has prost write it.
    pub(super) fn compare_take<M: Take + prost::Message + Default>(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut message = M::default();
        decode(&mut message, bytes)?;
        // NaN is no one's equal, but is written alike.
        assert_eq!(M::decode(bytes).map(|m| m.encode_to_vec()), Ok(message.encode_to_vec()));
        Ok(message.encode_to_vec())
    }

    fn pool() -> DescriptorPool {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../abi/proto");
        let files = protox::compile([format!("{root}/bridge/v1/bridge.proto")], [root]).expect("bridge.proto compiles");
        DescriptorPool::from_file_descriptor_set(files).expect("descriptors")
    }

    /// A message with values drawn for all its fields; `more` gives the next random number.
    fn draw(of: &MessageDescriptor, depth: u32, more: &mut dyn FnMut() -> u64) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        for field in of.fields() {
            if more().is_multiple_of(4) || depth == 0 {
                continue;
            }
            let one = |kind: Kind, more: &mut dyn FnMut() -> u64| match kind {
                Kind::Bool => Reflected::Bool(more().is_multiple_of(2)),
                Kind::Uint32 => Reflected::U32(more() as u32),
                Kind::Uint64 => Reflected::U64(more()),
                Kind::Int32 => Reflected::I32(more() as i32),
                Kind::Int64 | Kind::Sint64 => Reflected::I64(more() as i64),
                Kind::Double => Reflected::F64(more() as i64 as f64),
                Kind::String => Reflected::String(format!("{:x}ü", more() % 5000)),
                Kind::Bytes => Reflected::Bytes(more().to_le_bytes().to_vec().into()),
                Kind::Enum(_) => Reflected::EnumNumber((more() % 4) as i32),
                Kind::Message(m) => Reflected::Message(draw(&m, depth - 1, more)),
                other => panic!("the codec has no {other:?}"),
            };
            let n = more() % 4;
            let value = if field.is_map() {
                let Kind::Message(entry) = field.kind() else { unreachable!("a map is a message") };
                let of_value = entry.map_entry_value_field().kind();
                Reflected::Map((0..n).map(|i| (MapKey::String(format!("{i}")), one(of_value.clone(), more))).collect())
            } else if field.is_list() {
                Reflected::List((0..n).map(|_| one(field.kind(), more)).collect())
            } else {
                one(field.kind(), more)
            };
            message.set_field(&field, value);
        }
        message
    }

    #[test]
    fn every_message_is_there() {
        let pool = pool();
        let mut defined: Vec<_> = pool
            .all_messages()
            .filter(|m| !m.is_map_entry() && !["Request", "Response"].contains(&m.name()))
            .map(|m| m.name().to_owned())
            .collect();
        let mut known: Vec<_> = REQUESTS.iter().chain(REPLIES).map(|(name, _)| (*name).to_owned()).collect();
        defined.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, defined);
    }

    proptest! {
        #[test]
        fn the_same_as_prost(seed: u64) {
            let pool = pool();
            let mut state = seed;
            // SplitMix64, with small numbers as often as large ones.
            let mut more = move || {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^= z >> 31;
                z >> ((z >> 58) & 63)
            };
            for (name, compare) in REQUESTS.iter().chain(REPLIES) {
                let of = pool.get_message_by_name(&format!("tutti.bridge.v1.{name}")).expect("defined");
                let drawn = draw(&of, 4, &mut more);
                let bytes = drawn.encode_to_vec();
                let out = compare(&bytes).expect("decodes");
                let read = |bytes: &[u8]| DynamicMessage::decode(of.clone(), bytes).expect("encoded");
                prop_assert!(read(&out) == read(&bytes), "{name}: {bytes:x?} became {out:x?}");
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            for (_, compare) in REPLIES {
                // What this reads, prost reads too and alike.
                let _ = compare(&bytes);
            }
        }
    }
}
