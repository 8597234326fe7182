//! Scenarios: what happens to a cluster, and what must come of it.

mod check;
mod format;
mod pattern;

pub use check::{Checker, EventState, Failure, Happening, Observed, PodState};
pub use format::{
    ARRIVE_ANNOTATION, Action, COLLECTIVE_ANNOTATION, Conditions, DURATION_ANNOTATION, Expectation, GROUP_LABEL,
    Moment, START_TIMEOUT_ANNOTATION, Scenario, Step, holds, is_scenario, merge,
};
pub use pattern::{Count, Pattern, Ref};
