//! Scenarios: what happens to a cluster, and what must come of it.

mod format;
mod pattern;

pub use format::{
    ARRIVE_ANNOTATION, Action, Conditions, DURATION_ANNOTATION, Expectation, GROUP_LABEL, Moment, Scenario, Step, holds,
    is_scenario, merge,
};
pub use pattern::{Count, Pattern, Ref};
