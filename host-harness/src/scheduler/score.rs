//! The in-tree scores.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::affinity;
use super::core::Core;
use super::filter::{matches_term, tolerates};
use super::node::{NodeId, NodeInfo};
use super::pod::PodInfo;
use super::resource::{CPU, MEMORY, at};
use super::spread;
use crate::objects::Node;

const MAX: i64 = 100;
/// Images below this size in all don't count.
const IMAGE_MIN: i64 = 23 << 20;
/// Images of one container above this size don't count more.
const IMAGE_MAX: i64 = 1000 << 20;

/// The sum of the in-tree scores of each node, each with its weight.
pub(super) fn totals(core: &Core, pod: &PodInfo, nodes: &[NodeId]) -> Vec<i64> {
    let weight = |name: &str, default: i64| core.config.weights.get(name).copied().unwrap_or(default);
    let fit = weight("NodeResourcesFit", 1);
    let balanced = weight("NodeResourcesBalancedAllocation", 1);
    let mut totals = Vec::with_capacity(nodes.len());
    for id in nodes {
        let info = core.node(*id);
        totals.push(fit * least_allocated(pod, info) + balanced * balanced_allocation(pod, info));
    }
    let mut add = |weight: i64, scores: Vec<i64>| {
        totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
    };
    let has_prefer_taint = |id: &NodeId| {
        let node = core.node(*id).node.as_ref();
        node.is_some_and(|n| n.spec.taints.iter().any(|t| t.effect == "PreferNoSchedule"))
    };
    // Where all nodes would have the same score, it decides nothing.
    if nodes.iter().any(has_prefer_taint) {
        add(weight("TaintToleration", 3), taints(core, pod, nodes));
    }
    if let Some(scores) = node_affinity(core, pod, nodes) {
        add(weight("NodeAffinity", 2), scores);
    }
    if let Some(scores) = topology_spread(core, pod, nodes) {
        add(weight("PodTopologySpread", 2), scores);
    }
    if let Some(scores) = pod_affinity(core, pod, nodes) {
        add(weight("InterPodAffinity", 2), scores);
    }
    if !core.image_nodes.is_empty() {
        add(weight("ImageLocality", 1), images(core, pod, nodes));
    }
    totals
}

/// How much of cpu and memory stays free, in percent.
pub(super) fn least_allocated(pod: &PodInfo, info: &NodeInfo) -> i64 {
    let mut sum = 0;
    let mut weights = 0;
    for (resource, request) in [(CPU, pod.non_zero.0), (MEMORY, pod.non_zero.1)] {
        let capacity = at(&info.allocatable, resource);
        if capacity == 0 {
            continue;
        }
        let requested = info.non_zero_request(resource) + request;
        sum += if requested > capacity { 0 } else { (capacity - requested) * MAX / capacity };
        weights += 1;
    }
    if weights == 0 { 0 } else { sum / weights }
}

/// How alike cpu and memory are used.
pub(super) fn balanced_allocation(pod: &PodInfo, info: &NodeInfo) -> i64 {
    let fraction = |resource: usize| {
        let capacity = at(&info.allocatable, resource);
        let requested = at(&info.requested, resource) + pod.request(resource);
        #[expect(clippy::cast_precision_loss, reason = "a share of the capacity")]
        (capacity > 0).then(|| (requested as f64 / capacity as f64).min(1.0))
    };
    let deviation = match (fraction(CPU), fraction(MEMORY)) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "0 to 100, rounded down as upstream")]
    let score = ((1.0 - deviation) * 100.0) as i64;
    score
}

/// Scales scores so that the highest is 100, or (reversed) the lowest.
pub(super) fn normalize(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let scaled = if most == 0 { 0 } else { MAX * *score / most };
        *score = if reverse { MAX - scaled } else { scaled };
    }
}

