//! Which of the nodes that admit a member is best: full ones, and those near the gang's other members.

/// The best score.
pub const BEST: i64 = 100;

/// How full the node would be with the pod on it, from 0 to [`BEST`], weighted over the resources that the pod asks for.
#[must_use]
pub fn binpack(weights: &[u32], requests: &[i64], free: &[i64], whole: &[i64]) -> i64 {
    let (mut sum, mut all) = (0.0, 0.0);
    for (r, &weight) in weights.iter().enumerate() {
        if requests[r] > 0 && whole[r] > 0 {
            let used = whole[r].saturating_sub(free[r]).saturating_add(requests[r]);
            sum += f64::from(weight) * (used as f64 / whole[r] as f64).clamp(0.0, 1.0);
            all += f64::from(weight);
        }
    }
    if all > 0.0 { (sum / all * BEST as f64) as i64 } else { 0 }
}

/// Nodes with the same value of the topology label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Members of the gang that have a place there.
    pub members: u32,
    /// So many more would fit.
    pub places: u64,
}

/// How good each domain is, from 0 to [`BEST`]. While the gang has no member anywhere: the tightest domain that holds all
/// that are missing, then wider ones, then by how many they hold. After that: where its members are.
#[must_use]
pub fn domains(domains: &[Domain], missing: u32) -> Vec<i64> {
    let missing = u64::from(missing.max(1));
    let most = domains.iter().map(|d| d.members).max().unwrap_or(0);
    let score = |domain: &Domain| {
        if most > 0 {
            return i64::from(domain.members) * BEST / i64::from(most);
        }
        if domain.places >= missing {
            // From 51 for the widest to 100 for one that fits to the last place.
            let tightness = missing.saturating_mul(49) / domain.places;
            return 51 + i64::try_from(tightness).unwrap_or(0);
        }
        i64::try_from(domain.places * 50 / missing).unwrap_or(0)
    };
    domains.iter().map(score).collect()
}

/// A node's score: its domain first, fullness between nodes of one domain.
#[must_use]
pub fn together(domain: Option<i64>, binpack: Option<i64>) -> i64 {
    match (domain, binpack) {
        (Some(domain), Some(binpack)) => (domain * 4 + binpack) / 5,
        (Some(score), None) | (None, Some(score)) => score,
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuller_is_better() {
        let score = |free| binpack(&[1, 3], &[1, 0], &[free, 0], &[8, 4]);
        assert_eq!((score(8), score(4), score(1)), (12, 62, 100));
        assert_eq!(binpack(&[1, 3], &[2, 2], &[4, 4], &[8, 4]), (75 + 3 * 50) / 4);
        assert_eq!(binpack(&[1], &[0], &[4], &[8]), 0);
        assert_eq!(binpack(&[1], &[1], &[4], &[0]), 0);
    }

    #[test]
    fn domains_are_tight_then_wide_then_short() {
        let view = |list: &[(u32, u64)]| {
            domains(&list.iter().map(|&(members, places)| Domain { members, places }).collect::<Vec<_>>(), 8)
        };
        let scores = view(&[(0, 8), (0, 80), (0, 7), (0, 0)]);
        assert_eq!(scores[0], 100);
        assert!(scores.is_sorted_by(|a, b| a > b), "{scores:?}");
        assert_eq!(view(&[(3, 1), (1, 99), (0, 99)]), [100, 33, 0]);
    }

    #[test]
    fn the_domain_counts_more_than_fullness() {
        assert!(together(Some(100), Some(0)) > together(Some(60), Some(100)));
        assert_eq!((together(None, Some(7)), together(Some(7), None), together(None, None)), (7, 7, 0));
    }
}
