//! What a scheduler with the Tutti bridge adds: groups of pods that are let go together, the host's clock, API objects,
//! free resources, evictions, metrics.
//!
//! One method per call of `abi/proto/bridge/v1/bridge.proto`, which says what each does. On the stock extension, without
//! the bridge, every method answers [`Error::Absent`]. Calls that read the snapshot are refused by the host outside the
//! scheduling cycle.

mod codec;
pub mod read;

use core::cell::OnceCell;
use core::fmt;
use core::ops::Range;

use kube_scheduler_abi::bridge::v1;
pub use kube_scheduler_abi::bridge::v1::*;
use kube_scheduler_abi::bridge::{MARK, VERSION};

use self::codec::{Put, Take};
use crate::api::{Node, ObjectMeta};
use crate::buffer::HostBytes;
use crate::wire::{self, Fields, Malformed, Message as _, Value};
use crate::{Status, host};

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The scheduler has no bridge.
    Absent,
    /// The bridge refused the call.
    Refused {
        /// Why, in a code.
        code: error::Code,
        /// Why, in words.
        message: String,
    },
    /// The reply is no answer to the call.
    BadReply(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("this scheduler has no Tutti bridge; run the scheduler built with it"),
            Self::Refused { code, message } => {
                write!(f, "the bridge refused the call: {}: {message}", code.as_str_name())
            }
            Self::BadReply(why) => write!(f, "the bridge gave a reply that can't be read: {why}"),
        }
    }
}

impl core::error::Error for Error {}

impl From<Error> for Status {
    fn from(e: Error) -> Self {
        Self::error(e.to_string())
    }
}

/// The bridge, as one guest instance sees it. Keep it in the plugin.
#[derive(Debug)]
pub struct Bridge {
    sources: Vec<GroupSource>,
    hello: OnceCell<Option<HelloReply>>,
}

/// A group's state together with its bytes.
#[derive(Debug)]
pub struct GroupStateBuf {
    response: HostBytes,
    state: Range<usize>,
}

impl GroupStateBuf {
    /// Its reader.
    #[must_use]
    pub fn get(&self) -> read::GroupState<'_> {
        read::GroupState::from_bytes(&self.response[self.state.clone()])
    }
}

/// The methods, one per call: `method: Request.call number (message) -> Response.result number (message)`.
macro_rules! calls {
    ($($method:ident: $call:literal($request:ident) -> $result:literal($reply:ident);)*) => {
        /// The calls there are, by the name of their field in `Request`.
        pub const CALLS: &[&str] = &["hello", "now", $(stringify!($method)),*];

        impl Bridge {$(
            #[doc = concat!("Calls ", stringify!($request), ".")]
            ///
            /// # Errors
            /// There is no bridge, or it refused.
            pub fn $method(&self, call: $request) -> Result<$reply, Error> {
                self.hello()?;
                let mut reply = $reply::default();
                ask($call, &call, $result, &mut reply).map(|()| reply)
            }
        )*}

    };
}

impl Bridge {
    /// The bridge for a plugin that groups pods like this. Nothing is called yet.
    #[must_use]
    pub const fn new(sources: Vec<GroupSource>) -> Self {
        Self { sources, hello: OnceCell::new() }
    }

    /// Who is there. The first call of an instance says hello; the answer, or that nobody is there, is remembered.
    ///
    /// # Errors
    /// There is no bridge, or it refused the sources.
    pub fn hello(&self) -> Result<&HelloReply, Error> {
        if self.hello.get().is_none() {
            let mut reply = HelloReply::default();
            let hello = match ask(2, &Hello { sources: self.sources.clone() }, 2, &mut reply) {
                Ok(()) => Some(reply),
                // Stays so: the bridge is part of the scheduler.
                Err(Error::Absent) => None,
                // May pass: ask again at the next call.
                Err(e) => return Err(e),
            };
            self.hello.get_or_init(|| hello);
        }
        self.hello.get().and_then(Option::as_ref).ok_or(Error::Absent)
    }

    /// Whether the bridge is there and serves a call, by the name of its field in `Request`.
    #[must_use]
    pub fn serves(&self, call: &str) -> bool {
        self.hello().is_ok_and(|hello| hello.calls.iter().any(|c| c == call))
    }

    /// Calls GroupGet as [`group_get`](Self::group_get) does, for who wants but some of the state: its fields are read in
    /// place when they are asked for, at a fraction of the module's size and of the time.
    ///
    /// # Errors
    /// There is no bridge, or it refused.
    pub fn group_state(&self, call: &GroupGet) -> Result<GroupStateBuf, Error> {
        self.hello()?;
        let response = send(4, call)?;
        let state = result(&response, 4)?;
        let start = state.as_ptr() as usize - response.as_ptr() as usize;
        Ok(GroupStateBuf { state: start..start + state.len(), response })
    }

    /// The host's clock, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// There is no bridge, or it refused.
    pub fn now(&self) -> Result<i64, Error> {
        self.hello()?;
        let mut reply = NowReply::default();
        ask(3, &Now {}, 3, &mut reply).map(|()| reply.unix_ms)
    }
}

