//! Free room: what the gang needs, whether it's there, and what is kept for the gang that comes first.

use super::{Cycle, Member, View};
use crate::bridge::{Blocked, Calls, Error, GroupBlock, GroupGet, GroupShapes, NodesFree, NodesFreeReply};
use crate::config::Fairness;
use crate::gang::fit::{Need, Nodes, Short};
use crate::gang::membership::GangId;
use crate::gang::preempt::Seats;
use crate::gang::quorum;
use crate::gang::reason::Reason;
use crate::gang::reserve::{Candidate, Reservation};
use crate::order::{Names, ordered};

/// Nodes per page: some tens of KB of reply.
const PAGE: u32 = 1024;

/// Where a gang may go while room is kept for another.
pub(super) struct Open {
    /// Sorted.
    names: Vec<String>,
    /// Whether these aren't all.
    closed: bool,
    kept: Reservation,
}

impl Open {
    /// The names, unless all nodes are open.
    pub(super) fn only(self) -> Option<Vec<String>> {
        self.closed.then_some(self.names)
    }

    pub(super) fn has(&self, node: &str) -> bool {
        self.names.binary_search_by(|name| name.as_str().cmp(node)).is_ok()
    }

    /// Takes what is kept on the node out of its free room.
    pub(super) fn leave(&self, node: &str, resources: &[String], free: &mut [i64]) {
        for (name, free) in resources.iter().zip(free) {
            *free = free.saturating_sub(self.kept.amount(node, name));
        }
    }
}

/// Free room as the bridge tells it.
struct Free<'a, B> {
    bridge: &'a B,
    /// Only there; everywhere where absent.
    open: Option<&'a Open>,
    /// Room held by pods of lower priority than this counts as free.
    evict_below: Option<i32>,
}

impl<B: Calls> Nodes for Free<'_, B> {
    type Error = Error;

    fn each(&mut self, uid: &str, resources: &[String], see: &mut dyn FnMut(&[i64]) -> bool) -> Result<(), Error> {
        let call = NodesFree {
            uid: uid.into(),
            resources: resources.to_vec(),
            with_names: self.open.is_some(),
            evict_lower: self.evict_below.is_some(),
            priority: self.evict_below.unwrap_or(0),
            ..NodesFree::default()
        };
        pages(self.bridge, call, |page| {
            page.free.chunks_exact(resources.len().max(1)).enumerate().all(|(i, free)| {
                match (self.open, page.names.get(i)) {
                    (None, _) => see(free),
                    (Some(open), Some(name)) if open.has(name) => {
                        let mut free = free.to_vec();
                        open.leave(name, resources, &mut free);
                        see(&free)
                    }
                    _ => true,
                }
            })
        })
    }
}

/// Shows `see` page after page until it answers false.
pub(super) fn pages<B: Calls>(
    bridge: &B,
    mut call: NodesFree,
    mut see: impl FnMut(&NodesFreeReply) -> bool,
) -> Result<(), Error> {
    call.limit = PAGE;
    loop {
        let page = bridge.nodes_free(call.clone())?;
        // An offset that doesn't grow would never end.
        if !see(&page) || page.next_offset <= call.offset {
            return Ok(());
        }
        call.offset = page.next_offset;
    }
}

