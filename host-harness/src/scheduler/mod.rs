//! A kube-scheduler 1.32 with its API server, under a virtual clock.
//!
//! [`Simulator::push`] says what happens to the cluster and when, [`Simulator::run_until`] lets time pass,
//! [`Simulator::trace`] tells all that happened and [`Simulator::state`] how things stand. The same input and the same
//! seed give the same trace, byte by byte.

mod action;
mod config;
mod plugin;
mod trace;

pub use action::{Action, ObjectRef};
pub use config::SimConfig;
pub use plugin::Plugin;
pub use trace::{Outcome, PodKey, Record, Trace, What};

use std::rc::Rc;

use serde_json::Value as Json;

use crate::bridge::Metric;

/// Starts the plugin, at the start of the simulation and after each restart of the scheduler.
pub type StartPlugin = Rc<dyn Fn() -> Result<Box<dyn Plugin>, String>>;

/// A scheduler, an API server, and a clock.
pub struct Simulator {
    trace: Trace,
}

#[expect(unused_variables, reason = "bodies follow")]
impl Simulator {
    /// An empty cluster at time 0, and a scheduler that has just started.
    ///
    /// # Errors
    /// The plugin doesn't start.
    pub fn new(config: SimConfig, plugin: Option<StartPlugin>) -> Result<Self, String> {
        todo!()
    }

    /// Lets something happen at a time, which must not be in the past. What happens at the same time happens in the order
    /// pushed, before the scheduler does anything at that time.
    pub fn push(&mut self, at_ms: i64, action: Action) {
        todo!()
    }

    /// Lets time pass up to and including this moment.
    pub fn run_until(&mut self, ms: i64) {
        todo!()
    }

    /// The next moment at which anything happens; None: nothing ever will.
    #[must_use]
    pub fn next_event_time(&self) -> Option<i64> {
        todo!()
    }

    /// The clock, in virtual milliseconds since the start.
    #[must_use]
    pub fn now(&self) -> i64 {
        todo!()
    }

    /// All that happened.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// How things stand.
    #[must_use]
    pub fn state(&self) -> State<'_> {
        State { simulator: self }
    }

    /// The plugin, while the scheduler runs: for its memory and fuel.
    #[must_use]
    pub fn plugin(&self) -> Option<&dyn Plugin> {
        todo!()
    }
}

/// How things stand at the simulator's clock.
#[derive(Clone, Copy)]
pub struct State<'a> {
    #[expect(dead_code, reason = "bodies follow")]
    simulator: &'a Simulator,
}

/// A pod that is in the API.
#[derive(Clone, Copy, Debug)]
pub struct PodState<'a> {
    /// Its namespace and name.
    pub key: &'a PodKey,
    /// `metadata.uid`.
    pub uid: &'a str,
    /// `spec.nodeName`, "" for none.
    pub node: &'a str,
    /// `status.phase`.
    pub phase: &'a str,
    /// Whether it is held at Permit: room taken, nothing decided.
    pub waiting: bool,
    /// The node it is held on or assumed to be on, "" for none.
    pub assumed_node: &'a str,
    /// When it was let go to its node (at Permit), virtual milliseconds; None for a pod that hasn't been, or that came
    /// with a node.
    pub released_ms: Option<i64>,
    /// Scheduling cycles so far.
    pub attempts: u32,
    /// Message of the PodScheduled condition, "" for none.
    pub reason: &'a str,
}

/// An event of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventState {
    /// Virtual milliseconds.
    pub at_ms: i64,
    /// What it is about.
    pub regarding: ObjectRef,
    /// `Normal` or `Warning`.
    pub r#type: String,
    /// One word.
    pub reason: String,
    /// The sentence.
    pub note: String,
}

#[expect(unused_variables, clippy::unused_self, reason = "bodies follow")]
impl<'a> State<'a> {
    /// The pods that are in the API, by namespace and name.
    pub fn pods(self) -> impl Iterator<Item = PodState<'a>> {
        std::iter::empty()
    }

    /// Allocatable less what bound and held pods request on a node: milli for cpu, bytes for memory and storage, else
    /// whole. None: no such node.
    #[must_use]
    pub fn free(self, node: &str, resource: &str) -> Option<i64> {
        todo!()
    }

    /// An object as the API shows it. The group may be "" for a kind that only one API has.
    #[must_use]
    pub fn object(self, object: &ObjectRef) -> Option<Json> {
        todo!()
    }

    /// All events so far.
    #[must_use]
    pub fn events(self) -> &'a [EventState] {
        todo!()
    }

    /// What the guest counted and observed, by name and labels.
    #[must_use]
    pub fn metrics(self) -> Vec<(String, std::collections::BTreeMap<String, String>, Metric)> {
        todo!()
    }

    /// Why the scheduler ended for good, if it has: the guest ended its process.
    #[must_use]
    pub fn crashed(self) -> Option<&'a str> {
        todo!()
    }
}
