//! The machine that runs the harness, as the manifest describes it.

use std::fs;

use sandbox_bench_core::evidence::Host;

/// Describes this machine.
#[must_use]
pub fn describe() -> Host {
    let uname = rustix::system::uname();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    Host {
        os: pretty.map_or_else(|| std::env::consts::OS.to_owned(), |name| name.trim_matches('"').to_owned()),
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        memory_mb: kib.unwrap_or(0) / 1024,
    }
}
