//! Jobs: what the agent is asked to do in a sandbox, and how a job ended.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// As whom a command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum User {
    /// The superuser of the sandbox.
    #[default]
    Root,
    /// Numeric ids; supplementary groups are empty.
    Ids {
        /// User id in the sandbox.
        uid: u32,
        /// Group id in the sandbox.
        gid: u32,
    },
    /// A name of the sandbox's `/etc/passwd`, optionally `name:group`, or numbers in the same form.
    Name(String),
}

/// A command to run in a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments. A program without a slash is searched in the command's `PATH`.
    pub argv: Vec<String>,
    /// Added to the sandbox's environment; wins over it.
    pub env: BTreeMap<String, String>,
    /// Working directory, absolute; it must exist. The user's home if `None`.
    pub cwd: Option<String>,
    /// As whom.
    pub user: User,
    /// Bytes for standard input follow with `Running::send`; otherwise it is `/dev/null`.
    pub stdin: bool,
    /// After this time the process group gets SIGTERM, two seconds later the whole tree SIGKILL.
    pub timeout: Option<Duration>,
    /// Bytes kept of each output stream: the beginning is streamed, and the end (half of it, at most 1 MiB) follows
    /// when the command has ended.
    pub output_cap: usize,
    /// Leave processes alive that the command started and did not wait for.
    pub keep_background: bool,
}

impl Command {
    /// `argv` as root in `/`, without input or deadline, keeping 1 MiB of each stream and all background processes.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Command {
        Command {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: Some("/".into()),
            user: User::Root,
            stdin: false,
            timeout: None,
            output_cap: 1 << 20,
            keep_background: true,
        }
    }

    /// A `sh -c` command; see [`Command::new`].
    pub fn shell(script: impl Into<String>) -> Command {
        Command::new(["/bin/sh".to_owned(), "-c".to_owned(), script.into()])
    }
}

/// What a channel is opened for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Command(Command),
    /// Unpack the tar stream that follows as input.
    Unpack {
        /// Directory, created if absent.
        target: String,
        owner: Option<(u32, u32)>,
    },
    /// Write a tar stream of this path to standard output.
    Pack {
        path: String,
        max_bytes: u64,
    },
    /// Connect to this port of the sandbox's loopback interface; input goes there, what comes back is standard output.
    Connect {
        port: u16,
    },
    /// End every process of the sandbox but the agent.
    KillAll,
    /// Stop every process of the sandbox but the agent, or let them go on.
    Stop(bool),
}

/// How the main process of a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It could not be started.
    NotStarted(NotStarted),
    /// A transfer was refused or failed half-way; what was written before stays.
    TransferFailed(TransferFault),
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TransferFault {
    /// The path does not exist in the sandbox.
    #[error("{0}")]
    NotFound(String),
    /// More bytes than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// A member was refused, or the file system said no.
    #[error("{0}")]
    Refused(String),
}

impl From<std::io::Error> for TransferFault {
    fn from(error: std::io::Error) -> TransferFault {
        match error.kind() {
            std::io::ErrorKind::NotFound => TransferFault::NotFound(error.to_string()),
            std::io::ErrorKind::FileTooLarge => TransferFault::TooLarge(error.to_string()),
            _ => TransferFault::Refused(error.to_string()),
        }
    }
}

/// Why a command did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotStarted {
    /// The program was not found.
    #[error("{program}: no such program in the sandbox")]
    NoProgram {
        /// As requested.
        program: String,
    },
    /// The program was found but cannot be executed.
    #[error("{program}: cannot be executed: {why}")]
    NotExecutable {
        /// As requested.
        program: String,
        /// The system's words.
        why: String,
    },
    /// The working directory does not exist or cannot be entered by the user.
    #[error("working directory {path}: {why}")]
    NoDirectory {
        /// As requested.
        path: String,
        /// The system's words.
        why: String,
    },
    /// The user is unknown in the sandbox or its id is not mapped.
    #[error("user {user}: {why}")]
    NoUser {
        /// As requested.
        user: String,
        /// What is missing.
        why: String,
    },
    /// Anything else, e.g. the process limit was reached.
    #[error("{step}: {why}")]
    Other {
        /// What was attempted.
        step: String,
        /// The system's words.
        why: String,
    },
}

/// What ended a job before it ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// Its deadline passed.
    Deadline,
    /// The caller killed it.
    Cancelled,
}

/// Bytes of one output stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTotals {
    /// Bytes written by the command.
    pub total: u64,
    /// Bytes of these that were left out between head and tail.
    pub omitted: u64,
}

/// The end of a job, as measured in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the main process ended.
    pub end: End,
    /// What ended it, if not itself.
    pub stopped: Option<Stop>,
    /// Whether every process of its tree was seen dead; `None` if nobody tried to kill them.
    pub tree_killed: Option<bool>,
    /// From just before the process was made until it was reaped, by the sandbox's monotonic clock.
    pub wall: Duration,
    /// User CPU time of the process and of descendants that were waited for.
    pub cpu_user: Duration,
    /// System CPU time, likewise.
    pub cpu_system: Duration,
    /// Largest resident set of a single one of these processes, in bytes.
    pub max_rss: u64,
    /// Standard output.
    pub stdout: StreamTotals,
    /// Standard error.
    pub stderr: StreamTotals,
    /// The memory limit killed a process of the sandbox while the job ran. Known only where a cgroup counts it.
    #[serde(default)]
    pub out_of_memory: bool,
}

impl Outcome {
    /// An outcome of which nothing but the end is known.
    pub(crate) fn bare(end: End) -> Outcome {
        Outcome {
            end,
            stopped: None,
            tree_killed: None,
            wall: Duration::ZERO,
            cpu_user: Duration::ZERO,
            cpu_system: Duration::ZERO,
            max_rss: 0,
            stdout: StreamTotals::default(),
            stderr: StreamTotals::default(),
            out_of_memory: false,
        }
    }
}
