//! Could the missing members find room? A necessary condition: what it refuses can't be placed, what it passes may still
//! fail at Filter.
//!
//! Three bounds, each true of every real placement: no shape gets more places than it fits node by node on its own; no
//! resource gives more than its total; and no node takes more members than would fit if each were as small as the
//! smallest in every resource. With one shape the first bound is exact.

use std::collections::BTreeMap;

use kube_scheduler_sdk::bridge::GroupShapesReply;

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
    /// How much of it the missing members want together.
    pub wanted: i64,
    /// How much of it is free together.
    pub free: i64,
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
            roles: missing.roles.into_iter().map(|(role, n)| (role.clone(), n.min(there(Some(&role))))).collect(),
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
        for r in 0..width {
            let short = |wanted, floor| Short {
                resource: Some(self.resources[r].clone()),
                wanted,
                free: room.free[r],
                missing,
                fitting: missing.saturating_sub(1).min(clamp(room.fitting)),
                role: None,
                floor,
            };
            if room.free[r] < self.floor[r] {
                return Ok(Err(short(self.floor[r], true)));
            }
            if room.free[r] < least[r] {
                return Ok(Err(short(least[r], false)));
            }
        }
        if room.fitting < u64::from(missing) {
            return Ok(Err(room.short(&self.resources, &least, missing, None)));
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
        members.sort_unstable();
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
                let (shape, _, room) = places
                    .iter()
                    .filter(|(shape, want, room)| {
                        role.is_none_or(|role| shape.role == role) && room.fitting < u64::from(*want)
                    })
                    .min_by_key(|(.., room)| room.fitting)?;
                let wanted: Vec<i64> =
                    shape.requests.iter().map(|&request| request.saturating_mul(missing.into())).collect();
                return Some(Short { fitting, ..room.short(resources, &wanted, missing, role) });
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
    /// Places, node by node.
    fitting: u64,
    /// Places if only this resource mattered.
    by_resource: Vec<u64>,
    free: Vec<i64>,
}

impl Room {
    fn new(width: usize) -> Self {
        Self { fitting: 0, by_resource: vec![0; width], free: vec![0; width] }
    }

    fn add(&mut self, free: &[i64], requests: &[i64]) {
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

    fn short(&self, resources: &[String], wanted: &[i64], missing: u32, role: Option<&str>) -> Short {
        let worst = (0..resources.len())
            .filter(|&r| wanted[r] > 0 && self.by_resource[r] < u64::from(missing))
            .min_by_key(|&r| self.by_resource[r]);
        Short {
            resource: worst.map(|r| resources[r].clone()),
            wanted: worst.map_or(0, |r| wanted[r]),
            free: worst.map_or(0, |r| self.free[r]),
            missing,
            fitting: clamp(self.fitting),
            role: role.map(str::to_owned),
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
