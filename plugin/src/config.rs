//! The plugin's configuration: the `guestConfig` JSON of the scheduler's configuration file.

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
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_timeout_seconds: 60,
            backoff_base_seconds: 1,
            backoff_max_seconds: 30,
            match_policy: MatchPolicy::default(),
        }
    }
}

impl Config {
    /// Checks what the types don't.
    ///
    /// # Errors
    /// The field, what it says and what it may say.
    pub fn checked(self) -> Result<Self, String> {
        if !(1..=895).contains(&self.default_timeout_seconds) {
            return Err(format!("defaultTimeoutSeconds is {}, not in 1 to 895", self.default_timeout_seconds));
        }
        if !(1..=3600).contains(&self.backoff_base_seconds) {
            return Err(format!("backoffBaseSeconds is {}, not in 1 to 3600", self.backoff_base_seconds));
        }
        if !(self.backoff_base_seconds..=3600).contains(&self.backoff_max_seconds) {
            return Err(format!(
                "backoffMaxSeconds is {}, not in backoffBaseSeconds ({}) to 3600",
                self.backoff_max_seconds, self.backoff_base_seconds
            ));
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
}
