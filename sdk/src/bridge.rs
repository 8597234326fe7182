//! What a scheduler with the Tutti bridge adds: groups of pods that are let go together, the host's clock, API objects,
//! free resources, evictions, metrics.
//!
//! One method per call of `abi/proto/bridge/v1/bridge.proto`, which says what each does. On the stock extension, without
//! the bridge, every method answers [`Error::Absent`]. Calls that read the snapshot are refused by the host outside the
//! scheduling cycle.

use core::cell::OnceCell;
use core::fmt;

pub use kube_scheduler_abi::bridge::v1::*;
use kube_scheduler_abi::bridge::{MARK, VERSION};
use prost::Message as _;

use crate::api::Node;
use crate::wire::Message as _;
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

/// The method of one call.
macro_rules! calls {
    ($($method:ident($call:ident) -> $result:ident($reply:ty);)*) => {$(
        #[doc = concat!("Calls ", stringify!($call), ".")]
        ///
        /// # Errors
        /// There is no bridge, or it refused.
        pub fn $method(&self, call: $call) -> Result<$reply, Error> {
            self.hello()?;
            match ask(request::Call::$call(call))? {
                response::Result::$result(reply) => Ok(reply),
                _ => Err(unexpected(stringify!($call))),
            }
        }
    )*};
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
            let hello = match ask(request::Call::Hello(Hello { sources: self.sources.clone() })) {
                Ok(response::Result::Hello(reply)) => Some(reply),
                Ok(_) => return Err(unexpected("Hello")),
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
        match ask(request::Call::Now(Now {}))? {
            response::Result::Now(reply) => Ok(reply.unix_ms),
            _ => Err(unexpected("Now")),
        }
    }

    calls! {
        group_get(GroupGet) -> GroupGet(GroupState);
        group_allow(GroupAllow) -> GroupAllow(GroupAllowReply);
        group_leave(GroupLeave) -> GroupLeave(GroupLeaveReply);
        group_reject(GroupReject) -> GroupReject(CountReply);
        group_activate(GroupActivate) -> GroupActivate(CountReply);
        group_backoff(GroupBackoff) -> Done(Done);
        group_block(GroupBlock) -> Done(Done);
        group_members(GroupMembers) -> GroupMembers(GroupMembersReply);
        group_shapes(GroupShapes) -> GroupShapes(GroupShapesReply);
        object_get(ObjectGet) -> ObjectGet(Object);
        nodes_free(NodesFree) -> NodesFree(NodesFreeReply);
        nodes_victims(NodesVictims) -> NodesVictims(NodesVictimsReply);
        pods_evict(PodsEvict) -> PodsEvict(PodsEvictReply);
        event_record(EventRecord) -> Done(Done);
        metric_add(MetricAdd) -> Done(Done);
        metric_observe(MetricObserve) -> Done(Done);
    }
}

fn ask(call: request::Call) -> Result<response::Result, Error> {
    let request = Request { version: VERSION, call: Some(call) };
    let mut name = Vec::with_capacity(1 + request.encoded_len());
    name.push(MARK);
    request.encode_raw(&mut name);
    let reply = host::node_by_bytes(&name).ok_or(Error::Absent)?;
    // The reply travels as the node's name, which is bytes here, not text.
    let envelope = Node::from_bytes(&reply);
    let bytes = envelope.metadata().and_then(|m| m.name_bytes()).map_err(|e| Error::BadReply(e.to_string()))?;
    match Response::decode(bytes).map_err(|e| Error::BadReply(e.to_string()))?.result {
        Some(response::Result::Error(e)) => Err(Error::Refused { code: e.code(), message: e.message }),
        Some(result) => Ok(result),
        None => Err(Error::BadReply("it holds no result".into())),
    }
}

fn unexpected(call: &str) -> Error {
    Error::BadReply(format!("it answers another call than {call}"))
}
