//! The bridge's messages on the wire, by field number.
//!
//! Prost's own code is made anew for each message and each place that uses one, which came to a quarter of a plugin's
//! size. Here a message says only which field stands under which number, and all else exists once. A test compares it
//! with prost's, message by message.

use std::collections::BTreeMap;

use kube_scheduler_abi::bridge::v1::*;

use crate::wire::{Fields, Malformed, Result, Value, push_bytes, push_number, push_varint};

/// The highest field number of a message.
const LAST: u32 = 14;

/// A message of the bridge.
pub(super) trait Message {
    /// The field under a number, `None` if there is none.
    fn field(&mut self, number: u32) -> Option<&mut dyn Field>;
}

/// A message's field.
pub(super) trait Field {
    /// Appends the field; nothing where it has its default.
    fn put(&mut self, number: u32, out: &mut Vec<u8>);

    /// Takes what stands under its number.
    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()>;
}

/// Appends a message.
pub(super) fn encode(message: &mut dyn Message, out: &mut Vec<u8>) {
    for number in 1..=LAST {
        if let Some(field) = message.field(number) {
            field.put(number, out);
        }
    }
}

/// Fills a message; unknown fields are left out.
pub(super) fn decode(message: &mut dyn Message, bytes: &[u8]) -> Result<()> {
    for entry in Fields::new(bytes) {
        let (number, value) = entry?;
        if let Some(field) = message.field(number) {
            field.take(number, value)?;
        }
    }
    Ok(())
}

/// Appends a field that is a message, which the closure writes.
fn put_message(number: u32, out: &mut Vec<u8>, message: &mut dyn Message) {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    push_bytes(out, number, &bytes);
}

fn put_varint(number: u32, value: u64, out: &mut Vec<u8>) {
    push_varint(out, (number << 3).into(), value);
}

fn varint(field: u32, value: Value<'_>) -> Result<u64> {
    match value {
        Value::Varint(v) => Ok(v),
        _ => Err(Malformed::WireType { field }),
    }
}

fn bytes(field: u32, value: Value<'_>) -> Result<&[u8]> {
    match value {
        Value::Bytes(b) => Ok(b),
        _ => Err(Malformed::WireType { field }),
    }
}

fn text(field: u32, value: Value<'_>) -> Result<&str> {
    str::from_utf8(bytes(field, value)?).map_err(|_| Malformed::Utf8 { field })
}

macro_rules! varints {
    ($($type:ty: $write:expr, $read:expr;)*) => {$(
        impl Field for $type {
            fn put(&mut self, number: u32, out: &mut Vec<u8>) {
                if *self != <$type>::default() {
                    put_varint(number, $write(*self), out);
                }
            }

            fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
                *self = $read(varint(number, value)?);
                Ok(())
            }
        }
    )*};
}

// As protobuf does: a negative int32 is written as 64 bits, and a reader truncates.
varints! {
    bool: u64::from, |v| v != 0;
    u32: u64::from, |v| v as u32;
    u64: |v| v, |v| v;
    i32: |v| i64::from(v) as u64, |v| v as i32;
    i64: |v| v as u64, |v| v as i64;
}

impl Field for f64 {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        // By its bits: -0 is not the default.
        if self.to_bits() != 0 {
            push_number(out, (number << 3 | 1).into());
            out.extend_from_slice(&self.to_le_bytes());
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        let Value::Fixed64(v) = value else { return Err(Malformed::WireType { field: number }) };
        *self = Self::from_bits(v);
        Ok(())
    }
}

impl Field for String {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            push_bytes(out, number, self.as_bytes());
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        *self = text(number, value)?.into();
        Ok(())
    }
}

impl Field for Vec<u8> {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            push_bytes(out, number, self);
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        *self = bytes(number, value)?.into();
        Ok(())
    }
}

impl Field for Vec<String> {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        for item in self {
            push_bytes(out, number, item.as_bytes());
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        self.push(text(number, value)?.into());
        Ok(())
    }
}

