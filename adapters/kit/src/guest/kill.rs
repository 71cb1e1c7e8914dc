//! Ending the whole process tree of one command, by a second command beside it.

use sandbox_bench_core::{Completion, TreeKill};

const SCRIPT: &str = include_str!("kill.sh");
/// Time between the request to end and the end by force, in whole seconds of the guest's clock.
const GRACE_SECONDS: u64 = 2;
/// After this the script reports what it could not end.
const GIVE_UP_SECONDS: u64 = 6;

/// Knows the processes of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The soft file-size limit that they inherit, in the blocks of the guest's shell.
    pub(crate) blocks: u64,
    /// Pid of the command's wrapper, if it could not put the mark on itself ([`super::Opened`]).
    pub unmarked_root: Option<u32>,
}

impl Mark {
    /// A mark of its own, from random bits. It is some 4 PiB: no program notices the limit.
    #[must_use]
    pub fn new(random: u32) -> Self {
        Self { blocks: (1 << 43) + u64::from(random), unmarked_root: None }
    }
}

/// How to end processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Asked first (SIGTERM), then by force.
    Asked,
    /// By force at once.
    Forced,
}

/// The command that ends every process with `mark`; to be run as root. It ends within eight seconds and prints the answer
/// that [`kill_verdict`] reads.
#[must_use]
pub fn kill_argv(mark: Mark, manner: Manner) -> Vec<String> {
    let root = mark.unmarked_root.unwrap_or(0);
    let grace = if manner == Manner::Asked { GRACE_SECONDS } else { 0 };
    let numbers = [mark.blocks * 512, mark.blocks * 1024, u64::from(root), grace, GIVE_UP_SECONDS];
    let command = ["/bin/sh", "-c", SCRIPT, "sh"].into_iter().map(str::to_owned);
    command.chain(numbers.iter().map(u64::to_string)).collect()
}

/// What the answer of [`kill_argv`] says. Processes that could not be marked are never known to be all gone.
#[must_use]
pub fn kill_verdict(answer: &str, mark: Mark) -> TreeKill {
    match answer.trim() {
        "gone" if mark.unmarked_root.is_none() => TreeKill::Yes,
        left if left.starts_with("left") => TreeKill::No,
        _ => TreeKill::Unknown,
    }
}

/// What a command came to whose time was over. `seen`: its sandbox was reached then. A command that nobody saw at its limit,
/// nor could end, may have ended long before: the transport is at fault, and the limit is no verdict on the command.
#[must_use]
pub fn out_of_time(seen: bool, tree_killed: TreeKill) -> Completion {
    if seen || tree_killed != TreeKill::Unknown {
        Completion::DeadlineExceeded { tree_killed }
    } else {
        Completion::TransportLost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_about_marked_processes_counts() {
        let mark = Mark::new(7);
        assert_eq!(kill_verdict("gone\n", mark), TreeKill::Yes);
        assert_eq!(kill_verdict("left 12 13\n", mark), TreeKill::No);
        assert_eq!(kill_verdict("", mark), TreeKill::Unknown);
        assert_eq!(kill_verdict("gone", Mark { unmarked_root: Some(9), ..mark }), TreeKill::Unknown);
    }

    #[test]
    fn a_command_that_nobody_saw_at_its_limit_has_not_timed_out() {
        let exceeded = |tree_killed| Completion::DeadlineExceeded { tree_killed };
        assert_eq!(out_of_time(true, TreeKill::Unknown), exceeded(TreeKill::Unknown));
        assert_eq!(out_of_time(false, TreeKill::Yes), exceeded(TreeKill::Yes), "who ended it has seen it");
        assert_eq!(out_of_time(false, TreeKill::Unknown), Completion::TransportLost);
    }
}
