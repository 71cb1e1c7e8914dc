//! The process above a job: it adopts whatever the job starts, waits for the main process and measures it.
//!
//! It is a fork of the agent, so it needs no file of the sandbox's root. It stays until its last descendant is gone or
//! the agent ends it, because only its descendants can be told apart from those of other jobs.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process;
use std::time::Instant;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, WaitStatus, getrlimit, setrlimit};
use rustix::thread::{Gid, Uid};

use super::{connect, pack, unpack, user};
use crate::engine::boot::CommandDefaults;
use crate::engine::job::{Command, End, NotStarted, Outcome, Request, User};
use crate::engine::sys;
use crate::engine::wire::{Frame, Kind};

/// Where programs are searched if neither image nor command says so.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The agent's ends of a running job.
pub(super) struct Handle {
    pub(super) supervisor: Pid,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) status: OwnedFd,
}

/// The job's ends.
struct Ends<'a> {
    stdin: BorrowedFd<'a>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    status: OwnedFd,
}

/// Starts `request` under a new supervisor. `null` is an open `/dev/null`.
pub(super) fn start(request: &Request, defaults: &CommandDefaults, null: BorrowedFd<'_>) -> io::Result<Handle> {
    let input = match request {
        Request::Command(command) => command.stdin,
        Request::Unpack { .. } | Request::Connect { .. } => true,
        Request::Pack { .. } | Request::KillAll | Request::Stop(_) => false,
    };
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let stdin = if input { Some(pipe()?) } else { None };
    let (stdout, stdout_end) = pipe()?;
    let (stderr, stderr_end) = pipe()?;
    let (status, status_end) = pipe()?;
    match sys::fork()? {
        None => {
            let ends = Ends {
                stdin: stdin.as_ref().map_or(null, |(reader, _)| reader.as_fd()),
                stdout: stdout_end,
                stderr: stderr_end,
                status: status_end,
            };
            supervise(request, defaults, ends, null)
        }
        Some(supervisor) => Ok(Handle { supervisor, stdin: stdin.map(|(_, writer)| writer), stdout, stderr, status }),
    }
}

/// The life of the supervisor.
fn supervise(request: &Request, defaults: &CommandDefaults, ends: Ends<'_>, null: BorrowedFd<'_>) -> ! {
    let _ = rustix::process::setsid();
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // The agent's own channel must not be kept open, nor readable, from here.
    let _ = rustix::stdio::dup2_stdin(null);
    let _ = rustix::stdio::dup2_stdout(null);
    let _ = rustix::stdio::dup2_stderr(null);
    let Ends { stdin, stdout, stderr, status } = ends;
    sys::close_all_but(&[stdin, stdout.as_fd(), stderr.as_fd(), status.as_fd()]);
    let start = Instant::now();
    let outcome = match request {
        Request::Command(command) => run(command, defaults, [stdin, stdout.as_fd(), stderr.as_fd()], status.as_fd())
            .map(|main| {
                drop((stdout, stderr));
                wait_for(main)
            })
            .unwrap_or_else(|error| {
                End::NotStarted(NotStarted::Other { step: "new process".into(), why: error.to_string() })
            }),
        Request::Unpack { target, owner } => transfer(unpack::unpack(stdin, target, *owner)),
        Request::Pack { path, max_bytes } => transfer(pack::pack(stdout, path, *max_bytes)),
        Request::Connect { port } => transfer(connect::connect(stdin, stdout, *port)),
        // The agent does these itself.
        Request::KillAll | Request::Stop(_) => End::Exited(0),
    };
    let mut outcome = Outcome::bare(outcome);
    outcome.wall = start.elapsed();
    let usage = sys::children_usage();
    outcome.cpu_user = usage.user;
    outcome.cpu_system = usage.system;
    outcome.max_rss = usage.max_rss;
    report(status.as_fd(), Frame::json(0, Kind::Done, &outcome));
    drop(status);
    while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    sys::exit(0)
}

fn transfer(result: io::Result<()>) -> End {
    match result {
        Ok(()) => End::Exited(0),
        Err(error) => End::TransferFailed(error.into()),
    }
}

fn report(status: BorrowedFd<'_>, frame: io::Result<Frame>) {
    // Nobody is left to tell if the agent does not listen any more.
    if let Ok(bytes) = frame.and_then(|frame| frame.encoded()) {
        let mut rest = bytes.as_slice();
        while let Ok(written) = rustix::io::write(status, rest) {
            rest = rest.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
        }
    }
}