fn taints(core: &Core, pod: &PodInfo, nodes: &[NodeId]) -> Vec<i64> {
    let tolerations: Vec<_> =
        pod.pod.spec.tolerations.iter().filter(|t| t.effect.is_empty() || t.effect == "PreferNoSchedule").collect();
    let count = |id: &NodeId| {
        let taints = core.node(*id).node.iter().flat_map(|n| &n.spec.taints);
        let unwanted =
            taints.filter(|t| t.effect == "PreferNoSchedule" && !tolerations.iter().any(|o| tolerates(o, t)));
        i64::try_from(unwanted.count()).unwrap_or(i64::MAX)
    };
    let mut scores: Vec<i64> = nodes.iter().map(count).collect();
    normalize(&mut scores, true);
    scores
}

fn node_affinity(core: &Core, pod: &PodInfo, nodes: &[NodeId]) -> Option<Vec<i64>> {
    let affinity = pod.pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.preferred_during_scheduling_ignored_during_execution;
    if terms.is_empty() {
        return None;
    }
    let sum = |id: &NodeId| {
        let matching = |node| terms.iter().filter(move |t| matches_term(&t.preference, node));
        core.node(*id).node.as_deref().map_or(0, |node| matching(node).map(|t| i64::from(t.weight)).sum())
    };
    let mut scores: Vec<i64> = nodes.iter().map(sum).collect();
    normalize(&mut scores, false);
    Some(scores)
}

