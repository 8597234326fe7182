//! Whom to evict so that a whole gang fits: nobody, unless everyone missing gets a place.
//!
//! A pod of a gang is taken alone while its gang keeps its minimum, else with its whole gang. Pods that a
//! PodDisruptionBudget protects are never taken. Node by node the choice follows the scheduler's own preemption: lowest
//! highest priority first, then fewest pods; at the end whoever is not needed is spared, most important first.

use crate::order::ordered;

/// A node that some of the members may use.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Free room, that of pods about to end included.
    pub free: Vec<i64>,
}

/// A pod that could be evicted.
#[derive(Clone, Debug)]
pub struct Occupant {
    /// Its uid.
    pub uid: String,
    /// Index of its node.
    pub site: usize,
    /// Its priority.
    pub priority: i32,
    /// What it holds.
    pub requests: Vec<i64>,
    /// Index of its gang.
    pub gang: Option<usize>,
    /// A PodDisruptionBudget forbids it now.
    pub protected: bool,
}

/// A gang some of whose pods could be evicted.
#[derive(Clone, Debug, Default)]
pub struct Band {
    /// So many pods may go and it keeps its minimum.
    pub spare: u32,
    /// All its pods that hold room, `None` where it can't be taken as a whole: some are too important.
    pub whole: Option<Vec<String>>,
}

/// Members to place.
#[derive(Clone, Debug)]
pub struct Seats {
    /// How many.
    pub count: u32,
    /// What each asks for.
    pub requests: Vec<i64>,
    /// Nodes that admit them, by index.
    pub sites: Vec<usize>,
}

/// The ground on which to plan.
#[derive(Clone, Debug, Default)]
pub struct Ground {
    /// Nodes.
    pub sites: Vec<Site>,
    /// Pods that could be evicted, all of lower priority; per node the least important first.
    pub occupants: Vec<Occupant>,
    /// Their gangs.
    pub bands: Vec<Band>,
}

/// A way to fit everyone in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Uids of the pods to evict; empty where room that is about to come free is enough.
    pub victims: Vec<String>,
    /// Per [`Seats`], the node of each member.
    pub places: Vec<Vec<usize>>,
}

/// What making room for one member on a node takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Price {
    /// Highest priority among the victims; nobody to evict comes before all.
    highest: Option<i32>,
    pods: usize,
    units: Vec<Unit>,
}

/// What is evicted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Pod(usize),
    Band(usize),
}

struct Planner<'a> {
    ground: &'a Ground,
    free: Vec<Vec<i64>>,
    by_site: Vec<Vec<usize>>,
    by_band: Vec<Vec<usize>>,
    gone: Vec<bool>,
    spare: Vec<u32>,
    taken: Vec<Unit>,
}

impl Ground {
    /// Plans for everyone or not at all.
    #[must_use]
    pub fn plan(&self, seats: &[Seats]) -> Option<Plan> {
        let mut planner = Planner::new(self);
        let mut places = vec![Vec::new(); seats.len()];
        for s in largest_first(seats) {
            let seat = &seats[s];
            let mut prices: Vec<Option<Price>> =
                seat.sites.iter().map(|&site| planner.price(site, &seat.requests)).collect();
            for _ in 0..seat.count {
                let best = (0..prices.len())
                    .filter(|&i| prices[i].is_some())
                    .min_by(|&a, &b| prices[a].cmp(&prices[b]).then(a.cmp(&b)))?;
                let price = prices[best].take()?;
                let touched = planner.take(&price.units);
                let site = seat.sites[best];
                add(&mut planner.free[site], &seat.requests, -1);
                places[s].push(site);
                // Prices changed where room came free, where it was used, and where a touched gang has pods.
                for (i, &at) in seat.sites.iter().enumerate() {
                    if at == site || touched.contains(&at) {
                        prices[i] = planner.price(at, &seat.requests);
                    }
                }
            }
        }
        planner.spare_the_unneeded(seats, &mut places);
        Some(Plan { victims: planner.victims(), places })
    }
}

/// The large members first: the small ones fit in what is left.
pub(super) fn largest_first(seats: &[Seats]) -> Vec<usize> {
    let size = |s: usize| seats[s].requests.iter().fold(0i64, |sum, request| sum.saturating_add(*request));
    ordered(seats.len(), &|a, b| size(b).cmp(&size(a)))
}

pub(super) fn add(room: &mut [i64], amounts: &[i64], times: i64) {
    for (room, amount) in room.iter_mut().zip(amounts) {
        *room = room.saturating_add(amount.saturating_mul(times));
    }
}

pub(super) fn fits(free: &[i64], requests: &[i64]) -> bool {
    free.iter().zip(requests).all(|(&free, &request)| request == 0 || free >= request)
}

