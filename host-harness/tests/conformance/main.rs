//! The guest host against the facts of the extension, by small guests in the text format. `{name}` in a guest stands for
//! what a case puts there.

mod contract;
mod costs;
mod foreign;
mod host;
mod wasi;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use host::FakeHost;
use host_harness::guest::{
    CallError, Event, Fault, Guest, Hazard, Inspection, Instances, LoadError, NotAModule, Options, Permit, Pod,
    PostFilter, Refusal, Status,
};
use kube_scheduler_abi::export::MEMORY;
use kube_scheduler_abi::{Action, Export, ExportSet, ExportSetError, Import, ValueType};

const READ: &str = include_str!("read.wat");
const READ_KEYED: &str = include_str!("read_keyed.wat");
const KEYED_OUT: &str = include_str!("keyed_out.wat");
const WRITE: &str = include_str!("write.wat");
const KLOG: &str = include_str!("klog.wat");
const POOL: &str = include_str!("pool.wat");
const FAULTS: &str = include_str!("faults.wat");
const WASI: &str = include_str!("wasi.wat");
const START: &str = include_str!("start.wat");

const POD: Pod<'static> = Pod { uid: "u1", protobuf: b"the pod" };

fn fill(guest: &str, values: &[(&str, &str)]) -> Vec<u8> {
    let text = values.iter().fold(guest.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value));
    let wasm = wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    note(&wasm);
    wasm
}

thread_local! {
    /// What the guests of this thread import and export.
    static USED: RefCell<(BTreeSet<Import>, ExportSet)> = RefCell::default();
}

fn note(wasm: &[u8]) {
    if let Ok(found) = Inspection::of(wasm) {
        USED.with_borrow_mut(|(imports, exports)| {
            imports.extend(found.imports.iter().filter_map(|(module, name)| Import::find(module, name)));
            *exports = exports.union(found.exports);
        });
    }
}

/// The guests below call whatever they import, and the tests whatever these export.
#[test]
fn every_import_and_export_is_in_the_suite() {
    for test in [
        values_are_read_in_two_phases,
        nodes_and_images_are_read_by_name,
        waiting_pods_are_rejected_and_read_by_uid,
        node_names_are_nul_terminated,
        cluster_events_are_pairs_of_words,
        a_reason_that_cant_be_read_is_told_as_a_bug,
        the_nominated_node_counts_in_override_mode_only,
        events_are_recorded_repaired_or_as_the_extension_spoils_them,
        normalized_scores_come_back_in_another_order,
        log_drops_what_is_above_the_threshold_and_logs_what_is_below,
        codes_pass_unchanged,
    ] {
        test();
    }
    let (imports, exports) = USED.take();
    assert_eq!(imports, Import::ALL.iter().copied().collect());
    assert_eq!(exports, ExportSet::of(Export::ALL), "{exports}");
}

fn load(guest: &str, values: &[(&str, &str)]) -> Guest {
    load_with(guest, values, Options::default())
}

fn load_with(guest: &str, values: &[(&str, &str)], options: Options) -> Guest {
    Guest::load(&fill(guest, values), options).unwrap_or_else(|e| panic!("{e}"))
}

fn status(code: i32, reason: &str) -> Status {
    Status { code, reason: reason.into() }
}

/// A module with these exports, each a constant.
fn constant(exports: &[(Export, i64)]) -> Vec<u8> {
    let functions: String = exports
        .iter()
        .map(|(export, value)| match export.result() {
            None => format!("(func (export \"{}\"))", export.name()),
            Some(ValueType::I32) => {
                format!("(func (export \"{}\") (result i32) (i32.const {}))", export.name(), *value as i32)
            }
            Some(ValueType::I64) => format!("(func (export \"{}\") (result i64) (i64.const {value}))", export.name()),
        })
        .collect();
    let wasm = wat::parse_str(format!("(module (memory (export \"{MEMORY}\") 1) {functions})")).expect("a module");
    note(&wasm);
    wasm
}

fn set(exports: ExportSet) -> Vec<u8> {
    constant(&exports.iter().map(|e| (e, 0)).collect::<Vec<_>>())
}

/// A guest that tools/build-guest built.
fn built(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../out/guest").join(name);
    let bytes = std::fs::read(&path).ok();
    assert!(
        bytes.is_some() || std::env::var_os("CI").is_none(),
        "{} is missing: run tools/build-guest first",
        path.display()
    );
    bytes
}

/// How to call an export that reads by some import: the export, its result type, how to widen, and the other exports that
/// the extension wants with it.
struct Reader(&'static str, &'static str, &'static str, &'static str);

const PREFILTER: Reader = Reader("prefilter", "i32", "", "");
const FILTER: Reader = Reader("filter", "i32", "", "");
const PRESCORE: Reader = Reader("prescore", "i32", "", "(func (export \"score\") (result i64) (i64.const 0))");
const POSTFILTER: Reader =
    Reader("postfilter", "i64", "i64.extend_i32_u", "(func (export \"filter\") (result i32) (i32.const 0))");
const NORMALIZE: Reader = Reader("normalizescore", "i32", "", "(func (export \"score\") (result i64) (i64.const 0))");
const ADDPOD: Reader = Reader(
    "addpod",
    "i32",
    "",
    "(func (export \"removepod\") (result i32) (i32.const 0)) (func (export \"filter\") (result i32) (i32.const 0))",
);

