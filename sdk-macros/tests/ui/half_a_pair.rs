use kube_scheduler_sdk::prelude::*;

struct Gang;

impl Plugin for Gang {
    fn new(_: &Config) -> Result<Self, Status> {
        Ok(Self)
    }
}

impl ReservePlugin for Gang {
    fn reserve(&self, _: &NodeContext) -> Result<(), Status> {
        Ok(())
    }
}

plugin!(Gang: Reserve);

fn main() {}
