//! The protocol `sandbox-runner/1`, against the program as a process of its own.
//!
//! `SANDBOX_RUNNER_COMMAND` names another build of it with whatever is needed to run that, such as
//! `qemu-aarch64-static target/aarch64-unknown-linux-musl/release/sandbox-bench-microvm-runner`.
#![allow(clippy::unwrap_used, reason = "tests")]

mod archives;
mod boot;
mod commands;
mod ends;
mod files;
mod output;
mod support;