/// Places everyone without evicting, node by node.
pub(super) fn pack(mut room: Vec<Vec<i64>>, seats: &[Seats]) -> Option<Vec<Vec<usize>>> {
    let mut places = vec![Vec::new(); seats.len()];
    for s in largest_first(seats) {
        let seat = &seats[s];
        for &site in &seat.sites {
            while places[s].len() < seat.count as usize && fits(&room[site], &seat.requests) {
                add(&mut room[site], &seat.requests, -1);
                places[s].push(site);
            }
        }
        if places[s].len() < seat.count as usize {
            return None;
        }
    }
    Some(places)
}

impl<'a> Planner<'a> {
    fn new(ground: &'a Ground) -> Self {
        let mut by_site = vec![Vec::new(); ground.sites.len()];
        let mut by_band = vec![Vec::new(); ground.bands.len()];
        for (i, occupant) in ground.occupants.iter().enumerate() {
            by_site[occupant.site].push(i);
            if let Some(band) = occupant.gang {
                by_band[band].push(i);
            }
        }
        Self {
            ground,
            free: ground.sites.iter().map(|site| site.free.clone()).collect(),
            by_site,
            by_band,
            gone: vec![false; ground.occupants.len()],
            spare: ground.bands.iter().map(|band| band.spare).collect(),
            taken: Vec::new(),
        }
    }

    /// The cheapest way found to fit the requests on the node.
    fn price(&self, site: usize, requests: &[i64]) -> Option<Price> {
        let mut free = self.free[site].clone();
        let fits = |free: &[i64]| fits(free, requests);
        let mut units: Vec<Unit> = Vec::new();
        let mut spare: Vec<(usize, u32)> = Vec::new();
        for &o in &self.by_site[site] {
            if fits(&free) {
                break;
            }
            let occupant = &self.ground.occupants[o];
            if self.gone[o] || occupant.protected {
                continue;
            }
            let unit = match occupant.gang {
                None => Unit::Pod(o),
                Some(band) if units.contains(&Unit::Band(band)) => continue,
                Some(band) => {
                    let used = spare.iter().find(|(b, _)| *b == band).map_or(0, |&(_, n)| n);
                    if used < self.spare[band] {
                        match spare.iter_mut().find(|(b, _)| *b == band) {
                            Some((_, n)) => *n += 1,
                            None => spare.push((band, 1)),
                        }
                        Unit::Pod(o)
                    } else if self.ground.bands[band].whole.is_some()
                        && self.by_band[band].iter().all(|&m| !self.ground.occupants[m].protected)
                    {
                        // Its pods taken alone so far go with it.
                        units.retain(
                            |unit| !matches!(unit, Unit::Pod(p) if self.ground.occupants[*p].gang == Some(band)),
                        );
                        free = self.free[site].clone();
                        units.push(Unit::Band(band));
                        for unit in &units {
                            self.give(*unit, site, &mut free);
                        }
                        continue;
                    } else {
                        continue;
                    }
                }
            };
            units.push(unit);
            self.give(unit, site, &mut free);
        }
        if !fits(&free) {
            return None;
        }
        // The last ones taken are the most important; spare those that the others make unneeded.
        for i in (0..units.len()).rev() {
            let mut without = self.free[site].clone();
            for (j, unit) in units.iter().enumerate() {
                if j != i {
                    self.give(*unit, site, &mut without);
                }
            }
            if fits(&without) {
                units.remove(i);
            }
        }
        Some(Price {
            highest: units.iter().flat_map(|&unit| self.pods(unit)).map(|o| self.ground.occupants[o].priority).max(),
            pods: units.iter().map(|&unit| self.size(unit)).sum(),
            units,
        })
    }

    /// The unit's occupants that are still there.
    fn pods(&self, unit: Unit) -> Vec<usize> {
        match unit {
            Unit::Pod(o) => vec![o],
            Unit::Band(band) => self.by_band[band].iter().copied().filter(|&o| !self.gone[o]).collect(),
        }
    }

    /// How many pods end with the unit, wherever they are.
    fn size(&self, unit: Unit) -> usize {
        match unit {
            Unit::Pod(_) => 1,
            Unit::Band(band) => self.ground.bands[band].whole.as_ref().map_or(0, Vec::len),
        }
    }

    fn give(&self, unit: Unit, site: usize, free: &mut [i64]) {
        for o in self.pods(unit) {
            let occupant = &self.ground.occupants[o];
            if occupant.site == site {
                add(free, &occupant.requests, 1);
            }
        }
    }

