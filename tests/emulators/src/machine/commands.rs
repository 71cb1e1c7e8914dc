//! Commands in a machine.

use super::machines::TOOL_LIMIT;
use super::{Command, End, Machine, MachineError, Running, Stop, User, user};

/// Output kept of the emulator's own commands, in bytes a stream.
const TOOL_OUTPUT: usize = 4 << 20;

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// How.
    pub end: End,
    /// Its deadline ended it.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl Machine {
    /// A command with the machine's environment, directory and user, and all of its output. Change what differs.
    pub fn command<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Command {
        let facts = self.facts();
        Command {
            env: facts.env,
            cwd: facts.workdir,
            user: user(facts.user),
            output_cap: usize::MAX,
            ..Command::new(argv)
        }
    }

    /// Starts a command. Dropping the answer kills the command with its whole tree.
    ///
    /// # Errors
    /// The machine has ended; the command is not one.
    pub fn start(&self, command: Command) -> Result<Running, MachineError> {
        Ok(self.sandbox.exec(command)?)
    }

    /// Runs a command to its end. Its output is kept in memory, as far as the command's cap allows.
    ///
    /// # Errors
    /// The machine has ended; the command is not one.
    pub async fn run(&self, command: Command, stdin: Option<&[u8]>) -> Result<Done, MachineError> {
        let running = self.start(Command { stdin: stdin.is_some(), ..command })?;
        let input = running.input();
        let feed = async {
            if let Some(bytes) = stdin {
                input.send(bytes).await;
                input.end();
            }
        };
        let (output, ()) = tokio::join!(running.output(), feed);
        let (outcome, stdout, stderr) = output?;
        Ok(Done { end: outcome.end, timed_out: outcome.stopped == Some(Stop::Deadline), stdout, stderr })
    }

    /// Runs a `sh` script of the emulator's own as the tool user, with `$1`, `$2`… from `arguments`. Returns standard output.
    ///
    /// # Errors
    /// It did not exit with 0.
    pub async fn tool(&self, script: &str, arguments: &[&str]) -> Result<Vec<u8>, MachineError> {
        self.tool_as(self.tool_user(), script, arguments, None).await
    }

    /// As [`Machine::tool`], with bytes for standard input.
    ///
    /// # Errors
    /// It did not exit with 0.
    pub async fn tool_with(
        &self,
        script: &str,
        arguments: &[&str],
        stdin: Option<&[u8]>,
    ) -> Result<Vec<u8>, MachineError> {
        self.tool_as(self.tool_user(), script, arguments, stdin).await
    }

    pub(super) async fn tool_as(
        &self,
        user: User,
        script: &str,
        arguments: &[&str],
        stdin: Option<&[u8]>,
    ) -> Result<Vec<u8>, MachineError> {
        let argv = ["/bin/sh", "-c", script, "tool"].into_iter().chain(arguments.iter().copied());
        let command = Command { user, timeout: Some(TOOL_LIMIT), output_cap: TOOL_OUTPUT, ..Command::new(argv) };
        let done = self.run(command, stdin).await?;
        match done.end {
            End::Exited(0) => Ok(done.stdout),
            _ => {
                let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                Err(MachineError::Failed { what: script.lines().next().unwrap_or_default().to_owned(), why })
            }
        }
    }
}
