//! The first process of a sandbox: it starts jobs, carries their bytes, keeps their deadlines, and reaps orphans.
//!
//! It is a fork of the helper without an `exec` in between, so it needs no file of the sandbox's root and runs on any
//! base. It has one thread and one `poll` loop. It never waits for anything but `poll`: work that blocks (commands,
//! tar transfers) happens in forks. When its standard input closes it exits, and the kernel ends the pid namespace.

mod connect;
mod job;
mod output;
mod pack;
mod supervisor;
mod tree;
mod unpack;
mod user;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::WaitOptions;

use self::job::{Job, Slot};
use crate::engine::boot::CommandDefaults;
use crate::engine::job::{End, Outcome, Request};
use crate::engine::sys;
use crate::engine::wire::{CHUNK, Decoder, Frame, Kind};

/// The capabilities that Docker leaves to root in a container (Docker Engine 20.10, `DefaultCapabilities`).
const KEPT_CAPABILITIES: [caps::Capability; 14] = {
    use caps::Capability::*;
    [
        CAP_CHOWN,
        CAP_DAC_OVERRIDE,
        CAP_FSETID,
        CAP_FOWNER,
        CAP_MKNOD,
        CAP_NET_RAW,
        CAP_SETGID,
        CAP_SETUID,
        CAP_SETFCAP,
        CAP_SETPCAP,
        CAP_NET_BIND_SERVICE,
        CAP_SYS_CHROOT,
        CAP_KILL,
        CAP_AUDIT_WRITE,
    ]
};

/// How long processes may resist SIGKILL before the agent goes on without them.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// What the agent needs to know of its sandbox.
pub(crate) struct Config {
    pub(crate) own_network: bool,
    pub(crate) pid_max: Option<u64>,
    pub(crate) commands: CommandDefaults,
}

/// Serves until standard input closes. The result is the exit code of the sandbox.
pub(crate) fn run(config: &Config) -> i32 {
    match serve(config) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("agent: {error}");
            1
        }
    }
}

fn serve(config: &Config) -> io::Result<()> {
    prepare(config)?;
    let mut agent = Agent {
        defaults: config.commands.clone(),
        null: File::options().read(true).write(true).open("/dev/null")?.into(),
        children: sys::child_events()?,
        decoder: Decoder::default(),
        out: Vec::new(),
        jobs: BTreeMap::new(),
    };
    rustix::io::ioctl_fionbio(rustix::stdio::stdin(), true)?;
    rustix::io::ioctl_fionbio(rustix::stdio::stdout(), true)?;
    Frame::new(0, Kind::Ready, []).encode(&mut agent.out)?;
    while agent.turn()? {}
    Ok(())
}

