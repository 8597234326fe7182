//! Room kept for the gang that comes first among those that wait for room, so that small gangs can't starve it.
//!
//! The room is chosen by what nodes have in all, not by what is free: once the pods there end, the gang fits. It stays
//! where it is over the gang's tries. Others may use what a node has beyond the kept room, as soon as that is free.

use core::fmt::Write as _;

use crate::order::ordered;

use super::preempt::{Seats, add, fits, largest_first, pack};

/// A node as the choice sees it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Free now.
    pub free: Vec<i64>,
    /// Free when the pods that may end have ended.
    pub whole: Vec<i64>,
}

/// Room kept, node by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Resource names.
    pub resources: Vec<String>,
    /// Per node, so much of each resource; sorted by name.
    pub nodes: Vec<(String, Vec<i64>)>,
}

impl Reservation {
    /// Keeps room for all the seats; `None` where even empty nodes can't hold them. Nodes of the reservation before come
    /// first, then those with most of the members' room free now, then by name.
    #[must_use]
    pub fn choose(resources: &[String], seats: &[Seats], nodes: &[Candidate], before: &Self) -> Option<Self> {
        if before.still_serves(resources, seats, nodes) {
            return Some(before.clone());
        }
        let mut whole: Vec<Vec<i64>> = nodes.iter().map(|node| node.whole.clone()).collect();
        let mut amounts = vec![vec![0i64; resources.len()]; nodes.len()];
        for s in largest_first(seats) {
            let seat = &seats[s];
            let mut sites = seat.sites.clone();
            let free_share = |site: usize| {
                let node = &nodes[site];
                let share = |r: usize| match seat.requests[r] {
                    0 => i64::MAX,
                    request => node.free[r].max(0).saturating_mul(16) / request,
                };
                (0..seat.requests.len()).map(share).min().unwrap_or(0)
            };
            let keys: Vec<_> = sites
                .iter()
                .map(|&site| {
                    let name = &nodes[site].name;
                    (before.kept(name).is_none(), core::cmp::Reverse(free_share(site)), name)
                })
                .collect();
            sites = ordered(keys.len(), &|a, b| keys[a].cmp(&keys[b])).into_iter().map(|i| sites[i]).collect();
            let mut left = seat.count;
            for site in sites {
                while left > 0 && fits(&whole[site], &seat.requests) {
                    add(&mut whole[site], &seat.requests, -1);
                    add(&mut amounts[site], &seat.requests, 1);
                    left -= 1;
                }
            }
            if left > 0 {
                return None;
            }
        }
        let mut kept = Vec::new();
        for site in ordered(nodes.len(), &|a, b| nodes[a].name.cmp(&nodes[b].name)) {
            if amounts[site].iter().any(|&amount| amount > 0) {
                kept.push((nodes[site].name.clone(), core::mem::take(&mut amounts[site])));
            }
        }
        Some(Self { resources: resources.to_vec(), nodes: kept })
    }

    fn kept(&self, node: &str) -> Option<&[i64]> {
        self.nodes.binary_search_by(|(name, _)| name.as_str().cmp(node)).ok().map(|i| self.nodes[i].1.as_slice())
    }

    /// How much of a resource is kept on a node.
    #[must_use]
    pub fn amount(&self, node: &str, resource: &str) -> i64 {
        let column = self.resources.iter().position(|name| name == resource);
        column.and_then(|column| Some(self.kept(node)?[column])).unwrap_or(0)
    }

    /// Whether the kept room is exactly enough for the seats, on nodes that still have it.
    fn still_serves(&self, resources: &[String], seats: &[Seats], nodes: &[Candidate]) -> bool {
        let room: Vec<Vec<i64>> = nodes
            .iter()
            .map(|node| self.kept(&node.name).map_or_else(|| vec![0; resources.len()], <[i64]>::to_vec))
            .collect();
        let sum = |amounts: &mut dyn Iterator<Item = i64>| amounts.fold(0i64, i64::saturating_add);
        self.resources == resources
            && nodes.iter().zip(&room).all(|(node, kept)| fits(&node.whole, kept))
            && (0..resources.len()).all(|r| {
                let wanted = sum(&mut seats.iter().map(|s| s.requests[r].saturating_mul(s.count.into())));
                wanted == sum(&mut self.nodes.iter().map(|(_, kept)| kept[r]))
            })
            && pack(room, seats).is_some()
    }

    /// Whether a pod that asks for at most `requests` must keep off the node: the kept room, or a part of it, would not
    /// be free afterwards. Figures in the order of `resources`.
    #[must_use]
    pub fn closes(&self, node: &str, free: &[i64], requests: &[i64]) -> bool {
        self.kept(node)
            .is_some_and(|kept| (0..kept.len()).any(|r| kept[r] > 0 && free[r].saturating_sub(requests[r]) < kept[r]))
    }

    /// As kept in the host's note.
    #[must_use]
    pub fn to_note(&self) -> Vec<u8> {
        // Neither resource nor node names hold blanks.
        let mut text = self.resources.join(" ");
        for (name, amounts) in &self.nodes {
            let _ = write!(text, "\n{name}");
            for amount in amounts {
                let _ = write!(text, " {amount}");
            }
        }
        text.into_bytes()
    }

