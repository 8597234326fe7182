//! WASI preview 1, as much as the extension's runtime gives a guest: no files, no arguments, no environment, made-up clocks
//! and random numbers (the same in every instance), and stdout and stderr kept for error messages.

use wasmparser::ValType;
use wasmtime::{Caller, FuncType, Linker, Val};

use super::instance::{Exit, State, memory};

/// The module's name.
pub(super) const MODULE: &str = "wasi_snapshot_preview1";

const SUCCESS: i32 = 0;
const BADF: i32 = 8;
const FAULT: i32 = 21;
const INVAL: i32 = 28;
const NOSYS: i32 = 52;
const NOTSUP: i32 = 58;

/// Every function by name, its parameters (i: i32, l: i64) and whether it has the error number as its result.
const FUNCTIONS: &[(&str, &str, bool)] = &[
    ("args_get", "ii", true),
    ("args_sizes_get", "ii", true),
    ("environ_get", "ii", true),
    ("environ_sizes_get", "ii", true),
    ("clock_res_get", "ii", true),
    ("clock_time_get", "ili", true),
    ("fd_advise", "illi", true),
    ("fd_allocate", "ill", true),
    ("fd_close", "i", true),
    ("fd_datasync", "i", true),
    ("fd_fdstat_get", "ii", true),
    ("fd_fdstat_set_flags", "ii", true),
    ("fd_fdstat_set_rights", "ill", true),
    ("fd_filestat_get", "ii", true),
    ("fd_filestat_set_size", "il", true),
    ("fd_filestat_set_times", "illi", true),
    ("fd_pread", "iiili", true),
    ("fd_prestat_get", "ii", true),
    ("fd_prestat_dir_name", "iii", true),
    ("fd_pwrite", "iiili", true),
    ("fd_read", "iiii", true),
    ("fd_readdir", "iiili", true),
    ("fd_renumber", "ii", true),
    ("fd_seek", "ilii", true),
    ("fd_sync", "i", true),
    ("fd_tell", "ii", true),
    ("fd_write", "iiii", true),
    ("path_create_directory", "iii", true),
    ("path_filestat_get", "iiiii", true),
    ("path_filestat_set_times", "iiiilli", true),
    ("path_link", "iiiiiii", true),
    ("path_open", "iiiiillii", true),
    ("path_readlink", "iiiiii", true),
    ("path_remove_directory", "iii", true),
    ("path_rename", "iiiiii", true),
    ("path_symlink", "iiiii", true),
    ("path_unlink_file", "iii", true),
    ("poll_oneoff", "iiii", true),
    ("proc_exit", "i", false),
    ("proc_raise", "i", true),
    ("random_get", "ii", true),
    ("sched_yield", "", true),
    ("sock_accept", "iii", true),
    ("sock_recv", "iiiiii", true),
    ("sock_send", "iiiii", true),
    ("sock_shutdown", "ii", true),
];

/// Parameters and results of a function, if there is one of this name.
pub(super) fn signature(name: &str) -> Option<(Vec<ValType>, Vec<ValType>)> {
    let (_, params, errno) = FUNCTIONS.iter().find(|(n, _, _)| *n == name)?;
    let params = params.chars().map(|c| if c == 'l' { ValType::I64 } else { ValType::I32 }).collect();
    Some((params, if *errno { vec![ValType::I32] } else { Vec::new() }))
}

/// What an instance has of its own.
#[derive(Debug)]
pub(super) struct Wasi {
    /// Nanoseconds; both clocks go on by a millisecond at each reading.
    wall: u64,
    monotonic: u64,
    random: u64,
}

const MILLISECOND: u64 = 1_000_000;

impl Default for Wasi {
    fn default() -> Self {
        Self { wall: 1_640_995_200_000 * MILLISECOND, monotonic: 0, random: 42 }
    }
}

impl Wasi {
    fn read(clock: &mut u64) -> u64 {
        let now = *clock;
        *clock += MILLISECOND;
        now
    }

