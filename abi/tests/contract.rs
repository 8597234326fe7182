//! The tables against facts read in the extension's sources (`scheduler/plugin/{mask,guest,host}.go`).

use kube_scheduler_abi::export::{Export as E, ExportSet, ExportSetError as Fault};
use kube_scheduler_abi::{Action, ClusterEvent, Code, EventResource, Import, event, klog, names, packing};

const CORE: [(char, &[E]); 5] = [
    ('F', &[E::Filter]),
    ('S', &[E::Score]),
    ('R', &[E::Reserve, E::Unreserve]),
    ('P', &[E::Permit]),
    ('B', &[E::Bind]),
];

fn set(letters: &str) -> ExportSet {
    CORE.iter().filter(|(c, _)| letters.contains(*c)).fold(ExportSet::default(), |s, (_, e)| s.union(ExportSet::of(e)))
}

#[test]
fn the_host_takes_23_of_31_combinations() {
    let refused = ["RP", "FRP", "FRB", "FPB", "SRP", "FSRP", "FRPB", "SRPB"];
    let mut accepted = 0;
    for bits in 1..32_u32 {
        let letters: String = (0..5).filter(|i| bits & (1 << i) != 0).map(|i| CORE[i].0).collect();
        assert_eq!(set(&letters).accepted(), !refused.contains(&&*letters), "{letters}");
        accepted += u32::from(set(&letters).accepted());
    }
    assert_eq!(accepted, 23);
    assert!(ExportSet::of(&[E::PreFilter]).accepted(), "prefilter alone is a special case");
    assert!(!ExportSet::of(&[E::PreFilter, E::Enqueue]).accepted(), "it is, if there is nothing else");
    assert!(!ExportSet::of(&[E::PostFilter]).accepted());
}

#[test]
fn nearest_is_accepted_contains_the_set_and_is_smallest() {
    for bits in 0..32_u32 {
        let letters: String = (0..5).filter(|i| bits & (1 << i) != 0).map(|i| CORE[i].0).collect();
        let near = set(&letters).nearest();
        assert!(near.accepted(), "{letters}");
        assert_eq!(near.union(set(&letters)), near, "{letters}");
        if set(&letters).accepted() {
            assert_eq!(near, set(&letters), "{letters}");
        }
    }
    assert_eq!(set("RP").nearest(), set("RPB"));
    assert_eq!(set("FRP").nearest(), set("FSRPB"));
}

#[test]
fn faults_are_named() {
    use E::*;
    let whole = [Reserve, Unreserve, Permit, Bind, PostBind];
    let cases: &[(&[E], Result<(), Fault>)] = &[
        (&[], Err(Fault::Empty)),
        (&[PreFilter], Ok(())),
        (&[Reserve], Err(Fault::HalfPair { have: Reserve, missing: Unreserve })),
        (&[Filter, PostFilter, RemovePod], Err(Fault::HalfPair { have: RemovePod, missing: AddPod })),
        (&[Filter], Err(Fault::FilterWithoutPostFilter)),
        (&[Filter, PostFilter], Ok(())),
        (&[Permit], Err(Fault::Leaks { missing: Reserve })),
        (&[Permit, Bind], Err(Fault::Leaks { missing: Reserve })),
        (&[Reserve, Unreserve, Permit, Bind], Err(Fault::Leaks { missing: PostBind })),
        (&whole, Ok(())),
        (&[Bind], Err(Fault::BindWithoutPermit)),
        (&[Score, NormalizeScore], Err(Fault::NormalizeScore)),
        (&[PreFilter, Enqueue], Err(Fault::Refused { nearest: ExportSet::of(&[PreFilter, Enqueue, Filter]) })),
        (
            &[PreFilter, NormalizeScore, Reserve, Unreserve],
            Err(Fault::Uncalled { export: NormalizeScore, needs: Score }),
        ),
        (&[Score, AddPod, RemovePod], Ok(())),
        (&[Score, PostFilter], Err(Fault::Uncalled { export: PostFilter, needs: Filter })),
        (&[Filter, PostFilter, PreScore], Err(Fault::Uncalled { export: PreScore, needs: Score })),
        (&[Score, PostBind], Err(Fault::Uncalled { export: PostBind, needs: Bind })),
    ];
    for (exports, want) in cases {
        assert_eq!(ExportSet::of(exports).check(), *want, "{}", ExportSet::of(exports));
    }
    let refused = ExportSet::of(&[Reserve, Unreserve, Permit]).check().expect_err("reserve and permit");
    assert!(refused.to_string().ends_with("the nearest it takes is: reserve, unreserve, permit, bind"), "{refused}");
}

