//! Counting: does a quorum exist, is it met, what is missing.

use std::collections::BTreeMap;

use kube_scheduler_sdk::bridge::{Counts, GroupState, Quorum};

use super::spec::{MatchPolicy, Spec};

/// Members that could be part of a start: in the queue, held, and, unless the policy looks at held pods only, those that
/// already have a node or have done their work.
#[must_use]
pub fn usable(counts: &Counts, policy: MatchPolicy) -> u32 {
    counts.unscheduled.saturating_add(placed(counts, policy))
}

/// Members that already count towards the minimum.
#[must_use]
pub fn placed(counts: &Counts, policy: MatchPolicy) -> u32 {
    let started = match policy {
        MatchPolicy::WaitingAndRunning => [counts.bound, counts.running, counts.succeeded],
        // The start itself counts: members let go a moment ago.
        MatchPolicy::OnceSatisfied => [counts.bound, counts.running, 0],
        MatchPolicy::OnlyWaiting => [0; 3],
    };
    started.into_iter().fold(counts.waiting, u32::saturating_add)
}

/// Why a quorum doesn't exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The role that is short, `None` for the gang as a whole.
    pub role: Option<String>,
    /// Usable members.
    pub have: u32,
    /// Members wanted.
    pub want: u32,
    /// Members that wait for a scheduling gate.
    pub gated: u32,
    /// Members on their way out.
    pub terminating: u32,
}

/// What must still find a place for the gang to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Members.
    pub total: u32,
    /// Of which per role.
    pub roles: BTreeMap<String, u32>,
}

/// Whether the pods are free to start one by one: no minimum, or the policy looks at the first start only and that is over.
#[must_use]
pub fn is_free(spec: &Spec, state: &GroupState) -> bool {
    spec.min == 0 && spec.roles.is_empty() || spec.policy == MatchPolicy::OnceSatisfied && state.released
}

fn role<'a>(state: &'a GroupState, name: &str) -> Option<&'a Counts> {
    state.roles.get(name)
}

/// Whether enough members exist.
///
/// # Errors
/// What is short: the gang, else the first role by name.
pub fn exists(spec: &Spec, state: &GroupState) -> Result<(), Incomplete> {
    let none = Counts::default();
    let total = state.total.as_ref().unwrap_or(&none);
    let short = |role: Option<&str>, counts: &Counts, want: u32| Incomplete {
        role: role.map(str::to_owned),
        have: usable(counts, spec.policy),
        want,
        gated: counts.gated,
        terminating: counts.terminating,
    };
    if usable(total, spec.policy) < spec.min {
        return Err(short(None, total, spec.min));
    }
    for (name, &want) in &spec.roles {
        let counts = role(state, name).unwrap_or(&none);
        if usable(counts, spec.policy) < want {
            return Err(short(Some(name), counts, want));
        }
    }
    Ok(())
}

/// What must still find a place.
#[must_use]
pub fn missing(spec: &Spec, state: &GroupState) -> Missing {
    let none = Counts::default();
    let mut roles = BTreeMap::new();
    for (name, &want) in &spec.roles {
        let missing = want.saturating_sub(placed(role(state, name).unwrap_or(&none), spec.policy));
        if missing > 0 {
            roles.insert(name.clone(), missing);
        }
    }
    let total = spec.min.saturating_sub(placed(state.total.as_ref().unwrap_or(&none), spec.policy));
    // Roles may ask for more than the gang as a whole does.
    let total = total.max(roles.values().fold(0, |sum, &n| sum.saturating_add(n)));
    Missing { total, roles }
}

/// Whether the gang has its minimum with the members already let go: further pods are growth.
#[must_use]
pub fn is_satisfied(spec: &Spec, state: &GroupState) -> bool {
    let without_held = |counts: &Counts| placed(counts, spec.policy).saturating_sub(counts.waiting);
    let none = Counts::default();
    without_held(state.total.as_ref().unwrap_or(&none)) >= spec.min
        && spec.roles.iter().all(|(name, &want)| without_held(role(state, name).unwrap_or(&none)) >= want)
}

