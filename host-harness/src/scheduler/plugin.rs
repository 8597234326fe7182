//! The plugin that a simulated scheduler runs beside the in-tree ones.

use std::collections::BTreeMap;

use kube_scheduler_abi::{Action, Export};

use crate::guest::{CallError, FuelUse, Guest, Host, Permit, Pod, PostFilter, PreFilter, Score, Status, Usage};

/// A plugin: a [`Guest`], or anything that answers like one. See the methods of [`Guest`].
#[expect(missing_docs, clippy::missing_errors_doc, reason = "they are those of Guest")]
pub trait Plugin {
    fn implements(&self, point: Export) -> bool;
    fn usage(&self) -> Usage {
        Usage::default()
    }
    fn fuel(&self) -> BTreeMap<Export, FuelUse> {
        BTreeMap::new()
    }
    fn enqueue(&mut self, host: &mut dyn Host) -> Result<Vec<(u32, Action)>, CallError>;
    fn prefilter(&mut self, host: &mut dyn Host, pod: Pod<'_>) -> Result<PreFilter, CallError>;
    fn addpod(&mut self, host: &mut dyn Host, pod: Pod<'_>, other: Pod<'_>, node: &str) -> Result<Status, CallError>;
    fn removepod(&mut self, host: &mut dyn Host, pod: Pod<'_>, other: Pod<'_>, node: &str)
    -> Result<Status, CallError>;
    fn filter(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError>;
    fn postfilter(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        statuses: &BTreeMap<String, i32>,
    ) -> Result<PostFilter, CallError>;
    fn prescore(&mut self, host: &mut dyn Host, pod: Pod<'_>, nodes: &[&str]) -> Result<Status, CallError>;
    fn score(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Score, CallError>;
    fn normalizescore(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        scores: &mut [(String, i64)],
    ) -> Result<Status, CallError>;
    fn reserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError>;
    fn unreserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError>;
    fn permit(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Permit, CallError>;
    fn prebind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError>;
    fn postbind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError>;
}

impl Plugin for Guest {
    fn implements(&self, point: Export) -> bool {
        Self::implements(self, point)
    }
    fn usage(&self) -> Usage {
        Self::usage(self)
    }
    fn fuel(&self) -> BTreeMap<Export, FuelUse> {
        Self::fuel(self).clone()
    }
    fn enqueue(&mut self, host: &mut dyn Host) -> Result<Vec<(u32, Action)>, CallError> {
        Self::enqueue(self, host)
    }
    fn prefilter(&mut self, host: &mut dyn Host, pod: Pod<'_>) -> Result<PreFilter, CallError> {
        Self::prefilter(self, host, pod)
    }
    fn addpod(&mut self, host: &mut dyn Host, pod: Pod<'_>, other: Pod<'_>, node: &str) -> Result<Status, CallError> {
        Self::addpod(self, host, pod, other, node)
    }
    fn removepod(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        other: Pod<'_>,
        node: &str,
    ) -> Result<Status, CallError> {
        Self::removepod(self, host, pod, other, node)
    }
    fn filter(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        Self::filter(self, host, pod, node)
    }
    fn postfilter(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        statuses: &BTreeMap<String, i32>,
    ) -> Result<PostFilter, CallError> {
        Self::postfilter(self, host, pod, statuses)
    }
    fn prescore(&mut self, host: &mut dyn Host, pod: Pod<'_>, nodes: &[&str]) -> Result<Status, CallError> {
        Self::prescore(self, host, pod, nodes)
    }
    fn score(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Score, CallError> {
        Self::score(self, host, pod, node)
    }
    fn normalizescore(
        &mut self,
        host: &mut dyn Host,
        pod: Pod<'_>,
        scores: &mut [(String, i64)],
    ) -> Result<Status, CallError> {
        Self::normalizescore(self, host, pod, scores)
    }
    fn reserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        Self::reserve(self, host, pod, node)
    }
    fn unreserve(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError> {
        Self::unreserve(self, host, pod, node)
    }
    fn permit(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Permit, CallError> {
        Self::permit(self, host, pod, node)
    }
    fn prebind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<Status, CallError> {
        Self::prebind(self, host, pod, node)
    }
    fn postbind(&mut self, host: &mut dyn Host, pod: Pod<'_>, node: &str) -> Result<(), CallError> {
        Self::postbind(self, host, pod, node)
    }
}
