//! Every function of WASI preview 1, called by a guest of its own: the error number it gives and what it leaves in memory,
//! as the runtime of the extension does it (`imports/wasi_snapshot_preview1` of wazero).

use std::collections::BTreeSet;

use host_harness::guest::{Guest, Options};

use crate::host::FakeHost;
use crate::{POD, fill};

const BADF: i32 = 8;
const FAULT: i32 = 21;
const INVAL: i32 = 28;
const NOSYS: i32 = 52;
const NOTSUP: i32 = 58;

/// Makes the calls, one after the other, and hands over the first KiB of memory; a word there holds the first call's answer
/// at 512, the second's at 516 and so on. `!` begins a request to the bridge.
const CALLS: &str = r#"(module
  {imports}
  (import "k8s.io/api" "node" (func $node (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "!")
  ;; A vector: 5 bytes at 32. A subscription at 64: user data 7, a clock.
  (data (i32.const 16) "\20\00\00\00\05\00\00\00")
  (data (i32.const 32) "hello")
  (data (i32.const 64) "\07\00\00\00\00\00\00\00\00")
  (func (export "prefilter") (result i32)
    {calls}
    (drop (call $node (i32.const 0) (i32.const 1024) (i32.const 2048) (i32.const 2048)))
    (i32.const 0))
  (func (export "filter") (result i32) (i32.const 0))
  (func (export "postfilter") (result i64) (i64.const 2)))"#;

/// Calls like `fd_seek 7 0L 0 200`; an L marks 64 bits.
fn run(calls: &[&str]) -> (Vec<i32>, Vec<u8>) {
    let (mut imports, mut body, mut seen) = (String::new(), String::new(), BTreeSet::new());
    for (i, call) in calls.iter().enumerate() {
        let mut words = call.split(' ');
        let name = words.next().expect("a name");
        let (mut types, mut values) = (String::new(), String::new());
        for word in words {
            let (kind, value) = word.strip_suffix('L').map_or(("i32", word), |value| ("i64", value));
            types += &format!(" {kind}");
            values += &format!(" ({kind}.const {value})");
        }
        if seen.insert(name) {
            imports +=
                &format!("(import \"wasi_snapshot_preview1\" \"{name}\" (func ${name} (param{types}) (result i32)))\n");
        }
        body += &format!("(i32.store (i32.const {}) (call ${name}{values}))\n", 512 + 4 * i);
    }
    let wasm = fill(CALLS, &[("imports", &imports), ("calls", &body)]);
    let mut guest = Guest::load(&wasm, Options::default()).unwrap_or_else(|e| panic!("{calls:?}: {e}"));
    let host = &mut FakeHost::default();
    guest.prefilter(host, POD).unwrap_or_else(|e| panic!("{calls:?}: {e}"));
    // Without the mark.
    let memory = [b"!", host.asked.pop().expect("asked").as_slice()].concat();
    let answers = memory[512..].chunks_exact(4).take(calls.len());
    (answers.map(|w| i32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect(), memory)
}

#[test]
fn every_function_answers_as_the_extension_s_runtime_does() {
    let eight = |n: u64| n.to_le_bytes().to_vec();
    let wall = 1_640_995_200_000_000_000;
    let fdstat = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &eight(0x08e0_01ff), &eight(0)].concat();
    let event = [&eight(7)[..], &eight(0)].concat();
    // Calls, their answers, and what stands where afterwards.
    let cases: &[(&[&str], &[i32], &[(usize, Vec<u8>)])] = &[
        (&["args_get 200 200"], &[0], &[]),
        (&["args_sizes_get 32 36", "args_sizes_get -1 36"], &[0, FAULT], &[(32, vec![0; 8])]),
        (&["environ_get 200 200"], &[0], &[]),
        (&["environ_sizes_get 32 36", "environ_sizes_get 32 -1"], &[0, FAULT], &[(32, vec![0; 8])]),
        (
            &["clock_res_get 0 200", "clock_res_get 1 208", "clock_res_get 2 200", "clock_res_get 0 -4"],
            &[0, 0, INVAL, FAULT],
            &[(200, eight(1000)), (208, eight(1))],
        ),
        (
            &[
                "clock_time_get 0 0L 200",
                "clock_time_get 0 0L 208",
                "clock_time_get 1 0L 216",
                "clock_time_get 1 0L 224",
                "clock_time_get 3 0L 200",
                "clock_time_get 0 0L -4",
            ],
            &[0, 0, 0, 0, INVAL, FAULT],
            &[(200, eight(wall)), (208, eight(wall + 1_000_000)), (216, eight(0)), (224, eight(1_000_000))],
        ),
        (&["fd_advise 7 0L 0L 0"], &[BADF], &[]),
        (&["fd_allocate 7 0L 1L"], &[BADF], &[]),
        (&["fd_close 1", "fd_close 7"], &[0, BADF], &[]),
        (&["fd_datasync 7"], &[BADF], &[]),
        (&["fd_fdstat_get 1 200", "fd_fdstat_get 7 200", "fd_fdstat_get 1 -4"], &[0, BADF, FAULT], &[(200, fdstat)]),
        (
            &["fd_fdstat_set_flags 1 4", "fd_fdstat_set_flags 7 4", "fd_fdstat_set_flags 7 2"],
            &[NOSYS, BADF, INVAL],
            &[],
        ),
        (&["fd_fdstat_set_rights 1 0L 0L"], &[NOSYS], &[]),
        (&["fd_filestat_get 7 200"], &[BADF], &[]),
        (&["fd_filestat_set_size 7 0L"], &[BADF], &[]),
        (&["fd_filestat_set_times 7 0L 0L 0"], &[BADF], &[]),
        (&["fd_pread 7 16 1 0L 200"], &[BADF], &[]),
        (&["fd_prestat_get 3 200"], &[BADF], &[]),
        (&["fd_prestat_dir_name 3 200 4"], &[BADF], &[]),
        (&["fd_pwrite 7 16 1 0L 200"], &[BADF], &[]),
        (&["fd_read 0 16 1 32", "fd_read 7 16 1 200"], &[0, BADF], &[(32, vec![0; 4])]),
        (&["fd_readdir 7 200 100 0L 300"], &[BADF], &[]),
        (&["fd_renumber 1 2", "fd_renumber 7 1"], &[NOTSUP, BADF], &[]),
        (&["fd_seek 7 0L 0 200"], &[BADF], &[]),
        (&["fd_sync 7"], &[BADF], &[]),
        (&["fd_tell 7 200"], &[BADF], &[]),
        (
            &[
                "fd_write 1 16 1 200",
                "fd_write 2 16 1 204",
                "fd_write 7 16 1 200",
                "fd_write 1 -8 1 200",
                "fd_write 1 16 1 -4",
            ],
            &[0, 0, BADF, FAULT, FAULT],
            &[(200, vec![5, 0, 0, 0, 5, 0, 0, 0])],
        ),
        (&["path_create_directory 3 32 5"], &[BADF], &[]),
        (&["path_filestat_get 3 0 32 5 200"], &[BADF], &[]),
        (&["path_filestat_set_times 3 0 32 5 0L 0L 0"], &[BADF], &[]),
        (&["path_link 3 0 32 5 3 32 5"], &[BADF], &[]),
        (&["path_open 3 0 32 5 0 0L 0L 0 200"], &[BADF], &[]),
        (&["path_readlink 3 32 5 200 10 220"], &[BADF], &[]),
        (&["path_remove_directory 3 32 5"], &[BADF], &[]),
        (&["path_rename 3 32 5 3 32 5"], &[BADF], &[]),
        (&["path_symlink 32 5 3 32 5"], &[BADF], &[]),
        (&["path_unlink_file 3 32 5"], &[BADF], &[]),
        (
            &["poll_oneoff 64 200 1 300", "poll_oneoff 64 200 0 300", "poll_oneoff -8 200 1 300"],
            &[0, INVAL, FAULT],
            &[(200, event), (300, vec![1, 0, 0, 0])],
        ),
        (&["proc_raise 2"], &[NOSYS], &[]),
        (&["sched_yield"], &[0], &[]),
        (&["sock_accept 7 0 200"], &[BADF], &[]),
        (&["sock_recv 7 16 1 0 200 204"], &[BADF], &[]),
        (&["sock_send 7 16 1 0 200"], &[BADF], &[]),
        (&["sock_shutdown 7 1"], &[BADF], &[]),
    ];
    for (calls, answers, left) in cases {
        let (given, memory) = run(calls);
        assert_eq!(given, *answers, "{calls:?}");
        for (at, bytes) in *left {
            assert_eq!(&memory[*at..*at + bytes.len()], bytes, "{calls:?} at {at}");
        }
    }
}

/// The same bytes in every instance and run, others at each call.
#[test]
fn random_numbers_are_made_up() {
    let calls = ["random_get 200 16", "random_get 216 16", "random_get 65530 16"];
    let (answers, memory) = run(&calls);
    assert_eq!(answers, [0, 0, FAULT]);
    assert_ne!(memory[200..216], memory[216..232]);
    assert_ne!(memory[200..216], [0; 16]);
    assert_eq!(run(&calls).1, memory);
}
