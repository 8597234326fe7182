//! One instance of the module, and one call into it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube_scheduler_abi::export::MEMORY;
use kube_scheduler_abi::{Action, Export, ExportSet, ValueType};
use scoped_tls_hkt::{ReborrowMut, scoped_thread_local};
use wasmtime::{
    AsContextMut, Caller, Engine, Extern, InstancePre, Memory, ResourceLimiter, Store, Trap, TypedFunc, WasmBacktrace,
};

use super::wasi::Wasi;
use super::{Fault, Host, LogLine, Options};

scoped_thread_local!(
    /// The call that is going on. Host functions find it here, since what a store owns can't borrow.
    pub(super) static mut FRAME: for<'a> Frame<'a>
);

/// What the imports read and write during a call.
pub(super) struct Frame<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) context: Context<'a>,
    pub(super) results: &'a mut Results,
}

impl<'a, 'b: 'a> ReborrowMut<'a> for Frame<'b> {
    type Result = Frame<'a>;

    fn reborrow_mut(&'a mut self) -> Frame<'a> {
        Frame { host: &mut *self.host, context: self.context, results: &mut *self.results }
    }
}

/// What a call is about. Parts that a call has not are empty, and read as nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Context<'a> {
    pub(super) pod: &'a [u8],
    pub(super) target: &'a [u8],
    pub(super) node: &'a str,
    pub(super) filtered: &'a [&'a str],
    pub(super) statuses: Option<&'a BTreeMap<String, i32>>,
    pub(super) scores: &'a [(String, i64)],
    /// Whether the node snapshot may be read.
    pub(super) in_scheduling: bool,
}

/// What a call left behind beside its result.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) reason: String,
    pub(super) cluster_events: Vec<(u32, Action)>,
    pub(super) node_names: Vec<String>,
    pub(super) nominated: String,
    pub(super) scores: BTreeMap<String, i64>,
}

/// What a store owns.
pub(super) struct State {
    pub(super) options: Arc<Options>,
    pub(super) wasi: Wasi,
    /// The code of proc_exit.
    pub(super) exited: Option<u32>,
    /// Lines logged before there is a host to take them.
    pub(super) early: Vec<LogLine>,
    memory: Option<Memory>,
    limits: Limits,
    output: Vec<u8>,
}

impl State {
    /// Keeps what the guest writes to stdout and stderr, up to a point.
    pub(super) fn print(&mut self, text: &[u8]) {
        const KEPT: usize = 64 << 10;
        let room = KEPT - self.output.len();
        self.output.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// Hands over what was written.
    pub(super) fn take_output(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.output)).into_owned()
    }
}

/// The guest's memory.
pub(super) fn memory(caller: &mut Caller<'_, State>) -> wasmtime::Result<Memory> {
    if let Some(memory) = caller.data().memory {
        return Ok(memory);
    }
    let memory = caller.get_export(MEMORY).and_then(Extern::into_memory);
    memory.ok_or_else(|| wasmtime::Error::msg("the module exports no memory"))
}

struct Limits {
    memory: usize,
    refused: bool,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= self.memory;
        self.refused |= !granted;
        Ok(granted)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // An element takes a pointer's room.
        let granted = desired <= self.memory / 8;
        self.refused |= !granted;
        Ok(granted)
    }
}

/// Thrown by proc_exit.
#[derive(Debug)]
pub(super) struct Exit;

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the guest called proc_exit")
    }
}

impl std::error::Error for Exit {}

enum Entry {
    None(TypedFunc<(), ()>),
    I32(TypedFunc<(), i32>),
    I64(TypedFunc<(), i64>),
}

/// A started instance.
pub(super) struct Instance {
    store: Store<State>,
    entries: BTreeMap<Export, Entry>,
}

