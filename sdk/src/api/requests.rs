use super::{Container, Pod};
use crate::Quantity;
use crate::wire::{Map, Result};

/// What a pod asks of its node in all, per resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests<'a>(Vec<(&'a str, Quantity)>);

impl<'a> PodRequests<'a> {
    /// Of one resource; zero when the pod asks for none.
    #[must_use]
    pub fn get(&self, resource: &str) -> Quantity {
        self.0.iter().find(|(name, _)| *name == resource).map_or(Quantity::ZERO, |(_, quantity)| *quantity)
    }

    /// Each resource asked for, in the order they came up.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Quantity)> {
        self.0.iter().copied()
    }

    fn entry(&mut self, name: &'a str) -> &mut Quantity {
        let at = self.0.iter().position(|(n, _)| *n == name).unwrap_or_else(|| {
            self.0.push((name, Quantity::ZERO));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn add(&mut self, resources: Map<'a, Quantity>) -> Result<()> {
        for resource in resources {
            let (name, quantity) = resource?;
            *self.entry(name) += quantity;
        }
        Ok(())
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, quantity) in other.iter() {
            let mine = self.entry(name);
            *mine = (*mine).max(quantity);
        }
    }
}

/// What a pod asks of its node, counted as scheduler and kubelet do (`PodRequests` of `k8s.io/component-helpers`):
/// the containers and sidecars together, or the init container that needs most beside the sidecars started before it,
/// whichever is more; in its place the pod's own requests where it states them, for cpu and memory; and the overhead on
/// top. A resize in flight is not counted.
///
/// # Errors
/// The bytes are malformed, or a quantity is.
pub fn pod_requests<'a>(pod: Pod<'a>) -> Result<PodRequests<'a>> {
    let spec = pod.spec()?;
    let requests = |container: Container<'a>| container.resources()?.requests();

    let mut all = PodRequests::default();
    for container in spec.containers()? {
        all.add(requests(container?)?)?;
    }
    let mut sidecars = PodRequests::default();
    let mut most = PodRequests::default();
    for container in spec.init_containers()? {
        let container = container?;
        if container.is_sidecar()? {
            all.add(requests(container)?)?;
            sidecars.add(requests(container)?)?;
            most.raise_to(&sidecars);
        } else {
            let mut beside = sidecars.clone();
            beside.add(requests(container)?)?;
            most.raise_to(&beside);
        }
    }
    all.raise_to(&most);
    if let Some(resources) = spec.resources()? {
        for resource in resources.requests()? {
            let (name, quantity) = resource?;
            if matches!(name, "cpu" | "memory") {
                *all.entry(name) = quantity;
            }
        }
    }
    all.add(spec.overhead()?)?;
    Ok(all)
}
