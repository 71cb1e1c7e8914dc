//! The helper: a fresh process with one thread, an empty environment and no secrets, that enters a user namespace and
//! does one task there.
//!
//! It exists because user namespaces and `fork` without `exec` need a single-threaded process, and because the first
//! process of a sandbox shows its environment and arguments to root inside.

mod container;
mod maintenance;
mod probe;

use std::fs;
use std::io;

use rustix::stdio::{stdin, stdout};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::boot::{Failure, Step, Task};
use super::sys::FdReader;
use super::wire::{Frame, Kind};

/// Does the task that arrives on standard input. The result is the exit code.
pub(super) fn main() -> i32 {
    match work() {
        Ok(code) => code,
        Err(failure) => {
            let message = failure.message.clone();
            if Frame::json(0, Kind::Failed, &failure).and_then(send).is_err() {
                eprintln!("helper: {message}");
            }
            1
        }
    }
}

fn work() -> Result<i32, Failure> {
    let protocol = |error: io::Error| Failure::new(Step::Protocol, "conversation with the engine", &error);
    let mut task: Task = receive(Kind::Task).and_then(|frame| frame.parse()).map_err(protocol)?;
    if let Task::Sandbox(boot) = &mut task {
        container::join_cgroups(&boot.settings.cgroups)?;
        container::choose_processors(boot.settings.processors);
        boot.settings.commands.reset_oom_score = fs::write("/proc/self/oom_score_adj", "-1000").is_ok();
    }
    enter_user_namespace(protocol)?;
    match task {
        Task::Sandbox(boot) => container::run(*boot),
        Task::Probe { scratch } => probe::run(&scratch).and_then(|()| done(protocol)),
        Task::Remove { path } => maintenance::remove(&path).and_then(|()| done(protocol)),
        Task::Unpack(unpack) => maintenance::unpack(&unpack).and_then(|()| done(protocol)),
    }
}

fn done(protocol: impl Fn(io::Error) -> Failure) -> Result<i32, Failure> {
    send(Frame::new(0, Kind::Ready, [])).map_err(protocol)?;
    Ok(0)
}

/// The engine writes the id map, because only a process of the parent namespace may map more than one id.
fn enter_user_namespace(protocol: impl Fn(io::Error) -> Failure) -> Result<(), Failure> {
    unshare(UnshareFlags::NEWUSER, Step::UserNamespace)?;
    send(Frame::new(0, Kind::Unshared, [])).map_err(&protocol)?;
    receive(Kind::Mapped).map_err(&protocol)?;
    // The caller's groups mean nothing inside. With a single mapped id the kernel keeps us from dropping them.
    let _ = rustix::thread::set_thread_groups(&[]);
    Ok(())
}

fn unshare(flags: UnshareFlags, step: Step) -> Result<(), Failure> {
    // SAFETY: `unshare_unsafe` is only dangerous for the shared descriptors of threads, and there is one thread.
    unsafe { unshare_unsafe(flags) }.map_err(|error| Failure::new(step, "unshare", &error.into()))
}

fn receive(kind: Kind) -> io::Result<Frame> {
    let frame = Frame::read(&mut FdReader(stdin()))?;
    if frame.kind == kind {
        Ok(frame)
    } else {
        Err(io::Error::other(format!("expected {kind:?}, got {:?}", frame.kind)))
    }
}

fn send(frame: Frame) -> io::Result<()> {
    let bytes = frame.encoded()?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let written = rustix::io::write(stdout(), rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}
