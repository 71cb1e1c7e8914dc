//! The process tree of one job, read from `/proc`.
//!
//! Each job runs below its own supervisor, which is a child subreaper: whatever a command starts stays a descendant
//! of the supervisor, also after `setsid` and double forks. Walking parents is therefore complete.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// One line of `/proc/PID/stat`, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    dead: bool,
}

/// Kills every living descendant of `root` and returns how many there were. Call again until it returns 0.
///
/// All are stopped before any is killed, so that a process that forks faster than we walk cannot outrun the walk.
pub(super) fn kill_descendants(root: Pid) -> usize {
    let mut stopped = Vec::new();
    for _ in 0..STOP_ROUNDS {
        let living = descendants(root, &snapshot());
        let new: Vec<_> = living.iter().filter(|pid| !stopped.contains(*pid)).copied().collect();
        if new.is_empty() {
            break;
        }
        signal(&new, Signal::STOP);
        stopped = living;
    }
    signal(&stopped, Signal::KILL);
    stopped.len()
}

/// How often the tree is walked to stop newcomers before those found are killed anyway.
const STOP_ROUNDS: usize = 20;

fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().copied().filter_map(Pid::from_raw) {
        // It may be gone already, which is what we want.
        let _ = kill_process(pid, signal);
    }
}

fn snapshot() -> HashMap<i32, Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read(entry.path().join("stat")).ok()?;
            Some((pid, parse_stat(&stat)?))
        })
        .collect()
}

/// The command name is in parentheses and may itself contain parentheses and spaces: fields count from the last `)`.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Process { parent: fields.next()?.parse().ok()?, dead: matches!(state, "Z" | "X") })
}

fn descendants(root: Pid, processes: &HashMap<i32, Process>) -> Vec<i32> {
    let root = root.as_raw_nonzero().get();
    let descends = |mut pid: i32| {
        // Bounded by the number of processes, because a snapshot taken while pids are reused could contain a cycle.
        for _ in 0..processes.len() {
            match processes.get(&pid) {
                Some(process) if process.parent == root => return true,
                Some(process) => pid = process.parent,
                None => return false,
            }
        }
        false
    };
    processes.iter().filter(|(pid, process)| !process.dead && descends(**pid)).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let process = parse_stat(b"42 (a) S 7 (b)) R 5 1 1 0").unwrap();
        assert_eq!(process, Process { parent: 5, dead: false });
        assert!(parse_stat(b"42 (gone) Z 5 1").unwrap().dead);
    }

    #[test]
    fn descendants_are_found_over_several_generations_and_cycles_end() {
        let process = |parent| Process { parent, dead: false };
        let processes = HashMap::from([
            (2, process(1)),
            (3, process(2)),
            (4, process(3)),
            (5, process(1)),
            (8, process(9)),
            (9, process(8)),
        ]);
        let mut found = descendants(Pid::from_raw(2).unwrap(), &processes);
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse_stat(&bytes);
        }
    }
}
