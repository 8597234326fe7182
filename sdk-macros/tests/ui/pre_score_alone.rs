use kube_scheduler_sdk::prelude::*;

struct Gang;

impl Plugin for Gang {
    fn new(_: &Config) -> Result<Self, Status> {
        Ok(Self)
    }
}

plugin!(Gang: PreScore);

fn main() {}