    /// Takes the units; the nodes whose room or prices change.
    fn take(&mut self, units: &[Unit]) -> Vec<usize> {
        let mut touched = Vec::new();
        for &unit in units {
            for o in self.pods(unit) {
                let occupant = &self.ground.occupants[o];
                self.gone[o] = true;
                add(&mut self.free[occupant.site], &occupant.requests, 1);
            }
            let band = match unit {
                Unit::Pod(o) => {
                    self.taken.push(unit);
                    self.ground.occupants[o].gang
                }
                Unit::Band(band) => {
                    self.taken.retain(|t| !matches!(t, Unit::Pod(p) if self.ground.occupants[*p].gang == Some(band)));
                    self.taken.push(unit);
                    Some(band)
                }
            };
            if let Some(band) = band {
                if let Unit::Pod(_) = unit {
                    self.spare[band] = self.spare[band].saturating_sub(1);
                }
                touched.extend(self.by_band[band].iter().map(|&o| self.ground.occupants[o].site));
            }
        }
        touched
    }

    /// Spares, the most important first, every unit without which everyone still fits, perhaps elsewhere.
    fn spare_the_unneeded(&mut self, seats: &[Seats], places: &mut Vec<Vec<usize>>) {
        // Room with the victims gone and nobody placed.
        let mut room: Vec<Vec<i64>> = self.free.clone();
        for (seats, places) in seats.iter().zip(places.iter()) {
            for &site in places {
                add(&mut room[site], &seats.requests, 1);
            }
        }
        let members = |unit: Unit| match unit {
            Unit::Pod(o) => vec![o],
            Unit::Band(band) => self.by_band[band].clone(),
        };
        let importance = |unit: &Unit| members(*unit).iter().map(|&o| self.ground.occupants[o].priority).max();
        let taken = self.taken.clone();
        let key = |i: usize| (importance(&taken[i]), self.size(taken[i]));
        for unit in ordered(taken.len(), &|a, b| key(b).cmp(&key(a))).into_iter().map(|i| taken[i]) {
            let mut less = room.clone();
            for o in members(unit) {
                let occupant = &self.ground.occupants[o];
                add(&mut less[occupant.site], &occupant.requests, -1);
            }
            if let Some(packed) = pack(less.clone(), seats) {
                room = less;
                *places = packed;
                self.taken.retain(|t| *t != unit);
            }
        }
    }

