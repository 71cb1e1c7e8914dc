//! An embedded sandbox: Linux namespaces, overlays and limits, without a daemon and without setuid programs of our own.
//!
//! ```text
//! caller (tokio) ── pipes ── helper ── container process ── agent, PID 1 of the sandbox ── supervisor ── command
//! ```
//! * The **engine** keeps a state directory and starts one **helper** per sandbox: the same program again, with an
//!   empty environment and one thread. The helper enters a user namespace whose id map the engine writes.
//! * [`hakoniwa`] builds the other namespaces and the root; only `helper/container.rs` uses it.
//! * The **agent** serves any number of parallel jobs over the helper's standard input and output (`wire`).
//! * When the caller dies, its end of the pipes closes and the whole tree ends; the state directory stays to be found
//!   by [`Engine::list`] and removed by [`Engine::destroy`].
//!
//! It isolates runs from the host's files, processes and network, and from each other. It is **not a boundary against
//! code that attacks the kernel**.
//!
//! A program that uses the engine calls [`helper_main_if_requested`] first in `main`, or names a helper program in
//! [`EngineOptions`].

mod agent;
mod boot;
mod caches;
mod cgroup;
mod connection;
mod error;
mod factory;
mod ground;
mod helper;
mod host;
mod ids;
mod image;
mod import;
mod job;
mod launch;
mod obstacle;
mod running;
mod sandbox;
mod snapshot;
mod spec;
mod state;
mod sys;
mod transfer;
mod wire;

pub use self::error::{EngineError, Obstacle, Result};
pub use self::factory::{Engine, EngineOptions};
pub use self::image::ImageConfig;
pub use self::import::Imported;
pub use self::job::{Command, End, NotStarted, Outcome, Stop, StreamTotals, TransferFault, User};
pub use self::running::{Event, Input, Running, Stream};
pub use self::sandbox::EngineSandbox;
pub use self::spec::{Base, Enforcement, Facts, LimitReport, Limits, Listed, Network, SandboxConfig, Snapshot, Usage};
pub use self::state::default_state_dir;

/// Becomes the helper, and does not return, if the program was started as one. Call it first in `main`: the helper
/// must have one thread and nothing to lose.
pub fn helper_main_if_requested() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == boot::HELPER_ARGUMENT) {
        std::process::exit(helper::main());
    }
}
