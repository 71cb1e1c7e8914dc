//! The runner: plan → trials → evidence. The binary `sandbox-bench` is `cli` and nothing else.
//!
//! * `plan_file`, `plan`, `planned`, `environment`, `ways`: what is to be run, and how, decided before anything is spent;
//! * `warm`, `dispatch`, `trial`: running it;
//! * `fixture`: a small benchmark of execution itself, beside all this;
//! * `solver`, `agent`, `recording`: what does the tasks;
//! * `import`: runs of other programs as runs of ours;
//! * `journal`, `outputs`: what is written down;
//! * `track`: publishing that elsewhere;
//! * `progress`: what a person sees meanwhile.

mod agent;
mod bases;
pub mod cli;
mod config;
mod connect;
mod dispatch;
mod doctor;
mod environment;
mod exit;
mod fixture;
mod hard;
mod host;
mod import;
mod interrupt;
pub mod journal;
pub mod outputs;
mod pack;
mod plan;
mod plan_file;
mod planned;
mod progress;
mod reap;
mod recording;
mod run;
mod say;
#[cfg(test)]
mod schemas;
mod solver;
mod track;
mod trial;
mod warm;
mod ways;

/// The source revision that this program was built from: what `SANDBOX_BENCH_REVISION` said then, or git of a release build in a
/// checkout. None if nobody said it.
fn revision() -> Option<String> {
    option_env!("SANDBOX_BENCH_REVISION").filter(|revision| !revision.is_empty()).map(str::to_owned)
}
