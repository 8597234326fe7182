//! The `tutti` command.
fn main() {}
