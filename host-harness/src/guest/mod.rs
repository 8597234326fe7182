//! The plugin: a wasm module run as kube-scheduler-wasm-extension runs it.
//!
//! [`Inspection::of`] reads a module without running it and tells what the extension would say to it. [`Guest`] runs it:
//! one method per extension point, an instance pool that hands instances to pods as the extension does, and every
//! import with the extension's semantics, oddities included. What the calls need from the cluster they ask of a
//! [`Host`].
//!
//! Facts are those of `scheduler/plugin/{guest,host,mask,mem,plugin,pool}.go` at `v0.0.0-20250615114056-9b9e18b9d66a`.

mod eventf;
mod imports;
mod inspect;
mod instance;
mod pool;
mod wasi;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use kube_scheduler_abi::packing::{NominatingMode, unpack_permit, unpack_value};
use kube_scheduler_abi::{Action, Code, Export, ExportSet};
use wasmtime::{Config, Engine, InstancePre, Linker, Module};

pub use self::inspect::{Hazard, Inspection, NotAModule, Refusal, Signature};
use self::instance::{Context, FRAME, Frame, Instance, Results, State};
use self::pool::{Id, Pool};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageState {
    /// Bytes.
    pub size: i64,
    /// Names of the nodes that have it.
    pub nodes: Vec<String>,
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
    /// The machine has no room for one more instance beside so many.
    NoRoom {
        /// Instances there are.
        instances: usize,
        /// The machine's own words.
        why: String,
    },
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
        Status { code: Code::Error as i32, reason: self.to_string() }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wasm: {} error: ", self.export.name())?;
        if !self.output.is_empty() {
            writeln!(f, "{}", self.output)?;
        }
        write!(f, "{}", self.fault)
    }
}

impl std::error::Error for CallError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trap(what) => f.write_str(what),
            Self::Fuel(fuel) => write!(f, "used up its {fuel} units of fuel; the real scheduler would hang here"),
            Self::Memory(bytes) => write!(f, "wanted more than its {bytes} bytes of memory, and then failed"),
            Self::NoRoom { instances, why } => write!(
                f,
                "no room for one more instance beside the {instances} there are, one for each pod past Permit: {why}; raise \
                 the memory limit of the process, or vm.max_map_count, of which an instance takes two"
            ),
            Self::Exited(code) => write!(f, "module closed with exit_code({code})"),
            Self::Instantiate(what) => write!(f, "a new instance didn't start, which closes them all: {what}"),
            Self::HostCrash(what) => write!(f, "the scheduler's process would crash: {what}"),
        }
    }
}

/// Instances and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Instances that exist. They are never given up, so this is their peak too.
    pub instances: usize,
    /// Of these, held by pods past Permit.
    pub binding: usize,
    /// The most that were.
    pub peak_binding: usize,
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

/// Why a module isn't loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no module.
    #[error(transparent)]
    NotAModule(#[from] NotAModule),
    /// The extension would not load it.
    #[error("the scheduler would not load the module: {}", list(.0))]
    Refused(Vec<Refusal>),
    /// It validates, but can't be compiled.
    #[error("the module doesn't compile: {0}")]
    Compile(String),
    /// The first instance didn't start.
    #[error("the module's start failed: {fault}{}{output}", if output.is_empty() { "" } else { "\n" })]
    Start {
        /// What happened.
        fault: Fault,
        /// What the guest wrote to stdout and stderr.
        output: String,
    },
}

