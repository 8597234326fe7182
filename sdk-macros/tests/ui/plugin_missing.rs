use kube_scheduler_sdk::prelude::*;

struct Gang;

impl FilterPlugin for Gang {
    fn filter(&self, _: &NodeContext) -> Result<(), Status> {
        Ok(())
    }
}

plugin!(Gang: Filter);

fn main() {}
