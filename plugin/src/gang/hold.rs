//! How long members are held, and how long a gang stands back after a failed try.

/// The framework cuts a longer wait at Permit to this.
pub const FRAMEWORK_LIMIT_MS: u64 = 15 * 60 * 1000;

/// How much longer the framework waits than the gang's own deadline, which must always come first: it ends the hold for
/// all members at once, the framework's timer only for one.
pub const MARGIN_MS: u64 = 5_000;

/// The longest deadline.
pub const LONGEST_MS: u64 = FRAMEWORK_LIMIT_MS - MARGIN_MS;

/// How long a gang's members are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// From the first held member to the deadline.
    pub timeout_ms: u64,
    /// What was asked for, where it's more than can be.
    pub capped_from_ms: Option<u64>,
    /// The gang itself said so, not the plugin's configuration.
    pub own: bool,
}

impl Hold {
    /// The gang's own timeout, else the default; capped.
    #[must_use]
    pub fn of(own_ms: Option<u64>, default_ms: u64) -> Self {
        let asked = own_ms.unwrap_or(default_ms).max(1);
        Self {
            timeout_ms: asked.min(LONGEST_MS),
            capped_from_ms: Some(asked).filter(|&ms| ms > LONGEST_MS),
            own: own_ms.is_some(),
        }
    }

    /// When the hold of a member that joins now ends.
    #[must_use]
    pub fn deadline_ms(self, now_ms: i64) -> i64 {
        now_ms.saturating_add(i64::try_from(self.timeout_ms).unwrap_or(i64::MAX))
    }

    /// What Permit answers beside Wait.
    #[must_use]
    pub fn framework_ms(self) -> u32 {
        u32::try_from(self.timeout_ms + MARGIN_MS).unwrap_or(u32::MAX)
    }
}

/// Why a gang stands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A try failed half-way: members were held and gave way.
    Failed,
    /// The missing members can't fit; nobody was held. Room may come free at any time.
    NoRoom,
    /// Other pods were evicted for it and are about to end.
    Victims,
    /// Too few members: nothing failed, and nothing is held back. At its end the host wakes the members, which then say
    /// how many there are by now.
    Incomplete,
}

/// A gang's backoff as the host keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// Failed tries since the last start.
    pub tries: u32,
    /// Why the last one failed.
    pub cause: Cause,
    /// Its end.
    pub until_ms: i64,
    /// Since the last start pods were evicted for it, and it found no node all the same.
    pub in_vain: bool,
}

const CAUSE_SHIFT: u32 = 30;
const IN_VAIN: u32 = 1 << 29;

/// Base and cap of the backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffLimits {
    /// After the first failed try.
    pub base_ms: u64,
    /// Never longer.
    pub max_ms: u64,
    /// Whether gangs get different delays; off only to show what goes wrong without.
    pub jitter: bool,
}

impl Default for BackoffLimits {
    fn default() -> Self {
        Self { base_ms: 1_000, max_ms: 30_000, jitter: true }
    }
}

impl Backoff {
    /// As read from the host's state.
    #[must_use]
    pub const fn from_state(attempt: u32, until_ms: i64) -> Self {
        let cause = match attempt >> CAUSE_SHIFT {
            1 => Cause::NoRoom,
            2 => Cause::Victims,
            3 => Cause::Incomplete,
            _ => Cause::Failed,
        };
        Self { tries: attempt & (IN_VAIN - 1), cause, until_ms, in_vain: attempt & IN_VAIN != 0 }
    }

    /// As kept in the host's state.
    #[must_use]
    pub const fn attempt(self) -> u32 {
        let cause = match self.cause {
            Cause::Failed => 0,
            Cause::NoRoom => 1,
            Cause::Victims => 2,
            Cause::Incomplete => 3,
        };
        self.tries | cause << CAUSE_SHIFT | if self.in_vain { IN_VAIN } else { 0 }
    }