fn read(import: (&str, &str), reader: &Reader, buf: &str, limit: usize, shown: usize) -> Result<Status, CallError> {
    let extend = if reader.2.is_empty() { "i32.add (i32.const 0)" } else { reader.2 };
    let values = [
        ("module", import.0),
        ("name", import.1),
        ("export", reader.0),
        ("type", reader.1),
        ("extend", extend),
        ("rest", reader.3),
        ("buf", buf),
        ("limit", &limit.to_string()),
        ("shown", &shown.to_string()),
    ];
    let mut guest = load_with(READ, &values, Options { config: "the config".into(), ..Options::default() });
    let host = &mut FakeHost::default();
    match reader.0 {
        "prefilter" => guest.prefilter(host, POD).map(|r| r.status),
        "filter" => guest.filter(host, POD, "n1"),
        "prescore" => guest.prescore(host, POD, &["n1", "n2"]),
        "postfilter" => {
            let statuses = BTreeMap::from([("n2".to_owned(), 3), ("n1".to_owned(), 2)]);
            guest.postfilter(host, POD, &statuses).map(|r| r.status)
        }
        "normalizescore" => guest.normalizescore(host, POD, &mut [("n2".into(), 9), ("n1".into(), 7)]),
        "addpod" => guest.addpod(host, POD, Pod { uid: "u2", protobuf: b"the target" }, "n1"),
        other => unreachable!("{other}"),
    }
}

#[test]
fn values_are_read_in_two_phases() {
    let s = "k8s.io/scheduler";
    let list = "\x0a\x06\x0a\x00\x12\x00\x1a\x00\x12\x06node-1\x12\x06node-2";
    let cases = [
        ((s, "currentPod"), &PREFILTER, "the pod"),
        ((s, "get_config"), &PREFILTER, "the config"),
        (("k8s.io/api", "nodeList"), &PREFILTER, list),
        ((s, "currentNodeName"), &FILTER, "n1"),
        ((s, "currentNodeName"), &ADDPOD, "n1"),
        ((s, "currentNodeName"), &PREFILTER, ""),
        ((s, "targetPod"), &ADDPOD, "the target"),
        ((s, "targetPod"), &FILTER, ""),
        ((s, "filteredNodeList"), &PRESCORE, "[\"n1\",\"n2\"]"),
        ((s, "filteredNodeList"), &FILTER, "[]"),
        ((s, "nodeToStatusMap"), &POSTFILTER, "{\"n1\":2,\"n2\":3}"),
        ((s, "nodeToStatusMap"), &PREFILTER, "{}"),
        ((s, "nodeScoreList"), &NORMALIZE, "{\"n1\":7,\"n2\":9}"),
        ((s, "nodeScoreList"), &PREFILTER, "{}"),
    ];
    for (import, reader, want) in cases {
        let length = want.len();
        let what = format!("{} in {}", import.1, reader.0);
        let exact = read(import, reader, "1024", length, length);
        assert_eq!(exact, Ok(status(length as i32, want)), "{what}, a buffer of just its length");
        if length > 0 {
            let short = read(import, reader, "1024", length - 1, length);
            assert_eq!(short, Ok(status(length as i32, &"\0".repeat(length))), "{what}, a buffer too short by one");
        }
    }
}

#[test]
fn a_buffer_outside_of_memory_ends_the_guest_for_messages_only() {
    for (name, reader, strict) in [
        ("currentPod", &PREFILTER, true),
        ("targetPod", &ADDPOD, true),
        ("get_config", &PREFILTER, false),
        ("currentNodeName", &FILTER, false),
        ("filteredNodeList", &PRESCORE, false),
        ("nodeToStatusMap", &POSTFILTER, false),
    ] {
        let got = read(("k8s.io/scheduler", name), reader, "65530", 100, 0);
        if strict {
            let fault = got.expect_err(name).fault;
            assert!(matches!(&fault, Fault::Trap(what) if what.starts_with("out of memory")), "{name}: {fault:?}");
        } else {
            assert!(got.is_ok_and(|s| s.code > 0), "{name} tells the length all the same");
        }
    }
}

fn read_keyed(import: (&str, &str), key: &str, at: &str, limit: usize, shown: usize) -> Result<Status, CallError> {
    let values = [
        ("module", import.0),
        ("name", import.1),
        ("key", key),
        ("at", at),
        ("key_length", &key.replace("\\00", "0").len().to_string()),
        ("buf", "1024"),
        ("limit", &limit.to_string()),
        ("shown", &shown.to_string()),
    ];
    load(READ_KEYED, &values).prefilter(&mut FakeHost::default(), POD).map(|r| r.status)
}

#[test]
fn nodes_and_images_are_read_by_name() {
    let (node, images) = (("k8s.io/api", "node"), ("k8s.io/scheduler", "nodeImageStates"));
    let states = r#"{"a":{"Size":5,"NumNodes":1,"Nodes":{"node-1":{}}}}"#;
    assert_eq!(read_keyed(node, "node-1", "16", 100, 6), Ok(status(6, "node-1")));
    assert_eq!(read_keyed(node, "node-1", "16", 5, 6), Ok(status(6, "\0\0\0\0\0\0")));
    assert_eq!(read_keyed(node, "nobody", "16", 100, 2), Ok(status(0, "\0\0")));
    assert_eq!(read_keyed(images, "node-1", "16", 100, states.len()), Ok(status(states.len() as i32, states)));
    assert_eq!(read_keyed(images, "nobody", "16", 100, 4), Ok(status(4, "null")));
    for import in [node, images] {
        let fault = read_keyed(import, "node-1", "65533", 100, 0).expect_err("a key outside of memory").fault;
        assert!(matches!(&fault, Fault::Trap(what) if what.starts_with("out of memory reading nodeName")), "{fault:?}");
    }
}