    fn victims(&self) -> Vec<String> {
        let mut uids: Vec<String> = Vec::new();
        for unit in &self.taken {
            match unit {
                Unit::Pod(o) => uids.push(self.ground.occupants[*o].uid.clone()),
                Unit::Band(band) => uids.extend(self.ground.bands[*band].whole.iter().flatten().cloned()),
            }
        }
        uids
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sites(free: &[i64]) -> Vec<Site> {
        free.iter().enumerate().map(|(i, &free)| Site { name: format!("n{i}"), free: vec![free] }).collect()
    }

    fn pod(uid: usize, site: usize, priority: i32, cpu: i64, gang: Option<usize>) -> Occupant {
        Occupant { uid: format!("p{uid}"), site, priority, requests: vec![cpu], gang, protected: false }
    }

    fn seats(count: u32, cpu: i64, sites: usize) -> Vec<Seats> {
        vec![Seats { count, requests: vec![cpu], sites: (0..sites).collect() }]
    }

    fn victims(ground: &Ground, seats: &[Seats]) -> Option<Vec<String>> {
        ground.plan(seats).map(|plan| {
            let mut victims = plan.victims;
            victims.sort();
            victims
        })
    }

    #[test]
    fn everyone_or_nobody() {
        let ground = Ground {
            sites: sites(&[0, 0]),
            occupants: vec![pod(0, 0, 1, 1, None), pod(1, 0, 1, 1, None), pod(2, 1, 1, 1, None)],
            bands: vec![],
        };
        assert_eq!(victims(&ground, &seats(4, 1, 2)), None);
        assert_eq!(victims(&ground, &seats(3, 1, 2)), Some(vec!["p0".into(), "p1".into(), "p2".into()]));
        assert_eq!(victims(&ground, &seats(1, 1, 2)).map(|v| v.len()), Some(1));
        assert_eq!(victims(&ground, &seats(1, 2, 2)), Some(vec!["p0".into(), "p1".into()]));
    }

    #[test]
    fn least_important_first_and_protected_never() {
        let mut ground = Ground {
            sites: sites(&[0, 0]),
            occupants: vec![pod(0, 0, 5, 2, None), pod(1, 1, 1, 1, None), pod(2, 1, 1, 1, None)],
            bands: vec![],
        };
        assert_eq!(victims(&ground, &seats(1, 2, 2)), Some(vec!["p1".into(), "p2".into()]));
        ground.occupants[1].protected = true;
        assert_eq!(victims(&ground, &seats(1, 2, 2)), Some(vec!["p0".into()]));
        ground.occupants[0].protected = true;
        assert_eq!(victims(&ground, &seats(1, 2, 2)), None);
    }

    #[test]
    fn gangs_lose_what_is_above_their_minimum_or_all() {
        let occupants = (0..4).map(|i| pod(i, i % 2, 1, 1, Some(0))).collect::<Vec<_>>();
        let whole = Some((0..5).map(|i| format!("p{i}")).collect::<Vec<_>>());
        let ground = |spare| Ground {
            sites: sites(&[0, 0]),
            occupants: occupants.clone(),
            bands: vec![Band { spare, whole: whole.clone() }],
        };
        assert_eq!(victims(&ground(3), &seats(1, 1, 2)).map(|v| v.len()), Some(1));
        assert_eq!(victims(&ground(0), &seats(1, 1, 2)), whole);
        assert_eq!(victims(&ground(1), &seats(2, 1, 2)), whole);
        let mut fixed = ground(1);
        fixed.bands[0].whole = None;
        assert_eq!(victims(&fixed, &seats(1, 1, 2)).map(|v| v.len()), Some(1));
        assert_eq!(victims(&fixed, &seats(2, 1, 2)), None);
    }

    #[test]
    fn a_lone_pod_is_cheaper_than_a_gang() {
        let ground = Ground {
            sites: sites(&[0, 0]),
            occupants: vec![pod(0, 0, 1, 1, Some(0)), pod(1, 1, 1, 1, None)],
            bands: vec![Band { spare: 0, whole: Some(vec!["p0".into(), "p9".into()]) }],
        };
        assert_eq!(victims(&ground, &seats(1, 1, 2)), Some(vec!["p1".into()]));
    }

    #[test]
    fn room_that_comes_free_needs_no_victim() {
        let ground = Ground { sites: sites(&[4]), occupants: vec![pod(0, 0, 1, 1, None)], bands: vec![] };
        assert_eq!(victims(&ground, &seats(4, 1, 1)), Some(vec![]));
    }

    /// Whether the members fit when the pods in `gone` are evicted.
    fn fits(ground: &Ground, gone: &[bool], seats: &Seats) -> bool {
        let mut places = 0;
        for (i, site) in ground.sites.iter().enumerate() {
            let freed: i64 = ground
                .occupants
                .iter()
                .zip(gone)
                .filter(|(o, gone)| o.site == i && **gone)
                .map(|(o, _)| o.requests[0])
                .sum();
            places += (site.free[0] + freed).max(0) / seats.requests[0];
        }
        places >= i64::from(seats.count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        #[test]
        fn nobody_is_evicted_in_vain(
            free in prop::collection::vec(0i64..4, 1..4),
            pods in prop::collection::vec((0usize..4, 0i32..3, 1i64..4), 0..7),
            count in 1u32..4, cpu in 1i64..4,
        ) {
            let mut occupants: Vec<_> =
                pods.iter().enumerate().map(|(i, &(site, priority, cpu))| pod(i, site % free.len(), priority, cpu, None)).collect();
            occupants.sort_by_key(|o| o.priority);
            let ground = Ground { sites: sites(&free), occupants, bands: vec![] };
            let seats = seats(count, cpu, free.len());
            let everyone = vec![true; ground.occupants.len()];
            match ground.plan(&seats) {
                None => prop_assert!(!fits(&ground, &everyone, &seats[0])),
                Some(plan) => {
                    let gone: Vec<bool> = ground.occupants.iter().map(|o| plan.victims.contains(&o.uid)).collect();
                    prop_assert!(fits(&ground, &gone, &seats[0]));
                    for i in (0..gone.len()).filter(|&i| gone[i]) {
                        let mut fewer = gone.clone();
                        fewer[i] = false;
                        prop_assert!(!fits(&ground, &fewer, &seats[0]), "{} in vain", ground.occupants[i].uid);
                    }
                }
            }
        }

        #[test]
        fn fewest_victims_among_equals(
            free in prop::collection::vec(0i64..3, 1..4),
            sites_of in prop::collection::vec(0usize..4, 0..8),
            count in 1u32..4, cpu in 1i64..4,
        ) {
            let occupants: Vec<_> = sites_of.iter().enumerate().map(|(i, &site)| pod(i, site % free.len(), 0, 1, None)).collect();
            let ground = Ground { sites: sites(&free), occupants, bands: vec![] };
            let seats = seats(count, cpu, free.len());
            let fewest = (0u32..1 << ground.occupants.len())
                .filter(|set| {
                    let gone: Vec<bool> = (0..ground.occupants.len()).map(|i| set >> i & 1 == 1).collect();
                    fits(&ground, &gone, &seats[0])
                })
                .map(u32::count_ones)
                .min();
            let planned = ground.plan(&seats).map(|plan| plan.victims.len() as u32);
            prop_assert_eq!(planned, fewest);
        }
    }
}
