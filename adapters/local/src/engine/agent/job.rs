//! A running job, seen from the agent: its pipes, its deadline, and the steps by which it ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::output::Capture;
use super::{supervisor, tree};
use crate::engine::boot::CommandDefaults;
use crate::engine::job::{End, Outcome, Request, Stop};
use crate::engine::wire::{CHUNK, Decoder, Frame, Kind, WINDOW};

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long a tree may resist SIGKILL (processes in uninterruptible sleep do) before it is reported as not killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at a tree that is being killed.
const KILL_PAUSE: Duration = Duration::from_millis(3);
/// After the end of the main process, a background process that inherited the pipes is listened to for this long.
const DRAIN: Duration = Duration::from_millis(200);

/// Which pipe of a job became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Status,
    Stdin,
    Stdout,
    Stderr,
}

/// What is waited for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The main process.
    Running,
    /// The main process, which was asked to end; until then.
    Terminating(Instant),
    /// The last process of the tree; until then, and looked at again at the second time.
    Killing(Instant, Instant),
    /// The end of the output streams; until then.
    Draining(Instant),
}

pub(super) struct Job {
    channel: u32,
    supervisor: Pid,
    supervisor_gone: bool,
    status: Option<OwnedFd>,
    decoder: Decoder,
    main: Option<Pid>,
    outcome: Option<Outcome>,
    stdin: Option<OwnedFd>,
    input: Vec<u8>,
    input_ended: bool,
    stdout: Capture,
    stderr: Capture,
    credit: usize,
    phase: Phase,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    keep_background: bool,
    /// The supervisor itself does the work; there is no command below it.
    transfer: bool,
    stop: Option<Stop>,
    tree_killed: Option<bool>,
}

impl Job {
    /// Starts a job. A job that cannot even be forked fails here.
    pub(super) fn start(
        channel: u32,
        request: &Request,
        defaults: &CommandDefaults,
        null: BorrowedFd<'_>,
    ) -> io::Result<Job> {
        let handle = supervisor::start(request, defaults, null)?;
        for fd in [&handle.stdout, &handle.stderr, &handle.status].into_iter().chain(&handle.stdin) {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        let (timeout, cap, keep_background) = match request {
            Request::Command(command) => (command.timeout, Some(command.output_cap), command.keep_background),
            _ => (None, None, true),
        };
        Ok(Job {
            channel,
            supervisor: handle.supervisor,
            supervisor_gone: false,
            status: Some(handle.status),
            decoder: Decoder::default(),
            main: None,
            outcome: None,
            stdin: handle.stdin,
            input: Vec::new(),
            input_ended: false,
            stdout: Capture::new(handle.stdout, Kind::Stdout, Kind::StdoutGap, cap),
            stderr: Capture::new(handle.stderr, Kind::Stderr, Kind::StderrGap, cap),
            credit: WINDOW,
            phase: Phase::Running,
            timeout,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            keep_background,
            transfer: !matches!(request, Request::Command(_)),
            stop: None,
            tree_killed: None,
        })
    }

    /// The pipes to wait for.
    pub(super) fn interests(&self) -> impl Iterator<Item = (Slot, BorrowedFd<'_>, PollFlags)> {
        let status = self.status.as_ref().map(|fd| (Slot::Status, fd.as_fd(), PollFlags::IN));
        let stdin = self.stdin.as_ref().filter(|_| !self.input.is_empty());
        let stdin = stdin.map(|fd| (Slot::Stdin, fd.as_fd(), PollFlags::OUT));
        let stdout = self.stdout.readable(self.credit).map(|fd| (Slot::Stdout, fd, PollFlags::IN));
        let stderr = self.stderr.readable(self.credit).map(|fd| (Slot::Stderr, fd, PollFlags::IN));
        [status, stdin, stdout, stderr].into_iter().flatten()
    }

    /// When [`Job::step`] must be called at the latest.
    pub(super) fn wake_up(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.deadline,
            Phase::Terminating(until) | Phase::Draining(until) => Some(until),
            Phase::Killing(until, next) => Some(until.min(next)),
        }
    }

