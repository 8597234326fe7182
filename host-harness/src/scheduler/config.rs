//! How to run a simulation.

use std::collections::BTreeMap;

/// How to run a simulation; the defaults are those of kube-scheduler 1.32.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// `schedulerName` of the profile that runs the plugin; pods of no profile are left alone.
    pub scheduler_name: String,
    /// `schedulerName` of each other profile, and whether it runs the plugin too.
    pub other_profiles: BTreeMap<String, bool>,
    /// The plugin's name in the profile.
    pub plugin_name: String,
    /// Weight of each score plugin by its name in the profile; those not named here keep upstream's, the guest's is 1.
    pub weights: BTreeMap<String, i64>,
    /// `percentageOfNodesToScore`; 0 lets it follow the size of the cluster.
    pub percentage_of_nodes_to_score: u32,
    /// Decides between nodes of equal score.
    pub seed: u64,
    /// How long one scheduling cycle keeps the scheduler busy, in virtual milliseconds.
    pub attempt_ms: i64,
    /// How long the API server takes for a binding, in virtual milliseconds.
    pub bind_ms: i64,
    /// The first backoff of a pod, in milliseconds.
    pub backoff_initial_ms: i64,
    /// The longest backoff of a pod, in milliseconds.
    pub backoff_max_ms: i64,
    /// How long a pod stays unschedulable at most until it is tried without an event, in milliseconds.
    pub unschedulable_max_ms: i64,
    /// The moment of virtual time 0, Unix milliseconds.
    pub start_unix_ms: i64,
}

impl SimConfig {
    /// Whether pods of this `schedulerName` are scheduled here.
    pub(super) fn schedules(&self, scheduler_name: &str) -> bool {
        scheduler_name == self.scheduler_name || self.other_profiles.contains_key(scheduler_name)
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            scheduler_name: "default-scheduler".to_owned(),
            other_profiles: BTreeMap::new(),
            plugin_name: "Tutti".to_owned(),
            weights: BTreeMap::new(),
            percentage_of_nodes_to_score: 0,
            seed: 0,
            attempt_ms: 1,
            bind_ms: 1,
            backoff_initial_ms: 1_000,
            backoff_max_ms: 10_000,
            unschedulable_max_ms: 300_000,
            // 2026-01-01T00:00:00Z
            start_unix_ms: 1_767_225_600_000,
        }
    }
}
