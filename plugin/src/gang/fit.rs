//! Could the missing members find room? A necessary condition: what it refuses can't be placed, what it passes may still
//! fail at Filter.
//!
//! Three bounds, each true of every real placement: no shape gets more places than it fits node by node on its own; no
//! resource gives more than its total; and no node takes more members than would fit if each were as small as the
//! smallest in every resource. With one shape the first bound is exact.

use std::collections::BTreeMap;

use kube_scheduler_sdk::bridge::GroupShapesReply;

use crate::order::ordered;

use super::preempt::Seats;
use super::quorum::Missing;

/// Members alike in what they ask of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// One of them, whose node constraints stand for all.
    pub uid: String,
    /// Their role.
    pub role: String,
    /// Their priority.
    pub priority: i32,
    /// How many have no place yet.
    pub unscheduled: u32,
    /// Of one member, in the order of [`Need::resources`].
    pub requests: Vec<i64>,
}

/// One gang's share of a [`Need`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How many of the shapes' members must get a place.
    pub missing: Missing,
    /// Whence they are taken.
    pub shapes: Vec<Shape>,
}

/// What must find room at the same time: one gang, or several linked ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Resource names; figures are in the bridge's units.
    pub resources: Vec<String>,
    /// The gangs.
    pub parts: Vec<Part>,
    /// Room that must be free whatever the members ask, in the order of `resources`.
    pub floor: Vec<i64>,
}

/// Free room, node by node.
pub trait Nodes {
    /// Why it can't be told.
    type Error;

    /// Shows `see` the free room of each node that admits the pod ("" for all nodes), one figure per resource, until it
    /// answers false.
    ///
    /// # Errors
    /// The figures can't be had.
    fn each(&mut self, uid: &str, resources: &[String], see: &mut dyn FnMut(&[i64]) -> bool)
    -> Result<(), Self::Error>;
}

/// What is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The resource that is short most, `None` where the nodes refuse for other reasons.
    pub resource: Option<String>,
    /// How much of it `of` members want together.
    pub wanted: i64,
    /// How much of it is free together on nodes that admit them.
    pub free: i64,
    /// The missing members that it is about: those alike that find the fewest places, or all.
    pub of: u32,
    /// Some node admits them.
    pub admitted: bool,
    /// Members that must find a place.
    pub missing: u32,
    /// At most so many can.
    pub fitting: u32,
    /// The role that is short, where it's one.
    pub role: Option<String>,
    /// It's the gang's minResources, not its members.
    pub floor: bool,
}

impl Need {
    /// Adds a gang: what is missing, its members, and the room its minResources asks for.
    pub fn add(&mut self, missing: Missing, reply: &GroupShapesReply, min_resources: &[(String, i64)]) {
        let columns: Vec<usize> = reply.resources.iter().map(|name| self.column(name)).collect();
        let mut held = vec![0i64; self.resources.len()];
        let mut shapes = Vec::new();
        for shape in &reply.shapes {
            let mut requests = vec![0i64; self.resources.len()];
            for (&column, &request) in columns.iter().zip(&shape.requests) {
                requests[column] = request.max(0);
                held[column] = held[column].saturating_add(requests[column].saturating_mul(shape.placed.into()));
            }
            if shape.unscheduled > 0 {
                shapes.push(Shape {
                    uid: shape.uid.clone(),
                    role: shape.role.clone(),
                    priority: shape.priority,
                    unscheduled: shape.unscheduled,
                    requests,
                });
            }
        }
        for (name, amount) in min_resources {
            let column = self.column(name);
            let own = held.get(column).copied().unwrap_or(0);
            self.floor.resize(self.resources.len(), 0);
            self.floor[column] = self.floor[column].saturating_add(amount.saturating_sub(own).max(0));
        }
        // Counts and shapes are read one after the other; a member that went in between is not missed.
        let there = |role: Option<&str>| {
            shapes
                .iter()
                .filter(|shape| role.is_none_or(|role| shape.role == role))
                .fold(0u32, |sum, shape| sum.saturating_add(shape.unscheduled))
        };
        let missing = Missing {
            total: missing.total.min(there(None)),
            roles: {
                let mut roles = missing.roles;
                roles.iter_mut().for_each(|(role, n)| *n = (*n).min(there(Some(role))));
                roles
            },
        };
        self.parts.push(Part { missing, shapes });
        let width = self.resources.len();
        self.floor.resize(width, 0);
        for shape in self.parts.iter_mut().flat_map(|part| &mut part.shapes) {
            shape.requests.resize(width, 0);
        }
    }

