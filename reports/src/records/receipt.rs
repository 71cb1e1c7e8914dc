//! What is known of one command.

use sandbox_bench_core::evidence::Receipt;
use sandbox_bench_core::{Completion, Phase, StreamReport, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of `receipts.jsonl`: one command in a sandbox. Durations are microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandReceipt {
    /// Version of the evidence schemas.
    pub schema_version: String,
    /// The run.
    pub run: String,
    /// Id of the case that it belongs to, as its report has it. None for commands of no case (making a warm artifact), and of
    /// one that did not come to its end because the program was killed.
    pub case: Option<String>,
    /// The backend, where it is known.
    pub backend: Option<String>,
    /// The task; none where `case` is.
    pub task: Option<String>,
    /// The correlation tag under which it is in the journal.
    pub tag: Tag,
    /// The sandbox, by the backend's id; none if there was none.
    pub sandbox: Option<String>,
    /// Number of the operation within the case, from 1. Transfers are numbered too and have no receipt here.
    pub step: u32,
    /// The phase.
    pub phase: Phase,
    /// What was run: `verifier`, `solver`, the tool of an agent, a line of a recipe, …
    pub tool: String,
    /// Start, after the case began, where it is kept.
    pub start_us: Option<u64>,
    /// The round trip, seen by the host.
    pub duration_us: u64,
    /// The part of it that passed inside the sandbox, where that is known.
    pub guest_us: Option<u64>,
    /// The exit code, if it exited by itself. Unknown is never 0.
    pub exit_code: Option<i32>,
    /// How it ended; none if it is not known to have run.
    pub completion: Option<Completion>,
    /// True if its time limit ended it.
    pub timed_out: bool,
    /// True if a part of stdout was left out.
    pub stdout_truncated: bool,
    /// True if a part of stderr was left out.
    pub stderr_truncated: bool,
    /// Whether what came of it is what was expected: of the command that decides a case, and of the steps of a recording. None for all
    /// others, and where nothing was decided.
    pub matches: Option<bool>,
    /// The error, if it could not be run.
    pub error: Option<String>,
}

impl CommandReceipt {
    /// Of a command in the journal, as far as that line tells; none for a transfer.
    #[must_use]
    pub fn of(schema_version: &str, run: &str, tag: &Tag, receipt: Receipt) -> Option<Self> {
        let truncated = |stream: &Option<StreamReport>| stream.as_ref().is_some_and(StreamReport::truncated);
        (receipt.operation == "exec").then(|| Self {
            schema_version: schema_version.to_owned(),
            run: run.to_owned(),
            case: None,
            backend: None,
            task: None,
            tag: tag.clone(),
            sandbox: None,
            step: receipt.step,
            phase: receipt.phase,
            tool: receipt.label,
            start_us: Some(receipt.start_us),
            duration_us: receipt.duration_us,
            guest_us: receipt.guest_us,
            exit_code: receipt.completion.as_ref().and_then(Completion::exit_code),
            timed_out: matches!(receipt.completion, Some(Completion::DeadlineExceeded { .. })),
            completion: receipt.completion,
            stdout_truncated: truncated(&receipt.stdout),
            stderr_truncated: truncated(&receipt.stderr),
            matches: None,
            error: receipt.error,
        })
    }
}