fn prepare(config: &Config) -> io::Result<()> {
    if config.own_network {
        sys::bring_loopback_up()?;
    }
    if let Some(max) = config.pid_max {
        // Per pid namespace since Linux 6.14; before that the write is refused, which the engine has reported.
        let _ = fs::write("/proc/sys/kernel/pid_max", max.to_string());
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    for capability in caps::all() {
        if !KEPT_CAPABILITIES.contains(&capability) {
            caps::drop(None, caps::CapSet::Bounding, capability).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

struct Agent {
    defaults: CommandDefaults,
    null: OwnedFd,
    children: OwnedFd,
    decoder: Decoder,
    /// Encoded frames on their way out; bounded by the windows of the jobs.
    out: Vec<u8>,
    jobs: BTreeMap<u32, Job>,
}

/// What became ready in one turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Requests,
    Replies,
    Children,
    Job(u32, Slot),
}

impl Agent {
    /// Waits for something to happen and handles it. False when the engine is gone.
    fn turn(&mut self) -> io::Result<bool> {
        for token in self.wait()? {
            match token {
                Token::Requests => {
                    if !self.read_requests()? {
                        return Ok(false);
                    }
                }
                Token::Replies => self.write_replies()?,
                Token::Children => self.reap(),
                Token::Job(channel, slot) => {
                    if let Some(job) = self.jobs.get_mut(&channel) {
                        job.ready(slot, &mut self.out)?;
                    }
                }
            }
        }
        let now = Instant::now();
        let over: Vec<u32> =
            self.jobs.iter_mut().filter_map(|(channel, job)| job.step(now).then_some(*channel)).collect();
        for channel in over {
            if let Some(job) = self.jobs.remove(&channel) {
                job.finish(&mut self.out)?;
            }
        }
        // Saves a turn: most replies fit into the pipe at once.
        self.write_replies()?;
        Ok(true)
    }

    fn wait(&self) -> io::Result<Vec<Token>> {
        let stdin = rustix::stdio::stdin();
        let stdout = rustix::stdio::stdout();
        let mut tokens = vec![Token::Requests, Token::Children];
        let mut fds = vec![
            PollFd::from_borrowed_fd(stdin, PollFlags::IN),
            PollFd::from_borrowed_fd(self.children.as_fd(), PollFlags::IN),
        ];
        if !self.out.is_empty() {
            tokens.push(Token::Replies);
            fds.push(PollFd::from_borrowed_fd(stdout, PollFlags::OUT));
        }
        for (channel, job) in &self.jobs {
            for (slot, fd, flags) in job.interests() {
                tokens.push(Token::Job(*channel, slot));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        let now = Instant::now();
        let next = self.jobs.values().filter_map(Job::wake_up).min();
        let timeout = next.map(|at| timespec(at.saturating_duration_since(now)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().zip(tokens).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, token)| token).collect())
    }

    fn read_requests(&mut self) -> io::Result<bool> {
        let mut buffer = [0; CHUNK];
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => return Ok(false),
            Ok(read) => self.decoder.feed(buffer.get(..read).unwrap_or_default()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(frame) = self.decoder.next_frame()? {
            self.handle(&frame)?;
        }
        Ok(true)
    }

    fn handle(&mut self, frame: &Frame) -> io::Result<()> {
        if frame.kind == Kind::Start {
            return self.start(frame);
        }
        // Frames for a job that has just ended are late, not wrong.
        let Some(job) = self.jobs.get_mut(&frame.channel) else {
            return Ok(());
        };
        match frame.kind {
            Kind::Input => job.add_input(&frame.payload, &mut self.out)?,
            Kind::InputEnd => job.end_input(),
            Kind::Credit => job.add_credit(frame.number()?),
            Kind::Kill => job.cancel(Instant::now()),
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, frame: &Frame) -> io::Result<()> {
        let channel = frame.channel;
        let request: Request = frame.parse()?;
        let at_once = match request {
            Request::KillAll => {
                self.kill_everything();
                true
            }
            Request::Stop(stop) => {
                sys::stop_everything(stop);
                true
            }
            _ => false,
        };
        if at_once {
            return Frame::json(channel, Kind::Done, &Outcome::bare(End::Exited(0)))?.encode(&mut self.out);
        }
        match Job::start(channel, &request, &self.defaults, self.null.as_fd()) {
            Ok(job) => {
                self.jobs.insert(channel, job);
                Ok(())
            }
            Err(error) => {
                let step = "new process".to_owned();
                let why = crate::engine::job::NotStarted::Other { step, why: error.to_string() };
                Frame::json(channel, Kind::Done, &Outcome::bare(End::NotStarted(why)))?.encode(&mut self.out)
            }
        }
    }

    /// Waiting here is fine: there is nobody left to serve.
    fn kill_everything(&mut self) {
        let until = Instant::now() + KILL_LIMIT;
        while sys::kill_everything() && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(200));
            self.reap();
        }
    }

    fn write_replies(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), &self.out) {
                Ok(written) => drop(self.out.drain(..written)),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The first process of a pid namespace inherits every orphan, and nobody else will bury them.
    fn reap(&mut self) {
        let mut info = [0; 4096];
        while matches!(rustix::io::read(&self.children, &mut info), Ok(read) if read > 0) {}
        while let Ok(Some((pid, _))) = rustix::process::wait(WaitOptions::NOHANG) {
            for job in self.jobs.values_mut() {
                job.reaped(pid);
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
