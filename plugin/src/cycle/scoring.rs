//! Scores of all nodes for one pod, computed once in PreScore.

use super::room::pages;
use super::{Cycle, Member};
use crate::bridge::{Calls, GroupMembers, NodesFree};
use crate::gang::quorum;
use crate::gang::score::{self, Domain};
use crate::order::{Names, ordered};

impl<B: Calls> Cycle<'_, B> {
    /// The score of each node that admits the pod, sorted by name; `None` where there is nothing to say. `request` tells
    /// what the pod asks for, in the bridge's units.
    pub fn scores(&self, member: &Member, request: impl Fn(&str) -> i64) -> Option<Vec<(String, i64)>> {
        if !self.config.scores() {
            return None;
        }
        let topology = self.config.topology_key.as_str();
        let (mut resources, mut weights): (Vec<String>, Vec<u32>) =
            self.config.binpack.iter().map(|(name, &weight)| (name.clone(), weight)).unzip();
        if !topology.is_empty() {
            // What limits how many members a domain takes; without a binpack weight of its own.
            for name in self.requested(member) {
                if !resources.contains(&name) {
                    resources.push(name);
                    weights.push(0);
                }
            }
        }
        let requests: Vec<i64> = resources.iter().map(|name| request(name)).collect();
        let mut call = NodesFree {
            uid: member.uid.clone(),
            resources: resources.clone(),
            with_names: true,
            topology_key: topology.into(),
            ..NodesFree::default()
        };
        let width = resources.len().max(1);
        let mut free: Vec<i64> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut domain_of: Vec<String> = Vec::new();
        pages(self.bridge, call.clone(), |page| {
            free.extend_from_slice(&page.free);
            names.extend_from_slice(&page.names);
            domain_of.extend_from_slice(&page.domains);
            true
        })
        .ok()?;
        let packs = self.config.binpack.values().any(|&weight| weight > 0);
        let mut whole: Vec<i64> = Vec::new();
        if packs {
            call.evict_lower = true;
            call.priority = i32::MAX;
            pages(self.bridge, call, |page| {
                whole.extend_from_slice(&page.free);
                true
            })
            .ok()?;
            if whole.len() != free.len() {
                return None;
            }
        }
        let domains = (!topology.is_empty()).then(|| self.domains(member, &requests, &free, &names, &domain_of));
        let score = |i: usize| {
            let row = i * width..(i + 1) * width;
            let pack = packs.then(|| score::binpack(&weights, &requests, &free[row.clone()], &whole[row]));
            score::together(domains.as_ref().map(|scores| scores[i]), pack)
        };
        let scores: Vec<i64> = (0..names.len()).map(score).collect();
        let by_name = ordered(names.len(), &|a, b| names[a].cmp(&names[b]));
        Some(by_name.into_iter().map(|i| (core::mem::take(&mut names[i]), scores[i])).collect())
    }

    /// Per node, how good its domain is.
    fn domains(
        &self,
        member: &Member,
        requests: &[i64],
        free: &[i64],
        names: &[String],
        domain_of: &[String],
    ) -> Vec<i64> {
        let (mut index, mut nodes) = (Names::default(), Names::default());
        let mut domains: Vec<Domain> = Vec::new();
        let mut at: Vec<usize> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            nodes.number(name);
            let (d, is_new) = index.number(domain_of.get(i).map_or("", String::as_str));
            at.push(d);
            if is_new {
                domains.push(Domain::default());
            }
            let free = free.get(i * requests.len()..).unwrap_or_default();
            let places = free.iter().zip(requests).filter(|(_, request)| **request > 0);
            let places = places.map(|(free, request)| ((*free).max(0) / request).unsigned_abs()).min().unwrap_or(1);
            domains[d].places = domains[d].places.saturating_add(places);
        }
        let mut offset = 0;
        while let Ok(page) = self.bridge.group_members(GroupMembers { key: member.gang.key(), offset, limit: 0 }) {
            for node in page.members.iter().filter_map(|pod| nodes.get(&pod.node)) {
                domains[at[node]].members += 1;
            }
            let got = u32::try_from(page.members.len()).unwrap_or(u32::MAX);
            offset = offset.saturating_add(got);
            if got == 0 || offset >= page.total {
                break;
            }
        }
        // Nodes without the label are near nothing.
        if let Some(none) = index.get("") {
            domains[none] = Domain::default();
        }
        let missing = self.view(&member.gang, Some(member)).map_or(1, |v| quorum::missing(&v.spec, &v.state).total);
        let scores = score::domains(&domains, missing);
        at.into_iter().map(|d| scores[d]).collect()
    }

    /// The resources that the gang's members ask for.
    fn requested(&self, member: &Member) -> Vec<String> {
        let call = crate::bridge::GroupShapes { key: member.gang.key(), uid: member.uid.clone() };
        self.bridge.group_shapes(call).map(|reply| reply.resources).unwrap_or_default()
    }
}
