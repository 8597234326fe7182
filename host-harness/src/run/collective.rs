//! Jobs whose pods work only together: the clock of such a job starts when the last of its pods runs, and a controller
//! makes its pods anew when that takes too long.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::agenda::{Agenda, Entry};
use crate::input::duration::Millis;
use crate::scenario::{COLLECTIVE_ANNOTATION, DURATION_ANNOTATION, START_TIMEOUT_ANNOTATION};
use crate::scheduler::{PodKey, Record, What};

/// The name of the collective that a pod belongs to.
pub(super) fn of(object: &Json) -> Option<String> {
    let name = object["metadata"]["annotations"][COLLECTIVE_ANNOTATION].as_str()?;
    let namespace = object["metadata"]["namespace"].as_str()?;
    (object["kind"] == "Pod").then(|| format!("{namespace}/{name}"))
}

#[derive(Debug, Default)]
pub(super) struct Collectives {
    all: BTreeMap<String, Collective>,
    of_pod: BTreeMap<PodKey, String>,
}

#[derive(Debug, Default)]
struct Collective {
    pods: BTreeMap<PodKey, Json>,
    running: BTreeSet<PodKey>,
    work: Option<Millis>,
    start_timeout: Option<Millis>,
    /// When the first of the pods that run now began to.
    first: Option<Millis>,
    /// When it became whole.
    whole: Option<Millis>,
    done: bool,
    /// Times of being whole, for the drawing.
    spells: Vec<(Millis, Option<Millis>)>,
}

impl Collectives {
    pub(super) fn add(&mut self, name: String, object: &Json) {
        let annotation =
            |key: &str| object["metadata"]["annotations"][key].as_str().and_then(|text| Millis::parse(text).ok());
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        let pod = PodKey::new(text("namespace"), text("name"));
        let collective = self.all.entry(name.clone()).or_default();
        collective.work = annotation(DURATION_ANNOTATION).or(collective.work);
        collective.start_timeout = annotation(START_TIMEOUT_ANNOTATION).or(collective.start_timeout);
        collective.pods.insert(pod.clone(), object.clone());
        self.of_pod.insert(pod, name);
    }

    /// Takes note of what happened at this moment.
    pub(super) fn follow(&mut self, records: &[Record], now: Millis, agenda: &mut Agenda) {
        for record in records {
            let (pod, runs) = match &record.what {
                What::Running { pod } => (pod.clone(), true),
                What::Finished { pod, .. } | What::Evicted { pod, .. } => (pod.clone(), false),
                What::Deleted { object } => match object.strip_prefix("pod/").and_then(|o| o.split_once('/')) {
                    Some((namespace, name)) => (PodKey::new(namespace, name), false),
                    None => continue,
                },
                _ => continue,
            };
            let Some(name) = self.of_pod.get(&pod) else { continue };
            let Some(collective) = self.all.get_mut(name) else { continue };
            if collective.done {
                continue;
            }
            if !runs {
                collective.running.remove(&pod);
                collective.stop(now);
                continue;
            }
            collective.running.insert(pod);
            if collective.first.is_none() {
                collective.first = Some(now);
                if let Some(timeout) = collective.start_timeout {
                    agenda.add(Millis(now.0 + timeout.0), Entry::CollectiveLate(name.clone(), now));
                }
            }
            if collective.running.len() == collective.pods.len() && collective.whole.is_none() {
                collective.whole = Some(now);
                collective.spells.push((now, None));
                if let Some(work) = collective.work {
                    agenda.add(Millis(now.0 + work.0), Entry::CollectiveDone(name.clone(), now));
                }
            }
        }
    }

    /// The pods that end now, if the collective has been whole since `start`.
    pub(super) fn done(&mut self, name: &str, start: Millis) -> Vec<PodKey> {
        let Some(collective) = self.all.get_mut(name).filter(|c| c.whole == Some(start)) else { return Vec::new() };
        collective.done = true;
        collective.pods.keys().cloned().collect()
    }

    /// The pods to make anew, if the collective still isn't whole.
    pub(super) fn late(&mut self, name: &str, start: Millis) -> Vec<Json> {
        let Some(collective) = self.all.get_mut(name).filter(|c| c.first == Some(start) && c.whole.is_none()) else {
            return Vec::new();
        };
        collective.running.clear();
        collective.first = None;
        collective.pods.values().cloned().collect()
    }

    pub(super) fn any(&self) -> bool {
        !self.all.is_empty()
    }

    pub(super) fn unfinished(&self) -> bool {
        self.all.values().any(|c| !c.done)
    }

    /// Whether any is whole and at work.
    pub(super) fn working(&self) -> bool {
        self.all.values().any(|c| !c.done && c.whole.is_some())
    }

    /// When the pod's collective was whole: from, to. `None`: the pod works alone.
    pub(super) fn spells(&self, pod: &PodKey) -> Option<&[(Millis, Option<Millis>)]> {
        self.all.get(self.of_pod.get(pod)?).map(|c| c.spells.as_slice())
    }
}

impl Collective {
    /// A pod is gone: whatever was done is lost.
    fn stop(&mut self, now: Millis) {
        if self.whole.take().is_some()
            && let Some((_, end)) = self.spells.last_mut()
        {
            *end = Some(now);
        }
        if self.running.is_empty() {
            self.first = None;
        }
    }
}
