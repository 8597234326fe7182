//! Room for a whole gang at the cost of pods of lower priority.

use super::{Cycle, Member, PostFilter, View};
use crate::bridge::{
    Calls, Error, GroupMembers, NodesVictims, PodsEvict, Victim,
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
    /// Evicts whom it takes to fit everyone missing, if that is possible. `None`: nothing was done.
    pub(super) fn preempt(&self, member: &Member, own: &View, backoff: Backoff, need: &Need) -> Option<PostFilter> {
        // The least important member says whom the gang may evict.
        let shapes = need.parts.iter().flat_map(|part| &part.shapes);
        let priority = shapes.map(|shape| shape.priority).chain([member.priority]).min().unwrap_or(0);
        let mut seats = need.seats();
        let (ground, ending) = self.ground(need, &mut seats, priority).ok()?;
        let uids: Vec<String> = seats.iter().map(|(_, uid)| uid.clone()).collect();
        let seats: Vec<Seats> = seats.into_iter().map(|(seat, _)| seat).collect();
        let plan = ground.plan(&seats)?;
        let mut count = ending;
        if !plan.victims.is_empty() {
            let reply = self
                .bridge
                .pods_evict(PodsEvict {
                    uids: plan.victims.clone(),
                    preemptor_uid: member.uid.clone(),
                    reason: format!("makes room for gang {}", member.gang),
                })
                .ok()?;
            self.evicted(&reply);
            count = u32::try_from(reply.evicted.len()).unwrap_or(u32::MAX).saturating_add(ending);
        }
        if count == 0 {
            // Everyone fits as it is: what kept the pod from its node isn't room.
            return None;
        }
        let reason = Reason::Victims { gang: own.id.clone(), count };
        let until_ms = backoff.until_ms.max(own.state.now_ms);
        self.stand_back(own, Backoff { cause: Cause::Victims, until_ms, ..backoff }, &reason.to_string());
        // Which of the places is this pod's is known where it stands for its shape, or all are alike.
        let mine = uids.iter().position(|uid| *uid == member.uid).or_else(|| (uids.len() == 1).then_some(0));
        let node = mine.and_then(|s| plan.places[s].first()).map(|&site| ground.sites[site].name.clone());
        Some(PostFilter::Evicted(node))
    }

    /// The nodes that admit any of the seats, what runs there, and how many pods are about to end.
    fn ground(&self, need: &Need, seats: &mut [(Seats, String)], priority: i32) -> Result<(Ground, u32), Error> {
        let mut ground = Ground::default();
        let (mut nodes, mut gangs) = (Names::default(), Names::default());
        let mut ending = 0;
        for (seat, uid) in seats {
            let mut call = NodesVictims {
                uid: uid.clone(),
                resources: need.resources.clone(),
                limit: PAGE,
                priority,
                ..NodesVictims::default()
            };
            loop {
                let page = self.bridge.nodes_victims(call.clone())?;
                for node in page.items {
                    let (site, is_new) = nodes.number(&node.name);
                    seat.sites.push(site);
                    if !is_new {
                        continue;
                    }
                    let mut free = node.free;
                    free.resize(need.resources.len(), 0);
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
