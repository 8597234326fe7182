//! Which instance serves which call, as the extension's `pool.go` decides it.

use std::collections::{HashMap, VecDeque};

/// An instance's number.
pub(super) type Id = usize;

/// Instances by what they do. Every instance is in exactly one place.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The one of the scheduling cycle. It stays between cycles until a Permit takes it away.
    scheduling: Option<Id>,
    /// Those of pods past Permit, by uid.
    binding: HashMap<String, Id>,
    free: VecDeque<Id>,
}

impl Pool {
    /// Takes a new instance in.
    pub(super) fn put(&mut self, id: Id) {
        self.free.push_back(id);
    }

    /// The instance for a call outside of a cycle, to be put back; None: start a new one.
    pub(super) fn take(&mut self) -> Option<Id> {
        self.scheduling.take().or_else(|| self.free.pop_front())
    }

    /// The instance for a call of the scheduling cycle; None: start a new one and say so with [`Pool::set_scheduling`].
    pub(super) fn scheduling(&mut self) -> Option<Id> {
        if self.scheduling.is_none() {
            self.scheduling = self.free.pop_front();
        }
        self.scheduling
    }

    /// Makes an instance that of the scheduling cycle.
    pub(super) fn set_scheduling(&mut self, id: Id) {
        self.scheduling = Some(id);
    }

    /// The instance of a pod past Permit. The first call takes the scheduling cycle's; None when there is none, where the
    /// scheduler crashes.
    pub(super) fn bind(&mut self, uid: &str) -> Option<Id> {
        if let Some(&id) = self.binding.get(uid) {
            return Some(id);
        }
        let id = self.scheduling.take()?;
        self.binding.insert(uid.to_owned(), id);
        Some(id)
    }

    /// The pod's cycle is over.
    pub(super) fn free(&mut self, uid: &str) {
        if let Some(id) = self.binding.remove(uid) {
            self.free.push_back(id);
        }
    }

    /// How many instances pods past Permit have.
    pub(super) fn binding(&self) -> usize {
        self.binding.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permit_takes_the_instance_and_free_gives_it_back_in_order() {
        let mut pool = Pool::default();
        pool.put(0);
        assert_eq!(pool.scheduling(), Some(0));
        assert_eq!(pool.scheduling(), Some(0), "it stays between cycles");
        assert_eq!(pool.bind("a"), Some(0));
        assert_eq!(pool.bind("a"), Some(0), "and is the pod's until it is freed");
        assert_eq!(pool.scheduling(), None, "so the next cycle needs a new one");
        pool.set_scheduling(1);
        assert_eq!(pool.bind("b"), Some(1));
        assert_eq!(pool.binding(), 2);
        pool.free("b");
        pool.free("a");
        pool.free("a");
        assert_eq!([pool.take(), pool.take(), pool.take()], [Some(1), Some(0), None], "first freed, first used");
    }

    #[test]
    fn bind_without_an_instance_is_the_schedulers_crash() {
        let mut pool = Pool::default();
        pool.put(0);
        assert_eq!(pool.bind("a"), None, "a free instance is no help");
    }

    #[test]
    fn take_prefers_the_scheduling_instance() {
        let mut pool = Pool::default();
        pool.put(0);
        pool.set_scheduling(1);
        assert_eq!(pool.take(), Some(1));
        assert_eq!(pool.scheduling(), Some(0));
    }
}