/// The quorum that the host checks before it lets a gang go.
#[must_use]
pub fn to_let_go(spec: &Spec, key: String) -> Quorum {
    Quorum {
        key,
        at_least: spec.min,
        roles: spec.roles.clone(),
        only_waiting: spec.policy == MatchPolicy::OnlyWaiting,
        count_succeeded: spec.policy == MatchPolicy::WaitingAndRunning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(unscheduled: u32, waiting: u32, bound: u32, running: u32, succeeded: u32) -> Counts {
        Counts { unscheduled, waiting, bound, running, succeeded, gated: 7, failed: 7, terminating: 7 }
    }

    fn state(total: Counts) -> GroupState {
        GroupState { total: Some(total), ..GroupState::default() }
    }

    #[test]
    fn each_policy_counts_its_own() {
        use MatchPolicy::{OnceSatisfied, OnlyWaiting, WaitingAndRunning};
        let c = counts(1, 2, 3, 4, 5);
        for (policy, usable_members, placed_members) in
            [(WaitingAndRunning, 15, 14), (OnceSatisfied, 10, 9), (OnlyWaiting, 3, 2)]
        {
            assert_eq!((usable(&c, policy), placed(&c, policy)), (usable_members, placed_members), "{policy:?}");
        }
    }

    #[test]
    fn a_quorum_exists_or_says_what_is_short() {
        let spec = Spec::of_min(4, MatchPolicy::default());
        for (total, have) in
            [(counts(3, 0, 0, 0, 0), Some(3)), (counts(3, 0, 0, 0, 1), None), (counts(0, 4, 0, 0, 0), None)]
        {
            let got = exists(&spec, &state(total)).err().map(|e| e.have);
            assert_eq!(got, have, "{total:?}");
        }
        let huge = Spec::of_min(u32::MAX, MatchPolicy::default());
        let short = exists(&huge, &state(counts(1, 0, 0, 0, 0))).unwrap_err();
        assert_eq!((short.have, short.want), (1, u32::MAX));
        let overflowing = counts(u32::MAX, u32::MAX, u32::MAX, 1, 1);
        assert_eq!(exists(&huge, &state(overflowing)), Ok(()));
    }

    #[test]
    fn roles_are_counted_on_their_own() {
        let mut spec = Spec::of_min(3, MatchPolicy::default());
        spec.roles = [("head".into(), 1), ("worker".into(), 2)].into();
        let mut s = state(counts(4, 0, 0, 0, 0));
        s.roles = [("worker".into(), counts(4, 0, 0, 0, 0))].into();
        let short = exists(&spec, &s).unwrap_err();
        assert_eq!((short.role.as_deref(), short.have, short.want), (Some("head"), 0, 1));
        s.roles.insert("head".into(), counts(1, 0, 0, 0, 0));
        assert_eq!(exists(&spec, &s), Ok(()));
        let m = missing(&spec, &s);
        assert_eq!((m.total, m.roles["head"], m.roles["worker"]), (3, 1, 2));
    }

    #[test]
    fn growth_starts_where_the_minimum_is_met_without_held_pods() {
        let spec = Spec::of_min(2, MatchPolicy::default());
        assert!(!is_satisfied(&spec, &state(counts(3, 2, 1, 0, 0))));
        assert!(is_satisfied(&spec, &state(counts(3, 0, 1, 1, 0))));
        assert!(is_satisfied(&spec, &state(counts(1, 0, 0, 1, 1))));
        assert!(!is_satisfied(&Spec::of_min(2, MatchPolicy::OnlyWaiting), &state(counts(1, 0, 5, 5, 0))));
    }

    #[test]
    fn free_pods() {
        let mut s = state(counts(1, 0, 0, 0, 0));
        assert!(is_free(&Spec::of_min(0, MatchPolicy::default()), &s));
        assert!(!is_free(&Spec::of_min(1, MatchPolicy::OnceSatisfied), &s));
        s.released = true;
        assert!(is_free(&Spec::of_min(1, MatchPolicy::OnceSatisfied), &s));
        assert!(!is_free(&Spec::of_min(1, MatchPolicy::default()), &s));
    }
}
