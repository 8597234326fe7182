//! The plugin's configuration: the `guestConfig` JSON of the scheduler's configuration file.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::gang::hold::BackoffLimits;
use crate::gang::spec::MatchPolicy;

/// All fields have defaults; an unknown one is refused.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// How long members are held where their gang doesn't say. At most 895, which is the scheduler's own limit less a
    /// margin. Default 60.
    pub default_timeout_seconds: u32,
    /// How long a gang stands back after its first failed try; doubles with each. Default 1.
    pub backoff_base_seconds: u32,
    /// The longest a gang stands back, give or take a quarter. Default 30.
    pub backoff_max_seconds: u32,
    /// Which members count where their gang doesn't say: `waiting-and-running` (default), `once-satisfied` or
    /// `only-waiting`.
    pub match_policy: MatchPolicy,
    /// What gangs may do while one of the same or a higher priority waits for room longer: `backfill` (default), `strict`
    /// or `none`.
    pub fairness: Fairness,
    /// Whether room kept for a gang is kept from pods without a gang too; costs a bridge call for each such pod. Default
    /// false.
    pub hold_back_plain_pods: bool,
    /// How long a gang keeps room before the next in line may. Default 1800.
    pub reservation_seconds: u32,
    /// Whether gangs evict pods of lower priority. Default true.
    pub preemption: bool,
    /// Prefer full nodes for gang pods: a weight per resource, e.g. `{"example.com/gpu": 5, "cpu": 1}`. Default off.
    pub binpack: BTreeMap<String, u32>,
    /// Prefer nodes near the gang's other members: the node label that says what is near, e.g.
    /// `topology.kubernetes.io/zone`. Default off.
    pub topology_key: String,
}

/// What gangs behind a blocked one may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fairness {
    /// Start where they take nothing of the room kept for it.
    #[default]
    Backfill,
    /// Wait.
    Strict,
    /// Start wherever there is room.
    None,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_timeout_seconds: 60,
            backoff_base_seconds: 1,
            backoff_max_seconds: 30,
            match_policy: MatchPolicy::default(),
            fairness: Fairness::default(),
            hold_back_plain_pods: false,
            reservation_seconds: 1800,
            preemption: true,
            binpack: BTreeMap::new(),
            topology_key: String::new(),
        }
    }
}

impl Config {
    /// Checks what the types don't.
    ///
    /// # Errors
    /// The field, what it says and what it may say.
    pub fn checked(self) -> Result<Self, String> {
        for (field, value, least, most) in [
            ("defaultTimeoutSeconds", self.default_timeout_seconds, 1, 895),
            ("backoffBaseSeconds", self.backoff_base_seconds, 1, 3600),
            ("backoffMaxSeconds", self.backoff_max_seconds, self.backoff_base_seconds, 3600),
            ("reservationSeconds", self.reservation_seconds, 1, 604_800),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("guestConfig: {field} is {value}, not in {least} to {most}"));
            }
        }
        if self.binpack.values().any(|&weight| weight > 100) {
            return Err("guestConfig: a weight of binpack is above 100".into());
        }
        Ok(self)
    }

    /// The limits of a gang's backoff.
    #[must_use]
    pub fn backoff(&self) -> BackoffLimits {
        BackoffLimits {
            base_ms: u64::from(self.backoff_base_seconds) * 1000,
            max_ms: u64::from(self.backoff_max_seconds) * 1000,
            jitter: true,
        }
    }

    /// Whether Score has anything to say.
    #[must_use]
    pub fn scores(&self) -> bool {
        !self.topology_key.is_empty() || self.binpack.values().any(|&weight| weight > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        kube_scheduler_sdk::json::from_slice::<Config>(text.as_bytes())
            .map_err(|e| e.reason().to_owned())
            .and_then(Config::checked)
    }

    #[test]
    fn fields_and_their_limits() {
        for (text, error) in [
            ("{}", None),
            (r#"{"defaultTimeoutSeconds": 300, "fairness": "strict", "matchPolicy": "only-waiting"}"#, None),
            (r#"{"binpack": {"cpu": 1}, "topologyKey": "zone", "preemption": false}"#, None),
            (r#"{"permitWaitingTimeSeconds": 10}"#, Some("unknown field `permitWaitingTimeSeconds`")),
            (r#"{"defaultTimeoutSeconds": 900}"#, Some("defaultTimeoutSeconds is 900, not in 1 to 895")),
            (r#"{"backoffBaseSeconds": 9, "backoffMaxSeconds": 8}"#, Some("backoffMaxSeconds is 8, not in 9 to 3600")),
            (r#"{"fairness": "fifo"}"#, Some("unknown variant `fifo`")),
            (r#"{"binpack": {"cpu": 101}}"#, Some("above 100")),
            (r"{", Some("line 1 column 2")),
        ] {
            match (parse(text), error) {
                (Ok(_), None) => {}
                (Err(got), Some(want)) => assert!(got.contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, want {want:?}"),
            }
        }
        assert_eq!(parse("{}").unwrap(), Config::default());
    }
}
