//! One command: its process, its end, and what can be asked about it.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep_until, timeout};

use super::children::Children;
use super::output::Output;
use super::request::{JobRequest, Prepared, Stdin};
use crate::refusal::{Answer, Refusal};
use crate::sys::{self, Exit};

/// How long others may hold a command's output open after its end.
const DRAIN: Duration = Duration::from_millis(500);
/// A process that survives SIGKILL is told again after this.
const INSIST: Duration = Duration::from_secs(1);

/// Asked about a job: where in its streams the client is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
}

/// A command.
pub(crate) struct Job {
    pub(crate) id: String,
    /// Digest of the request that made it.
    pub(crate) request: [u8; 32],
    directory: PathBuf,
    started_ms: u64,
    begun: Instant,
    stdout: Arc<Output>,
    stderr: Arc<Output>,
    state: Mutex<State>,
    changes: watch::Sender<()>,
    signals: mpsc::UnboundedSender<i32>,
}

#[derive(Debug, Default)]
struct State {
    /// The process; none before it is started, and once it is reaped.
    leader: Option<i32>,
    /// Why it is being ended, if it is.
    ending: Option<Ending>,
    end: Option<End>,
    writers_left: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    TimedOut,
    Killed,
}

#[derive(Debug, Clone)]
struct End {
    at_ms: u64,
    duration: Duration,
    exit: Result<Exit, String>,
}

impl Job {
    /// Starts the command. A program that cannot be started is a job too, whose state says so.
    ///
    /// # Errors
    /// 429 if there are no threads for it, 500 if its output cannot be kept.
    pub(crate) fn start(
        id: String,
        digest: [u8; 32],
        request: &JobRequest,
        prepared: Prepared,
        (directory, children): (PathBuf, &Arc<Children>),
    ) -> Answer<Arc<Self>> {
        let kept = |e: io::Error| Refusal::internal(format!("output of commands cannot be kept: {e}"));
        fs::create_dir_all(&directory).map_err(kept)?;
        let changes = watch::Sender::new(());
        let output = |name: &str| {
            Output::new(&directory.join(name), prepared.max_output, request.keep, changes.clone()).map(Arc::new)
        };
        let (stdout, stderr) = (output("stdout").map_err(kept)?, output("stderr").map_err(kept)?);
        let (signals, asked) = mpsc::unbounded_channel();
        let job = Arc::new(Self {
            id,
            request: digest,
            directory,
            started_ms: now_ms(),
            begun: Instant::now(),
            stdout,
            stderr,
            state: Mutex::default(),
            changes,
            signals,
        });
        let limits = (prepared.timeout, prepared.grace);
        match job.spawn(prepared, children) {
            Ok(ended) => drop(tokio::spawn(job.clone().supervise(ended, asked, limits))),
            Err(Failed::Program(error)) => job.over(Err(error.to_string()), true),
            Err(Failed::Machine(error)) => {
                job.forget();
                return Err(Refusal::busy(format!("a command cannot be started now: {error}")));
            }
        }
        Ok(job)
    }

    /// Starts the process and the threads that drain its output and wait for its end.
    fn spawn(
        self: &Arc<Self>,
        prepared: Prepared,
        children: &Arc<Children>,
    ) -> Result<oneshot::Receiver<Exit>, Failed> {
        let Prepared { mut command, stdin, .. } = prepared;
        let pipe = |output: &Arc<Output>| -> Result<Stdio, Failed> {
            let (reader, writer) = io::pipe().map_err(Failed::Machine)?;
            let output = output.clone();
            thread::Builder::new().spawn(move || output.drain(reader)).map_err(Failed::Machine)?;
            Ok(writer.into())
        };
        command.stdout(pipe(&self.stdout)?).stderr(pipe(&self.stderr)?);
        command.stdin(match stdin {
            Stdin::Bytes(bytes) => given(&bytes).map_err(Failed::Machine)?.into(),
            Stdin::File(file) => file.into(),
            Stdin::Nothing => Stdio::null(),
        });
        // It is there before the process is, so that no process is without one who waits for it.
        let (started, start) = std::sync::mpsc::channel();
        let (sender, ended) = oneshot::channel();
        let (job, reaped) = (self.clone(), children.clone());
        thread::Builder::new()
            .spawn(move || {
                if let Ok(pid) = start.recv() {
                    // Nobody listens when the runner itself ends.
                    let _ = sender.send(job.wait(pid, &reaped));
                }
            })
            .map_err(Failed::Machine)?;
        let pid = children.spawn(&mut command).map_err(Failed::Program)?;
        self.state().leader = Some(pid);
        // The thread waits for it.
        let _ = started.send(pid);
        Ok(ended)
    }

    /// Waits for the process, on a thread of its own, and reaps it. If it was to end, its group ends with it; until it is
    /// reaped no other group can have its number.
    fn wait(&self, pid: i32, children: &Children) -> Exit {
        if let Err(error) = sys::await_end(pid) {
            eprintln!("sandbox-runner: job {}: waiting failed: {error}", self.id);
        }
        let mut state = self.state();
        if state.ending.is_some() {
            sys::signal_group(pid, libc::SIGKILL);
        }
        state.leader = None;
        children.reap(pid).unwrap_or_default()
    }

