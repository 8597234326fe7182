//! Resources by number, so that adding and comparing them needs no names.

use std::collections::HashMap;

use kube_scheduler_sdk::Quantity;

/// Number of `cpu`, counted in milli.
pub(super) const CPU: usize = 0;
/// Number of `memory`, in bytes.
pub(super) const MEMORY: usize = 1;

/// Gives each resource a number.
#[derive(Debug)]
pub(super) struct Resources {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Default for Resources {
    fn default() -> Self {
        let mut resources = Self { names: Vec::new(), numbers: HashMap::new() };
        for name in ["cpu", "memory", "ephemeral-storage"] {
            resources.number(name);
        }
        resources
    }
}

impl Resources {
    /// The number of a resource; None for one that the scheduler doesn't count.
    pub(super) fn number(&mut self, name: &str) -> Option<usize> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let native = self.names.len() < 3;
        if !native && !name.contains('/') && !name.starts_with("hugepages-") {
            return None;
        }
        self.numbers.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        Some(self.names.len() - 1)
    }

    /// The number of a resource that has one.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    /// The name of a resource.
    pub(super) fn name(&self, number: usize) -> &str {
        &self.names[number]
    }

    /// A quantity in the unit of the resource.
    pub(super) fn amount(number: usize, quantity: Quantity) -> i64 {
        if number == CPU { quantity.milli_value() } else { quantity.value() }
    }
}

/// The amount of a resource in a list by number; what isn't there is nothing.
pub(super) fn at(amounts: &[i64], number: usize) -> i64 {
    amounts.get(number).copied().unwrap_or(0)
}
