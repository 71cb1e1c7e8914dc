//! Machines: what executes behind an emulated sandbox, a sandbox of the `local` engine.

mod commands;
mod connect;
mod files;
mod images;
mod machines;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sandbox_bench_local::engine::{EngineError, EngineSandbox};

pub use sandbox_bench_local::engine::{
    Command, End, Event, Input, Limits, NotStarted, Outcome, Running, Stop, Stream, User,
};

pub use self::commands::Done;
pub use self::images::ImageTable;
pub use self::machines::{MachineOptions, MachineSpec, Machines, Saved, Source};

/// What can go wrong with machines.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The engine's own errors.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The image is one of those that do not exist.
    #[error("image {0} does not exist")]
    NoImage(String),
    /// A command that the emulator ran for itself failed.
    #[error("{what}: {why}")]
    Failed {
        /// What was attempted.
        what: String,
        /// Its standard error.
        why: String,
    },
    /// The path does not exist in the machine.
    #[error("{0}: no such file or directory")]
    NoFile(String),
    /// Something did not happen in time.
    #[error("{what} did not finish within {limit:?}")]
    Timeout {
        /// What.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The host refused something.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What an image says about the commands that run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// Environment of every command.
    pub env: BTreeMap<String, String>,
    /// Working directory of commands that name none; `None` is the user's home.
    pub workdir: Option<String>,
    /// `name[:group]` or numbers; `None` is root.
    pub user: Option<String>,
    /// Program and arguments that `command` is appended to; known of built images alone.
    pub entrypoint: Vec<String>,
    /// What starts with the machine, if the vendor starts it; known of built images alone.
    pub command: Vec<String>,
}

/// A machine. Lives until [`Machines::destroy`], or until its [`Machines`] is dropped.
pub struct Machine {
    pub(crate) sandbox: EngineSandbox,
    facts: Mutex<ImageFacts>,
    tool_user: Mutex<Option<String>>,
}

impl Machine {
    /// Unique among the machines of one [`Machines`].
    pub fn id(&self) -> String {
        self.sandbox.id()
    }

    /// What its commands start with: that of its image and source, then whatever was changed since.
    pub fn facts(&self) -> ImageFacts {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes environment, directory or user of later commands.
    pub fn change_facts(&self, change: impl FnOnce(&mut ImageFacts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// As whom [`Machine::tool`] and the methods for files act; `None`, as at first, is root.
    pub fn set_tool_user(&self, user: Option<String>) {
        *self.tool_user.lock().unwrap_or_else(PoisonError::into_inner) = user;
    }

    fn tool_user(&self) -> User {
        user(self.tool_user.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Ends every process in it and keeps its files.
    ///
    /// # Errors
    /// It has ended.
    pub async fn kill_all(&self) -> Result<(), MachineError> {
        Ok(self.sandbox.kill_all().await?)
    }

    /// Stops all of its processes, or lets them go on.
    ///
    /// # Errors
    /// It has ended.
    pub async fn stop_all(&self, stop: bool) -> Result<(), MachineError> {
        Ok(self.sandbox.stop_all(stop).await?)
    }

    /// CPU time that it has used so far; `None` where no control group counts it.
    pub fn cpu(&self) -> Option<Duration> {
        self.sandbox.usage().cpu
    }

    /// The most memory that it has held at once, in bytes; `None` where no control group counts it.
    pub fn peak_memory(&self) -> Option<u64> {
        self.sandbox.usage().peak_memory
    }

    /// Whether its processes are gone for good.
    pub fn ended(&self) -> bool {
        self.sandbox.ended()
    }
}

/// A user by name; `None` is root.
fn user(name: Option<String>) -> User {
    name.map_or(User::Root, User::Name)
}
