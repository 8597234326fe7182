//! Prefers the nodes that already hold the pod's images, as the scheduler's own `ImageLocality` does: the more bytes need
//! no pull, the better, from 23 MiB on, up to 1000 MiB per container.
//!
//! An image counts less when few nodes have it, so that its first holders don't draw every pod.

use std::cell::RefCell;

use kube_scheduler_sdk::prelude::*;

const MIB: i64 = 1024 * 1024;
const WORTH_A_POINT: i64 = 23 * MIB;
const PER_CONTAINER: i64 = 1000 * MIB;

/// The plugin.
#[derive(Debug, Default)]
pub struct ImageLocality {
    cycle: RefCell<Cycle>,
}

/// What PreScore saw. Score runs on the same instance in the same cycle, so it need not read the pod for every node.
#[derive(Debug, Default)]
struct Cycle {
    /// How many nodes there are to choose from.
    nodes: i64,
    /// The image of each container.
    images: Vec<String>,
}

plugin!(ImageLocality: PreScore, Score);

impl Plugin for ImageLocality {
    fn new(_: &Config) -> Result<Self, Status> {
        Ok(Self::default())
    }
}

impl PreScorePlugin for ImageLocality {
    fn pre_score(&self, cx: &PreScoreContext) -> Result<PreScoreResult, Status> {
        let spec = cx.pod()?.spec()?;
        let mut images = Vec::new();
        for container in spec.init_containers()?.chain(spec.containers()?) {
            images.push(container?.image()?.to_owned());
        }
        self.cycle.replace(Cycle { nodes: cx.filtered_nodes()?.len() as i64, images });
        Ok(PreScoreResult::Score)
    }
}

impl ScorePlugin for ImageLocality {
    fn score(&self, cx: &NodeContext) -> Result<i64, Status> {
        let held = cx.node_image_states(cx.node_name()?)?;
        let Cycle { nodes, images } = &*self.cycle.borrow();
        let states = images.iter().filter_map(|image| held.iter().find(|state| same(image, &state.name)));
        let bytes = states.map(|state| state.size / nodes.max(&1) * state.num_nodes.min(*nodes)).sum();
        Ok(rate(bytes, images.len() as i64))
    }
}

/// Bytes that need no pull, as a score.
fn rate(bytes: i64, containers: i64) -> i64 {
    let most = PER_CONTAINER * containers.max(1);
    MAX_NODE_SCORE * (bytes.clamp(WORTH_A_POINT, most) - WORTH_A_POINT) / (most - WORTH_A_POINT)
}

/// Whether a pod's image is one that a node lists: nodes list them with a tag, pods may leave `:latest` out.
fn same(image: &str, listed: &str) -> bool {
    let tagged = image.rfind(':') > image.rfind('/');
    if tagged { image == listed } else { listed.strip_prefix(image) == Some(":latest") }
}

#[cfg(test)]
mod tests {
    use kube_scheduler_sdk::testing::{FakeHost, Guest, container, node, pod};

    use super::*;

    #[test]
    fn the_node_with_the_image_wins() {
        let guest = Guest::<ImageLocality>::new(
            FakeHost::new()
                .node(node("warm").image("registry.example/train:1", 2000 * MIB))
                .node(node("cold").image("registry.example/other:1", 2000 * MIB)),
        );
        let job = pod("job").image("registry.example/train:1");
        assert!(guest.pre_score(&job, &["warm", "cold"]).is_success());
        let (_, warm) = guest.score(&job, "warm");
        let (_, cold) = guest.score(&job, "cold");
        // Half of 2000 MiB, as one of two nodes has it: all that one container can earn.
        assert_eq!((warm, cold), (100, 0));
        let (_, gone) = guest.score(&job, "gone");
        assert_eq!(gone, 0, "a node that just left has no images");
    }

    #[test]
    fn every_container_counts() {
        let guest = Guest::<ImageLocality>::new(FakeHost::new().node(node("n").image("a:latest", 500 * MIB)));
        let job = pod("job").image("a").init_container(&container("init").image("b"));
        assert!(guest.pre_score(&job, &["n"]).is_success());
        assert_eq!(guest.score(&job, "n").1, 100 * (500 - 23) / (2000 - 23));
    }

    #[test]
    fn tags() {
        for (image, listed, expected) in [
            ("nginx", "nginx:latest", true),
            ("nginx", "nginx:1", false),
            ("nginx", "nginx", false),
            ("nginx:1", "nginx:1", true),
            ("host:5000/nginx", "host:5000/nginx:latest", true),
            ("host:5000/nginx:1", "host:5000/nginx:1", true),
            ("nginx@sha256:0", "nginx@sha256:0", true),
        ] {
            assert_eq!(same(image, listed), expected, "{image} {listed}");
        }
    }

    #[test]
    fn rates() {
        for (mib, containers, expected) in
            [(0, 1, 0), (23, 1, 0), (1000, 1, 100), (5000, 1, 100), (1000, 2, 49), (0, 0, 0)]
        {
            assert_eq!(rate(mib * MIB, containers), expected, "{mib} MiB in {containers}");
        }
    }
}
