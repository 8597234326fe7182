//! The `tutti` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    host_harness::cli::main()
}