/// Forks the main process of a command.
fn run(
    command: &Command,
    defaults: &CommandDefaults,
    stdio: [BorrowedFd<'_>; 3],
    status: BorrowedFd<'_>,
) -> io::Result<Pid> {
    match sys::fork()? {
        Some(main) => Ok(main),
        None => {
            let pid = rustix::process::getpid().as_raw_nonzero().get();
            report(status, Ok(Frame::new(0, Kind::Started, pid.to_le_bytes())));
            let why = become_command(command, defaults, stdio);
            report(status, Frame::json(0, Kind::Done, &Outcome::bare(End::NotStarted(why))));
            sys::exit(127)
        }
    }
}

/// Turns this process into the command; returns only if that fails.
fn become_command(
    command: &Command,
    defaults: &CommandDefaults,
    [stdin, stdout, stderr]: [BorrowedFd<'_>; 3],
) -> NotStarted {
    let other = |step: &str| {
        let step = step.to_owned();
        move |error: io::Error| NotStarted::Other { step, why: error.to_string() }
    };
    let prepare = || {
        let identity =
            user::resolve(&command.user).map_err(|why| NotStarted::NoUser { user: display(command), why })?;
        rustix::process::setsid().map_err(|e| other("new session")(e.into()))?;
        sys::unblock_child_signal();
        if defaults.reset_oom_score {
            fs::write("/proc/self/oom_score_adj", "0").map_err(other("out-of-memory score"))?;
        }
        limit(Resource::Core, Some(0)).map_err(other("core limit"))?;
        limit(Resource::Fsize, defaults.file_size).map_err(other("file size limit"))?;
        limit(Resource::Nproc, defaults.processes).map_err(other("process limit"))?;
        limit(Resource::Nofile, defaults.open_files).map_err(other("open files limit"))?;
        rustix::stdio::dup2_stdin(stdin).map_err(|e| other("standard input")(e.into()))?;
        rustix::stdio::dup2_stdout(stdout).map_err(|e| other("standard output")(e.into()))?;
        rustix::stdio::dup2_stderr(stderr).map_err(|e| other("standard error")(e.into()))?;
        assume(&identity).map_err(|error| NotStarted::NoUser {
            user: display(command),
            why: format!("its ids cannot be assumed, they may not be mapped in this sandbox: {error}"),
        })?;
        let cwd = command.cwd.as_deref().unwrap_or(&identity.home);
        std::env::set_current_dir(cwd)
            .map_err(|error| NotStarted::NoDirectory { path: cwd.to_owned(), why: error.to_string() })?;
        Ok(identity)
    };
    let identity = match prepare() {
        Ok(identity) => identity,
        Err(why) => return why,
    };
    let Some((program, arguments)) = command.argv.split_first() else {
        return NotStarted::NoProgram { program: String::new() };
    };
    let error = process::Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", DEFAULT_PATH)
        .env("HOME", OsStr::new(&identity.home))
        .envs(&defaults.env)
        .envs(&command.env)
        .exec();
    let program = program.clone();
    match error.kind() {
        io::ErrorKind::NotFound => NotStarted::NoProgram { program },
        _ => NotStarted::NotExecutable { program, why: error.to_string() },
    }
}

fn display(command: &Command) -> String {
    match &command.user {
        User::Root => "root".into(),
        User::Ids { uid, gid } => format!("{uid}:{gid}"),
        User::Name(name) => name.clone(),
    }
}

/// Lowers a resource limit; what is already lower stays, because raising it is not ours to do.
fn limit(resource: Resource, value: Option<u64>) -> io::Result<()> {
    if let Some(value) = value {
        let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let value = Some(value.min(ceiling));
        let limit = Rlimit { current: value, maximum: value };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Takes on the ids. Root with its own groups needs no call, which matters where only one id is mapped.
fn assume(identity: &user::Identity) -> io::Result<()> {
    let groups: Vec<Gid> = identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    match rustix::thread::set_thread_groups(&groups) {
        Err(rustix::io::Errno::PERM) if identity.uid == 0 => {}
        result => result?,
    }
    let gid = Gid::from_raw(identity.gid);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    let uid = Uid::from_raw(identity.uid);
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Reaps everything until the main process has ended.
fn wait_for(main: Pid) -> End {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == main => return end(status),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Cannot happen while `main` is our child; an unknown end is never success.
            Err(_) => return End::Signalled(9),
        }
    }
}

fn end(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signalled(signal),
        (None, None) => End::Signalled(9),
    }
}
