//! Chance that a seed repeats, the same on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The same seed gives the same sequence.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `least..=most`.
    pub(crate) fn between(&mut self, least: i64, most: i64) -> i64 {
        let span = most.saturating_sub(least).unsigned_abs().saturating_add(1);
        // The bias is below one in 2^40 for the spans used here.
        least.saturating_add(i64::try_from(self.next() % span).unwrap_or(0))
    }

    /// Puts the items into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = usize::try_from(self.next() % (i as u64 + 1)).unwrap_or(0);
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn repeats_and_stays_in_range() {
        let draw =
            |seed| (0..100).map(|_| 0).scan(Random::new(seed), |r, _: i32| Some(r.between(-3, 3))).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().all(|n| (-3..=3).contains(n)));
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(5).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