    fn column(&mut self, name: &str) -> usize {
        self.resources.iter().position(|known| known == name).unwrap_or_else(|| {
            self.resources.push(name.into());
            self.resources.len() - 1
        })
    }

    /// How many members must find a place.
    #[must_use]
    pub fn members(&self) -> u32 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.missing.total))
    }

    /// The missing members one by one, in the gangs' order and the oldest first: how many of which shape, and the shape's
    /// uid. Where they may go is left open.
    #[must_use]
    pub fn seats(&self) -> Vec<(Seats, String)> {
        let mut seats = Vec::new();
        for part in &self.parts {
            let mut taken = vec![0u32; part.shapes.len()];
            let wanted = part.missing.roles.iter().map(|(role, &n)| (Some(role), n));
            for (role, wanted) in wanted.chain([(None, part.missing.total)]) {
                let mut left = match role {
                    Some(_) => wanted,
                    None => wanted.saturating_sub(taken.iter().sum()),
                };
                for (shape, taken) in part.shapes.iter().zip(&mut taken) {
                    if role.is_none_or(|role| shape.role == *role) {
                        let n = left.min(shape.unscheduled - *taken);
                        *taken += n;
                        left -= n;
                    }
                }
            }
            for (shape, count) in part.shapes.iter().zip(taken) {
                if count > 0 {
                    let seat = Seats { count, requests: shape.requests.clone(), sites: Vec::new() };
                    seats.push((seat, shape.uid.clone()));
                }
            }
        }
        seats
    }

    /// The least that any choice of the missing members asks of a resource.
    fn least(&self, resource: usize) -> i64 {
        self.parts.iter().map(|part| part.least(resource)).fold(0, i64::saturating_add)
    }

    /// Whether the missing members could find room.
    ///
    /// # Errors
    /// The outer error: the nodes can't be seen. The inner one: what is short.
    pub fn check<N: Nodes>(&self, nodes: &mut N) -> Result<Result<(), Short>, N::Error> {
        let width = self.resources.len();
        for part in &self.parts {
            let mut places = Vec::with_capacity(part.shapes.len());
            for shape in &part.shapes {
                let want = shape.unscheduled.min(part.missing.total);
                let mut room = Room::new(width);
                if want > 0 {
                    nodes.each(&shape.uid, &self.resources, &mut |free| {
                        room.add(free, &shape.requests);
                        room.fitting < u64::from(want)
                    })?;
                }
                places.push((shape, want, room));
            }
            if let Some(short) = part.short(&self.resources, &places) {
                return Ok(Err(short));
            }
        }
        let shapes = || self.parts.iter().flat_map(|part| &part.shapes);
        // One shape: its own bound was exact, and the total follows from it.
        if shapes().nth(1).is_none() && self.floor.iter().all(|&floor| floor == 0) {
            return Ok(Ok(()));
        }
        let smallest: Vec<i64> =
            (0..width).map(|r| shapes().map(|shape| shape.requests[r]).min().unwrap_or(0)).collect();
        let least: Vec<i64> = (0..width).map(|r| self.least(r)).collect();
        let missing = self.members();
        let mut room = Room::new(width);
        nodes.each("", &self.resources, &mut |free| {
            room.add(free, &smallest);
            room.fitting < u64::from(missing) || (0..width).any(|r| room.free[r] < least[r].max(self.floor[r]))
        })?;
        for (r, (&floor, &least)) in self.floor.iter().zip(&least).enumerate() {
            let (wanted, is_floor) = if room.free[r] < floor { (floor, true) } else { (least, false) };
            if room.free[r] < wanted {
                return Ok(Err(Short {
                    resource: Some(self.resources[r].clone()),
                    wanted,
                    free: room.free[r],
                    missing,
                    of: missing,
                    admitted: true,
                    fitting: missing.saturating_sub(1).min(clamp(room.fitting)),
                    role: None,
                    floor: is_floor,
                }));
            }
        }
        if room.fitting < u64::from(missing) {
            return Ok(Err(room.short(&self.resources, &least, missing)));
        }
        Ok(Ok(()))
    }
}