impl<B: Calls> Cycle<'_, B> {
    /// What the missing members of all the gangs ask for.
    pub(super) fn need(&self, views: &[View], member: &Member) -> Result<Need, Error> {
        let mut need = Need::default();
        for view in views {
            let uid = if view.id == member.gang { member.uid.clone() } else { String::new() };
            let shapes = self.bridge.group_shapes(GroupShapes { key: view.id.key(), uid })?;
            need.add(quorum::missing(&view.spec, &view.state), &shapes, &view.spec.min_resources);
        }
        Ok(need)
    }

    /// Whether they could fit.
    pub(super) fn fits(
        &self,
        need: &Need,
        open: Option<&Open>,
        evict_below: Option<i32>,
    ) -> Result<Result<(), Short>, Error> {
        need.check(&mut Free { bridge: self.bridge, open, evict_below })
    }

    /// The gang that comes first, where it's another one than these, comes before them, and could be tried.
    fn ahead(&self, views: &[View], priority: i32) -> Option<Blocked> {
        let own = &views[0];
        let head = own.state.head.as_ref()?;
        if views.iter().any(|view| view.id.key() == head.key) {
            return None;
        }
        // The host's order puts the head before every other blocked gang; one that isn't blocked is younger.
        if own.state.blocked_since_ms == 0 && i64::from(priority) > head.rank {
            return None;
        }
        self.is_alive(head).then(|| head.clone())
    }

    /// Whether the head could be tried at all; if its members have gone it keeps nobody back.
    fn is_alive(&self, head: &Blocked) -> bool {
        let Some(id) = GangId::from_key(&head.key) else { return false };
        self.view(&id, None).is_ok_and(|view| quorum::exists(&view.spec, &view.state).is_ok())
    }

    /// Where the gang keeps clear of the room kept for another; `None` for everywhere.
    ///
    /// # Errors
    /// The gang must wait for its turn.
    pub(super) fn open_nodes(&self, member: &Member, views: &[View]) -> Result<Option<Open>, Box<Reason>> {
        if self.config.fairness == Fairness::None {
            return Ok(None);
        }
        let Some(head) = self.ahead(views, member.priority) else { return Ok(None) };
        if self.config.fairness == Fairness::Strict {
            return Err(Box::new(Reason::behind(&member.gang, &head.key)));
        }
        let kept = Reservation::from_note(&head.note);
        // Without figures nobody is kept off: the head isn't worse off than without fairness.
        let Ok(need) = self.need(views, member) else { return Ok(None) };
        let largest = |name: &String| {
            let column = need.resources.iter().position(|n| n == name)?;
            need.parts.iter().flat_map(|part| &part.shapes).map(|shape| shape.requests[column]).max()
        };
        let requests: Vec<i64> = kept.resources.iter().map(|name| largest(name).unwrap_or(0)).collect();
        Ok(self.clear_of(kept, &member.uid, &requests))
    }

    /// As `open_nodes`, for a pod without a gang.
    pub fn open_nodes_for_plain_pod(
        &self,
        uid: &str,
        priority: i32,
        request: impl Fn(&str) -> i64,
    ) -> Option<Vec<String>> {
        if self.config.fairness == Fairness::None {
            return None;
        }
        let state = self.bridge.group_get(GroupGet::default()).ok()?;
        let head = state.head.filter(|head| head.rank >= i64::from(priority) && self.is_alive(head))?;
        let kept = Reservation::from_note(&head.note);
        let requests: Vec<i64> = kept.resources.iter().map(|name| request(name)).collect();
        self.clear_of(kept, uid, &requests)?.only()
    }

    fn clear_of(&self, kept: Reservation, uid: &str, requests: &[i64]) -> Option<Open> {
        if kept.nodes.is_empty() {
            return None;
        }
        let call =
            NodesFree { uid: uid.into(), resources: kept.resources.clone(), with_names: true, ..NodesFree::default() };
        let (mut open, mut closed) = (Vec::new(), false);
        let seen = pages(self.bridge, call, |page| {
            for (free, name) in page.free.chunks_exact(kept.resources.len()).zip(&page.names) {
                if kept.closes(name, free, requests) {
                    closed = true;
                } else {
                    open.push(name.clone());
                }
            }
            true
        });
        if seen.is_err() {
            return None;
        }
        let by_name = ordered(open.len(), &|a, b| open[a].cmp(&open[b]));
        let names = by_name.into_iter().map(|i| core::mem::take(&mut open[i])).collect();
        Some(Open { names, closed, kept })
    }

    /// Puts the gang in line for room, and keeps room for it if it comes first.
    pub(super) fn block(&self, member: &Member, own: &View, need: &Need) {
        if self.config.fairness == Fairness::None {
            return;
        }
        let (key, rank) = (own.id.key(), i64::from(member.priority));
        let head = own.state.head.as_ref();
        let first = head.is_none_or(|head| head.key == key || head.rank < rank);
        if !first {
            if own.state.blocked_since_ms == 0 {
                let _ = self.bridge.group_block(GroupBlock { key, rank, ..GroupBlock::default() });
            }
            return;
        }
        let before = head.filter(|head| head.key == key).map(|head| Reservation::from_note(&head.note));
        let before = before.unwrap_or_default();
        let Ok(kept) = self.keep(member, need, &before) else { return };
        let Some(kept) = kept else {
            // Not even the empty cluster holds it: it must not keep others back.
            if own.state.blocked_since_ms != 0 {
                self.unblock(own);
            }
            return;
        };
        let since = own.state.blocked_since_ms;
        let turn_is_over =
            since != 0 && own.state.now_ms.saturating_sub(since) > i64::from(self.config.reservation_seconds) * 1000;
        if turn_is_over {
            // It goes to the end of the line.
            self.unblock(own);
        }
        if since == 0 || turn_is_over || kept != before {
            let _ = self.bridge.group_block(GroupBlock { key, clear: false, rank, note: kept.to_note() });
        }
    }

    fn keep(&self, member: &Member, need: &Need, before: &Reservation) -> Result<Option<Reservation>, Error> {
        // Pods of its own priority end too.
        let below = member.priority.saturating_add(1);
        if need.floor.iter().any(|&floor| floor > 0) && self.fits(need, None, Some(below))?.is_err() {
            return Ok(None);
        }
        let mut nodes: Vec<Candidate> = Vec::new();
        let mut index = Names::default();
        let mut seats = need.seats();
        for (seat, uid) in &mut seats {
            for whole in [false, true] {
                let call = NodesFree {
                    uid: uid.clone(),
                    resources: need.resources.clone(),
                    with_names: true,
                    evict_lower: whole,
                    priority: below,
                    ..NodesFree::default()
                };
                pages(self.bridge, call, |page| {
                    for (free, name) in page.free.chunks_exact(need.resources.len().max(1)).zip(&page.names) {
                        let (i, is_new) = index.number(name);
                        if is_new {
                            nodes.push(Candidate { name: name.clone(), free: free.to_vec(), whole: free.to_vec() });
                        }
                        if whole {
                            nodes[i].whole = free.to_vec();
                            seat.sites.push(i);
                        }
                    }
                    true
                })?;
            }
        }
        let seats: Vec<Seats> = seats.into_iter().map(|(seat, _)| seat).collect();
        Ok(Reservation::choose(&need.resources, &seats, &nodes, before))
    }

    pub(super) fn unblock(&self, view: &View) {
        let _ = self.bridge.group_block(GroupBlock { key: view.id.key(), clear: true, ..GroupBlock::default() });
    }
}
