//! What a pod asks of a node.

use std::collections::BTreeMap;

use kube_scheduler_sdk::Quantity;

use super::{Container, Pod};

/// Requests that aren't given are as large as the limits, as the API server fills them in.
pub fn default_requests(pod: &mut Pod) {
    let spec = &mut pod.spec;
    let of_containers = spec.containers.iter_mut().chain(&mut spec.init_containers).map(|c| &mut c.resources);
    for resources in of_containers.chain(&mut spec.resources) {
        for (name, limit) in &resources.limits {
            resources.requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
}

/// The CPU that a container without a request counts as when nodes are compared, in milli.
const DEFAULT_CPU: Quantity = Quantity::from_milli(100);
/// The memory that a container without a request counts as when nodes are compared, in bytes.
const DEFAULT_MEMORY: Quantity = Quantity::from_units(200 << 20);

/// Effective requests of a pod: the sum over its containers and sidecars or, if larger, what some init container needs at
/// its turn together with the sidecars started before it; a request of the pod as a whole replaces that; overhead comes
/// on top.
#[must_use]
pub fn pod_requests(pod: &Pod) -> BTreeMap<String, Quantity> {
    effective(pod, &|container| container_requests(container))
}

/// The same as [`pod_requests`] for cpu (milli) and memory (bytes) alone, where each container without a request counts as
/// 100m and 200Mi: what scores compare.
#[must_use]
pub fn non_zero_requests(pod: &Pod) -> (i64, i64) {
    let requests = effective(pod, &|container| {
        let mut requests = container_requests(container);
        requests.entry("cpu".to_owned()).or_insert(DEFAULT_CPU);
        requests.entry("memory".to_owned()).or_insert(DEFAULT_MEMORY);
        requests
    });
    let of = |name: &str| requests.get(name).copied().unwrap_or(Quantity::ZERO);
    (of("cpu").milli_value(), of("memory").value())
}

fn container_requests(container: &Container) -> BTreeMap<String, Quantity> {
    container.resources.requests.iter().map(|(name, quantity)| (name.clone(), quantity.exact())).collect()
}

fn effective(pod: &Pod, of: &dyn Fn(&Container) -> BTreeMap<String, Quantity>) -> BTreeMap<String, Quantity> {
    let mut total = BTreeMap::new();
    for container in &pod.spec.containers {
        add(&mut total, &of(container));
    }
    let mut sidecars = BTreeMap::new();
    let mut starting = BTreeMap::new();
    for container in &pod.spec.init_containers {
        let mut turn = of(container);
        if container.restart_policy == "Always" {
            add(&mut total, &turn);
            add(&mut sidecars, &turn);
            turn.clone_from(&sidecars);
        } else {
            add(&mut turn, &sidecars);
        }
        max(&mut starting, &turn);
    }
    max(&mut total, &starting);
    if let Some(whole) = &pod.spec.resources {
        for (name, quantity) in &whole.requests {
            if name == "cpu" || name == "memory" {
                total.insert(name.clone(), quantity.exact());
            }
        }
    }
    for (name, quantity) in &pod.spec.overhead {
        *total.entry(name.clone()).or_default() += quantity.exact();
    }
    total
}

fn add(to: &mut BTreeMap<String, Quantity>, from: &BTreeMap<String, Quantity>) {
    for (name, quantity) in from {
        *to.entry(name.clone()).or_default() += *quantity;
    }
}

fn max(to: &mut BTreeMap<String, Quantity>, from: &BTreeMap<String, Quantity>) {
    for (name, quantity) in from {
        let most = to.entry(name.clone()).or_default();
        *most = (*most).max(*quantity);
    }
}