#[test]
fn a_marked_node_name_is_a_bridge_request() {
    let node = ("k8s.io/api", "node");
    // The reply is a name's bytes amid a Node's empty fields, 60 bytes in all.
    let reply = "\x0a\x18\x0a\x08gnip yes";
    assert_eq!(read_keyed(node, "!ping", "16", 100, reply.len()), Ok(status(60 + 8, reply)));
    let reply = "\x0a\x17\x0a\x07gnip no";
    let values = [
        ("module", "k8s.io/api"),
        ("name", "node"),
        ("key", "!ping"),
        ("at", "16"),
        ("key_length", "5"),
        ("buf", "1024"),
        ("limit", "100"),
        ("shown", "11"),
    ];
    let beside =
        READ_KEYED.replace("(export \"prefilter\")", "(export \"bind\") (export \"prebind\") (export \"reserve\")");
    let beside = beside.replace(
        "(memory",
        "(func (export \"permit\") (result i64) (i64.const 0)) (func (export \"unreserve\")) (memory",
    );
    let mut guest = load(&beside, &values);
    let host = &mut FakeHost::default();
    guest.permit(host, POD, "n1").expect("permit");
    for answer in [guest.prebind(host, POD, "n1"), guest.bind(host, POD, "n1")] {
        assert_eq!(answer, Ok(status(60 + 7, reply)), "the binding goroutine may not read the snapshot");
    }
    let without = &mut FakeHost { bridge: false, ..FakeHost::default() };
    let asked = load(READ_KEYED, &values).prefilter(without, POD).map(|r| r.status);
    assert_eq!(asked, Ok(status(0, &"\0".repeat(11))), "no bridge, no such node");
}

#[test]
fn waiting_pods_are_rejected_and_read_by_uid() {
    let call = |name: &str, key: &str, at: &str, buf: &str, limit: usize| {
        let values = [
            ("name", name),
            ("key", key),
            ("at", at),
            ("key_length", &key.len().to_string()),
            ("buf", buf),
            ("limit", &limit.to_string()),
        ];
        let host = &mut FakeHost::default();
        let answer = load(KEYED_OUT, &values).prefilter(host, POD).map(|r| r.status.reason);
        (answer, host.rejected.clone())
    };
    let (reject, get) = ("handle.reject_waiting_pod", "handle.get_waiting_pod");
    let untouched = "................";
    for (name, uid, buf, limit, want) in [
        (reject, "w1", "1024", 8, "\u{1}\0\0\0\0\0\0\0........"),
        (reject, "w1", "1024", 0, "\u{1}\0\0\0\0\0\0\0........"),
        (reject, "u9", "1024", 8, "\0\0\0\0\0\0\0\0........"),
        (reject, "w1", "65530", 8, untouched),
        (get, "u9", "1024", 0, "\0\0\0\0\0\0\0\0........"),
        (get, "u9", "65530", 8, untouched),
        (get, "w1", "1024", 16, "waiting pod....."),
        (get, "w1", "1024", 10, untouched),
    ] {
        let (answer, rejected) = call(name, uid, "16", buf, limit);
        assert_eq!(answer.as_deref(), Ok(want), "{name} {uid} at {buf}, limit {limit}");
        assert_eq!(rejected, if name == reject { vec![uid.to_owned()] } else { vec![] });
    }
    for (name, at, buf) in [(reject, "65535", "1024"), (get, "65535", "1024"), (get, "16", "65530")] {
        let fault = call(name, "w1", at, buf, 100).0.expect_err(name).fault;
        assert!(matches!(&fault, Fault::Trap(what) if what.starts_with("out of memory")), "{name}: {fault:?}");
    }
}

struct Write(&'static str, &'static str, &'static str, &'static str, &'static str);

impl Write {
    fn load(&self, bytes: &str, at: &str, length: usize) -> Guest {
        let Self(name, export, result, answer, rest) = *self;
        let values = [
            ("name", name),
            ("export", export),
            ("result", result),
            ("answer", answer),
            ("rest", rest),
            ("bytes", bytes),
            ("at", at),
            ("length", &length.to_string()),
        ];
        load(WRITE, &values)
    }
}

const NAMES: Write = Write("result.node_names", "prefilter", "(result i32)", "(i32.const 0)", "");
const EVENTS: Write =
    Write("result.cluster_events", "enqueue", "", "", "(func (export \"filter\") (result i32) (i32.const 0))");
const REASON: Write = Write("result.status_reason", "prefilter", "(result i32)", "(i32.const 3)", "");
const EVENTF: Write = Write("handle.eventrecorder.eventf", "prefilter", "(result i32)", "(i32.const 0)", "");

#[test]
fn node_names_are_nul_terminated() {
    for (bytes, length, want) in [
        ("a\\00bc\\00", 5, Some(vec!["a", "bc"])),
        ("a\\00bc", 4, Some(vec!["a"])),
        ("a\\00\\00b\\00", 5, Some(vec!["a", "b"])),
        ("abc", 3, None),
        ("", 0, None),
    ] {
        let got = NAMES.load(bytes, "16", length).prefilter(&mut FakeHost::default(), POD).expect(bytes).nodes;
        assert_eq!(got, want.map(|names| names.into_iter().map(String::from).collect()), "{bytes:?}");
    }
    assert!(NAMES.load("", "65530", 9).prefilter(&mut FakeHost::default(), POD).is_err());
}

#[test]
fn cluster_events_are_pairs_of_words() {
    for (bytes, length, want) in [
        ("\\00\\00\\00\\00\\03\\00\\00\\00\\01\\00\\00\\00\\04\\00\\00\\00", 16, vec![(0, Action(3)), (1, Action(4))]),
        ("\\63\\00\\00\\00\\ff\\ff\\ff\\ff\\01", 9, vec![(99, Action::EVERYTHING)]),
        ("\\01\\00\\00", 3, vec![]),
    ] {
        assert_eq!(EVENTS.load(bytes, "16", length).enqueue(&mut FakeHost::default()), Ok(want), "{bytes}");
    }
    let fault = EVENTS.load("", "65530", 9).enqueue(&mut FakeHost::default()).expect_err("bad pointer").fault;
    assert!(matches!(fault, Fault::HostCrash(_)), "the extension has no way to tell the framework: {fault:?}");
    let none = Guest::load(&constant(&[(Export::PreFilter, 0)]), Options::default());
    assert_eq!(none.expect("loads").enqueue(&mut FakeHost::default()), Ok(vec![]));
}

#[test]
fn a_reason_that_cant_be_read_is_told_as_a_bug() {
    let read = |at, length| REASON.load("why", at, length).prefilter(&mut FakeHost::default(), POD).map(|r| r.status);
    assert_eq!(read("16", 3), Ok(status(3, "why")));
    assert_eq!(read("65535", 3), Ok(status(3, "BUG: out of memory reading message")));
}

#[test]
fn the_nominated_node_counts_in_override_mode_only() {
    let write = |packed: &'static str| {
        let filter = "(func (export \"filter\") (result i32) (i32.const 0))";
        Write("result.nominated_node_name", "postfilter", "(result i64)", packed, filter).load("n7", "16", 2)
    };
    for (packed, code, nominated) in [
        ("(i64.const 0x000000002)", 2, None),
        ("(i64.const 0x100000000)", 0, Some("n7")),
        ("(i64.const 0x200000003)", 3, None),
    ] {
        let got = write(packed).postfilter(&mut FakeHost::default(), POD, &BTreeMap::new());
        let want = PostFilter { status: status(code, ""), nominated: nominated.map(String::from) };
        assert_eq!(got, Ok(want), "{packed}");
    }
}

