//! The suite against the reference backend: every behaviour can pass.

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::with_reference(sandbox_bench_conformance::run_adapter)
}
