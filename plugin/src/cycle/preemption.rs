//! Room for a whole gang at the cost of pods of lower priority.

use super::room::Open;
use super::{Cycle, Member, PostFilter, Rules, View};
use crate::bridge::{
    Calls, Error, GroupMembers, NodesVictims, Places, PodsEvict, Victim,
    member::State::{Bound, Running, Waiting},
};
use crate::gang::fit::Need;
use crate::gang::hold::{Backoff, Cause};
use crate::gang::membership::GangId;
use crate::gang::preempt::{Band, Ground, Occupant, Seats, Site};
use crate::gang::reason::Reason;
use crate::order::Names;

/// Nodes per page: victims make pages heavy.
const PAGE: u32 = 256;

impl<B: Calls> Cycle<'_, B> {
    /// Evicts whom it takes to fit everyone missing on the open nodes, if that is possible, and has the room kept for them.
    /// `None`: nothing was done.
    pub(super) fn preempt(
        &self,
        member: &Member,
        views: &[View],
        backoff: Backoff,
        need: &Need,
        rules: Rules,
        open: Option<&Open>,
    ) -> Option<PostFilter> {
        let own = &views[0];
        // The least important member says whom the gang may evict.
        let shapes = need.parts.iter().flat_map(|part| &part.shapes);
        let priority = shapes.map(|shape| shape.priority).chain([member.priority]).min().unwrap_or(0);
        let mut seats = need.seats();
        let groups: Vec<String> = views.iter().map(|view| view.id.key()).collect();
        let (mut ground, ending) = self.ground(need, &mut seats, priority, &groups, open).ok()?;
        let (mut seats, uids): (Vec<Seats>, Vec<String>) = seats.into_iter().unzip();
        if rules == Rules::Apart {
            // As if each node had one more thing to give, which each member needs.
            seats.iter_mut().for_each(|seat| seat.requests.push(1));
            ground.sites.iter_mut().for_each(|site| site.free.push(1));
        }
        let plan = ground.plan(&seats)?;
        if plan.victims.is_empty() && ending == 0 {
            // Everyone fits as it is: what kept the pod from its node isn't room.
            return None;
        }
        let places = uids.into_iter().zip(&plan.places).map(|(uid, sites)| Places {
            uid,
            nodes: sites.iter().map(|&site| ground.sites[site].name.clone()).collect(),
        });
        let reply = self
            .bridge
            .pods_evict(PodsEvict {
                places: places.collect(),
                uids: plan.victims,
                preemptor_uid: member.uid.clone(),
                reason: format!("makes room for gang {}", member.gang),
            })
            .ok()?;
        if !reply.evicted.is_empty() {
            self.evicted(&reply);
        }
        let count = u32::try_from(reply.evicted.len()).unwrap_or(u32::MAX).saturating_add(ending);
        if count == 0 {
            return None;
        }
        let reason = Reason::Victims { gang: own.id.clone(), count };
        let until_ms = backoff.until_ms.max(own.state.now_ms);
        self.stand_back(own, Backoff { cause: Cause::Victims, until_ms, ..backoff }, &reason.to_string());
        Some(PostFilter::Evicted(Some(reply.node).filter(|node| !node.is_empty())))
    }

    /// The open nodes that admit any of the seats, what runs there, and how many pods are about to end.
    fn ground(
        &self,
        need: &Need,
        seats: &mut [(Seats, String)],
        priority: i32,
        groups: &[String],
        open: Option<&Open>,
    ) -> Result<(Ground, u32), Error> {
        let mut ground = Ground::default();
        let (mut nodes, mut gangs) = (Names::default(), Names::default());
        let mut ending = 0;
        for (seat, uid) in seats {
            let mut call = NodesVictims {
                uid: uid.clone(),
                resources: need.resources.clone(),
                limit: PAGE,
                priority,
                groups: groups.to_vec(),
                ..NodesVictims::default()
            };
            loop {
                let page = self.bridge.nodes_victims(call.clone())?;
                for node in page.items {
                    if open.is_some_and(|open| !open.has(&node.name)) {
                        continue;
                    }
                    let (site, is_new) = nodes.number(&node.name);
                    seat.sites.push(site);
                    if !is_new {
                        continue;
                    }
                    let mut free = node.free;
                    free.resize(need.resources.len(), 0);
                    if let Some(open) = open {
                        open.leave(&node.name, &need.resources, &mut free);
                    }
                    for victim in node.victims {
                        if victim.terminating {
                            ending += 1;
                            for (free, held) in free.iter_mut().zip(&victim.requests) {
                                *free = free.saturating_add(*held);
                            }
                            continue;
                        }
                        let gang = (!victim.group.is_empty()).then(|| {
                            let (band, is_new) = gangs.number(&victim.group);
                            if is_new {
                                ground.bands.push(self.band(&victim.group, priority));
                            }
                            band
                        });
                        let Victim { uid, priority, requests, protected, .. } = victim;
                        ground.occupants.push(Occupant { uid, site, priority, requests, gang, protected });
                    }
                    ground.sites.push(Site { name: node.name, free });
                }
                if page.next_offset <= call.offset {
                    break;
                }
                call.offset = page.next_offset;
            }
        }
        Ok((ground, ending))
    }

    /// What a victim's gang can lose.
    fn band(&self, key: &str, priority: i32) -> Band {
        let mut whole = Some(Vec::new());
        let mut offset = 0;
        loop {
            let call = GroupMembers { key: key.into(), offset, limit: 0 };
            let Ok(page) = self.bridge.group_members(call) else {
                whole = None;
                break;
            };
            let got = u32::try_from(page.members.len()).unwrap_or(u32::MAX);
            for pod in page.members {
                if matches!(pod.state(), Waiting | Bound | Running) {
                    match &mut whole {
                        Some(uids) if pod.priority < priority => uids.push(pod.uid),
                        _ => whole = None,
                    }
                }
            }
            offset = offset.saturating_add(got);
            if got == 0 || offset >= page.total {
                break;
            }
        }
        // A gang whose minimum is unknown, or is counted per role, is all needed.
        let spare = GangId::from_key(key)
            .and_then(|id| self.view(&id, None).ok())
            .filter(|view| view.spec.roles.is_empty())
            .map_or(0, |view| if view.spec.min == 0 { u32::MAX } else { view.started().saturating_sub(view.spec.min) });
        Band { spare, whole }
    }
}