    /// As read from the host's note; a note that isn't one reads as nothing kept.
    #[must_use]
    pub fn from_note(note: &[u8]) -> Self {
        let parse = || {
            let mut lines = core::str::from_utf8(note).ok()?.lines();
            let resources: Vec<String> = lines.next()?.split_whitespace().map(str::to_owned).collect();
            let mut nodes = Vec::new();
            for line in lines {
                let mut words = line.split(' ');
                let name = words.next()?.to_owned();
                let amounts = words.map(|word| word.parse().ok()).collect::<Option<Vec<i64>>>()?;
                if amounts.len() != resources.len() {
                    return None;
                }
                nodes.push((name, amounts));
            }
            Some(Self { resources, nodes })
        };
        parse().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu() -> Vec<String> {
        vec!["cpu".into()]
    }

    fn candidate(i: usize, free: i64, whole: i64) -> Candidate {
        Candidate { name: format!("n{i}"), free: vec![free], whole: vec![whole] }
    }

    fn seats(count: u32, request: i64, sites: usize) -> Vec<Seats> {
        vec![Seats { count, requests: vec![request], sites: (0..sites).collect() }]
    }

    #[test]
    fn notes_are_read_as_written() {
        let nodes = [candidate(0, 1, 8), candidate(1, 4, 8)];
        let kept = Reservation::choose(&cpu(), &seats(3, 4, 2), &nodes, &Reservation::default()).unwrap();
        assert_eq!(kept.nodes, [("n0".into(), vec![4]), ("n1".into(), vec![8])]);
        assert_eq!(Reservation::from_note(&kept.to_note()), kept);
        for bad in [&b""[..], b"cpu\nn0", b"cpu\nn0 x", b"\xff"] {
            assert!(Reservation::from_note(bad).nodes.is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn what_no_empty_cluster_holds_keeps_nothing() {
        let nodes = [candidate(0, 0, 11)];
        assert_eq!(Reservation::choose(&cpu(), &seats(20, 1, 1), &nodes, &Reservation::default()), None);
    }

    #[test]
    fn the_room_stays_where_it_was() {
        let first = Reservation::choose(
            &cpu(),
            &seats(1, 4, 2),
            &[candidate(0, 1, 4), candidate(1, 3, 4)],
            &Reservation::default(),
        );
        let first = first.unwrap();
        assert!(first.kept("n1").is_some());
        let again = Reservation::choose(&cpu(), &seats(1, 4, 2), &[candidate(0, 3, 4), candidate(1, 1, 4)], &first);
        assert_eq!(again, Some(first));
    }

    #[test]
    fn others_use_what_is_beyond_the_kept_room() {
        let kept = Reservation { resources: cpu(), nodes: [("n0".into(), vec![6])].into() };
        assert!(kept.closes("n0", &[4], &[1]));
        assert!(kept.closes("n0", &[8], &[3]));
        assert!(!kept.closes("n0", &[8], &[2]));
        assert!(!kept.closes("n1", &[0], &[2]));
    }

    /// Pods of one cpu or more that run for a while.
    #[derive(Clone, Debug)]
    struct Job {
        node: usize,
        cpu: i64,
        ends: u32,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Small jobs arrive at every step and take all room they're let to. However they come, the gang at the head
        /// fits once those that ran before it was blocked have ended.
        #[test]
        fn small_jobs_cannot_starve_the_head(
            whole in prop::collection::vec(2i64..9, 1..5),
            before in prop::collection::vec((0usize..5, 1i64..4, 1u32..20), 0..12),
            arrivals in prop::collection::vec((1i64..4, 1u32..1000), 60),
            members in 1u32..5, request in 1i64..6,
        ) {
            let seats = seats(members, request, whole.len());
            let mut jobs: Vec<Job> = Vec::new();
            let free = |jobs: &[Job], now: u32| -> Vec<i64> {
                let used = |n| jobs.iter().filter(|j| j.node == n && j.ends > now).map(|j| j.cpu).sum::<i64>();
                whole.iter().enumerate().map(|(n, all)| all - used(n)).collect()
            };
            for (node, cpu, ends) in before {
                let node = node % whole.len();
                if free(&jobs, 0)[node] >= cpu {
                    jobs.push(Job { node, cpu, ends });
                }
            }
            let mut kept = Reservation::default();
            let mut arrivals = arrivals.into_iter();
            let last = 20;
            for now in 0..=last {
                let room = free(&jobs, now);
                let places: i64 = room.iter().map(|free| free / request).sum();
                if places >= i64::from(members) {
                    return Ok(());
                }
                let nodes: Vec<_> = room.iter().zip(&whole).enumerate().map(|(n, (f, w))| candidate(n, *f, *w)).collect();
                match Reservation::choose(&cpu(), &seats, &nodes, &kept) {
                    // It can't fit whatever ends: it must not keep others off.
                    None => {
                        prop_assert!(whole.iter().map(|all| all / request).sum::<i64>() < i64::from(members));
                        return Ok(());
                    }
                    Some(chosen) => {
                        prop_assert!(now == 0 || chosen == kept, "moved");
                        kept = chosen;
                    }
                }
                for (cpu, runs) in arrivals.by_ref().take(3) {
                    let room = free(&jobs, now);
                    let open = |n: usize| !kept.closes(&format!("n{n}"), &[room[n]], &[cpu]);
                    if let Some(node) = (0..whole.len()).find(|&n| room[n] >= cpu && open(n)) {
                        jobs.push(Job { node, cpu, ends: now + runs });
                    }
                }
            }
            prop_assert!(false, "starved");
        }
    }
}
