//! Runs the program. Nothing here waits without bound: a command that does not end in time is killed and fails the test
//! with all that it said.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Bound of a command and of everything else that is waited for. Generous: other tests may have the machine.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Variables of the machine's that would change what commands do.
const UNSET: [&str; 10] = [
    "LOCAL_SNAPSHOT",
    "DOCKER_SNAPSHOT",
    "VERCEL_SNAPSHOT_ID",
    "RUST_LOG",
    "AI_GATEWAY_API_KEY",
    "AI_GATEWAY_MODEL",
    "OPENROUTER_API_KEY",
    "OPENROUTER_MODEL",
    "VERCEL_OIDC_TOKEN",
    "AWS_MICROVM_IMAGE_ID",
];

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Waits until `condition` yields a value.
///
/// # Panics
/// It does not within [`LIMIT`]; the message says what was waited for.
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain: {what}");
        std::thread::sleep(LOOK);
    }
}

/// The program: what `SANDBOX_BENCH_BIN` names, else the one that cargo put two levels above this test.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn program() -> PathBuf {
    if let Some(given) = std::env::var_os("SANDBOX_BENCH_BIN") {
        return PathBuf::from(given);
    }
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("sandbox-bench");
    assert!(
        built.is_file(),
        "{} is not there. Build it with `cargo build -p sandbox-bench`, or name another with SANDBOX_BENCH_BIN; \
         `cargo test --workspace` and `cargo nextest run --workspace` build it by themselves",
        built.display()
    );
    built
}

/// A command of the program, to be run.
#[derive(Debug)]
pub struct Bench {
    line: String,
    command: Command,
    unread: bool,
}

impl Bench {
    /// The command `line`, as typed after the program's name, in `directory`, which is also its home.
    pub(crate) fn new(directory: &Path, line: &str) -> Self {
        Self::of(Command::new(program()), directory, line)
    }

    fn of(mut command: Command, directory: &Path, line: &str) -> Self {
        command
            .args(shlex::split(line).expect("quotes that match"))
            .current_dir(directory)
            .env("HOME", directory)
            .env("XDG_CACHE_HOME", directory.join("cache"))
            .env("XDG_STATE_HOME", directory.join("state"));
        for variable in UNSET {
            command.env_remove(variable);
        }
        Self { line: line.to_owned(), command, unread: false }
    }

    /// The same command under a shell that has set `limits`, such as `ulimit -f 100`.
    #[must_use]
    pub fn under(self, limits: &str) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{limits}; exec \"$0\" \"$@\"")).arg(program());
        Self::of(shell, self.command.get_current_dir().unwrap(), &self.line)
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Nobody reads what it says: both its pipes are closed at the other end, as by a `head` that has seen enough.
    #[must_use]
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Starts it.
    #[must_use]
    pub fn start(mut self) -> Running {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let limit = if self.unread { 0 } else { u64::MAX };
        let (stdout, stderr) = (Collected::from(stdout.take(limit)), Collected::from(stderr.take(limit)));
        Running { line: self.line, child, stdout, stderr }
    }
}

/// A running command. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    line: String,
    child: Child,
    stdout: Collected,
    stderr: Collected,
}

impl Running {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it has said on stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for its end.
    #[must_use]
    pub fn wait(self) -> Outcome {
        self.wait_within(LIMIT)
    }

    /// Waits for its end, which must come within `limit`.
    #[must_use]
    pub fn wait_within(mut self, limit: Duration) -> Outcome {
        let start = Instant::now();
        let ended = loop {
            match self.child.try_wait().unwrap() {
                Some(status) if self.stdout.ended() && self.stderr.ended() => break Some(status),
                _ if start.elapsed() > limit => break None,
                _ => std::thread::sleep(LOOK),
            }
        };
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        let Some(status) = ended else {
            let line = &self.line;
            panic!("`{line}` or what it started still ran after {limit:?}\nstdout: {stdout}\nstderr: {stderr}");
        };
        Outcome { line: self.line.clone(), code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a command ended, and all that it said.
#[derive(Debug)]
pub struct Outcome {
    line: String,
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Outcome {
    /// The same, if the exit code is `code`.
    ///
    /// # Panics
    /// It is another one; the message holds all that the command said.
    #[must_use]
    pub fn exits(self, code: i32) -> Self {
        let Self { line, stdout, stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "exit code of `{line}`\nstdout: {stdout}\nstderr: {stderr}");
        self
    }

    /// The command, its exit code, and what a person sees of it: a text for a snapshot.
    #[must_use]
    pub fn shown(&self) -> String {
        let code = self.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        let mut shown = format!("$ sandbox-bench {}\n{}", self.line, self.stdout);
        if !self.stderr.is_empty() {
            shown += &format!("-- stderr --\n{}", self.stderr);
        }
        shown.trim_end().to_owned() + &format!("\n-- exit {code} --\n")
    }
}

/// What comes out of a pipe, collected by a thread that ends with the pipe.
#[derive(Debug)]
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Collected {
    fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = bytes.clone();
        let thread = std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            while let Ok(n @ 1..) = pipe.read(&mut chunk) {
                sink.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Self { bytes, thread }
    }

    fn ended(&self) -> bool {
        self.thread.is_finished()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }
}
