//! What the end-to-end tests share. They run the binary as a user does and look at what a user sees: the exit code, the
//! text, the evidence, and what is left on the machine.
//!
//! * [`World`]: a place of its own for each test, and the commands run there;
//! * [`command`], [`processes`]: running them, with a bound on every wait;
//! * [`Emulator`]: an emulated vendor for the backends that are services;
//! * [`task`]: small tasks that the tests write themselves;
//! * [`gateway`]: a chat-completions server with a scripted model;
//! * [`evidence`], [`recount`]: reading a run directory back, without the code that wrote it;
//! * [`shown`]: texts as snapshots, with what differs from run to run taken out.
#![allow(clippy::unwrap_used, reason = "a helper of tests: a surprise is a failed test")]

pub mod command;
pub mod docker;
mod emulator;
pub mod evidence;
pub mod gateway;
pub mod processes;
pub mod recount;
pub mod shown;
pub mod task;
mod world;

pub use command::{Bench, Outcome, Running};
pub use emulator::Emulator;
pub use evidence::RunDir;
pub use task::Task;
pub use world::World;