impl Part {
    /// The least that any choice of this gang's missing members asks of a resource: per role the smallest ones, then the
    /// smallest of the rest.
    fn least(&self, resource: usize) -> i64 {
        let mut members: Vec<(i64, u32, &str)> =
            self.shapes.iter().map(|s| (s.requests[resource], s.unscheduled, s.role.as_str())).collect();
        let smallest_first = ordered(members.len(), &|a, b| members[a].cmp(&members[b]));
        members = smallest_first.into_iter().map(|i| members[i]).collect();
        let mut sum = 0i64;
        let mut left = self.missing.total;
        let mut take = |available: &mut u32, wanted: &mut u32, request: i64| {
            let n = (*available).min(*wanted);
            *available -= n;
            *wanted -= n;
            sum = sum.saturating_add(request.saturating_mul(n.into()));
            n
        };
        for (name, &wanted) in &self.missing.roles {
            let mut wanted = wanted;
            for (request, available, role) in &mut members {
                if role == name {
                    left -= take(available, &mut wanted, *request).min(left);
                }
            }
        }
        for (request, available, _) in &mut members {
            take(available, &mut left, *request);
        }
        sum
    }

    fn short(&self, resources: &[String], places: &[(&Shape, u32, Room)]) -> Option<Short> {
        let fitting = |role: Option<&str>| {
            places
                .iter()
                .filter(|(shape, ..)| role.is_none_or(|role| shape.role == role))
                .fold(0u32, |sum, (_, want, room)| sum.saturating_add(clamp(room.fitting).min(*want)))
        };
        let wanted = self.missing.roles.iter().map(|(role, &n)| (Some(role.as_str()), n));
        for (role, missing) in wanted.chain([(None, self.missing.total)]) {
            let fitting = fitting(role);
            if fitting < missing {
                // Named after the shape that finds the fewest places.
                let (shape, want, room) = places
                    .iter()
                    .filter(|(shape, want, room)| {
                        role.is_none_or(|role| shape.role == role) && room.fitting < u64::from(*want)
                    })
                    .min_by_key(|(.., room)| room.fitting)?;
                let of = missing.min(*want);
                let wanted: Vec<i64> =
                    shape.requests.iter().map(|&request| request.saturating_mul(of.into())).collect();
                let role = role.map(str::to_owned);
                return Some(Short { fitting, missing, role, ..room.short(resources, &wanted, of) });
            }
        }
        None
    }
}