    async fn supervise(
        self: Arc<Self>,
        mut ended: oneshot::Receiver<Exit>,
        mut asked: mpsc::UnboundedReceiver<i32>,
        (limit, grace): (Duration, Duration),
    ) {
        let deadline = self.begun + limit;
        let (mut passed, mut force) = (false, None);
        let exit = loop {
            tokio::select! {
                exit = &mut ended => break exit.map_err(|_| "its end was not seen".to_owned()),
                () = sleep_until(deadline.into()), if !passed => {
                    passed = true;
                    self.end_by(Ending::TimedOut, libc::SIGTERM);
                    force.get_or_insert_with(|| Instant::now() + grace);
                }
                Some(signal) = asked.recv() => {
                    if ends(signal) {
                        self.end_by(Ending::Killed, signal);
                        force.get_or_insert_with(|| Instant::now() + grace);
                    } else {
                        self.signal(signal);
                    }
                }
                () = sleep_until(force.unwrap_or(deadline).into()), if force.is_some() => {
                    self.signal(libc::SIGKILL);
                    force = Some(Instant::now() + INSIST);
                }
            }
        };
        self.over(exit, false);
        let mut changes = self.changes.subscribe();
        let drained = async {
            while !(self.stdout.closed() && self.stderr.closed()) {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        // Whoever still holds the output open goes on without being heard.
        let _ = timeout(DRAIN, drained).await;
        let open = [self.stdout.close(), self.stderr.close()];
        self.state().writers_left = open.contains(&true);
        self.changes.send_replace(());
    }

    fn over(&self, exit: Result<Exit, String>, close: bool) {
        self.state().end = Some(End { at_ms: now_ms(), duration: self.begun.elapsed(), exit });
        if close {
            self.stdout.close();
            self.stderr.close();
        }
        self.changes.send_replace(());
    }

    fn end_by(&self, why: Ending, signal: i32) {
        self.state().ending.get_or_insert(why);
        self.signal(signal);
    }

    fn signal(&self, signal: i32) {
        if let Some(leader) = self.state().leader {
            sys::signal_group(leader, signal);
        }
    }

    /// Sends the process group a signal; one that asks it to end is followed by SIGKILL. Nothing, once it has ended.
    pub(crate) fn kill(&self, signal: i32) {
        // After the end nobody receives it.
        let _ = self.signals.send(signal);
    }

    /// Ends its process group by force, without waiting for that.
    pub(crate) fn end_now(&self) {
        self.end_by(Ending::Killed, libc::SIGKILL);
    }

    /// When it ended, by the wall clock in milliseconds; none while it runs.
    pub(crate) fn ended_ms(&self) -> Option<u64> {
        self.state().end.as_ref().map(|end| end.at_ms)
    }

    pub(crate) fn running(&self) -> bool {
        self.state().end.is_none()
    }

    /// Removes what it has on disk.
    pub(crate) fn forget(&self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("sandbox-runner: job {}: its output stays: {error}", self.id);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, at most for `wait`, until there is something that the client has not seen.
    pub(crate) async fn news(&self, position: Position, wait: Duration) {
        let mut changes = self.changes.subscribe();
        let was_running = self.running();
        let news = async {
            loop {
                let output = self.stdout.has_bytes(position.stdout) || self.stderr.has_bytes(position.stderr);
                let over = !self.running();
                let closed = self.stdout.closed() && self.stderr.closed();
                if output || over && (was_running || closed) || changes.changed().await.is_err() {
                    break;
                }
            }
        };
        // Nothing new is an answer too.
        let _ = timeout(wait, news).await;
    }

    /// All but the output.
    pub(crate) fn summary(&self) -> Value {
        let state = self.state();
        let name = match (&state.end, state.ending) {
            (None, _) => "running",
            (Some(End { exit: Err(_), .. }), _) => "failed_to_start",
            (Some(_), Some(Ending::TimedOut)) => "timed_out",
            (Some(_), Some(Ending::Killed)) => "killed",
            (Some(_), None) => "exited",
        };
        let end = state.end.as_ref();
        let exit = end.and_then(|end| end.exit.as_ref().ok());
        let code = exit.and_then(|exit| exit.code).filter(|_| state.ending != Some(Ending::TimedOut));
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        json!({
            "job_id": self.id,
            "state": name,
            "exit_code": code,
            "signal": exit.and_then(|exit| exit.signal),
            "error": end.and_then(|end| end.exit.as_ref().err()),
            "started_ms": self.started_ms,
            "finished_ms": end.map(|end| end.at_ms),
            "duration_ms": end.map(|end| milliseconds(end.duration)),
            "rusage": exit.map(|exit| json!({
                "user_ms": exit.user_ms, "sys_ms": exit.sys_ms, "max_rss_kb": exit.max_rss_kb,
            })),
            "writers_left": state.writers_left,
        })
    }

    /// The output from `position` on, at most `limit` bytes of each stream.
    pub(crate) fn output(&self, position: Position, limit: u64) -> io::Result<[super::output::Piece; 2]> {
        Ok([self.stdout.piece(position.stdout, limit)?, self.stderr.piece(position.stderr, limit)?])
    }
}

/// Why a process was not started.
enum Failed {
    /// The program is to blame.
    Program(io::Error),
    /// There are no descriptors, threads or files.
    Machine(io::Error),
}

/// Whether a signal asks a process to end.
fn ends(signal: i32) -> bool {
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGKILL].contains(&signal)
}

/// A file without a name that holds these bytes.
fn given(bytes: &[u8]) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}