fn list(refusals: &[Refusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A loaded plugin.
pub struct Guest {
    module: InstancePre<State>,
    exports: ExportSet,
    options: Arc<Options>,
    instances: Vec<Instance>,
    pool: Pool,
    peak_binding: usize,
    fuel: BTreeMap<Export, FuelUse>,
    /// Why no call works any more.
    closed: Option<String>,
    /// Lines the first instance logged while it started.
    early: Vec<LogLine>,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("exports", &self.exports).field("usage", &self.usage()).finish_non_exhaustive()
    }
}

/// Address space that an instance starts with; its memory moves if it grows beyond.
const RESERVED: u64 = 256 << 10;

/// Compiles for this machine, deterministically: no threads, one NaN, fuel for every instruction.
///
/// Each pod held at Permit has an instance, tens of thousands at once in a large cluster. So an instance takes what it uses
/// and not, as wasmtime's default, 4 GiB of address space and four of the 65,530 memory maps that Linux gives a process.
static ENGINE: LazyLock<Result<Engine, String>> = LazyLock::new(|| {
    let mut config = Config::new();
    config.consume_fuel(true).cranelift_nan_canonicalization(true);
    config.memory_reservation(RESERVED).memory_reservation_for_growth(0).memory_guard_size(0).memory_init_cow(false);
    Engine::new(&config).map_err(|e| e.to_string())
});

/// Which instance a call runs on.
#[derive(Clone, Copy)]
enum On<'a> {
    /// Outside of a cycle.
    Any,
    /// That of the scheduling cycle.
    Scheduling,
    /// That of a pod past Permit, by uid.
    Pod(&'a str),
}

impl Guest {
    /// Compiles the module and starts its first instance.
    ///
    /// # Errors
    /// The bytes are no module, the extension would refuse it, or its start fails.
    pub fn load(bytes: &[u8], options: Options) -> Result<Self, LoadError> {
        let inspection = Inspection::of(bytes)?;
        if !inspection.accepted() {
            return Err(LoadError::Refused(inspection.refusals));
        }
        let module = compile(bytes).map_err(LoadError::Compile)?;
        let mut guest = Self {
            module,
            exports: inspection.exports,
            options: Arc::new(options),
            instances: Vec::new(),
            pool: Pool::default(),
            peak_binding: 0,
            fuel: BTreeMap::new(),
            closed: None,
            early: Vec::new(),
        };
        let id = guest.start().map_err(|(fault, output)| LoadError::Start { fault, output })?;
        guest.early = guest.instances[id].take_early();
        guest.pool.put(id);
        Ok(guest)
    }

    fn start(&mut self) -> Result<Id, (Fault, String)> {
        let engine = self.module.module().engine();
        let mut instance = Instance::start(engine, &self.module, self.exports, &self.options);
        if let Err((Fault::NoRoom { instances, .. }, _)) = &mut instance {
            *instances = self.instances.len();
        }
        let instance = instance?;
        self.instances.push(instance);
        Ok(self.instances.len() - 1)
    }

    /// What the module exports.
    #[must_use]
    pub fn exports(&self) -> ExportSet {
        self.exports
    }

    /// Whether the framework calls the plugin at this extension point. It does at some that the module doesn't export
    /// (the extension implements PostFilter along with Filter): the method then answers what the extension answers.
    #[must_use]
    pub fn implements(&self, point: Export) -> bool {
        use Export as E;
        let has = |export| self.exports.has(export);
        match point {
            E::Enqueue | E::PreFilter => true,
            E::AddPod | E::RemovePod => has(E::AddPod) || has(E::RemovePod),
            E::Filter | E::PostFilter => has(E::Filter),
            E::PreScore | E::Score => has(E::Score),
            E::NormalizeScore => has(E::Score) && has(E::NormalizeScore),
            E::Reserve | E::Unreserve => has(E::Reserve) || has(E::Unreserve),
            E::Permit => has(E::Permit),
            E::PreBind | E::Bind | E::PostBind => has(E::Bind),
        }
    }

    /// Instances and memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            instances: self.instances.len(),
            binding: self.pool.binding(),
            peak_binding: self.peak_binding,
            memory: self.instances.iter().map(Instance::memory).sum(),
        }
    }

    /// Fuel by export.
    #[must_use]
    pub fn fuel(&self) -> &BTreeMap<Export, FuelUse> {
        &self.fuel
    }

    /// The events that retry a rejected pod, as (resource number, action bits); empty means the extension's default.
    ///
    /// # Errors
    /// The call failed; the scheduler's start would end here.
    pub fn enqueue(&mut self, host: &mut dyn Host) -> Result<Vec<(u32, Action)>, CallError> {
        if !self.exports.has(Export::Enqueue) {
            return Ok(Vec::new());
        }
        let (_, results) =
            self.call(Export::Enqueue, On::Any, host, Context::default()).map_err(|error| match error.fault {
                Fault::HostCrash(_) => error,
                fault => CallError { fault: Fault::HostCrash(fault.to_string()), ..error },
            })?;
        Ok(results.cluster_events)
    }

    /// PreFilter.
    ///
    /// # Errors
    /// The call failed.
    pub fn prefilter(&mut self, host: &mut dyn Host, pod: Pod<'_>) -> Result<PreFilter, CallError> {
        if !self.exports.has(Export::PreFilter) {
            return Ok(PreFilter { status: Status::success(), nodes: None });
        }
        let context = Context { pod: pod.protobuf, in_scheduling: true, ..Default::default() };
        let (bits, mut results) = self.call(Export::PreFilter, On::Scheduling, host, context)?;
        let nodes = std::mem::take(&mut results.node_names);
        Ok(PreFilter { status: status(bits as i32, results), nodes: if nodes.is_empty() { None } else { Some(nodes) } })
    }

    /// PreFilter's AddPod: `target` joins `node`.
    ///
    /// # Errors
    /// The call failed.
    pub fn addpod(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        target: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        self.extension(Export::AddPod, host, pod, target, node)
    }

    /// PreFilter's RemovePod: `target` leaves `node`.
    ///
    /// # Errors
    /// The call failed.
    pub fn removepod(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        target: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        self.extension(Export::RemovePod, host, pod, target, node)
    }

    fn extension(
        &mut self,
        export: Export,
        host: &mut dyn Host,
        pod: Pod<'_>,
        target: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        if !self.implements(export) {
            return Ok(Status::success());
        }
        let context =
            Context { pod: pod.protobuf, target: target.protobuf, node, in_scheduling: true, ..Default::default() };
        let (bits, results) = self.call(export, On::Scheduling, host, context)?;
        Ok(status(bits as i32, results))
    }

    /// Filter.
    ///
    /// # Errors
    /// The call failed.
    pub fn filter(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        self.on_node(Export::Filter, On::Scheduling, host, pod, node)
    }

    /// PostFilter, with the status code of each node that a plugin refused.
    ///
    /// # Errors
    /// The call failed.
    pub fn postfilter(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        statuses: &BTreeMap<String, i32>,
    ) -> Result<PostFilter, CallError> {
        if !self.exports.has(Export::PostFilter) {
            return Ok(PostFilter { status: Status::success(), nominated: None });
        }
        let context =
            Context { pod: pod.protobuf, statuses: Some(statuses), in_scheduling: true, ..Default::default() };
        let (packed, mut results) = self.call(Export::PostFilter, On::Scheduling, host, context)?;
        let (mode, code) = unpack_value(packed);
        let nominated = std::mem::take(&mut results.nominated);
        let nominated = (mode == NominatingMode::Override as i32).then_some(nominated);
        Ok(PostFilter { status: status(code, results), nominated })
    }

    /// PreScore, with the names of the nodes that passed.
    ///
    /// # Errors
    /// The call failed.
    pub fn prescore(&mut self, host: &mut dyn Host, pod: Pod<'_>, nodes: &[&str]) -> Result<Status, CallError> {
        if !self.exports.has(Export::PreScore) {
            return Ok(Status::success());
        }
        let context = Context { pod: pod.protobuf, filtered: nodes, in_scheduling: true, ..Default::default() };
        let (bits, results) = self.call(Export::PreScore, On::Scheduling, host, context)?;
        Ok(status(bits as i32, results))
    }

    /// Score.
    ///
    /// # Errors
    /// The call failed.
    pub fn score(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Score, CallError> {
        let context = Context { pod: pod.protobuf, node, in_scheduling: true, ..Default::default() };
        let (packed, results) = self.call(Export::Score, On::Scheduling, host, context)?;
        let (score, code) = unpack_value(packed);
        Ok(Score { status: status(code, results), score: score.into() })
    }

    /// NormalizeScore: changes the scores in place. The extension takes them from a Go map, whose order is random, and
    /// copies them by position: here the order is fixed, by name from the end, and no less wrong.
    ///
    /// # Errors
    /// The call failed; the scheduler crashes when the number of scores changed.
    pub fn normalizescore(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        scores: &mut [(String, i64)],
    ) -> Result<Status, CallError> {
        let export = Export::NormalizeScore;
        if !self.exports.has(export) {
            return Ok(Status::success());
        }
        let context = Context { pod: pod.protobuf, scores, in_scheduling: true, ..Default::default() };
        let crash = |n: usize, output| {
            let what =
                format!("size mismatch: scores has {} elements, but updatedScores has {n} elements", scores.len());
            CallError { export, fault: Fault::HostCrash(what), output }
        };
        let (bits, mut results) = match self.call(export, On::Scheduling, host, context) {
            Ok(answer) => answer,
            Err(error) if scores.is_empty() => return Err(error),
            Err(error) => return Err(crash(0, error.output)),
        };
        let new = std::mem::take(&mut results.scores);
        if !new.is_empty() {
            if new.len() != scores.len() {
                return Err(crash(new.len(), String::new()));
            }
            for (old, new) in scores.iter_mut().zip(new.into_iter().rev()) {
                *old = new;
            }
        }
        Ok(status(bits as i32, results))
    }

    /// Reserve.
    ///
    /// # Errors
    /// The call failed.
    pub fn reserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        self.on_node(Export::Reserve, On::Scheduling, host, pod, node)
    }

    /// Unreserve. It runs on the scheduling cycle's instance, and gives the pod's own back.
    ///
    /// # Errors
    /// The call failed; the framework goes on whatever happened.
    pub fn unreserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError> {
        let result = self.on_node(Export::Unreserve, On::Scheduling, host, pod, node);
        self.pool.free(pod.uid);
        result.map(|_| ())
    }

    /// Permit. Whatever it answers, the scheduling cycle's instance is the pod's from here on.
    ///
    /// # Errors
    /// The call failed.
    pub fn permit(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Permit, CallError> {
        let context = Context { pod: pod.protobuf, node, in_scheduling: true, ..Default::default() };
        let result = self.call(Export::Permit, On::Scheduling, host, context);
        self.of_pod(Export::Permit, pod.uid)?;
        let (packed, results) = result?;
        let (code, wait_ms) = unpack_permit(packed);
        Ok(Permit { status: status(code, results), wait_ms })
    }

    /// PreBind.
    ///
    /// # Errors
    /// The call failed.
    pub fn prebind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        if !self.exports.has(Export::PreBind) {
            return Ok(Status::success());
        }
        self.on_node(Export::PreBind, On::Pod(pod.uid), host, pod, node)
    }

    /// Bind.
    ///
    /// # Errors
    /// The call failed.
    pub fn bind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        self.on_node(Export::Bind, On::Pod(pod.uid), host, pod, node)
    }

    /// PostBind, which gives the pod's instance back; without the export nothing does.
    ///
    /// # Errors
    /// The call failed; the framework goes on whatever happened.
    pub fn postbind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError> {
        if !self.exports.has(Export::PostBind) {
            return Ok(());
        }
        let result = self.on_node(Export::PostBind, On::Pod(pod.uid), host, pod, node);
        self.pool.free(pod.uid);
        result.map(|_| ())
    }

    fn on_node(
        &mut self,
        export: Export,
        on: On<'_>,
        host: &mut dyn Host,
        pod: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        let in_scheduling = !matches!(export, Export::Unreserve | Export::PreBind | Export::Bind | Export::PostBind);
        let context = Context { pod: pod.protobuf, node, in_scheduling, ..Default::default() };
        let (bits, results) = self.call(export, on, host, context)?;
        Ok(status(bits as i32, results))
    }

    /// Calls an export: the result's bits, and what the guest left by the result imports.
    fn call(
        &mut self,
        export: Export,
        on: On<'_>,
        host: &mut dyn Host,
        context: Context<'_>,
    ) -> Result<(u64, Results), CallError> {
        let failed = |(fault, output)| CallError { export, fault, output };
        if let Some(why) = &self.closed {
            return Err(failed((Fault::Instantiate(why.clone()), String::new())));
        }
        self.early.drain(..).for_each(|line| host.log(line));
        let mut results = Results::default();
        let frame = Frame { host, context, results: &mut results };
        let (result, used) = FRAME.set(frame, || {
            let id = self.instance(export, on)?;
            let answer = self.instances[id].call(export);
            if matches!(on, On::Any) && self.options.instances == Instances::Pool {
                self.pool.put(id);
            }
            Ok(answer)
        })?;
        let spent = self.fuel.entry(export).or_default();
        spent.calls += 1;
        spent.total += used;
        spent.max = spent.max.max(used);
        result.map(|bits| (bits, results)).map_err(failed)
    }

    /// The instance for a call, started if need be.
    fn instance(&mut self, export: Export, on: On<'_>) -> Result<Id, CallError> {
        if self.options.instances == Instances::Single {
            return Ok(0);
        }
        let found = match on {
            On::Any => self.pool.take(),
            On::Scheduling => self.pool.scheduling(),
            On::Pod(uid) => return self.of_pod(export, uid),
        };
        if let Some(id) = found {
            return Ok(id);
        }
        let id = self.start().map_err(|(fault, output)| {
            self.closed = Some(fault.to_string());
            CallError { export, fault: Fault::Instantiate(fault.to_string()), output }
        })?;
        if matches!(on, On::Scheduling) {
            self.pool.set_scheduling(id);
        }
        Ok(id)
    }

    /// The instance of a pod past Permit.
    fn of_pod(&mut self, export: Export, uid: &str) -> Result<Id, CallError> {
        if self.options.instances == Instances::Single {
            return Ok(0);
        }
        let id = self.pool.bind(uid).ok_or_else(|| {
            let what = "unexpected podUID: no instance is bound to the pod, and none is in the scheduling cycle";
            CallError { export, fault: Fault::HostCrash(what.into()), output: String::new() }
        })?;
        self.peak_binding = self.peak_binding.max(self.pool.binding());
        Ok(id)
    }
}

impl Status {
    fn success() -> Self {
        Self { code: Code::Success as i32, reason: String::new() }
    }
}

fn status(code: i32, results: Results) -> Status {
    Status { code, reason: results.reason }
}

/// The module compiled last. A run of many scenarios loads the same one over and over, and compiling is what takes long.
static COMPILED: Mutex<Option<(Vec<u8>, InstancePre<State>)>> = Mutex::new(None);

fn compile(bytes: &[u8]) -> Result<InstancePre<State>, String> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, module)) = &*compiled
        && of == bytes
    {
        return Ok(module.clone());
    }
    let engine = ENGINE.as_ref().map_err(Clone::clone)?;
    let linked = Module::new(engine, bytes).and_then(|module| {
        let mut linker = Linker::new(engine);
        imports::define(&mut linker)?;
        wasi::define(&mut linker)?;
        linker.instantiate_pre(&module)
    });
    let module = linked.map_err(|e| format!("{e:#}"))?;
    *compiled = Some((bytes.to_vec(), module.clone()));
    Ok(module)
}
