//! The simulator as a scenario's conditions see it.

use serde_json::Value as Json;

use super::history::History;
use crate::input::duration::Millis;
use crate::input::strict::KINDS;
use crate::scenario::{EventState, Happening, Observed, PodState, Ref};
use crate::scheduler::{ObjectRef, State};

pub(super) struct Watched<'a> {
    pub(super) state: State<'a>,
    pub(super) history: &'a History,
}

impl Observed for Watched<'_> {
    fn pods<'a>(&'a self) -> Box<dyn Iterator<Item = PodState<'a>> + 'a> {
        Box::new(self.state.pods().map(|pod| PodState {
            namespace: pod.key.namespace(),
            name: pod.key.name(),
            node: pod.node,
            phase: pod.phase,
            waiting: pod.waiting,
            message: pod.reason,
            released: pod.released_ms.map(Millis),
        }))
    }

    fn objects(&self, object: &Ref) -> Vec<Json> {
        if object.object.exact().is_some() {
            return self.state.object(&object_ref(object, self.state)).into_iter().collect();
        }
        let pods = self.state.pods().filter(|p| object.matches("Pod", "", p.key.namespace(), p.key.name()));
        pods.filter_map(|p| self.state.object(&ObjectRef::pod(p.key.namespace(), p.key.name()))).collect()
    }

    fn free(&self, node: &str, resource: &str) -> Option<i64> {
        self.state.free(node, resource)
    }

    fn events<'a>(&'a self) -> Box<dyn Iterator<Item = EventState<'a>> + 'a> {
        Box::new(self.state.events().iter().map(|event| EventState {
            time: Millis(event.at_ms),
            kind: &event.regarding.kind,
            group: &event.regarding.group,
            namespace: &event.regarding.namespace,
            name: &event.regarding.name,
            warning: event.r#type == "Warning",
            reason: &event.reason,
            note: &event.note,
        }))
    }

    fn cycles<'a>(&'a self) -> Box<dyn Iterator<Item = Happening<'a>> + 'a> {
        Box::new(self.history.attempts.iter().map(|(time, pod)| happening(*time, pod)))
    }

    fn evictions<'a>(&'a self) -> Box<dyn Iterator<Item = Happening<'a>> + 'a> {
        Box::new(self.history.evictions.iter().map(|(time, pod)| happening(*time, pod)))
    }
}

fn happening(time: Millis, pod: &crate::scheduler::PodKey) -> Happening<'_> {
    Happening { time, namespace: pod.namespace(), name: pod.name() }
}

/// The object that a reference names. Where two APIs share the kind, the one that has such an object.
pub(super) fn object_ref(object: &Ref, state: State<'_>) -> ObjectRef {
    let (namespace, name) = object.object.exact().unwrap_or_default();
    let kinds = KINDS.iter().filter(|k| k.kind.eq_ignore_ascii_case(&object.kind));
    let refs = kinds.map(|kind| {
        let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
        ObjectRef {
            group: group.to_owned(),
            kind: kind.kind.to_owned(),
            namespace: if kind.namespaced { namespace.to_owned() } else { String::new() },
            name: name.to_owned(),
        }
    });
    let refs: Vec<_> = refs.filter(|r| object.group.as_ref().is_none_or(|g| *g == r.group)).collect();
    let there = refs.iter().find(|r| refs.len() == 1 || state.object(r).is_some());
    there.or(refs.first()).cloned().unwrap_or_else(|| ObjectRef {
        group: object.group.clone().unwrap_or_default(),
        kind: object.kind.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}
