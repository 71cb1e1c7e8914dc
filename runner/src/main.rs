//! The binary `sandbox-bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The local backend starts this program again as its helper; that must come before anything else, threads above all.
    #[cfg(all(feature = "local", target_os = "linux"))]
    sandbox_bench_registry::local_helper_if_requested();
    sandbox_bench::cli::main()
}
