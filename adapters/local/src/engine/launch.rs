//! Starts helper processes and brings them to the point where their task runs or is done.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::boot::{Failure, HELPER_ARGUMENT, Step, Task};
use super::ids::IdMap;
use super::wire::{Frame, Kind};

/// How to start helpers.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    pub(crate) program: PathBuf,
    pub(crate) ids: IdMap,
}

/// A helper that has answered "ready". Killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

/// Why a helper did not get ready.
#[derive(Debug)]
pub(crate) enum LaunchError {
    /// It said so itself.
    Failed(Failure),
    /// The id map was refused.
    IdMap(io::Error),
    /// It could not be started or did not speak to us.
    Io(io::Error),
    /// It took too long.
    Timeout(Duration),
}

impl Launcher {
    /// Starts a helper, gives it its id map and waits for it to be ready.
    pub(crate) async fn start(&self, task: &Task, log: Option<File>, limit: Duration) -> Result<Process, LaunchError> {
        tokio::time::timeout(limit, self.begin(task, log)).await.unwrap_or(Err(LaunchError::Timeout(limit)))
    }

    /// Starts a helper for a task that ends by itself, and waits for the end.
    pub(crate) async fn run(&self, task: &Task, limit: Duration) -> Result<(), LaunchError> {
        let mut process = self.start(task, None, limit).await?;
        process.child.wait().await.map_err(LaunchError::Io)?;
        Ok(())
    }

    async fn begin(&self, task: &Task, log: Option<File>) -> Result<Process, LaunchError> {
        let mut process = self.spawn(log).map_err(LaunchError::Io)?;
        let task = Frame::json(0, Kind::Task, task).map_err(LaunchError::Io)?;
        // A program that is gone before it has read this shows by its silence.
        let _ = write_frame(&mut process.stdin, &task).await;
        process.expect(Kind::Unshared).await?;
        let pid = process.child.id().ok_or_else(|| LaunchError::Io(io::Error::other("the helper ended")))?;
        self.ids.apply(pid).await.map_err(LaunchError::IdMap)?;
        write_frame(&mut process.stdin, &Frame::new(0, Kind::Mapped, [])).await?;
        process.expect(Kind::Ready).await?;
        Ok(process)
    }

    fn spawn(&self, log: Option<File>) -> io::Result<Process> {
        let mut command = Command::new(&self.program);
        command
            .arg(HELPER_ARGUMENT)
            // Root inside can read the environment of the sandbox's first process, so it must hold nothing.
            .env_clear()
            .envs([("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("LANG", "C.UTF-8")])
            .current_dir("/")
            // Ctrl-C at the terminal is for us to handle.
            .process_group(0)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.map_or_else(Stdio::null, Stdio::from));
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.program.display()));
        let mut child = command.spawn().map_err(named)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("the helper has no pipes"))?;
        Ok(Process { child, stdin, stdout })
    }
}

impl Process {
    async fn expect(&mut self, kind: Kind) -> Result<(), LaunchError> {
        let frame = read_frame(&mut self.stdout).await.map_err(|error| {
            LaunchError::Io(io::Error::new(
                error.kind(),
                format!(
                    "the helper did not answer ({error}); the program that it runs must call \
                     `helper_main_if_requested` first"
                ),
            ))
        })?;
        match frame.kind {
            Kind::Failed => Err(LaunchError::Failed(frame.parse().map_err(LaunchError::Io)?)),
            received if received == kind => Ok(()),
            received => Err(LaunchError::Failed(Failure {
                step: Step::Protocol,
                errno: None,
                message: format!("expected {kind:?}, got {received:?}"),
            })),
        }
    }
}

async fn write_frame(to: &mut ChildStdin, frame: &Frame) -> Result<(), LaunchError> {
    let bytes = frame.encoded().map_err(LaunchError::Io)?;
    to.write_all(&bytes).await.map_err(LaunchError::Io)
}

/// Reads one frame. Not cancel-safe: a frame that was read half-way is lost, so the caller must then stop reading.
pub(crate) async fn read_frame(from: &mut ChildStdout) -> io::Result<Frame> {
    let mut header = [0; super::wire::HEADER];
    from.read_exact(&mut header).await?;
    let (length, channel, kind) = super::wire::parse_header(&header)?;
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    Ok(Frame { channel, kind, payload })
}

/// Our own program, also when its file was replaced or deleted since it was started.
pub(crate) fn own_program() -> OsString {
    "/proc/self/exe".into()
}
