//! The plugin: a wasm module run as kube-scheduler-wasm-extension runs it.
//!
//! [`Inspection::of`] reads a module without running it and tells what the extension would say to it. [`Guest`] runs it:
//! one method per extension point, an instance pool that hands instances to pods as the extension does, and every
//! import with the extension's semantics, oddities included. What the calls need from the cluster they ask of a
//! [`Host`].
//!
//! Facts are those of `scheduler/plugin/{guest,host,mask,mem,plugin,pool}.go` at `v0.0.0-20250615114056-9b9e18b9d66a`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube_scheduler_abi::{Action, Export, ExportSet};

/// What a guest may ask of the scheduler. None of these may call the guest again.
pub trait Host {
    /// A node of the snapshot, as an encoded `v1.Node`.
    fn node(&mut self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Every node of the snapshot in its order, each an encoded `v1.Node`.
    fn nodes(&mut self) -> Vec<Cow<'_, [u8]>>;

    /// The images of a node of the snapshot by name.
    fn image_states(&mut self, node: &str) -> Option<BTreeMap<String, ImageState>>;

    /// A line that the scheduler's log would show.
    fn log(&mut self, line: LogLine);

    /// An event the guest recorded.
    fn event(&mut self, event: Event);

    /// A pod held at Permit, as an encoded `v1.Pod`.
    fn waiting_pod(&mut self, uid: &str) -> Option<Cow<'_, [u8]>>;

    /// Rejects a pod held at Permit; false if it isn't held.
    fn reject_waiting_pod(&mut self, uid: &str) -> bool;

    /// Serves a bridge request (without its mark); None when there is no bridge. `in_scheduling` is whether the export
    /// that asks may read the node snapshot.
    fn bridge(&mut self, request: &[u8], in_scheduling: bool) -> Option<Vec<u8>>;
}

/// An image on a node, as `nodeImageStates` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageState {
    /// Bytes.
    pub size: i64,
    /// How many nodes have it.
    pub nodes: i64,
}

/// A line of the guest's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// [`kube_scheduler_abi::Severity::Error`] against Info.
    pub error: bool,
    /// The message.
    pub message: String,
    /// Keys and values, in the guest's order.
    pub pairs: Vec<(String, String)>,
}

/// An event, as `handle.eventrecorder.eventf` carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub regarding: ObjectRef,
    /// What else takes part.
    pub related: ObjectRef,
    /// `Normal` or `Warning`.
    pub r#type: String,
    /// One word.
    pub reason: String,
    /// One word.
    pub action: String,
    /// The sentence.
    pub note: String,
}

/// A `v1.ObjectReference`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kubernetes' own names")]
pub struct ObjectRef {
    pub kind: String,
    pub api_version: String,
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
}

/// The pod of a call.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a> {
    /// `metadata.uid`.
    pub uid: &'a str,
    /// The whole pod, an encoded `v1.Pod`.
    pub protobuf: &'a [u8],
}

/// How to run a guest.
#[derive(Clone, Debug)]
pub struct Options {
    /// `guestConfig` of the plugin's configuration.
    pub config: String,
    /// `logSeverity` of the plugin's configuration, 0 (info) to 3 (fatal).
    pub log_severity: i32,
    /// Fuel for one call, about one unit per instruction; a call that uses it up is an error. The start of an instance
    /// has as much.
    pub fuel_per_call: u64,
    /// The largest linear memory of one instance, in bytes.
    pub memory_limit: usize,
    /// How instances are handed to pods.
    pub instances: Instances,
    /// Reproduce `%!(EXTRA <nil>)` at the end of every event's note, as the extension without the bridge has it.
    pub eventf_extra_nil: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            config: String::new(),
            log_severity: 0,
            fuel_per_call: 1_000_000_000,
            memory_limit: 256 << 20,
            instances: Instances::Pool,
            eventf_extra_nil: false,
        }
    }
}

/// How instances are handed to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instances {
    /// As the extension: each pod past Permit has one of its own.
    Pool,
    /// One for everything, to find guests that rely on memory shared between pods.
    Single,
}

/// A status as the guest gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// A [`kube_scheduler_abi::Code`], or a number that is none.
    pub code: i32,
    /// Why; may be empty.
    pub reason: String,
}

/// PreFilter's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreFilter {
    /// The verdict.
    pub status: Status,
    /// The only nodes to look at; None means all.
    pub nodes: Option<Vec<String>>,
}

/// PostFilter's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostFilter {
    /// The verdict.
    pub status: Status,
    /// What to do to the pod's nominated node: None leaves it, an empty name clears it.
    pub nominated: Option<String>,
}

/// Score's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    /// The verdict.
    pub status: Status,
    /// 0 to 100 when the guest keeps to the rules; the framework fails the pod when not.
    pub score: i64,
}