    /// Whether the gang must stand back now.
    #[must_use]
    pub const fn is_in_force(self, now_ms: i64) -> bool {
        self.until_ms > now_ms && !matches!(self.cause, Cause::Incomplete)
    }

    /// The members are woken after a while to say how many there are by now: not at once, since members often come one by
    /// one, and each would wake all before it.
    #[must_use]
    pub fn restate(self, now_ms: i64, limits: BackoffLimits) -> Self {
        if self.until_ms > now_ms {
            return self;
        }
        let delay = i64::try_from(limits.base_ms.saturating_mul(5)).unwrap_or(i64::MAX);
        Self { cause: Cause::Incomplete, until_ms: now_ms.saturating_add(delay), ..self }
    }

    /// The backoff after one more failed try.
    #[must_use]
    pub fn next(self, key: &str, cause: Cause, now_ms: i64, limits: BackoffLimits) -> Self {
        let tries = self.tries.saturating_add(1).min(IN_VAIN - 1);
        let delay = delay_ms(key, tries, limits);
        Self { tries, cause, until_ms: now_ms.saturating_add(i64::try_from(delay).unwrap_or(i64::MAX)), ..self }
    }

    /// A look at last after a binding has failed. The scheduler's queue tries the pod by itself, a while later each time,
    /// which an earlier look would cut short; this one is for a pod that the queue has left parked.
    #[must_use]
    pub fn after_failed_binding(self, key: &str, now_ms: i64, limits: BackoffLimits) -> Self {
        if self.until_ms > now_ms {
            return self;
        }
        let longest = i64::try_from(delay_ms(key, IN_VAIN, limits)).unwrap_or(i64::MAX);
        Self { cause: Cause::Incomplete, until_ms: now_ms.saturating_add(longest), ..self }
    }

    /// Whether a gang that stands back for lack of room may look again before the end. Each look restarts the backoff, so
    /// its start says when the last look was; one look a second at most.
    #[must_use]
    pub fn may_look_again(self, key: &str, now_ms: i64, limits: BackoffLimits) -> bool {
        let delay = i64::try_from(delay_ms(key, self.tries, limits)).unwrap_or(i64::MAX);
        let since = now_ms.saturating_sub(self.until_ms.saturating_sub(delay));
        self.cause != Cause::Failed && since >= i64::try_from(limits.base_ms).unwrap_or(i64::MAX)
    }

    /// The same backoff from now on, after a look in vain.
    #[must_use]
    pub fn restarted(self, key: &str, now_ms: i64, limits: BackoffLimits) -> Self {
        let delay = i64::try_from(delay_ms(key, self.tries, limits)).unwrap_or(i64::MAX);
        Self { until_ms: now_ms.saturating_add(delay), ..self }
    }
}

