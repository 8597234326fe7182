//! What a module is, read without running it.

use std::fmt;

use kube_scheduler_abi::export::MEMORY;
use kube_scheduler_abi::{Export, ExportSet, ExportSetError, Import, ValueType, import};
use wasmparser::types::EntityType;
use wasmparser::{ValType, Validator, WasmFeatures};

use super::wasi;

/// What a module exports and imports, and what the extension would say to it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Bytes of the module.
    pub size: usize,
    /// The functions the scheduler calls.
    pub exports: ExportSet,
    /// Names of other exported functions; the scheduler never calls them, but `_start`.
    pub other_exports: Vec<String>,
    /// The host functions it uses, as module and name.
    pub imports: Vec<(String, String)>,
    /// Initial linear memory, bytes; each instance has its own.
    pub memory: Option<u64>,
    /// Why the extension would not load it. Empty: it would.
    pub refusals: Vec<Refusal>,
    /// What goes wrong though the extension would load it. Empty: the module is safe to run.
    pub hazards: Vec<Hazard>,
}

/// Bytes that are no module the scheduler's runtime could compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAModule {
    /// Another kind of file.
    #[error("this is not a WebAssembly module: it doesn't start with \\0asm")]
    NotWasm,
    /// A component (WASI preview 2).
    #[error(
        "this is a WebAssembly component; the scheduler takes core modules: build for wasm32-unknown-unknown or wasm32-wasip1"
    )]
    Component,
    /// Cut short, broken, or with instructions the runtime doesn't know.
    #[error("the module doesn't validate at byte {offset:#x}: {message}")]
    Invalid {
        /// Where.
        offset: u64,
        /// What.
        message: String,
    },
}

/// A function's parameters and results, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(String);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why the extension would not load a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No memory to pass values through.
    #[error("the module doesn't export its memory as \"memory\"")]
    NoMemory,
    /// A function of ours with another signature.
    #[error("{name} is exported as {have}, it must be {want}")]
    WrongExport {
        /// The function.
        name: &'static str,
        /// As it must be.
        want: Signature,
        /// As it is.
        have: Signature,
    },
    /// The exports as a set.
    #[error("{0}")]
    Exports(ExportSetError),
    /// An import that no host offers.
    #[error("the module imports {module}.{name}, which the scheduler doesn't offer")]
    UnknownImport {
        /// Its module.
        module: String,
        /// Its name.
        name: String,
    },
    /// An import of a host function with another signature.
    #[error("{module}.{name} is imported as {have}, the scheduler offers {want}")]
    WrongImport {
        /// Its module.
        module: String,
        /// Its name.
        name: String,
        /// As offered.
        want: Signature,
        /// As imported.
        have: Signature,
    },
}

/// What goes wrong with a module that the extension would load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    /// The exports as a set.
    #[error("{0}")]
    Exports(ExportSetError),
    /// Only `_start` is run.
    #[error("_initialize is exported, and the scheduler doesn't run it: what it sets up is missing")]
    InitializeNotRun,
}

impl Inspection {
    /// Reads a module.
    ///
    /// # Errors
    /// The bytes are no module, or no valid one.
    pub fn of(bytes: &[u8]) -> Result<Self, NotAModule> {
        if !bytes.starts_with(b"\0asm") {
            return Err(NotAModule::NotWasm);
        }
        if bytes.get(4..8) == Some(&[0x0d, 0, 1, 0]) {
            return Err(NotAModule::Component);
        }
        let types = Validator::new_with_features(features())
            .validate_all(bytes)
            .map_err(|e| NotAModule::Invalid { offset: e.offset(), message: e.message().to_owned() })?;
        let types = types.as_ref();
        let signature = |entity: EntityType| match entity {
            EntityType::Func(id) | EntityType::FuncExact(id) => {
                let f = types[id].unwrap_func();
                text(f.params(), f.results())
            }
            EntityType::Table(_) => Signature("a table".into()),
            EntityType::Memory(_) => Signature("a memory".into()),
            EntityType::Global(_) => Signature("a global".into()),
            EntityType::Tag(_) => Signature("a tag".into()),
        };

        let mut found = Self {
            size: bytes.len(),
            exports: ExportSet::default(),
            other_exports: Vec::new(),
            imports: Vec::new(),
            memory: None,
            refusals: Vec::new(),
            hazards: Vec::new(),
        };
        for (module, name, entity) in types.core_imports().into_iter().flatten() {
            found.imports.push((module.to_owned(), name.to_owned()));
            found.refusals.extend(check_import(module, name, &signature(entity)));
        }
        for (name, entity) in types.core_exports().into_iter().flatten() {
            match (entity, Export::from_name(name)) {
                (EntityType::Memory(memory), _) if name == MEMORY => found.memory = Some(memory.initial << 16),
                (EntityType::Func(_) | EntityType::FuncExact(_), Some(export)) => {
                    found.exports = found.exports.with(export);
                    let (want, have) = (text(&[], &result(export.result())), signature(entity));
                    if want != have {
                        found.refusals.push(Refusal::WrongExport { name: export.name(), want, have });
                    }
                }
                (EntityType::Func(_) | EntityType::FuncExact(_), None) => found.other_exports.push(name.to_owned()),
                _ => {}
            }
        }
        if found.memory.is_none() {
            found.refusals.insert(0, Refusal::NoMemory);
        }
        match found.exports.check() {
            Ok(()) => {}
            Err(fault) if found.exports.is_empty() || !found.exports.accepted() => {
                // A half pair is found before a refused set, and doesn't keep the module from being refused.
                let fault = match fault {
                    ExportSetError::HalfPair { .. } => ExportSetError::Refused { nearest: found.exports.nearest() },
                    other => other,
                };
                found.refusals.push(Refusal::Exports(fault));
            }
            Err(fault) => found.hazards.push(Hazard::Exports(fault)),
        }
        if found.other_exports.iter().any(|name| name == "_initialize") {
            found.hazards.push(Hazard::InitializeNotRun);
        }
        Ok(found)
    }

    /// Whether the extension would load the module.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.refusals.is_empty()
    }
}

/// What wazero 1.7.2 knows as it is configured in the extension: the core specification 2.0.
fn features() -> WasmFeatures {
    WasmFeatures::WASM2.union(WasmFeatures::BULK_MEMORY_OPT).union(WasmFeatures::CALL_INDIRECT_OVERLONG)
}

fn check_import(module: &str, name: &str, have: &Signature) -> Option<Refusal> {
    let want = if module == wasi::MODULE {
        wasi::signature(name).map(|(params, results)| text(&params, &results))
    } else {
        Import::find(module, name).map(|import| {
            let shape: import::Shape = import.shape();
            let params: Vec<ValType> = shape.params().iter().map(|&p| value(p)).collect();
            text(&params, &result(shape.result()))
        })
    };
    let (module, name) = (module.to_owned(), name.to_owned());
    match want {
        None => Some(Refusal::UnknownImport { module, name }),
        Some(want) if want != *have => Some(Refusal::WrongImport { module, name, want, have: have.clone() }),
        Some(_) => None,
    }
}

fn value(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
    }
}

fn result(ty: Option<ValueType>) -> Vec<ValType> {
    ty.into_iter().map(value).collect()
}

fn text(params: &[ValType], results: &[ValType]) -> Signature {
    let list = |types: &[ValType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Signature(format!("({}) -> ({})", list(params), list(results)))
}