/// `repeated sint64`, the only repeated numbers there are; packed, as proto3 packs.
impl Field for Vec<i64> {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            let mut packed = Vec::new();
            for &v in self.iter() {
                push_number(&mut packed, (v << 1 ^ v >> 63) as u64);
            }
            push_bytes(out, number, &packed);
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
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

impl<M: Message + Default> Field for Option<M> {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        if let Some(message) = self {
            put_message(number, out, message);
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        // What stands twice is merged.
        decode(self.get_or_insert_default(), bytes(number, value)?)
    }
}

impl<M: Message + Default> Field for Vec<M> {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        for message in self {
            put_message(number, out, message);
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        let mut message = M::default();
        decode(&mut message, bytes(number, value)?)?;
        self.push(message);
        Ok(())
    }
}

/// A map's value: a field, or a message.
trait MapValue: Default {
    fn put_value(&mut self, out: &mut Vec<u8>);
    fn take_value(&mut self, value: Value<'_>) -> Result<()>;
}

macro_rules! map_values {
    ($($type:ty),*) => {$(
        impl MapValue for $type {
            fn put_value(&mut self, out: &mut Vec<u8>) {
                self.put(2, out);
            }

            fn take_value(&mut self, value: Value<'_>) -> Result<()> {
                self.take(2, value)
            }
        }
    )*};
}
map_values!(u32, String);

impl MapValue for Counts {
    fn put_value(&mut self, out: &mut Vec<u8>) {
        if *self != Self::default() {
            put_message(2, out, self);
        }
    }

    fn take_value(&mut self, value: Value<'_>) -> Result<()> {
        decode(self, bytes(2, value)?)
    }
}

impl<V: MapValue> Field for BTreeMap<String, V> {
    fn put(&mut self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self {
            let mut entry = Vec::new();
            if !key.is_empty() {
                push_bytes(&mut entry, 1, key.as_bytes());
            }
            value.put_value(&mut entry);
            push_bytes(out, number, &entry);
        }
    }

    fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
        let (mut key, mut of_key) = (String::new(), V::default());
        for field in Fields::new(bytes(number, value)?) {
            match field? {
                (1, value) => key.take(1, value)?,
                (2, value) => of_key.take_value(value)?,
                _ => {}
            }
        }
        self.insert(key, of_key);
        Ok(())
    }
}

/// One of several texts: a variant under each number.
macro_rules! oneofs {
    ($($type:path { $($number:literal: $variant:ident),* })*) => {$(
        impl Field for Option<$type> {
            fn put(&mut self, number: u32, out: &mut Vec<u8>) {
                use $type as Oneof;
                match (self, number) {
                    $((Some(Oneof::$variant(text)), $number) => push_bytes(out, number, text.as_bytes()),)*
                    _ => {}
                }
            }

            fn take(&mut self, number: u32, value: Value<'_>) -> Result<()> {
                use $type as Oneof;
                let text = text(number, value)?.into();
                *self = Some(match number {
                    $($number => Oneof::$variant(text),)*
                    _ => return Ok(()),
                });
                Ok(())
            }
        }
    )*};
}

oneofs! {
    group_source::ValueFrom { 2: Label, 3: Annotation }
    group_source::RoleFrom { 5: RoleLabel, 6: RoleAnnotation }
}

macro_rules! messages {
    ($($type:ident { $($($number:literal)|+: $field:ident),* })*) => {
        $(
            impl Message for $type {
                fn field(&mut self, number: u32) -> Option<&mut dyn Field> {
                    match number {
                        $($($number)|+ => Some(&mut self.$field),)*
                        _ => None,
                    }
                }
            }
        )*

        #[cfg(test)]
        const MESSAGES: &[(&str, tests::RoundTrip)] = &[$((stringify!($type), tests::round_trip::<$type>)),*];
    };
}

messages! {
    Error { 1: code, 2: message }
    Done {}
    CountReply { 1: count }
    Hello { 1: sources }
    GroupSource { 1: prefix, 2 | 3: value_from, 4: object, 5 | 6: role_from, 7: facts }
    Resource { 1: group, 2: version, 3: resource }
    HelloReply { 1: version, 2: plugin, 3: profile, 4: kubernetes, 5: calls }
    Now {}
    NowReply { 1: unix_ms }
    Counts {
        1: gated, 2: unscheduled, 3: waiting, 4: bound, 5: running, 6: succeeded, 7: failed, 8: terminating
    }
    GroupGet { 1: key, 2: with_object, 3: uid }
    GroupState {
        1: total, 2: roles, 3: now_ms, 4: oldest_member_ms, 5: backoff_until_ms, 6: attempt, 7: deadline_ms, 8: released,
        9: blocked_since_ms, 10: other_holders, 11: head, 12: object, 13: note, 14: facts
    }
    Blocked { 1: key, 2: rank, 3: since_ms, 4: note }
    GroupAllow { 1: quorums, 2: uid, 3: join_until_ms }
    Quorum { 1: key, 2: at_least, 3: roles, 4: only_waiting, 5: count_succeeded }
    GroupAllowReply { 1: allowed, 2: released, 3: quorums, 4: lost }
    QuorumState { 1: have, 2: roles }
    Lost { 1: uid, 2: why }
    GroupLeave { 1: key, 2: uid }
    GroupLeaveReply { 1: was, 2: still_waiting }
    GroupReject { 1: key, 2: reason }
    GroupActivate { 1: key, 2: except_uid }
    GroupBackoff { 1: key, 2: until_ms, 3: attempt, 4: note }
    GroupBlock { 1: key, 2: clear, 3: rank, 4: note }
    GroupShapes { 1: key, 2: uid }
    GroupShapesReply { 1: resources, 2: shapes }
    Shape { 1: unscheduled, 2: placed, 3: uid, 4: role, 5: priority, 6: requests }
    GroupMembers { 1: key, 2: offset, 3: limit }
    GroupMembersReply { 1: members, 2: total }
    Member { 1: uid, 2: name, 3: role, 4: state, 5: node, 6: priority }
    ObjectGet { 1: resource, 2: namespace, 3: name }
    Object { 1: served, 2: found, 3: uid, 4: resource_version, 5: json }
    NodesFree {
        1: uid, 2: resources, 3: offset, 4: limit, 5: with_names, 6: topology_key, 7: evict_lower, 8: priority
    }
    NodesFreeReply { 1: generation, 2: nodes, 3: next_offset, 4: free, 5: names, 6: domains, 7: admitted }
    NodesVictims { 1: uid, 2: resources, 3: offset, 4: limit, 5: priority }
    NodesVictimsReply { 1: generation, 2: nodes, 3: next_offset, 4: items }
    NodeVictims { 1: name, 2: free, 3: victims }
    Victim {
        1: uid, 2: priority, 3: start_ms, 4: requests, 5: group, 6: waiting, 7: protected, 8: terminating
    }
    PodsEvict { 1: uids, 2: preemptor_uid, 3: reason }
    PodsEvictReply { 1: evicted, 2: failed }
    EventRecord { 1: resource, 2: kind, 3: namespace, 4: name, 5: uid, 6: warning, 7: reason, 8: note }
    MetricAdd { 1: name, 2: labels, 3: value, 4: help }
    MetricObserve { 1: name, 2: labels, 3: value, 4: help }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MapKey, MessageDescriptor, Value as Reflected};

