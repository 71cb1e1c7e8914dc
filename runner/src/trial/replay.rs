//! Repeats a recording: the same steps in the same order, whatever comes of them.

use std::time::{Duration, Instant};

use sandbox_bench_core::{Completion, ExecSpec, FailureClass, Input, Phase, ReplayRecord, TreeKill};

use super::bench::Bench;
use super::steps::{Comparison, Steps};
use super::stop::Stop;
use super::work::Findings;
use crate::recording::{Replay, Step};

/// Repeats what was recorded for the bench's task.
pub async fn replay(
    bench: &Bench<'_>,
    replay: &Replay,
    more: &ExecSpec,
    found: &mut Findings,
) -> Result<Option<Completion>, Stop> {
    let Some(recorded) = replay.steps(bench.dataset, &bench.task.id) else {
        let message = format!("the recording {} has no steps for the task", replay.name);
        return Err(Stop::new(FailureClass::Unavailable, Phase::Solve, message));
    };
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut comparison = Comparison {
        record: ReplayRecord {
            recording: replay.digest.clone(),
            steps: count(recorded.steps.len()),
            ran: 0,
            not_compared: 0,
            divergences: Vec::new(),
            diverged: 0,
        },
        streams_apart: recorded.separate_streams && bench.separate_streams,
    };
    let deadline = Instant::now() + bench.context.solve_limit(bench.task);
    let mut steps = Steps::new(bench);
    let mut files: std::slice::Iter<'_, Input> = bench.materials.solver.iter();
    let mut last = None;
    found.replay = Some(comparison.record.clone());
    for (number, step) in (1..).zip(&recorded.steps) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(1) {
            last = Some(Completion::DeadlineExceeded { tree_killed: TreeKill::Yes });
            break;
        }
        match step {
            Step::Put(_) => {
                let input = files.next().map(std::slice::from_ref).unwrap_or_default();
                steps.place(&format!("step {number}"), input).await?;
            }
            Step::Run(run) => {
                let ran = steps.run(&format!("step {number}"), run, left, more).await?;
                comparison.compare(number, run, &ran);
                last = Some(ran.report.completion);
            }
        }
        comparison.record.ran = number;
        // Kept step by step: what follows may end the attempt.
        found.replay = Some(comparison.record.clone());
    }
    let ReplayRecord { ran, steps: all, diverged, .. } = comparison.record;
    if diverged > 0 {
        bench.rec.warn(format!("{diverged} of {all} replayed steps differ from the recording"));
    }
    // Commands within a recording may well have failed when it was made; only time makes a replay fail.
    Ok(last.filter(|_| ran < all))
}