    pub(super) fn add_input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.stdin.is_none() {
            return self.give_credit(bytes.len(), out);
        }
        self.input.extend_from_slice(bytes);
        self.write_input(out)
    }

    pub(super) fn end_input(&mut self) {
        self.input_ended = true;
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    pub(super) fn add_credit(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes as usize);
    }

    /// The caller wants the job to end now.
    pub(super) fn cancel(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Running | Phase::Terminating(_)) {
            self.stop.get_or_insert(Stop::Cancelled);
            self.kill(now);
        }
    }

    /// A child of the agent was reaped. If it was the supervisor, its pid must not be signalled any more.
    pub(super) fn reaped(&mut self, pid: Pid) {
        self.supervisor_gone |= pid == self.supervisor;
    }

    /// A pipe is ready.
    pub(super) fn ready(&mut self, slot: Slot, out: &mut Vec<u8>) -> io::Result<()> {
        match slot {
            Slot::Status => self.read_status(),
            Slot::Stdin => self.write_input(out),
            Slot::Stdout => self.stdout.read(self.channel, &mut self.credit, out),
            Slot::Stderr => self.stderr.read(self.channel, &mut self.credit, out),
        }
    }

    fn read_status(&mut self) -> io::Result<()> {
        let Some(status) = &self.status else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        let read = match rustix::io::read(status, &mut buffer) {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(_) => 0,
        };
        if read == 0 {
            self.status = None;
            // A supervisor that ends without a word was killed, and everything below it as well or by the same hand.
            self.outcome.get_or_insert(Outcome::bare(End::Signalled(9)));
            return Ok(());
        }
        self.decoder.feed(buffer.get(..read).unwrap_or_default());
        while let Some(frame) = self.decoder.next_frame()? {
            match frame.kind {
                Kind::Started => {
                    self.main = Pid::from_raw(frame.number()? as i32);
                    // The limit counts from the start of the command, which a busy machine may have delayed.
                    self.deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                }
                Kind::Done => {
                    let outcome = frame.parse()?;
                    self.outcome.get_or_insert(outcome);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write_input(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let Some(stdin) = &self.stdin else {
            return Ok(());
        };
        let chunk = self.input.get(..self.input.len().min(CHUNK)).unwrap_or_default();
        let consumed = match rustix::io::write(stdin, chunk) {
            Ok(written) => written,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            // The command does not want more; what it was sent is its business.
            Err(_) => {
                self.stdin = None;
                self.input.len()
            }
        };
        self.input.drain(..consumed);
        if self.input_ended && self.input.is_empty() {
            self.stdin = None;
        }
        self.give_credit(consumed, out)
    }

    fn give_credit(&self, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        Frame::new(self.channel, Kind::Credit, (bytes as u32).to_le_bytes()).encode(out)
    }

    /// Advances the job as far as it goes. True when it is over; then [`Job::finish`] is due.
    pub(super) fn step(&mut self, now: Instant) -> bool {
        loop {
            let before = self.phase;
            match self.phase {
                Phase::Running if self.outcome.is_some() => self.main_ended(now),
                Phase::Running if self.deadline.is_some_and(|deadline| now >= deadline) => {
                    self.stop = Some(Stop::Deadline);
                    self.signal_group(Signal::TERM);
                    self.phase = Phase::Terminating(now + GRACE);
                }
                Phase::Terminating(until) if self.outcome.is_some() || now >= until => self.kill(now),
                Phase::Killing(until, next) if now >= next => self.look_at_tree(now, until),
                Phase::Draining(until) => return self.drained() || now >= until,
                _ => {}
            }
            if self.phase == before {
                return false;
            }
        }
    }

    fn main_ended(&mut self, now: Instant) {
        if self.keep_background {
            self.phase = Phase::Draining(now + DRAIN);
        } else {
            self.kill(now);
        }
    }

    fn kill(&mut self, now: Instant) {
        if self.transfer {
            let _ = kill_process(self.supervisor, Signal::KILL);
        }
        self.phase = Phase::Killing(now + KILL_LIMIT, now);
    }

    fn look_at_tree(&mut self, now: Instant, until: Instant) {
        let living = if self.supervisor_gone { 0 } else { tree::kill_descendants(self.supervisor) };
        let dead = living == 0 && self.outcome.is_some();
        if dead || now >= until {
            // Without a stop this was only the tidying up after a command that ended by itself.
            self.tree_killed = self.stop.map(|_| dead);
            self.phase = Phase::Draining(now + DRAIN);
        } else {
            self.phase = Phase::Killing(until, now + KILL_PAUSE);
        }
    }

    fn signal_group(&self, signal: Signal) {
        if let Some(main) = self.main {
            let _ = kill_process_group(main, signal);
        }
    }

    fn drained(&self) -> bool {
        self.stdout.closed() && self.stderr.closed()
    }

    /// Sends what is left of the output and the outcome, and lets go of the supervisor.
    pub(super) fn finish(mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.supervisor_gone {
            // Background processes that are kept become the agent's own children.
            let _ = kill_process(self.supervisor, Signal::KILL);
        }
        let mut outcome = self.outcome.take().unwrap_or(Outcome::bare(End::Signalled(9)));
        outcome.stdout = self.stdout.finish(self.channel, out)?;
        outcome.stderr = self.stderr.finish(self.channel, out)?;
        outcome.stopped = self.stop;
        outcome.tree_killed = self.tree_killed;
        Frame::json(self.channel, Kind::Done, &outcome)?.encode(out)
    }
}