fn clamp(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// What a walk over the nodes found for one request.
struct Room {
    /// Some node was seen.
    any: bool,
    /// Places, node by node.
    fitting: u64,
    /// Places if only this resource mattered.
    by_resource: Vec<u64>,
    free: Vec<i64>,
}

impl Room {
    fn new(width: usize) -> Self {
        Self { any: false, fitting: 0, by_resource: vec![0; width], free: vec![0; width] }
    }

    fn add(&mut self, free: &[i64], requests: &[i64]) {
        self.any = true;
        let mut here = u64::MAX;
        for (r, (&free, &request)) in free.iter().zip(requests).enumerate() {
            let free = free.max(0);
            self.free[r] = self.free[r].saturating_add(free);
            if request > 0 {
                let places = if free < request { 0 } else { (free / request).unsigned_abs() };
                self.by_resource[r] = self.by_resource[r].saturating_add(places);
                here = here.min(places);
            }
        }
        self.fitting = self.fitting.saturating_add(here);
    }

    /// What keeps `of` members, who want so much together, from a place.
    fn short(&self, resources: &[String], wanted: &[i64], of: u32) -> Short {
        let worst = (0..resources.len())
            .filter(|&r| self.any && wanted[r] > 0 && self.by_resource[r] < u64::from(of))
            .min_by_key(|&r| self.by_resource[r]);
        Short {
            resource: worst.map(|r| resources[r].clone()),
            wanted: worst.map_or(0, |r| wanted[r]),
            free: worst.map_or(0, |r| self.free[r]),
            of,
            admitted: self.any,
            missing: of,
            fitting: clamp(self.fitting),
            role: None,
            floor: false,
        }
    }
}

/// Free room of nodes kept in a list, for tests and models.
#[derive(Clone, Debug, Default)]
pub struct NodeList {
    /// Per node: free per resource name, and the members it doesn't admit.
    pub nodes: Vec<(BTreeMap<String, i64>, Vec<String>)>,
}

impl Nodes for NodeList {
    type Error = core::convert::Infallible;

    fn each(
        &mut self,
        uid: &str,
        resources: &[String],
        see: &mut dyn FnMut(&[i64]) -> bool,
    ) -> Result<(), Self::Error> {
        for (free, refused) in &self.nodes {
            if refused.iter().any(|r| r == uid) {
                continue;
            }
            let free: Vec<i64> = resources.iter().map(|name| free.get(name).copied().unwrap_or(0)).collect();
            if !see(&free) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESOURCES: [&str; 2] = ["cpu", "gpu"];

    fn shape(role: &str, unscheduled: u32, requests: &[i64]) -> Shape {
        Shape { uid: "u".into(), role: role.into(), priority: 0, unscheduled, requests: requests.to_vec() }
    }

    fn need(parts: Vec<Part>) -> Need {
        Need { resources: RESOURCES.map(String::from).to_vec(), parts, floor: vec![0; 2] }
    }

    fn nodes(free: &[[i64; 2]]) -> NodeList {
        NodeList {
            nodes: free.iter().map(|f| (RESOURCES.map(String::from).into_iter().zip(*f).collect(), vec![])).collect(),
        }
    }

    fn missing(total: u32, roles: &[(&str, u32)]) -> Missing {
        Missing { total, roles: roles.iter().map(|&(role, n)| (role.into(), n)).collect() }
    }

    fn check(need: &Need, nodes: &mut NodeList) -> Result<(), Short> {
        match need.check(nodes) {
            Ok(verdict) => verdict,
            Err(e) => match e {},
        }
    }

    /// Whether some choice of the missing members has some placement: tried out.
    fn placeable(need: &Need, free: &mut [[i64; 2]]) -> bool {
        fn place(need: &Need, chosen: &mut Vec<Vec<u32>>, at: (usize, usize), free: &mut [[i64; 2]]) -> bool {
            let (p, s) = at;
            let Some(part) = need.parts.get(p) else { return true };
            let Some(shape) = part.shapes.get(s) else {
                let enough = chosen[p].iter().sum::<u32>() >= part.missing.total
                    && part.missing.roles.iter().all(|(role, &n)| {
                        let of_role = part.shapes.iter().zip(&chosen[p]).filter(|(shape, _)| shape.role == *role);
                        of_role.map(|(_, &n)| n).sum::<u32>() >= n
                    });
                return enough && place(need, chosen, (p + 1, 0), free);
            };
            if place(need, chosen, (p, s + 1), free) {
                return true;
            }
            if chosen[p][s] == shape.unscheduled {
                return false;
            }
            for n in 0..free.len() {
                if free[n].iter().zip(&shape.requests).all(|(&free, &request)| request == 0 || free >= request) {
                    (0..2).for_each(|r| free[n][r] -= shape.requests[r]);
                    chosen[p][s] += 1;
                    let found = place(need, chosen, at, free);
                    chosen[p][s] -= 1;
                    (0..2).for_each(|r| free[n][r] += shape.requests[r]);
                    if found {
                        return true;
                    }
                }
            }
            false
        }
        let mut chosen = need.parts.iter().map(|part| vec![0; part.shapes.len()]).collect();
        place(need, &mut chosen, (0, 0), free)
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let shape = ("[ab]", 0u32..3, 0i64..4, 0i64..3).prop_map(|(role, n, cpu, gpu)| shape(&role, n, &[cpu, gpu]));
        let part = (prop::collection::vec(shape, 1..3), 0u32..4, 0u32..3).prop_map(|(shapes, total, of_a)| {
            let there = |role: Option<&str>| -> u32 {
                shapes.iter().filter(|s| role.is_none_or(|r| s.role == r)).map(|s| s.unscheduled).sum()
            };
            let of_a = of_a.min(there(Some("a")));
            let total = total.min(there(None)).max(of_a);
            let roles: &[(&str, u32)] = if of_a > 0 { &[("a", of_a)] } else { &[] };
            Part { missing: missing(total, roles), shapes }
        });
        prop::collection::vec(part, 1..3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn never_refuses_what_can_be_placed(
            parts in parts(),
            mut free in prop::collection::vec([-1i64..6, 0i64..4], 1..4),
        ) {
            let need = need(parts);
            let verdict = check(&need, &mut nodes(&free));
            if verdict.is_err() {
                prop_assert!(!placeable(&need, &mut free), "{verdict:?}");
            }
        }

        #[test]
        fn is_exact_for_members_alike(
            unscheduled in 1u32..6, total in 0u32..6, cpu in 0i64..4, gpu in 0i64..3,
            mut free in prop::collection::vec([0i64..6, 0i64..4], 1..4),
        ) {
            let part = Part { missing: missing(total.min(unscheduled), &[]), shapes: vec![shape("", unscheduled, &[cpu, gpu])] };
            let need = need(vec![part]);
            prop_assert_eq!(check(&need, &mut nodes(&free)).is_ok(), placeable(&need, &mut free));
        }
    }

    #[test]
    fn says_what_lacks() {
        let gang = |members, requests: &[i64]| {
            need(vec![Part { missing: missing(members, &[]), shapes: vec![shape("", members, requests)] }])
        };
        let driver = |workers: u32, requests: &[i64]| {
            let shapes = vec![shape("", 1, &[1, 0]), shape("", workers, requests)];
            need(vec![Part { missing: missing(workers + 1, &[]), shapes }])
        };
        type Case<'a> = (Need, &'a [[i64; 2]], Option<(&'a str, i64, i64, u32, u32)>);
        let cases: [Case<'_>; 7] = [
            (gang(3, &[1, 4]), &[[9, 6], [9, 2], [9, 2], [9, 2]], Some(("gpu", 12, 12, 3, 1))),
            (gang(3, &[4, 0]), &[[8, 0], [3, 0]], Some(("cpu", 12, 11, 3, 2))),
            (gang(2, &[4, 0]), &[[8, 0]], None),
            // Either resource fits somewhere, both nowhere: no single one is to blame.
            (gang(1, &[1, 1]), &[[0, 5], [5, 0]], Some(("-", 0, 0, 1, 0))),
            // The driver wants no gpu, so four of the five missing do.
            (driver(4, &[0, 1]), &[[64, 3]], Some(("gpu", 4, 3, 4, 4))),
            (driver(4, &[8, 0]), &[[20, 0]], Some(("cpu", 32, 20, 4, 3))),
            // No node at all.
            (gang(2, &[1, 0]), &[], Some(("-", 0, 0, 2, 0))),
        ];
        for (need, free, want) in cases {
            let got = check(&need, &mut nodes(free)).err();
            let got = got.as_ref().map(|s| (s.resource.as_deref().unwrap_or("-"), s.wanted, s.free, s.of, s.fitting));
            assert_eq!(got, want);
            assert!(got.is_none() || free.is_empty() != check(&need, &mut nodes(free)).unwrap_err().admitted);
        }
    }

    #[test]
    fn minimum_resources_count_the_gangs_own_room() {
        use kube_scheduler_sdk::bridge::Shape as Reply;
        let reply = |unscheduled, placed| GroupShapesReply {
            resources: vec!["cpu".into()],
            shapes: vec![Reply { unscheduled, placed, requests: vec![2], ..Reply::default() }],
        };
        for (placed, free, ok) in [(0, 17, false), (0, 18, true), (3, 12, true), (3, 11, false)] {
            let mut need = Need::default();
            need.add(missing(1, &[]), &reply(1, placed), &[("cpu".into(), 18)]);
            let mut list = NodeList { nodes: vec![([("cpu".into(), free)].into(), vec![])] };
            let verdict = check(&need, &mut list);
            assert_eq!(verdict.is_ok(), ok, "{placed} {free} {verdict:?}");
            assert!(verdict.err().is_none_or(|short| short.floor));
        }
    }
}