/// Doubling from base to max; with jitter a gang gets between 3/4 and 5/4 of that, the same at every computation.
fn delay_ms(key: &str, tries: u32, limits: BackoffLimits) -> u64 {
    let doubled = limits.base_ms.saturating_mul(1 << tries.saturating_sub(1).min(40)).min(limits.max_ms);
    if !limits.jitter {
        return doubled.max(1);
    }
    // FNV-1a over key and try: cheap, and different for gangs whose names differ in one character.
    let hash = key
        .bytes()
        .chain(tries.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let share = (hash >> 32) % 1001;
    (doubled - doubled / 4).saturating_add((doubled / 2).saturating_mul(share) / 1000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_capped_below_the_framework_limit() {
        for (own, timeout, capped) in [
            (None, 60_000, None),
            (Some(300_000), 300_000, None),
            (Some(3_600_000), LONGEST_MS, Some(3_600_000)),
            (Some(u64::MAX), LONGEST_MS, Some(u64::MAX)),
            (Some(0), 1, None),
        ] {
            let hold = Hold::of(own, 60_000);
            assert_eq!((hold.timeout_ms, hold.capped_from_ms, hold.own), (timeout, capped, own.is_some()));
            assert!(u64::from(hold.framework_ms()) > hold.timeout_ms);
            assert!(u64::from(hold.framework_ms()) <= FRAMEWORK_LIMIT_MS);
        }
        assert_eq!(Hold::of(Some(u64::MAX), 1).deadline_ms(i64::MAX), i64::MAX);
    }

    #[test]
    fn backoff_doubles_to_its_cap_and_differs_between_gangs() {
        let limits = BackoffLimits::default();
        let mut backoff = Backoff::from_state(0, 0);
        let mut delays = Vec::new();
        for _ in 0..40 {
            backoff = backoff.next("x-k8s.io/ns/ga", Cause::Failed, 1000, limits);
            delays.push(backoff.until_ms - 1000);
        }
        assert!((750..=1250).contains(&delays[0]), "{delays:?}");
        assert!((1500..=2500).contains(&delays[1]), "{delays:?}");
        assert!(delays[10..].iter().all(|d| (22_500..=37_500).contains(d)), "{delays:?}");
        let other = Backoff::from_state(0, 0).next("x-k8s.io/ns/gb", Cause::Failed, 1000, limits);
        assert_ne!(other.until_ms - 1000, delays[0]);
        assert!(backoff.is_in_force(1000) && !backoff.is_in_force(backoff.until_ms));
    }

    #[test]
    fn cause_and_tries_travel_in_one_figure() {
        for cause in [Cause::Failed, Cause::NoRoom, Cause::Victims, Cause::Incomplete] {
            for (tries, in_vain) in [(0, false), (1, true), (77, false), (IN_VAIN - 1, true), (IN_VAIN - 1, false)] {
                let backoff = Backoff { tries, cause, until_ms: 5, in_vain };
                assert_eq!(Backoff::from_state(backoff.attempt(), 5), backoff);
                let next = backoff.next("k", cause, 0, BackoffLimits::default());
                assert_eq!((next.cause, next.in_vain), (cause, in_vain));
                assert_eq!(Backoff::from_state(next.attempt(), next.until_ms), next);
            }
        }
    }

    #[test]
    fn being_incomplete_holds_nothing_back() {
        let limits = BackoffLimits::default();
        let restate = Backoff::from_state(2, 0).restate(1000, limits);
        assert_eq!(restate, Backoff { tries: 2, cause: Cause::Incomplete, until_ms: 6000, in_vain: false });
        assert!(!restate.is_in_force(1000));
        assert_eq!(restate.restate(2000, limits), restate);
        let failed = Backoff { cause: Cause::Failed, ..restate };
        assert_eq!(failed.restate(1000, limits), failed);
    }

    #[test]
    fn after_a_failed_binding_gangs_differ_and_nobody_comes_before_the_queue() {
        let limits = BackoffLimits::default();
        let look = |key| Backoff::from_state(0, 0).after_failed_binding(key, 1000, limits);
        let (a, b) = (look("x-k8s.io/ns/ga"), look("x-k8s.io/ns/gb"));
        // The queue's longest backoff is 10 s.
        assert!([a, b].iter().all(|l| (11_000..=38_500).contains(&l.until_ms)), "{a:?} {b:?}");
        assert_ne!(a.until_ms, b.until_ms);
        assert_eq!(a, look("x-k8s.io/ns/ga"));
        assert!(!a.is_in_force(1000));
        assert_eq!(a.after_failed_binding("x-k8s.io/ns/ga", 2000, limits), a, "the first look isn't put off");
    }

    #[test]
    fn only_lack_of_room_is_looked_at_again() {
        let limits = BackoffLimits::default();
        let start = Backoff { tries: 4, cause: Cause::NoRoom, until_ms: 0, in_vain: false };
        let backoff = start.restarted("k", 10_000, limits);
        assert!(!backoff.may_look_again("k", 10_500, limits));
        assert!(backoff.may_look_again("k", 11_000, limits));
        let failed = Backoff { cause: Cause::Failed, ..backoff };
        assert!(!failed.may_look_again("k", 11_000, limits));
    }
}