#[test]
fn packing_round_trips_and_has_the_upstream_halves() {
    assert_eq!(packing::permit(Code::Wait as i32, 30_000), (4 << 32) | 30_000);
    assert_eq!(packing::value(100, Code::Success as i32), 100 << 32);
    for (code, ms) in [(0, 0), (4, u32::MAX), (-1, 7)] {
        assert_eq!(packing::unpack_permit(packing::permit(code, ms)), (code, ms));
    }
    for (value, code) in [(0, 0), (-5, 2), (i32::MAX, 6)] {
        assert_eq!(packing::unpack_value(packing::value(value, code)), (value, code));
    }
}

#[test]
fn codes_have_the_frameworks_numbers() {
    for (i, code) in Code::ALL.into_iter().enumerate() {
        assert_eq!(code as usize, i);
        assert_eq!(Code::from_i32(code as i32), Some(code));
    }
    assert_eq!(Code::from_i32(7), None);
    assert_eq!(Code::from_i32(-1), None);
}

#[test]
fn name_lists_are_terminated_not_separated() {
    let mut list = Vec::new();
    names::push(&mut list, "n1").expect("a name");
    names::push(&mut list, "n2").expect("a name");
    assert_eq!(list, b"n1\0n2\0");
    assert_eq!(names::iter(&list).collect::<Vec<_>>(), [b"n1", b"n2"]);
    assert_eq!(names::iter(b"n1\0n2").collect::<Vec<_>>(), [b"n1"], "an entry without its NUL is dropped");
    assert_eq!(names::iter(b"\0\0n1\0").collect::<Vec<_>>(), [b"n1"], "empty entries are skipped");
    assert_eq!(names::iter(b"").count(), 0);
    assert_eq!(names::push(&mut list, ""), Err(names::BadEntry));
    assert_eq!(names::push(&mut list, "a\0b"), Err(names::BadEntry));
}

#[test]
fn events_are_pairs_of_little_endian_words() {
    let mut bytes = Vec::new();
    ClusterEvent { resource: EventResource::Node, action: Action::ADD.or(Action::UPDATE_NODE_LABEL) }
        .encode(&mut bytes);
    assert_eq!(bytes, [1, 0, 0, 0, 9, 0, 0, 0]);
    bytes.push(3);
    assert_eq!(event::decode(&bytes).collect::<Vec<_>>(), [(1, Action(9))], "an incomplete tail is dropped");
    for n in 0..11 {
        assert_eq!(EventResource::from_u32(n).map(|r| r as u32), Some(n));
    }
    assert_eq!(EventResource::from_u32(11), None);
}

#[test]
fn the_two_log_calls_filter_in_opposite_directions() {
    assert!(klog::log_passes(0, 0) && !klog::log_passes(2, 0));
    assert!(klog::logs_passes(2, 0) && !klog::logs_passes(0, 2));
}

#[test]
fn names_are_unique() {
    for (i, a) in Import::ALL.iter().enumerate() {
        assert_eq!(Import::find(a.module(), a.name()), Some(*a));
        assert!(!Import::ALL[..i].iter().any(|b| (a.module(), a.name()) == (b.module(), b.name())));
    }
    assert_eq!(Import::ALL.len(), 21);
    assert_eq!(E::ALL.len(), 15);
    for e in E::ALL {
        assert_eq!(E::from_name(e.name()), Some(*e));
    }
}