fn topology_spread(core: &Core, pod: &PodInfo, nodes: &[NodeId]) -> Option<Vec<i64>> {
    const HOSTNAME: &str = "kubernetes.io/hostname";
    let own = !pod.pod.spec.topology_spread_constraints.is_empty();
    let constraints = if own {
        spread::constraints(pod, "ScheduleAnyway")
    } else {
        spread::default_constraints(&core.selectors.of(&pod.pod)?)
    };
    if constraints.is_empty() {
        return None;
    }
    // The defaults also compare nodes that lack a label, as those of a cluster without zones.
    let compared = |node: &Node| !own || spread::has_keys(&constraints, node);
    let domain = |node: &Node, key: &str| node.metadata.labels.get(key).cloned().unwrap_or_default();
    let node_of = |id: &NodeId| core.node(*id).node.as_deref();
    let ignored = |id: &NodeId| !node_of(id).is_some_and(compared);
    let mut domains: Vec<HashMap<String, i64>> = vec![HashMap::new(); constraints.len()];
    for node in nodes.iter().filter_map(node_of).filter(|n| compared(n)) {
        for (constraint, domains) in constraints.iter().zip(&mut domains).filter(|(c, _)| c.key != HOSTNAME) {
            domains.insert(domain(node, &constraint.key), 0);
        }
    }
    for id in &core.order {
        let info = core.node(*id);
        let Some(node) = info.node.as_deref().filter(|n| compared(n)) else { continue };
        for (constraint, domains) in constraints.iter().zip(&mut domains) {
            if constraint.key != HOSTNAME
                && constraint.includes(pod, node)
                && let Some(count) = domains.get_mut(&domain(node, &constraint.key))
            {
                *count += constraint.count(pod, info);
            }
        }
    }
    let feasible = nodes.iter().filter(|id| !ignored(id)).count();
    let mut scores: Vec<Option<i64>> = Vec::with_capacity(nodes.len());
    for id in nodes {
        let info = core.node(*id);
        if ignored(id) {
            scores.push(None);
            continue;
        }
        let mut score = 0.0;
        for (constraint, domains) in constraints.iter().zip(&domains) {
            let Some(value) = info.labels().get(&constraint.key) else { continue };
            let host = constraint.key == HOSTNAME;
            let count = if host { constraint.count(pod, info) } else { domains.get(value).copied().unwrap_or(0) };
            let size = if host { feasible } else { domains.len() };
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            {
                let weight = (size as f64 + 2.0).ln();
                score += count as f64 * weight + (constraint.max_skew - 1) as f64;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded as upstream")]
        scores.push(Some(score.round() as i64));
    }
    let known = || scores.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let scale = |score: Option<i64>| match score {
        None => 0,
        Some(_) if most == 0 => MAX,
        Some(score) => MAX * (most + least - score) / most,
    };
    Some(scores.into_iter().map(scale).collect())
}

fn pod_affinity(core: &Core, pod: &PodInfo, nodes: &[NodeId]) -> Option<Vec<i64>> {
    let affinity = pod.pod.spec.affinity.as_ref();
    let near = affinity.and_then(|a| a.pod_affinity.as_ref());
    let far = affinity.and_then(|a| a.pod_anti_affinity.as_ref());
    let near = near.map_or(&[][..], |a| &a.preferred_during_scheduling_ignored_during_execution);
    let far = far.map_or(&[][..], |a| &a.preferred_during_scheduling_ignored_during_execution);
    let own = !near.is_empty() || !far.is_empty();
    if !own && core.affine_pods == 0 {
        return None;
    }
    let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for id in &core.order {
        let info = core.node(*id);
        if !own && info.with_affinity == 0 {
            continue;
        }
        let Some(node) = info.node.as_deref() else { continue };
        for (_, other) in &info.pods {
            let theirs = other.pod.spec.affinity.as_ref();
            let their_near = theirs.and_then(|a| a.pod_affinity.as_ref());
            let their_far = theirs.and_then(|a| a.pod_anti_affinity.as_ref());
            let preferred = |a: &'_ crate::objects::PodAffinity, sign: i64| {
                let terms = &a.preferred_during_scheduling_ignored_during_execution;
                terms.iter().map(|t| (t.pod_affinity_term.clone(), sign * i64::from(t.weight))).collect::<Vec<_>>()
            };
            let mut count = |owner: &PodInfo, term: &crate::objects::PodAffinityTerm, about: &PodInfo, weight: i64| {
                if affinity::matches(owner, term, about)
                    && let Some((key, value)) = node.metadata.labels.get_key_value(&term.topology_key)
                {
                    *sums.entry((key, value)).or_default() += weight;
                }
            };
            near.iter().for_each(|t| count(pod, &t.pod_affinity_term, other, i64::from(t.weight)));
            far.iter().for_each(|t| count(pod, &t.pod_affinity_term, other, -i64::from(t.weight)));
            // Required affinity of others pulls this pod too, with weight 1.
            other.required_affinity().iter().for_each(|t| count(other, t, pod, 1));
            let theirs = their_near.map(|a| preferred(a, 1)).into_iter().chain(their_far.map(|a| preferred(a, -1)));
            theirs.flatten().for_each(|(term, weight)| count(other, &term, pod, weight));
        }
    }
    if sums.is_empty() {
        return None;
    }
    let sum = |id: &NodeId| {
        let labels = core.node(*id).labels();
        let matching = sums.iter().filter(|((key, value), _)| labels.get(*key).is_some_and(|v| v == value));
        matching.map(|(_, weight)| weight).sum()
    };
    let mut scores: Vec<i64> = nodes.iter().map(sum).collect();
    let (least, most) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    for score in &mut scores {
        *score = if most > least { MAX * (*score - least) / (most - least) } else { 0 };
    }
    Some(scores)
}

fn images(core: &Core, pod: &PodInfo, nodes: &[NodeId]) -> Vec<i64> {
    let spec = &pod.pod.spec;
    let containers = || spec.init_containers.iter().chain(&spec.containers);
    let names: Vec<String> = containers().map(|c| image_name(&c.image)).collect();
    let most = IMAGE_MAX * i64::try_from(names.len().max(1)).unwrap_or(1);
    let all = i64::try_from(core.order.len().max(1)).unwrap_or(1);
    let score = |id: &NodeId| {
        let images = &core.node(*id).images;
        let sum: i64 = names
            .iter()
            .filter_map(|name| {
                let spread = core.image_nodes.get(name).map_or(0, BTreeSet::len);
                images
                    .get(name)
                    .map(|size| i64::try_from(i128::from(*size) * spread as i128 / i128::from(all)).unwrap_or(0))
            })
            .sum();
        MAX * (sum.clamp(IMAGE_MIN, most) - IMAGE_MIN) / (most - IMAGE_MIN)
    };
    nodes.iter().map(score).collect()
}

/// An image with its tag.
fn image_name(image: &str) -> String {
    let tag = image.rfind(':').map_or(-1, |i| i64::try_from(i).unwrap_or(0));
    let slash = image.rfind('/').map_or(-1, |i| i64::try_from(i).unwrap_or(0));
    if tag <= slash { format!("{image}:latest") } else { image.to_owned() }
}