calls! {
    group_get: 4(GroupGet) -> 4(GroupState);
    group_allow: 5(GroupAllow) -> 5(GroupAllowReply);
    group_leave: 6(GroupLeave) -> 6(GroupLeaveReply);
    group_reject: 7(GroupReject) -> 7(CountReply);
    group_activate: 8(GroupActivate) -> 8(CountReply);
    group_backoff: 9(GroupBackoff) -> 9(Done);
    group_block: 10(GroupBlock) -> 9(Done);
    group_members: 11(GroupMembers) -> 11(GroupMembersReply);
    object_get: 12(ObjectGet) -> 12(Object);
    nodes_free: 13(NodesFree) -> 13(NodesFreeReply);
    nodes_victims: 14(NodesVictims) -> 14(NodesVictimsReply);
    pods_evict: 15(PodsEvict) -> 15(PodsEvictReply);
    event_record: 16(EventRecord) -> 9(Done);
    metric_add: 17(MetricAdd) -> 9(Done);
    metric_observe: 18(MetricObserve) -> 9(Done);
    group_shapes: 19(GroupShapes) -> 16(GroupShapesReply);
}

/// Sends a request and reads its reply.
fn ask(call_field: u32, call: &dyn Put, result_field: u32, reply: &mut dyn Take) -> Result<(), Error> {
    codec::decode(reply, result(&send(call_field, call)?, result_field)?).map_err(unreadable)
}

/// Sends a request. Request and Response are written and read by field number, not through their own types: those name
/// every message of the bridge, and a guest would carry the code of them all.
fn send(call_field: u32, call: &dyn Put) -> Result<HostBytes, Error> {
    let mut name = vec![MARK];
    wire::push_varint(&mut name, 1 << 3, VERSION.into());
    codec::put_message(call_field, &mut name, call);
    host::node_by_bytes(&name).ok_or(Error::Absent)
}

/// The call's result. The response travels as the node's name, which is bytes here, not text; it holds the result, or an
/// error.
fn result(node: &[u8], result_field: u32) -> Result<&[u8], Error> {
    let response = Node::from_bytes(node).metadata().and_then(ObjectMeta::name_bytes).map_err(unreadable)?;
    for field in Fields::new(response) {
        match field.map_err(unreadable)? {
            (1, Value::Bytes(bytes)) => {
                let mut error = v1::Error::default();
                codec::decode(&mut error, bytes).map_err(unreadable)?;
                return Err(Error::Refused { code: error.code(), message: error.message });
            }
            (number, Value::Bytes(bytes)) if number == result_field => return Ok(bytes),
            _ => {}
        }
    }
    Err(unreadable(Malformed::Missing { field: result_field }))
}

