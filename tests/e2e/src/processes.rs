//! Processes as `/proc` shows them, sandboxed ones included: a namespace hides the host's processes from its own, not its
//! own from the host.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::until;

/// A process, named so that a reused id is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its start, in clock ticks after boot.
    start: u64,
}

impl Process {
    /// Whether it still runs. A zombie does not.
    #[must_use]
    pub fn runs(&self) -> bool {
        stat(self.id).is_some_and(|stat| stat.start == self.start)
    }

    /// Sends it a signal, if it still runs.
    pub fn signal(&self, signal: Signal) {
        if self.runs() {
            let _ = kill_process(Pid::from_raw(self.id.cast_signed()).unwrap(), signal);
        }
    }

    /// Its command line, with blanks between the arguments.
    #[must_use]
    pub fn command_line(&self) -> String {
        let line = fs::read(format!("/proc/{}/cmdline", self.id)).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    }
}

/// All processes of the machine.
#[must_use]
pub fn all() -> Vec<Process> {
    running().map(|(id, stat)| Process { id, start: stat.start }).collect()
}

/// Everything that the process `ancestor` started, directly or not.
#[must_use]
pub fn descendants(ancestor: u32) -> Vec<Process> {
    let all: Vec<(u32, Stat)> = running().collect();
    let mut known = BTreeSet::from([ancestor]);
    let mut found = Vec::new();
    // A parent may have a greater id than its child, so one pass is not enough.
    loop {
        let more: Vec<&(u32, Stat)> =
            all.iter().filter(|(id, stat)| known.contains(&stat.parent) && !known.contains(id)).collect();
        if more.is_empty() {
            return found;
        }
        known.extend(more.iter().map(|(id, _)| *id));
        found.extend(more.iter().map(|(id, stat)| Process { id: *id, start: stat.start }));
    }
}

struct Stat {
    parent: u32,
    start: u64,
}

fn running() -> impl Iterator<Item = (u32, Stat)> {
    let ids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, stat(id)?)))
}

/// Fields 3, 4 and 22 of `/proc/ID/stat` (proc(5)), counted after the name, which may contain anything.
fn stat(id: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    (!ended).then_some(())?;
    Some(Stat { parent: fields.get(1)?.parse().ok()?, start: fields.get(19)?.parse().ok()? })
}

/// A command that never ends by itself and can be told from every other one on the machine.
#[derive(Debug)]
pub struct Sleeper {
    command: String,
}

impl Sleeper {
    /// A new one.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "no two are equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self { command: format!("sleep 3600.{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)) }
    }

    /// The command, for a shell.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Its processes.
    #[must_use]
    pub fn running(&self) -> Vec<Process> {
        all().into_iter().filter(|process| process.command_line().trim_end() == self.command).collect()
    }

    /// Waits until one runs.
    pub fn await_start(&self) {
        until("the command in the sandbox", || (!self.running().is_empty()).then_some(()));
    }
}