    use super::*;

    pub(super) type RoundTrip = fn(&[u8]) -> Result<Vec<u8>>;

    /// Decodes and encodes, and compares both with prost.
    pub(super) fn round_trip<M>(bytes: &[u8]) -> Result<Vec<u8>>
    where
        M: Message + prost::Message + Default + PartialEq + Clone,
    {
        let mut message = M::default();
        decode(&mut message, bytes)?;
        // NaN is no one's equal, but is written alike.
        assert_eq!(M::decode(bytes).map(|m| m.encode_to_vec()), Ok(message.encode_to_vec()));
        let mut out = Vec::new();
        encode(&mut message, &mut out);
        Ok(out)
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
    fn every_message_and_no_number_above_the_last() {
        let pool = pool();
        let mut defined: Vec<_> = pool
            .all_messages()
            .filter(|m| !m.is_map_entry() && !["Request", "Response"].contains(&m.name()))
            .inspect(|m| assert!(m.fields().all(|f| f.number() <= LAST), "{}", m.full_name()))
            .map(|m| m.name().to_owned())
            .collect();
        let mut known: Vec<_> = MESSAGES.iter().map(|(name, _)| (*name).to_owned()).collect();
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
            for (name, round_trip) in MESSAGES {
                let of = pool.get_message_by_name(&format!("tutti.bridge.v1.{name}")).expect("defined");
                let drawn = draw(&of, 4, &mut more);
                let bytes = drawn.encode_to_vec();
                let out = round_trip(&bytes).expect("decodes");
                let read = |bytes: &[u8]| DynamicMessage::decode(of.clone(), bytes).expect("encoded");
                prop_assert!(read(&out) == read(&bytes), "{name}: {bytes:x?} became {out:x?}");
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            for (_, round_trip) in MESSAGES {
                // What this reads, prost reads too; `round_trip` compares.
                let _ = round_trip(&bytes);
            }
        }
    }
}