    /// SplitMix64: fixed by its seed, which is all that is asked of it.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Defines every function.
pub(super) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (name, params, errno) in FUNCTIONS {
        let params = params.chars().map(|c| if c == 'l' { wasmtime::ValType::I64 } else { wasmtime::ValType::I32 });
        let ty = FuncType::new(&engine, params, errno.then_some(wasmtime::ValType::I32));
        linker.func_new(MODULE, name, ty, move |caller, params, results| {
            let errno = call(name, caller, params)?;
            if let Some(result) = results.first_mut() {
                *result = Val::I32(errno);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn call(name: &str, mut caller: Caller<'_, State>, params: &[Val]) -> wasmtime::Result<i32> {
    let arg = |i: usize| params.get(i).and_then(Val::i32).unwrap_or_default();
    let at = |i: usize| arg(i) as u32 as usize;
    Ok(match name {
        "args_get" | "environ_get" | "sched_yield" => SUCCESS,
        "args_sizes_get" | "environ_sizes_get" => {
            both(poke(&mut caller, at(0), &[0; 4])?, poke(&mut caller, at(1), &[0; 4])?)
        }
        "clock_res_get" => match arg(0) {
            // What the runtime claims: a microsecond for the wall clock, a nanosecond for the other.
            0 => poke(&mut caller, at(1), &1_000_u64.to_le_bytes())?,
            1 => poke(&mut caller, at(1), &1_u64.to_le_bytes())?,
            _ => INVAL,
        },
        "clock_time_get" => {
            let wasi = &mut caller.data_mut().wasi;
            let now = match arg(0) {
                0 => Wasi::read(&mut wasi.wall),
                1 => Wasi::read(&mut wasi.monotonic),
                _ => return Ok(INVAL),
            };
            poke(&mut caller, at(2), &now.to_le_bytes())?
        }
        "random_get" => {
            let mut bytes = Vec::new();
            while bytes.len() < at(1).min(1 << 20) {
                bytes.extend(caller.data_mut().wasi.random().to_le_bytes());
            }
            bytes.truncate(at(1));
            poke(&mut caller, at(0), &bytes)?
        }
        "fd_read" if arg(0) == 0 => poke(&mut caller, at(3), &[0; 4])?,
        "fd_write" if matches!(arg(0), 1 | 2) => write(&mut caller, at(1), at(2), at(3))?,
        // File type "block device", no flags, all that may be done with a file.
        "fd_fdstat_get" if (0..3).contains(&arg(0)) => {
            let mut stat = [0; 24];
            stat[0] = 1;
            stat[8..16].copy_from_slice(&0x08e0_01ff_u64.to_le_bytes());
            poke(&mut caller, at(1), &stat)?
        }
        "fd_close" if (0..3).contains(&arg(0)) => SUCCESS,
        "poll_oneoff" => poll(&mut caller, at(0), at(1), at(2), at(3))?,
        "proc_exit" => {
            caller.data_mut().exited = Some(arg(0) as u32);
            return Err(wasmtime::Error::new(Exit));
        }
        // Synchronous writes are no flag of the runtime's.
        "fd_fdstat_set_flags" if arg(1) & 0b11010 != 0 => INVAL,
        "fd_fdstat_set_flags" if (0..3).contains(&arg(0)) => NOSYS,
        "fd_renumber" if (0..3).contains(&arg(0)) && arg(1) >= 0 => NOTSUP,
        "proc_raise" | "fd_fdstat_set_rights" => NOSYS,
        _ => BADF,
    })
}

fn both(a: i32, b: i32) -> i32 {
    if a == SUCCESS { b } else { a }
}

/// Writes into the guest's memory.
fn poke(caller: &mut Caller<'_, State>, at: usize, bytes: &[u8]) -> wasmtime::Result<i32> {
    let memory = memory(caller)?;
    let slot = memory.data_mut(caller).get_mut(at..).and_then(|m| m.get_mut(..bytes.len()));
    Ok(slot.map_or(FAULT, |slot| {
        slot.copy_from_slice(bytes);
        SUCCESS
    }))
}

fn word(data: &[u8], at: usize) -> Option<usize> {
    let bytes = data.get(at..)?.get(..4)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
}

fn write(caller: &mut Caller<'_, State>, vectors: usize, count: usize, written: usize) -> wasmtime::Result<i32> {
    let memory = memory(caller)?;
    let (data, state) = memory.data_and_store_mut(&mut *caller);
    let mut total = 0;
    for i in 0..count {
        let vector = vectors.saturating_add(i.saturating_mul(8));
        let text = word(data, vector).zip(word(data, vector + 4)).and_then(|(at, len)| data.get(at..)?.get(..len));
        let Some(text) = text else { return Ok(FAULT) };
        state.print(text);
        total += text.len();
    }
    poke(caller, written, &(total as u32).to_le_bytes())
}

/// Everything is ready at once: sleeping takes no time here.
fn poll(caller: &mut Caller<'_, State>, ins: usize, outs: usize, count: usize, ready: usize) -> wasmtime::Result<i32> {
    if count == 0 {
        return Ok(INVAL);
    }
    for i in 0..count {
        let memory = memory(caller)?;
        let subscription = ins.saturating_add(i.saturating_mul(48));
        let head = memory.data(&*caller).get(subscription..).and_then(|m| m.get(..9)).map(<[u8]>::to_vec);
        let Some(head) = head else { return Ok(FAULT) };
        let mut event = [0; 32];
        event[..8].copy_from_slice(&head[..8]);
        event[10] = head[8];
        if poke(caller, outs.saturating_add(i.saturating_mul(32)), &event)? != SUCCESS {
            return Ok(FAULT);
        }
    }
    poke(caller, ready, &(count as u32).to_le_bytes())
}