/// Permit's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The verdict; [`kube_scheduler_abi::Code::Wait`] holds the pod.
    pub status: Status,
    /// How long at most, in milliseconds; the framework caps it at 15 minutes.
    pub wait_ms: u32,
}

/// A call that didn't come to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Which call.
    pub export: Export,
    /// What happened.
    pub fault: Fault,
    /// What the guest wrote to stdout and stderr during the call.
    pub output: String,
}

/// What ended a call early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The guest trapped, or gave the host a pointer outside its memory, or JSON that isn't.
    Trap(String),
    /// The guest used up [`Options::fuel_per_call`]. The real scheduler would hang here for ever.
    Fuel(u64),
    /// The guest wanted more than [`Options::memory_limit`] and then failed.
    Memory(usize),
    /// The guest left by WASI `proc_exit`; its instance is closed for good, yet stays in the pool.
    Exited(u32),
    /// A new instance didn't start. The extension closes its whole runtime then: no call works any more.
    Instantiate(String),
    /// The real scheduler's process would end here.
    HostCrash(String),
}

impl CallError {
    /// What the framework sees of it: code Error and the extension's text.
    #[must_use]
    pub fn status(&self) -> Status {
        todo!()
    }
}

/// Why a module isn't loaded.
#[derive(Debug)]
pub enum LoadError {}

/// A loaded plugin.
#[derive(Debug)]
pub struct Guest {}

/// Instances and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Instances that exist.
    pub instances: usize,
    /// The most that have.
    pub peak_instances: usize,
    /// Of these, held by pods past Permit.
    pub binding: usize,
    /// Linear memory of all instances, bytes; it never shrinks, so this is its peak too.
    pub memory: usize,
}

/// Fuel that calls of one export took; the same work takes the same fuel on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FuelUse {
    /// How many calls.
    pub calls: u64,
    /// Of all calls.
    pub total: u64,
    /// Of the dearest call.
    pub max: u64,
}

#[expect(unused_variables, clippy::missing_errors_doc, reason = "bodies follow")]
impl Guest {
    /// Compiles the module and starts its first instance.
    pub fn load(bytes: &[u8], options: Options) -> Result<Self, LoadError> {
        todo!()
    }

    /// What the module exports.
    #[must_use]
    pub fn exports(&self) -> ExportSet {
        todo!()
    }

    /// Whether the framework calls the plugin at this extension point. It does at some that the module doesn't export
    /// (the extension implements PostFilter along with Filter): the method then answers what the extension answers.
    #[must_use]
    pub fn implements(&self, point: Export) -> bool {
        todo!()
    }

    /// Instances and memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        todo!()
    }

    /// Fuel by export.
    #[must_use]
    pub fn fuel(&self) -> BTreeMap<Export, FuelUse> {
        todo!()
    }

    /// The events that retry a rejected pod, as (resource number, action bits); empty means the extension's default.
    pub fn enqueue(&mut self, host: &mut dyn Host) -> Result<Vec<(u32, Action)>, CallError> {
        todo!()
    }

    /// PreFilter.
    pub fn prefilter(&mut self, host: &mut dyn Host, pod: Pod<'_>) -> Result<PreFilter, CallError> {
        todo!()
    }

    /// PreFilter's AddPod: `target` joins `node`.
    pub fn addpod(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        target: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        todo!()
    }

    /// PreFilter's RemovePod: `target` leaves `node`.
    pub fn removepod(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        target: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        todo!()
    }

    /// Filter.
    pub fn filter(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        todo!()
    }

    /// PostFilter, with the status code of each node that a plugin refused.
    pub fn postfilter(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        statuses: &BTreeMap<String, i32>,
    ) -> Result<PostFilter, CallError> {
        todo!()
    }

    /// PreScore, with the names of the nodes that passed.
    pub fn prescore(&mut self, host: &mut dyn Host, pod: Pod<'_>, nodes: &[&str]) -> Result<Status, CallError> {
        todo!()
    }

    /// Score.
    pub fn score(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Score, CallError> {
        todo!()
    }

    /// NormalizeScore: changes the scores in place.
    pub fn normalizescore(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        scores: &mut [(String, i64)],
    ) -> Result<Status, CallError> {
        todo!()
    }

    /// Reserve.
    pub fn reserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        todo!()
    }

    /// Unreserve. The framework goes on whatever this returns.
    pub fn unreserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError> {
        todo!()
    }

    /// Permit.
    pub fn permit(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Permit, CallError> {
        todo!()
    }

    /// PreBind.
    pub fn prebind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        todo!()
    }

    /// Bind.
    pub fn bind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        todo!()
    }

    /// PostBind. The framework goes on whatever this returns.
    pub fn postbind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError> {
        todo!()
    }
}
