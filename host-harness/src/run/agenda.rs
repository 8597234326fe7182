//! What is still to happen, in order of time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::input::duration::Millis;
use crate::random::Random;
use crate::scenario::{Action, DURATION_ANNOTATION, Step};

/// Something to happen.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// An object comes.
    Create {
        /// The object.
        object: Json,
        /// How long a pod runs.
        runs: Option<Millis>,
    },
    /// An action of a scenario whose patterns are resolved when it happens.
    Step(Action),
    /// A collective that became whole at this time has done its work.
    CollectiveDone(String, Millis),
    /// A collective whose first pod ran at this time should be whole by now.
    CollectiveLate(String, Millis),
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: BTreeMap<(Millis, u64), Entry>,
    count: u64,
    /// Pods that have come or are to come, by namespace and name.
    pods: BTreeSet<(String, String)>,
    /// Pods keep their schedulerName: a configuration says which one is ours.
    keep_scheduler: bool,
}

impl Agenda {
    pub(super) fn new(keep_scheduler: bool) -> Self {
        Self { keep_scheduler, ..Self::default() }
    }

    pub(super) fn add(&mut self, at: Millis, entry: Entry) {
        self.entries.insert((at, self.count), entry);
        self.count += 1;
    }

    pub(super) fn create(&mut self, at: Millis, object: &Json) {
        let mut object = object.clone();
        let mut runs = None;
        if object["kind"] == "Pod" {
            let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
            self.pods.insert((text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"])));
            // Checked when it was read.
            runs = object["metadata"]["annotations"][DURATION_ANNOTATION].as_str().and_then(|t| Millis::parse(t).ok());
            if !self.keep_scheduler
                && let Some(spec) = object["spec"].as_object_mut()
            {
                spec.shift_remove("schedulerName");
            }
        }
        self.add(at, Entry::Create { object, runs });
    }

    /// A step of a scenario, whose time has come down to `at`.
    pub(super) fn step(&mut self, step: &Step, at: Millis, order: u64) {
        let Action::Create(objects) = &step.action else { return self.add(at, Entry::Step(step.action.clone())) };
        let mut objects: Vec<&Json> = objects.iter().collect();
        if step.any_order && order != 0 {
            Random::new(order).shuffle(&mut objects);
        }
        for (i, object) in objects.into_iter().enumerate() {
            let later = step.every.0.saturating_mul(i64::try_from(i).unwrap_or(i64::MAX));
            self.create(Millis(at.0.saturating_add(later)), object);
        }
    }

    pub(super) fn next(&self) -> Option<Millis> {
        self.entries.keys().next().map(|&(at, _)| at)
    }

    /// Takes what is due.
    pub(super) fn due(&mut self, now: Millis) -> Vec<Entry> {
        let later = self.entries.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.entries, later).into_values().collect()
    }

    pub(super) fn pods(&self) -> &BTreeSet<(String, String)> {
        &self.pods
    }
}