impl Instance {
    /// Starts an instance: the start section, then `_start` where there is one.
    pub(super) fn start(
        engine: &Engine,
        module: &InstancePre<State>,
        exports: ExportSet,
        options: &Arc<Options>,
    ) -> Result<Self, (Fault, String)> {
        let state = State {
            options: Arc::clone(options),
            wasi: Wasi::default(),
            exited: None,
            early: Vec::new(),
            memory: None,
            limits: Limits { memory: options.memory_limit, refused: false },
            output: Vec::new(),
        };
        let mut store = Store::new(engine, state);
        store.limiter(|state| &mut state.limits);
        let mut made = false;
        let started: wasmtime::Result<_> = (|| {
            store.set_fuel(options.fuel_per_call)?;
            let instance = module.instantiate(&mut store).inspect_err(|error| {
                // Neither the guest's own start section nor a limit of ours: the machine's.
                made = error.is::<Trap>() || error.is::<WasmBacktrace>();
            })?;
            made = true;
            store.data_mut().memory = instance.get_memory(&mut store, MEMORY);
            if let Some(start) = instance.get_func(&mut store, "_start") {
                start.typed::<(), ()>(&store)?.call(&mut store, ())?;
            }
            Ok(instance)
        })();
        let instance = match started {
            Ok(instance) => Some(instance),
            // A guest that exits well has started, only that no call reaches it any more.
            Err(_) if store.data().exited == Some(0) => None,
            Err(error) if !made && !store.data().limits.refused => {
                let why = error.root_cause().to_string();
                return Err((Fault::NoRoom { instances: 0, why }, String::new()));
            }
            Err(error) => return Err((fault(&error, &store), store.data_mut().take_output())),
        };
        store.data_mut().take_output();

        let mut entries = BTreeMap::new();
        if let Some(instance) = instance {
            for export in exports.iter() {
                let name = export.name();
                let entry = match export.result() {
                    None => instance.get_typed_func(&mut store, name).map(Entry::None),
                    Some(ValueType::I32) => instance.get_typed_func(&mut store, name).map(Entry::I32),
                    Some(ValueType::I64) => instance.get_typed_func(&mut store, name).map(Entry::I64),
                };
                let entry = entry.map_err(|error| (fault(&error, &store), String::new()))?;
                entries.insert(export, entry);
            }
        }
        Ok(Self { store, entries })
    }

    /// Calls an export inside of a frame: the result's bits, and the fuel the call took.
    pub(super) fn call(&mut self, export: Export) -> (Result<u64, (Fault, String)>, u64) {
        if let Some(code) = self.store.data().exited {
            return (Err((Fault::Exited(code), String::new())), 0);
        }
        let Some(entry) = self.entries.get(&export) else {
            let what = format!("the scheduler calls {}, which the module doesn't export", export.name());
            return (Err((Fault::HostCrash(what), String::new())), 0);
        };
        let mut store = self.store.as_context_mut();
        let fuel = store.data().options.fuel_per_call;
        store.data_mut().limits.refused = false;
        let result = store.set_fuel(fuel).and_then(|()| match entry {
            Entry::None(f) => f.call(&mut store, ()).map(|()| 0),
            Entry::I32(f) => f.call(&mut store, ()).map(|n| u64::from(n as u32)),
            Entry::I64(f) => f.call(&mut store, ()).map(|n| n as u64),
        });
        let used = fuel - store.get_fuel().unwrap_or(0);
        let output = store.data_mut().take_output();
        (result.map_err(|error| (fault(&error, &self.store), output)), used)
    }

    /// Bytes of linear memory.
    pub(super) fn memory(&self) -> usize {
        self.store.data().memory.map_or(0, |m| m.data_size(&self.store))
    }

    /// Hands over the lines logged while it started.
    pub(super) fn take_early(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.store.data_mut().early)
    }
}

fn fault(error: &wasmtime::Error, store: &Store<State>) -> Fault {
    let state = store.data();
    let trap = error.downcast_ref::<Trap>();
    if error.downcast_ref::<Exit>().is_some() {
        return Fault::Exited(state.exited.unwrap_or_default());
    }
    if trap == Some(&Trap::OutOfFuel) {
        return Fault::Fuel(state.options.fuel_per_call);
    }
    if state.limits.refused {
        return Fault::Memory(state.options.memory_limit);
    }
    let what = trap.map_or_else(|| error.root_cause().to_string(), ToString::to_string);
    let place = error.downcast_ref::<WasmBacktrace>().map(place).unwrap_or_default();
    Fault::Trap(what + &place)
}

/// The innermost functions of a backtrace.
fn place(backtrace: &WasmBacktrace) -> String {
    let name = |frame: &wasmtime::FrameInfo| {
        frame.func_name().map_or_else(|| format!("function {}", frame.func_index()), str::to_owned)
    };
    let names: Vec<String> = backtrace.frames().iter().take(6).map(name).collect();
    if names.is_empty() { String::new() } else { format!(", in {}", names.join(", called by ")) }
}
