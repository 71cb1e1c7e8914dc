//! Sessions: one long-lived shell each, which runs commands one after another.
//!
//! A command's text goes to the shell as a group with its streams redirected to named pipes. A listener job reads them
//! until nobody holds them any more, then takes the exit code. So a shell that died (`exit`, `exec`) never gives one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::markers::Marker;
use super::shell::{Pipes, SHELL};
use crate::log::Log;
use crate::machine::{Command, End, Event, Input, Machine, MachineError, Running, Stream};

/// Bytes kept of a command's log.
const LOG: usize = 64 << 20;
/// How long the end of a session is waited for.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The sessions of one boot of a sandbox. Dropping them kills everything in them.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<String, Arc<Session>>>);

impl Sessions {
    pub(super) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().get(id).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().values().cloned().collect()
    }

    /// False if the id is taken; then the session ends.
    pub(super) fn insert(&self, session: Session) -> bool {
        let mut sessions = self.lock();
        let free = !sessions.contains_key(&session.id);
        if free {
            sessions.insert(session.id.clone(), Arc::new(session));
        }
        free
    }

    pub(super) fn remove(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Session {
    pub(super) id: String,
    machine: Arc<Machine>,
    input: Input,
    /// One writer at a time, so that texts do not mix.
    writing: tokio::sync::Mutex<()>,
    commands: Mutex<Vec<Arc<SessionCommand>>>,
    kill: Arc<Notify>,
    ended: watch::Receiver<bool>,
    /// The shell's and the listeners' pumps. They end with the session.
    pumps: Mutex<JoinSet<()>>,
}

/// Standard input of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stdin {
    /// It ends at once.
    Nothing,
    /// What [`Session::send`] brings; it never ends.
    Silent,
    /// Likewise, and the log shows it.
    Echoed,
}

/// What the API shows of a command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    id: String,
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

pub(super) struct SessionCommand {
    pub(super) id: String,
    pub(super) log: Log,
    text: String,
    /// Input is shown in the log.
    echo: bool,
    pipes: Pipes,
    exit_code: OnceLock<i32>,
    finished: watch::Sender<bool>,
}

impl SessionCommand {
    pub(super) fn exit_code(&self) -> Option<i32> {
        self.exit_code.get().copied()
    }

    /// Waits for the exit code; forever if the shell died.
    pub(super) async fn finished(&self) {
        let _ = self.finished.subscribe().wait_for(|finished| *finished).await;
    }

    pub(super) fn shown(&self) -> Shown {
        Shown { id: self.id.clone(), command: self.text.clone(), exit_code: self.exit_code() }
    }
}

impl Session {
    /// Starts the shell.
    ///
    /// # Errors
    /// The machine has ended.
    pub(super) fn start(machine: &Arc<Machine>, id: String) -> Result<Session, MachineError> {
        let shell = Command { stdin: true, ..machine.command(["/bin/sh", "-c", SHELL]) };
        let mut running = machine.start(shell)?;
        let input = running.input();
        let (kill, (end, ended)) = (Arc::new(Notify::new()), watch::channel(false));
        let mut pumps = JoinSet::new();
        let killed = Arc::clone(&kill);
        pumps.spawn(async move {
            loop {
                tokio::select! {
                    // What the shell itself says goes nowhere.
                    event = running.next() => if !matches!(event, Ok(Some(_))) { break },
                    () = killed.notified() => running.kill(),
                }
            }
            let _ = end.send(true);
        });
        Ok(Session {
            id,
            machine: Arc::clone(machine),
            input,
            writing: tokio::sync::Mutex::default(),
            commands: Mutex::default(),
            kill,
            ended,
            pumps: Mutex::new(pumps),
        })
    }

    pub(super) fn commands(&self) -> Vec<Arc<SessionCommand>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn command(&self, id: &str) -> Option<Arc<SessionCommand>> {
        self.commands().into_iter().find(|command| command.id == id)
    }

    /// Hands a command to the shell, which runs it when those before it have ended. `None` if the shell is dead.
    ///
    /// # Errors
    /// The machine has ended.
    pub(super) async fn run(&self, text: String, input: Stdin) -> Result<Option<Arc<SessionCommand>>, MachineError> {
        if *self.ended.borrow() {
            return Ok(None);
        }
        let pipes = Pipes::make(&self.machine, &["in", "out", "err", "code"]).await?;
        let listener = self.listen(&pipes)?;
        let at = pipes.directory();
        // Opened for reading and writing, so that it neither blocks nor ends.
        let stdin = if input == Stdin::Nothing { "0</dev/null".to_owned() } else { format!("0<>{at}/in") };
        let group = format!("{{\n{text}\n}} {stdin} >{at}/out 2>{at}/err; echo $? >{at}/code\n");
        let command = Arc::new(SessionCommand {
            id: Uuid::new_v4().to_string(),
            log: Log::new(LOG),
            text,
            echo: input == Stdin::Echoed,
            pipes,
            exit_code: OnceLock::new(),
            finished: watch::Sender::new(false),
        });
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&command));
        self.pump(listener, Arc::clone(&command));
        let _writing = self.writing.lock().await;
        let sent = self.input.send(group.as_bytes()).await;
        Ok((sent && !*self.ended.borrow()).then_some(command))
    }

    /// Reads both streams to their ends, then the exit code, which becomes its own.
    fn listen(&self, pipes: &Pipes) -> Result<Running, MachineError> {
        let script = r#"cd "$0" && { cat out & cat err >&2 & wait; read -r code <code; exit "$code"; }"#;
        let command = Command::new(["/bin/sh", "-c", script, pipes.directory()]);
        self.machine.start(Command { output_cap: usize::MAX, ..command })
    }

    fn pump(&self, mut listener: Running, command: Arc<SessionCommand>) {
        let machine = Arc::clone(&self.machine);
        let mut pumps = self.pumps.lock().unwrap_or_else(PoisonError::into_inner);
        pumps.spawn(async move {
            let mut markers = [Marker::new(Stream::Stdout), Marker::new(Stream::Stderr)];
            while let Ok(Some(event)) = listener.next().await {
                let [stdout, stderr] = &mut markers;
                if let Event::Output(stream, bytes) = event {
                    let marker = if stream == Stream::Stdout { stdout } else { stderr };
                    command.log.write(&marker.push(&bytes));
                }
            }
            for marker in &mut markers {
                command.log.write(&marker.end());
            }
            if let Ok(End::Exited(code)) = listener.outcome().await.map(|outcome| outcome.end) {
                let _ = command.exit_code.set(code);
                command.finished.send_replace(true);
                command.log.close();
                command.pipes.remove(&machine).await;
            }
        });
    }

    /// Brings input to a command, and shows it in the log unless told otherwise.
    ///
    /// # Errors
    /// The machine has ended.
    pub(super) async fn send(&self, command: &SessionCommand, data: &str) -> Result<(), MachineError> {
        let line = if data.ends_with('\n') { data.to_owned() } else { format!("{data}\n") };
        if command.echo {
            command.log.write(&Marker::new(Stream::Stdout).push(line.as_bytes()));
        }
        let pipe = command.pipes.path("in");
        self.machine.tool_with(r#"exec cat >"$1""#, &[&pipe], Some(line.as_bytes())).await?;
        Ok(())
    }

    /// Ends the shell with everything that it started.
    pub(super) async fn end(&self) {
        self.kill.notify_one();
        let mut ended = self.ended.clone();
        let _ = tokio::time::timeout(END_LIMIT, ended.wait_for(|ended| *ended)).await.map(drop);
        self.pumps.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        for command in self.commands() {
            command.log.close();
        }
    }
}
