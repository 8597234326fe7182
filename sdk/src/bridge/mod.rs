//! What a scheduler with the Tutti bridge adds: groups of pods that are let go together, the host's clock, API objects,
//! free resources, evictions, metrics.
//!
//! One method per call of `abi/proto/bridge/v1/bridge.proto`, which says what each does. On the stock extension, without
//! the bridge, every method answers [`Error::Absent`]. Calls that read the snapshot are refused by the host outside the
//! scheduling cycle.

mod codec;

use core::cell::OnceCell;
use core::fmt;

use kube_scheduler_abi::bridge::v1;
pub use kube_scheduler_abi::bridge::v1::*;
use kube_scheduler_abi::bridge::{MARK, VERSION};

use self::codec::Message;
use crate::api::{Node, ObjectMeta};
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
            pub fn $method(&self, mut call: $request) -> Result<$reply, Error> {
                self.hello()?;
                let mut reply = $reply::default();
                ask($call, &mut call, $result, &mut reply).map(|()| reply)
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
            let hello = match ask(2, &mut Hello { sources: self.sources.clone() }, 2, &mut reply) {
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

    /// The host's clock, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// There is no bridge, or it refused.
    pub fn now(&self) -> Result<i64, Error> {
        self.hello()?;
        let mut reply = NowReply::default();
        ask(3, &mut Now {}, 3, &mut reply).map(|()| reply.unix_ms)
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

/// Sends a request and reads its reply. Request and Response are written and read by field number, not through their own
/// types: those name every message of the bridge, and a guest would carry the code of them all.
fn ask(call_field: u32, call: &mut dyn Message, result_field: u32, reply: &mut dyn Message) -> Result<(), Error> {
    let mut body = Vec::new();
    codec::encode(call, &mut body);
    let mut name = Vec::with_capacity(16 + body.len());
    name.push(MARK);
    wire::push_varint(&mut name, 1 << 3, VERSION.into());
    wire::push_bytes(&mut name, call_field, &body);
    let node = host::node_by_bytes(&name).ok_or(Error::Absent)?;
    match answer(&node, result_field, reply) {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(Error::Refused { code: error.code(), message: error.message }),
        Err(unreadable) => Err(Error::BadReply(unreadable.to_string())),
    }
}

/// Reads the response that travels as the node's name, which is bytes here, not text. Either it holds the call's result, or
/// an error.
fn answer(node: &[u8], result_field: u32, reply: &mut dyn Message) -> Result<Option<v1::Error>, Malformed> {
    for field in Fields::new(Node::from_bytes(node).metadata().and_then(ObjectMeta::name_bytes)?) {
        match field? {
            (1, Value::Bytes(bytes)) => {
                let mut error = v1::Error::default();
                codec::decode(&mut error, bytes)?;
                return Ok(Some(error));
            }
            (number, Value::Bytes(bytes)) if number == result_field => {
                return codec::decode(reply, bytes).map(|()| None);
            }
            _ => {}
        }
    }
    Err(Malformed::Missing { field: result_field })
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