#[test]
fn events_are_recorded_repaired_or_as_the_extension_spoils_them() {
    let json = r#"{\"RegardingReference\":{\"Kind\":\"Pod\",\"Name\":\"p\"},\"Eventtype\":\"Normal\",\"Reason\":\"R\",\"Note\":\"50% there\"}"#;
    let length = json.replace('\\', "").len();
    for (extra, note) in [(false, "50% there"), (true, "50%!t(<nil>)here")] {
        let values = [
            ("name", EVENTF.0),
            ("export", EVENTF.1),
            ("result", EVENTF.2),
            ("answer", EVENTF.3),
            ("rest", EVENTF.4),
            ("bytes", json),
            ("at", "16"),
            ("length", &length.to_string()),
        ];
        let mut guest = load_with(WRITE, &values, Options { eventf_extra_nil: extra, ..Options::default() });
        let host = &mut FakeHost::default();
        guest.prefilter(host, POD).expect("prefilter");
        let [Event { regarding, r#type, reason, note: got, .. }] = &host.events[..] else {
            panic!("{:?}", host.events)
        };
        assert_eq!((regarding.kind.as_str(), regarding.name.as_str()), ("Pod", "p"));
        assert_eq!((r#type.as_str(), reason.as_str(), got.as_str()), ("Normal", "R", note));
    }
    for (bytes, at) in [("no json", "16"), ("{}", "65535")] {
        let fault = EVENTF.load(bytes, at, 7).prefilter(&mut FakeHost::default(), POD).expect_err(bytes).fault;
        assert!(matches!(fault, Fault::Trap(_)), "{fault:?}");
    }
}

#[test]
fn normalized_scores_come_back_in_another_order() {
    let score = "(func (export \"score\") (result i64) (i64.const 0))";
    let write = |bytes: &str| {
        let write = Write("result.normalized_score_list", "normalizescore", "(result i32)", "(i32.const 0)", score);
        write.load(bytes, "16", bytes.replace('\\', "").len())
    };
    let mut scores = vec![("n1".to_owned(), 7), ("n2".to_owned(), 9)];
    let host = &mut FakeHost::default();
    let mut normalize = |bytes: &str| write(bytes).normalizescore(host, POD, &mut scores).map(|s| s.code);
    assert_eq!(normalize("{\\\"n1\\\":70,\\\"n2\\\":90}"), Ok(0));
    assert_eq!(normalize("{}"), Ok(0), "nothing written leaves them");
    for bad in ["{\\\"n1\\\":70}", "[]", "no json"] {
        let fault = normalize(bad).expect_err(bad).fault;
        assert!(matches!(&fault, Fault::HostCrash(what) if what.starts_with("size mismatch")), "{bad}: {fault:?}");
    }
    assert_eq!(scores, [("n2".to_owned(), 90), ("n1".to_owned(), 70)]);
}

#[test]
fn log_drops_what_is_above_the_threshold_and_logs_what_is_below() {
    for threshold in 0..4 {
        let mut guest = load_with(KLOG, &[], Options { log_severity: threshold, ..Options::default() });
        let host = &mut FakeHost::default();
        assert_eq!(guest.prefilter(host, POD).map(|r| r.status.code), Ok(threshold));
        let got: Vec<(bool, &str)> = host.lines.iter().map(|l| (l.error, l.message.as_str())).collect();
        let (info, error) = ((false, "plain"), (true, "plain"));
        let (infos, errors) = ((false, "pairs"), (true, "pairs"));
        let want: &[(bool, &str)] = match threshold {
            0 => &[info, infos, info, errors],
            1 => &[info, info, errors],
            2 => &[info, info, error, errors, error],
            _ => &[info, info, error, error],
        };
        assert_eq!(got, want, "threshold {threshold}");
        let pairs = host.lines.iter().filter(|l| l.message == "pairs");
        let want = [("key".to_owned(), "value".to_owned()), ("odd".to_owned(), "(MISSING)".to_owned())];
        pairs.for_each(|line| assert_eq!(line.pairs, want));
    }
}

#[test]
fn codes_pass_unchanged() {
    let set = |code: i64| {
        constant(&[
            (Export::PreFilter, code),
            (Export::AddPod, code),
            (Export::RemovePod, code),
            (Export::Filter, code),
            (Export::PostFilter, code),
            (Export::PreScore, code),
            (Export::Score, 42 << 32 | code & 0xffff_ffff),
            (Export::Reserve, code),
            (Export::Unreserve, 0),
            (Export::Permit, code << 32 | 1500),
            (Export::PreBind, code),
            (Export::Bind, code),
            (Export::PostBind, 0),
        ])
    };
    for code in [0, 1, 2, 3, 4, 5, 6, 7, 99, -1] {
        let mut guest = Guest::load(&set(code), Options::default()).expect("loads");
        let host = &mut FakeHost::default();
        let want = status(code as i32, "");
        assert_eq!(guest.prefilter(host, POD).map(|r| r.status), Ok(want.clone()));
        assert_eq!(guest.addpod(host, POD, POD, "n"), Ok(want.clone()));
        assert_eq!(guest.removepod(host, POD, POD, "n"), Ok(want.clone()));
        assert_eq!(guest.filter(host, POD, "n"), Ok(want.clone()));
        assert_eq!(guest.postfilter(host, POD, &BTreeMap::new()).map(|r| r.status), Ok(want.clone()));
        assert_eq!(guest.prescore(host, POD, &[]), Ok(want.clone()));
        let score = guest.score(host, POD, "n").expect("score");
        assert_eq!((score.score, score.status), (42, want.clone()));
        assert_eq!(guest.reserve(host, POD, "n"), Ok(want.clone()));
        assert_eq!(guest.permit(host, POD, "n"), Ok(Permit { status: want.clone(), wait_ms: 1500 }));
        assert_eq!(guest.prebind(host, POD, "n"), Ok(want.clone()));
        assert_eq!(guest.bind(host, POD, "n"), Ok(want.clone()));
        assert_eq!(guest.postbind(host, POD, "n"), Ok(()));
        assert_eq!(guest.unreserve(host, POD, "n"), Ok(()));
    }
}

#[test]
fn what_isnt_exported_answers_as_the_extension_does() {
    let all = [Export::Filter, Export::Score, Export::Reserve, Export::Unreserve, Export::Permit, Export::Bind];
    let mut guest = Guest::load(&set(ExportSet::of(&all)), Options::default()).expect("loads");
    let host = &mut FakeHost::default();
    let success = status(0, "");
    assert_eq!(guest.prefilter(host, POD).map(|r| (r.status, r.nodes)), Ok((success.clone(), None)));
    assert_eq!(guest.addpod(host, POD, POD, "n"), Ok(success.clone()));
    assert_eq!(guest.postfilter(host, POD, &BTreeMap::new()).map(|r| r.status), Ok(success.clone()));
    assert_eq!(guest.prescore(host, POD, &[]), Ok(success.clone()));
    assert_eq!(guest.normalizescore(host, POD, &mut []), Ok(success.clone()));
    assert_eq!(guest.prebind(host, POD, "n"), Ok(success));
    for (point, implemented) in [
        (Export::Enqueue, true),
        (Export::PreFilter, true),
        (Export::AddPod, false),
        (Export::PostFilter, true),
        (Export::PreScore, true),
        (Export::NormalizeScore, false),
        (Export::PreBind, true),
        (Export::PostBind, true),
    ] {
        assert_eq!(guest.implements(point), implemented, "{}", point.name());
    }
}

#[test]
fn of_31_sets_23_are_loaded() {
    let core = [Export::Filter, Export::Score, Export::Reserve, Export::Permit, Export::Bind];
    let refused = ["RP", "FRP", "FRB", "FPB", "SRP", "FSRP", "FRPB", "SRPB"];
    let mut loaded = 0;
    for bits in 1..1_u32 << core.len() {
        let members: Vec<Export> = (0..core.len()).filter(|i| bits & 1 << i != 0).map(|i| core[i]).collect();
        let letters: String =
            (0..core.len()).filter(|i| bits & 1 << i != 0).map(|i| "FSRPB".as_bytes()[i] as char).collect();
        let mut exports = ExportSet::of(&members);
        if exports.has(Export::Reserve) {
            exports = exports.with(Export::Unreserve);
        }
        match Guest::load(&set(exports), Options::default()) {
            Ok(_) => loaded += 1,
            Err(LoadError::Refused(why)) => {
                assert!(refused.contains(&letters.as_str()), "{letters}: {why:?}");
                assert!(
                    matches!(&why[..], [Refusal::Exports(ExportSetError::Refused { nearest })] if nearest.accepted()),
                    "{letters}: {why:?}"
                );
            }
            Err(other) => panic!("{letters}: {other}"),
        }
    }
    assert_eq!(loaded, 23);
    assert!(Guest::load(&set(ExportSet::of(&[Export::PreFilter])), Options::default()).is_ok(), "prefilter alone");
    for lone in
        [Export::Enqueue, Export::PostFilter, Export::PreScore, Export::PreBind, Export::PostBind, Export::AddPod]
    {
        assert!(Guest::load(&set(ExportSet::of(&[lone])), Options::default()).is_err(), "{} alone", lone.name());
    }
}

#[test]
fn hazards_are_named_though_the_module_loads() {
    use Export as E;
    for (exports, want) in [
        (&[E::Reserve][..], ExportSetError::HalfPair { have: E::Reserve, missing: E::Unreserve }),
        (&[E::Filter, E::PostFilter, E::AddPod], ExportSetError::HalfPair { have: E::AddPod, missing: E::RemovePod }),
        (&[E::Filter], ExportSetError::FilterWithoutPostFilter),
        (&[E::Permit], ExportSetError::Leaks { missing: E::Reserve }),
        (&[E::Bind], ExportSetError::BindWithoutPermit),
        (&[E::Score, E::NormalizeScore], ExportSetError::NormalizeScore),
        (&[E::Reserve, E::Unreserve, E::PostBind], ExportSetError::Uncalled { export: E::PostBind, needs: E::Bind }),
    ] {
        let found = Inspection::of(&set(ExportSet::of(exports))).expect("a module");
        assert_eq!((found.accepted(), found.hazards), (true, vec![Hazard::Exports(want)]), "{exports:?}");
    }
}

#[test]
fn a_missing_half_of_a_pair_crashes_the_scheduler() {
    let host = &mut FakeHost::default();
    let load = |exports: &[Export]| Guest::load(&set(ExportSet::of(exports)), Options::default()).expect("loads");
    let crash = |result: Result<(), CallError>| matches!(result, Err(CallError { fault: Fault::HostCrash(_), .. }));
    assert!(crash(load(&[Export::Reserve]).unreserve(host, POD, "n")));
    assert!(crash(load(&[Export::Unreserve]).reserve(host, POD, "n").map(|_| ())));
    assert!(crash(load(&[Export::Filter, Export::AddPod]).removepod(host, POD, POD, "n").map(|_| ())));
    assert!(crash(load(&[Export::Bind]).bind(host, POD, "n").map(|_| ())), "no instance to take");
}

#[test]
fn wrong_modules_are_refused_by_name() {
    let of = |text: &str| Inspection::of(&wat::parse_str(text).expect("a module"));
    let told = |text: &str| {
        let found = of(text).expect("a module");
        found.refusals.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let memory = "(memory (export \"memory\") 1)";
    let prefilter = "(func (export \"prefilter\") (result i32) (i32.const 0))";
    let bind = "(func (export \"bind\") (result i32) (i32.const 0))";
    for (text, want) in [
        (format!("(module {prefilter})"), "the module doesn't export its memory as \"memory\""),
        (
            format!("(module (memory (export \"mem\") 1) {prefilter})"),
            "the module doesn't export its memory as \"memory\"",
        ),
        (
            format!("(module {memory} (func (export \"prefilter\") (result i64) (i64.const 0)))"),
            "prefilter is exported as () -> (i64), it must be () -> (i32)",
        ),
        (
            format!("(module {memory} {bind} (func (export \"postbind\") (param i32)))"),
            "postbind is exported as (i32) -> (), it must be () -> ()",
        ),
        (
            format!("(module (import \"env\" \"abort\" (func)) {memory} {prefilter})"),
            "the module imports env.abort, which the scheduler doesn't offer",
        ),
        (
            format!("(module (import \"k8s.io/api\" \"pods\" (func)) {memory} {prefilter})"),
            "the module imports k8s.io/api.pods, which the scheduler doesn't offer",
        ),
        (
            format!("(module (import \"k8s.io/klog\" \"severity\" (func (result i64))) {memory} {prefilter})"),
            "k8s.io/klog.severity is imported as () -> (i64), the scheduler offers () -> (i32)",
        ),
        (
            format!(
                "(module (import \"wasi_snapshot_preview1\" \"proc_exit\" (func (param i64))) {memory} {prefilter})"
            ),
            "wasi_snapshot_preview1.proc_exit is imported as (i64) -> (), the scheduler offers (i32) -> ()",
        ),
        (
            format!("(module (import \"k8s.io/klog\" \"log\" (global i32)) {memory} {prefilter})"),
            "k8s.io/klog.log is imported as a global, the scheduler offers (i32, i32, i32) -> ()",
        ),
        (
            format!("(module {memory})"),
            "the module exports no function that the scheduler calls; export at least prefilter",
        ),
    ] {
        assert_eq!(told(&text), [want], "{text}");
        let load = Guest::load(&wat::parse_str(&text).expect("a module"), Options::default());
        assert!(load.is_err_and(|e| e.to_string().contains(want)), "{text}");
    }

    let whole = set(ExportSet::of(&[Export::PreFilter]));
    assert_eq!(Inspection::of(b"").err(), Some(NotAModule::NotWasm));
    assert_eq!(Inspection::of(b"#!/bin/sh").err(), Some(NotAModule::NotWasm));
    assert_eq!(Inspection::of(b"\0asm\x0d\0\x01\0").err(), Some(NotAModule::Component));
    for length in 4..whole.len() {
        // A module may end after any section, so a cut there validates; then it lacks what the rest held.
        assert!(!Inspection::of(&whole[..length]).is_ok_and(|i| i.accepted()), "cut at {length}");
    }
    let threads =
        "(module (memory (export \"memory\") 1 1 shared) (func (export \"prefilter\") (result i32) (i32.const 0)))";
    assert!(matches!(of(threads), Err(NotAModule::Invalid { .. })), "wazero knows no threads");
    let tail = "(module (memory (export \"memory\") 1) (func $f (result i32) (return_call $f)))";
    assert!(matches!(of(tail), Err(NotAModule::Invalid { .. })), "wazero knows no tail calls");
}

fn faulty(body: &str, options: Options) -> Guest {
    load_with(FAULTS, &[("body", body)], options)
}

#[test]
fn a_call_that_fails_names_its_export_and_keeps_the_instance() {
    let small = Options { fuel_per_call: 100_000, memory_limit: 1 << 20, ..Options::default() };
    let trap = |text: &'static str| move |fault: &Fault| matches!(fault, Fault::Trap(what) if what.contains(text));
    type Expected<'a> = &'a dyn Fn(&Fault) -> bool;
    let cases: [(&str, Expected<'_>); 9] = [
        ("unreachable", &trap("unreachable")),
        ("(local.set $n (i32.div_s (i32.const 1) (local.get $n)))", &trap("divide by zero")),
        ("(local.set $n (i32.load (i32.const 65536)))", &trap("out of bounds")),
        ("(call_indirect (i32.const 0))", &trap("uninitialized element")),
        ("(call $deep)", &|fault| matches!(fault, Fault::Trap(_) | Fault::Fuel(_))),
        ("(call $names (i32.const 65530) (i32.const 100))", &trap("out of memory reading nodeNames")),
        ("(drop (call $pod (i32.const 65530) (i32.const 100)))", &trap("out of memory")),
        ("(loop $l (br $l))", &|fault| *fault == Fault::Fuel(100_000)),
        ("(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable", &|fault| {
            *fault == Fault::Memory(1 << 20)
        }),
    ];
    for (body, expected) in cases {
        let mut guest = faulty(body, small.clone());
        let host = &mut FakeHost::default();
        for _ in 0..2 {
            let error = guest.filter(host, POD, "n").expect_err(body);
            assert_eq!(error.export, Export::Filter);
            assert!(expected(&error.fault), "{body}: {:?}", error.fault);
            assert!(error.status().reason.starts_with("wasm: filter error: "), "{}", error.status().reason);
            assert_eq!(error.status().code, 1);
            assert_eq!(guest.prefilter(host, POD).map(|r| r.status.code), Ok(0), "{body}: the instance goes on");
        }
        assert_eq!(guest.usage().instances, 1, "{body}");
    }
}

#[test]
fn memory_within_the_limit_is_granted() {
    let options = Options { memory_limit: 2 << 16, ..Options::default() };
    let mut guest =
        faulty("(br_if $done (i32.eq (memory.grow (i32.const 1)) (i32.const 1))) unreachable", options.clone());
    assert!(guest.filter(&mut FakeHost::default(), POD, "n").is_ok());
    assert_eq!(guest.usage().memory, 2 << 16);
    let refused = guest.filter(&mut FakeHost::default(), POD, "n").map_err(|e| e.fault);
    assert_eq!(refused, Err(Fault::Memory(2 << 16)));
    let big = wat::parse_str(
        "(module (memory (export \"memory\") 3) (func (export \"prefilter\") (result i32) (i32.const 0)))",
    );
    let error = Guest::load(&big.expect("a module"), options).expect_err("larger from the start").to_string();
    assert!(error.contains("131072 bytes of memory"), "{error}");
}

#[test]
fn fuel_is_counted_and_the_same_each_time() {
    let count = || {
        let mut guest = load(KLOG, &[]);
        let host = &mut FakeHost::default();
        (0..3).for_each(|_| drop(guest.prefilter(host, POD)));
        guest.fuel()[&Export::PreFilter]
    };
    let fuel = count();
    assert_eq!(fuel, count());
    assert_eq!((fuel.calls, fuel.total), (3, 3 * fuel.max));
    assert!(fuel.max > 50 && fuel.max < 1000, "{fuel:?}");
}

const POSTBIND: (&str, &str) = ("postbind", "(func (export \"postbind\"))");

/// A pod whose protobuf is its one-letter uid.
fn pod(uid: &str) -> Pod<'_> {
    Pod { uid, protobuf: uid.as_bytes() }
}

fn hold(guest: &mut Guest, host: &mut FakeHost, uid: &str) {
    guest.prefilter(host, pod(uid)).expect("prefilter");
    guest.reserve(host, pod(uid), "n").expect("reserve");
    let permit = guest.permit(host, pod(uid), "n").expect("permit");
    assert_eq!((permit.status.code, permit.wait_ms, permit.status.reason.as_str()), (4, 1000, uid));
}

#[test]
fn each_pod_past_permit_has_an_instance_of_its_own() {
    let mut guest = load(POOL, &[POSTBIND]);
    let host = &mut FakeHost::default();
    ["a", "b", "c"].into_iter().for_each(|uid| hold(&mut guest, host, uid));
    let usage = guest.usage();
    assert_eq!((usage.instances, usage.binding, usage.memory), (3, 3, 3 << 16));
    for uid in ["b", "a", "c"] {
        assert_eq!(guest.bind(host, pod(uid), "n"), Ok(status(5, uid)), "the memory that scheduled the pod binds it");
        guest.postbind(host, pod(uid), "n").expect("postbind");
    }
    let usage = guest.usage();
    assert_eq!((usage.instances, usage.binding, usage.peak_binding), (3, 0, 3), "all given back");
    assert_eq!(guest.filter(host, pod("x"), "n"), Ok(status(0, "b")), "the first freed is the first used");
}

#[test]
fn unreserve_runs_on_the_scheduling_instance_and_frees_the_pods_own() {
    let mut guest = load(POOL, &[POSTBIND]);
    let host = &mut FakeHost::default();
    hold(&mut guest, host, "a");
    guest.prefilter(host, pod("b")).expect("prefilter");
    guest.unreserve(host, pod("a"), "n").expect("unreserve");
    let line = host.lines.pop().expect("a line");
    assert_eq!(line.pairs, [("saw".to_owned(), "b".to_owned())], "in the middle of another pod's cycle");
    assert_eq!(guest.usage().binding, 0);
    assert_eq!(guest.filter(host, pod("b"), "n"), Ok(status(0, "b")));
    guest.unreserve(host, pod("a"), "n").expect("once more does no harm");
    assert_eq!(guest.usage().instances, 2);
}

#[test]
fn without_postbind_every_bound_pod_leaves_an_instance_behind() {
    for (postbind, left) in [(POSTBIND, 1), (("postbind", ""), 50)] {
        let mut guest = load(POOL, &[postbind]);
        let host = &mut FakeHost::default();
        let uids: Vec<String> = (0..50).map(|i| char::from(b'0' + i).to_string()).collect();
        for uid in &uids {
            hold(&mut guest, host, uid);
            guest.bind(host, pod(uid), "n").expect("bind");
            guest.postbind(host, pod(uid), "n").expect("postbind");
        }
        assert_eq!(guest.usage().instances, left, "{postbind:?}");
    }
}

#[test]
fn one_instance_for_all_shares_its_memory() {
    let mut guest = load_with(POOL, &[POSTBIND], Options { instances: Instances::Single, ..Options::default() });
    let host = &mut FakeHost::default();
    hold(&mut guest, host, "a");
    hold(&mut guest, host, "b");
    assert_eq!(guest.bind(host, pod("a"), "n"), Ok(status(5, "b")));
    guest.unreserve(host, pod("b"), "n").expect("unreserve");
    guest.postbind(host, pod("a"), "n").expect("postbind");
    assert_eq!(guest.usage().instances, 1);
}

#[test]
fn wasi_guests_start_and_fail_as_under_wazero() {
    let mut guest = load(WASI, &[("start", "")]);
    let host = &mut FakeHost::default();
    let reason = guest.prefilter(host, POD).expect("prefilter").status.reason;
    // Clocks hold bytes that are no text, so compare the others word by word.
    assert_eq!(reason.as_bytes().first(), Some(&1), "_start was run, _initialize was not");
    let inspection = Inspection::of(&fill(WASI, &[("start", "")])).expect("a module");
    assert!(inspection.hazards.contains(&Hazard::InitializeNotRun));

    let error = guest.filter(host, POD, "n").expect_err("unreachable");
    assert_eq!(error.output, "hello");
    assert!(error.to_string().starts_with("wasm: filter error: hello\n"), "{error}");

    let error = guest.postfilter(host, POD, &BTreeMap::new()).expect_err("proc_exit").fault;
    assert_eq!(error, Fault::Exited(3));
    let error = guest.prefilter(host, POD).expect_err("closed for good").fault;
    assert_eq!(error, Fault::Exited(3));

    let mut exits_well = load(WASI, &[("start", "(call $exit (i32.const 0))")]);
    assert_eq!(exits_well.prefilter(host, POD).expect_err("closed").fault, Fault::Exited(0));
    let exits_badly = Guest::load(&fill(WASI, &[("start", "(call $exit (i32.const 7))")]), Options::default());
    let error = exits_badly.expect_err("a failed start").to_string();
    assert!(error.contains("exit_code(7)") && error.ends_with("hello"), "{error}");
}

#[test]
fn wasi_answers_are_the_same_in_every_run() {
    let words = |guest: &mut Guest| {
        let mut host = FakeHost::default();
        guest.prefilter(&mut host, POD).expect("prefilter").status.reason
    };
    let first = words(&mut load(WASI, &[("start", "")]));
    assert_eq!(first, words(&mut load(WASI, &[("start", "")])));
    let word = |at: usize| first.as_bytes()[at - 100];
    assert_eq!([word(104), word(108)], [0, 5], "fd_write wrote five bytes");
    assert!(first.ends_with(&first[first.len() - 8..]), "random numbers were given");
}

#[test]
fn an_instance_may_log_and_look_for_nodes_while_it_starts_but_has_no_pod() {
    let body = "(call $log (i32.const 0) (i32.const 0) (i32.const 8))
      (global.set $answer (i32.add
        (call $node (i32.const 16) (i32.const 2) (i32.const 1024) (i32.const 100))
        (call $nodes (i32.const 1024) (i32.const 100))))";
    let mut guest = load(START, &[("body", body)]);
    let host = &mut FakeHost::default();
    assert_eq!(guest.prefilter(host, POD).map(|r| r.status.code), Ok(8), "no node, and an empty list");
    assert_eq!(host.lines.iter().map(|l| l.message.as_str()).collect::<Vec<_>>(), ["starting"]);

    for body in ["(drop (call $pod (i32.const 0) (i32.const 0)))", "unreachable", "(loop $l (br $l))"] {
        let options = Options { fuel_per_call: 10_000, ..Options::default() };
        let error = Guest::load(&fill(START, &[("body", body)]), options).expect_err(body);
        assert!(matches!(error, LoadError::Start { .. }), "{body}: {error}");
    }
}

#[test]
fn an_instance_that_fails_to_start_later_ends_them_all() {
    // The first starts, a second doesn't: only a call in progress has a pod to read.
    let text = POOL.replace(
        "(func $tell",
        "(import \"k8s.io/api\" \"node\" (func $node (param i32 i32 i32 i32) (result i32)))
         (func $begin (if (call $node (i32.const 40) (i32.const 6) (i32.const 0) (i32.const 0)) (then unreachable)))
         (start $begin)
         (data (i32.const 40) \"node-1\")
         (func $tell",
    );
    // Imports come first in the text format.
    let import = "(import \"k8s.io/api\" \"node\" (func $node (param i32 i32 i32 i32) (result i32)))";
    let text = text.replacen(import, "", 1).replacen("(module", &format!("(module {import}"), 1);
    let mut guest = load(&text, &[POSTBIND]);
    let host = &mut FakeHost::default();
    hold(&mut guest, host, "a");
    let error = guest.prefilter(host, pod("b")).expect_err("no instance");
    assert!(matches!(error.fault, Fault::Instantiate(_)), "{:?}", error.fault);
    let error = guest.permit(host, pod("b"), "n").expect_err("no instance to take");
    assert!(matches!(error.fault, Fault::HostCrash(_)), "{:?}", error.fault);
    assert!(matches!(guest.bind(host, pod("a"), "n").map_err(|e| e.fault), Err(Fault::Instantiate(_))));
}
