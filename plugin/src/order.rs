//! Sorting and looking up, with one instance of the code for the whole plugin: a generic sort is some KB for each type.

use core::cmp::Ordering;
use std::collections::BTreeMap;

/// The indices below `n`, in this order; equals keep theirs.
#[must_use]
pub fn ordered(n: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

/// Numbers for names, in the order they come up.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, u32>);

impl Names {
    /// The name's number, and whether it's new.
    pub fn number(&mut self, name: &str) -> (usize, bool) {
        if let Some(&known) = self.0.get(name) {
            return (known as usize, false);
        }
        let number = self.0.len();
        self.0.insert(name.into(), u32::try_from(number).unwrap_or(u32::MAX));
        (number, true)
    }

    /// The name's number, if it has one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<usize> {
        self.0.get(name).map(|&number| number as usize)
    }
}
