//! A sandbox that is suspended and resumed before its trial goes on, for the condition `resumed`.
//!
//! What comes before is the environment's time: making the sandbox, the first command in it, suspending it. The phase
//! `create` is the resumption alone, so that it can be set beside the `create` of other conditions. That the same sandbox
//! went on, with its processes, is shown by a process that was left running in it.

use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::condition::{ConditionProof, Freshness};
use sandbox_bench_core::{CreateFacts, ExecSpec, FailureClass, Phase, Sandbox, Stage};

use super::bench::Bench;
use super::context::{CONTROL_LIMIT, MARGIN};
use super::freshness::{self, Expected};
use super::stop::Stop;
use super::work::{self, Work};

/// Limit for suspending a sandbox and for resuming it: its memory is written and read.
const LIMIT: Duration = Duration::from_secs(300);

/// Suspends a sandbox that was just created, and resumes it. Returns what it showed before.
///
/// # Errors
/// It is not a cold one, or it could not be suspended or resumed.
pub async fn resume(work: &Work<'_>, sandbox: &Arc<dyn Sandbox>, created: &CreateFacts) -> Result<Freshness, Stop> {
    let Work { rec, calls, .. } = *work;
    let before = rec.phase(Phase::Environment, suspend(work, sandbox, created)).await?;
    let resumption = async {
        let call = calls.call(Stage::Setup, LIMIT);
        rec.operation(Phase::Create, "resume", sandbox.resume(&call)).await
    };
    rec.phase(Phase::Create, resumption).await?;
    Ok(before)
}

async fn suspend(work: &Work<'_>, sandbox: &Arc<dyn Sandbox>, created: &CreateFacts) -> Result<Freshness, Stop> {
    let bench = work.bench(sandbox.clone())?;
    let command = freshness::leaving_a_witness();
    let probe = work::probe(&bench, Phase::Environment, "command before the suspension", &command).await?;
    if let ConditionProof::Violated { why } = freshness::prove(&Expected::Cold, &probe.facts, created) {
        let message = format!("the sandbox to be suspended is not cold: {why}");
        return Err(Stop::new(FailureClass::Startup, Phase::Environment, message));
    }
    let call = work.calls.call(Stage::Setup, LIMIT);
    work.rec.operation(Phase::Environment, "suspend", sandbox.suspend(&call)).await?;
    Ok(probe.facts)
}

/// Ends the process that was left as a witness: the task is not to meet it.
pub async fn dismiss(bench: &Bench<'_>, before: &Freshness) -> Result<(), Stop> {
    let Some(witness) = before.witness else { return Ok(()) };
    let spec = ExecSpec::sh(&format!("kill -9 {}", witness.pid)).timeout(CONTROL_LIMIT);
    let call = bench.calls.call(Stage::Setup, spec.timeout + MARGIN);
    let ran = bench.rec.exec(Phase::Prepare, "end of the witness", bench.sandbox(), &call, &spec).await?;
    if !ran.success() {
        bench.rec.warn(format!("the process {} of the proof could not be ended: {}", witness.pid, ran.last_words()));
    }
    Ok(())
}