#[cold]
fn unreadable(why: Malformed) -> Error {
    Error::BadReply(why.to_string())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::response::Result as R;
    use super::*;
    use crate::testing::{FakeHost, with};

    /// Calls a method on a bridge that decodes the request by its own types and gives `reply`.
    fn check<T: PartialEq + fmt::Debug>(
        method: impl FnOnce(&Bridge) -> Result<T, Error>,
        call: &request::Call,
        reply: R,
        expected: &T,
    ) {
        let asked = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&asked);
        let host = FakeHost::new().bridge(move |call| {
            seen.replace(Some(call));
            reply.clone()
        });
        let got = with(Rc::new(host), || method(&Bridge::new(Vec::new())));
        assert_eq!(got.as_ref(), Ok(expected));
        assert_eq!(asked.take().as_ref(), Some(call));
    }

    /// Sends the default message of a call.
    macro_rules! round_trips {
        ($($method:ident $call:ident $result:ident;)*) => {{
            $(
                let reply = R::$result(Default::default());
                let R::$result(expected) = &reply else { unreachable!() };
                let call = request::Call::$call($call::default());
                check(|b| b.$method($call::default()), &call, reply.clone(), expected);
            )*
            let methods: &[&str] = &["hello", "now", $(stringify!($method)),*];
            assert_eq!(methods, CALLS);
        }};
    }

    #[test]
    fn every_call_goes_by_its_own_number() {
        round_trips! {
            group_get GroupGet GroupGet;
            group_allow GroupAllow GroupAllow;
            group_leave GroupLeave GroupLeave;
            group_reject GroupReject GroupReject;
            group_activate GroupActivate GroupActivate;
            group_backoff GroupBackoff Done;
            group_block GroupBlock Done;
            group_members GroupMembers GroupMembers;
            object_get ObjectGet ObjectGet;
            nodes_free NodesFree NodesFree;
            nodes_victims NodesVictims NodesVictims;
            pods_evict PodsEvict PodsEvict;
            event_record EventRecord Done;
            metric_add MetricAdd Done;
            metric_observe MetricObserve Done;
            group_shapes GroupShapes GroupShapes;
        }
        check(Bridge::now, &request::Call::Now(Now {}), R::Now(NowReply { unix_ms: 7 }), &7);
    }

    #[test]
    fn a_group_s_state_is_read_in_place() {
        let counts = Counts {
            gated: 1,
            unscheduled: 2,
            waiting: 3,
            bound: 4,
            running: 5,
            succeeded: 6,
            failed: 7,
            terminating: u32::MAX,
        };
        let sent = GroupState {
            total: Some(counts),
            roles: [("worker".into(), counts)].into(),
            now_ms: 1,
            oldest_member_ms: -2,
            backoff_until_ms: 3,
            attempt: 4,
            deadline_ms: 5,
            released: true,
            blocked_since_ms: 6,
            other_holders: 7,
            head: Some(Blocked { key: "k".into(), rank: -8, since_ms: 9, note: vec![0xff] }),
            object: Some(Object {
                served: true,
                found: true,
                uid: "u".into(),
                resource_version: "10".into(),
                json: b"{}".into(),
            }),
            note: "why".into(),
            facts: [("fact".into(), "told".into())].into(),
        };
        let same = |is: read::Counts<'_>, was: Counts| {
            assert_eq!((is.gated(), is.unscheduled()), (Ok(was.gated), Ok(was.unscheduled)));
            assert_eq!((is.waiting(), is.bound()), (Ok(was.waiting), Ok(was.bound)));
            assert_eq!((is.running(), is.succeeded()), (Ok(was.running), Ok(was.succeeded)));
            assert_eq!((is.failed(), is.terminating()), (Ok(was.failed), Ok(was.terminating)));
        };
        for sent in [sent, GroupState::default()] {
            let reply = R::GroupGet(sent.clone());
            let host = Rc::new(FakeHost::new().bridge(move |_| reply.clone()));
            let read = with(host, || Bridge::new(Vec::new()).group_state(&GroupGet::default())).expect("a state");
            let is = read.get();
            same(is.total().expect("counts"), sent.total.unwrap_or_default());
            let mut roles = 0;
            for role in is.roles().expect("roles") {
                let (name, counts) = role.expect("a role");
                same(counts, sent.roles[name]);
                roles += 1;
            }
            assert_eq!(roles, sent.roles.len());
            assert_eq!((is.now_ms(), is.oldest_member_ms()), (Ok(sent.now_ms), Ok(sent.oldest_member_ms)));
            assert_eq!((is.backoff_until_ms(), is.attempt()), (Ok(sent.backoff_until_ms), Ok(sent.attempt)));
            assert_eq!((is.deadline_ms(), is.released()), (Ok(sent.deadline_ms), Ok(sent.released)));
            assert_eq!(
                (is.blocked_since_ms(), is.other_holders()),
                (Ok(sent.blocked_since_ms), Ok(sent.other_holders))
            );
            let head = is.head().expect("head").map(|h| Blocked {
                key: h.key().expect("key").into(),
                rank: h.rank().expect("rank"),
                since_ms: h.since_ms().expect("since"),
                note: h.note().expect("note").into(),
            });
            assert_eq!(head, sent.head);
            let object = is.object().expect("object").map(|o| Object {
                served: o.served().expect("served"),
                found: o.found().expect("found"),
                uid: o.uid().expect("uid").into(),
                resource_version: o.resource_version().expect("version").into(),
                json: o.json().expect("json").into(),
            });
            assert_eq!(object, sent.object);
            assert_eq!(is.note(), Ok(sent.note.as_str()));
            assert_eq!(is.facts().and_then(|f| f.get("fact")), Ok(sent.facts.get("fact").map(String::as_str)));
        }
    }

    #[test]
    fn every_message_has_a_method() {
        let proto = include_str!("../../../abi/proto/bridge/v1/bridge.proto");
        let calls = proto.split_once("oneof call {").and_then(|(_, rest)| rest.split_once('}')).expect("oneof call").0;
        let mut named: Vec<_> = calls.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let mut methods = CALLS.to_vec();
        named.sort_unstable();
        methods.sort_unstable();
        assert_eq!(methods, named);
    }

    #[test]
    fn absence_is_found_once_and_refusals_are_told() {
        let bridge = Bridge::new(Vec::new());
        with(Rc::new(FakeHost::new()), || assert_eq!(bridge.now(), Err(Error::Absent)));
        // A bridge doesn't appear later: the scheduler would be another process.
        let present = Rc::new(FakeHost::new().bridge(|_| R::Now(NowReply { unix_ms: 1 })));
        with(present, || assert_eq!(bridge.now(), Err(Error::Absent)));

        let refusing = Rc::new(FakeHost::new().bridge(|_| {
            R::Error(v1::Error { code: error::Code::NotAllowedHere.into(), message: "no snapshot here".into() })
        }));
        let refused = with(refusing, || Bridge::new(Vec::new()).nodes_free(NodesFree::default()));
        assert_eq!(
            refused.map_err(|e| e.to_string()),
            Err("the bridge refused the call: NOT_ALLOWED_HERE: no snapshot here".into())
        );

        let lying = Rc::new(FakeHost::new().bridge(|_| R::Done(Done {})));
        let answered = with(lying, || Bridge::new(Vec::new()).now());
        assert_eq!(answered, Err(Error::BadReply("malformed protobuf: field 3 is missing".into())));
    }
}
