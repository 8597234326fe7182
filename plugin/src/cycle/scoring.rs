//! Scores of all nodes for one pod, computed once in PreScore.

use std::collections::BTreeMap;

use super::room::pages;
use super::{Cycle, Member};
use crate::bridge::{Calls, GroupMembers, NodesFree};
use crate::gang::quorum;
use crate::gang::score::{self, Domain};

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
        let domains = (!topology.is_empty()).then(|| {
            let mut domains: BTreeMap<String, Domain> = BTreeMap::new();
            for (name, free) in domain_of.iter().zip(free.chunks_exact(width)) {
                let places = (0..resources.len())
                    .filter(|&r| requests[r] > 0)
                    .map(|r| (free[r].max(0) / requests[r]).unsigned_abs())
                    .min();
                let domain = domains.entry(name.clone()).or_default();
                domain.places = domain.places.saturating_add(places.unwrap_or(1));
            }
            // A node without the label is in no domain.
            domains.remove("");
            self.count_members(member, &names, &domain_of, &mut domains);
            let missing = self.view(&member.gang, Some(member)).map_or(1, |v| quorum::missing(&v.spec, &v.state).total);
            score::domains(&domains, missing)
        });
        let mut scores: Vec<(String, i64)> = names
            .into_iter()
            .enumerate()
            .map(|(i, name)| {
                let domain = domains
                    .as_ref()
                    .map(|scores| domain_of.get(i).and_then(|domain| scores.get(domain)).copied().unwrap_or(0));
                let row = |figures: &'_ [i64]| -> Vec<i64> { figures[i * width..(i + 1) * width].to_vec() };
                let pack = packs.then(|| score::binpack(&weights, &requests, &row(&free), &row(&whole)));
                (name, score::together(domain, pack))
            })
            .collect();
        scores.sort_unstable();
        Some(scores)
    }

    /// The resources that the gang's members ask for.
    fn requested(&self, member: &Member) -> Vec<String> {
        let call = crate::bridge::GroupShapes { key: member.gang.key(), uid: member.uid.clone() };
        self.bridge.group_shapes(call).map(|reply| reply.resources).unwrap_or_default()
    }

    fn count_members(
        &self,
        member: &Member,
        names: &[String],
        domain_of: &[String],
        domains: &mut BTreeMap<String, Domain>,
    ) {
        let domain_by_node: BTreeMap<&str, &str> =
            names.iter().map(String::as_str).zip(domain_of.iter().map(String::as_str)).collect();
        let mut offset = 0;
        while let Ok(page) = self.bridge.group_members(GroupMembers { key: member.gang.key(), offset, limit: 0 }) {
            for node in page.members.iter().map(|pod| pod.node.as_str()).filter(|node| !node.is_empty()) {
                if let Some(domain) = domain_by_node.get(node).and_then(|&domain| domains.get_mut(domain)) {
                    domain.members += 1;
                }
            }
            let got = u32::try_from(page.members.len()).unwrap_or(u32::MAX);
            offset = offset.saturating_add(got);
            if got == 0 || offset >= page.total {
                break;
            }
        }
    }
}
