//! Shells and pipes in the machine.

use uuid::Uuid;

use crate::machine::{Machine, MachineError};

/// Becomes the shell that the daemon prefers.
pub(super) const SHELL: &str = r#"exec "$(command -v zsh || command -v bash || echo sh)""#;

/// Named pipes of one command, in a directory of their own.
pub(super) struct Pipes(String);

impl Pipes {
    /// # Errors
    /// The machine has ended, or its disk is full.
    pub(super) async fn make(machine: &Machine, names: &[&str]) -> Result<Pipes, MachineError> {
        let directory = format!("/tmp/.daytona/{}", Uuid::new_v4().simple());
        // Whatever user the commands run as must reach them.
        let script = r#"mkdir -p -m 1777 /tmp/.daytona && mkdir -m 755 "$1" && cd "$1" && shift && mkfifo -m 666 "$@""#;
        let arguments: Vec<&str> = std::iter::once(directory.as_str()).chain(names.iter().copied()).collect();
        machine.tool(script, &arguments).await?;
        Ok(Pipes(directory))
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    pub(super) fn directory(&self) -> &str {
        &self.0
    }

    /// Best effort: they are in `/tmp` of a sandbox that will be destroyed.
    pub(super) async fn remove(&self, machine: &Machine) {
        let _ = machine.tool(r#"rm -rf "$1""#, &[&self.0]).await;
    }
}

/// Whether it can be the name of an environment variable.
pub(super) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte == b'_' || byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}
