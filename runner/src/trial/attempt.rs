//! One attempt: opens or borrows a sandbox, has the work done, takes down, and writes the record.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Attempt, Cleanup, EnvironmentRecord, EnvironmentWay, Failure, SCHEMA_VERSION};
use sandbox_bench_core::{Created, FailureClass, Observation, Phase, Sandbox};

use super::context::{Calls, Context, Start, Trial};
use super::freshness::Expected;
use super::materials::Materials;
use super::open::{self, NotOpened};
use super::recorder::Recorder;
use super::resumed;
use super::session::{self, Session};
use super::stop::Stop;
use super::work::{Findings, Work};

/// How an attempt came out: a failure or none, or what stopped it.
type Outcome = Result<Option<Failure>, Stop>;

/// Runs one attempt.
///
/// # Errors
/// The evidence cannot be written; the run must end. The sandbox is destroyed all the same.
pub async fn attempt(context: &Context, trial: &Trial) -> io::Result<Attempt> {
    let materials = Materials::gather(context, trial, &trial.tag);
    let manifest = materials.as_ref().map(Materials::manifest).unwrap_or_default();
    let calls = Calls::new(&trial.tag, context, trial.network(), manifest);
    let mut started_at = Timestamp::now();
    let mut rec = Recorder::new(trial.tag.clone(), context, trial.key.clone());
    let mut found = Findings::default();
    let (outcome, cleanup) = match (&materials, &trial.start) {
        (Err(error), _) => {
            (Err(Stop::new(FailureClass::Environment, Phase::Inputs, error.to_string())), Cleanup::Nothing)
        }
        (Ok(materials), Start::Reuse(session)) => {
            let mut session = session.lock().await;
            match session::ensure_open(context, trial, &mut session).await {
                Err(NotOpened { stop, cleanup }) => (Err(stop), cleanup),
                Ok(()) => {
                    // The clock of a reuse starts when its sandbox is there.
                    started_at = Timestamp::now();
                    rec = Recorder::new(trial.tag.clone(), context, trial.key.clone());
                    let work = Work { context, trial, rec: &rec, calls: &calls, materials };
                    in_session(&work, &mut session, &mut found).await
                }
            }
        }
        (Ok(materials), Start::Cold | Start::Warm(_) | Start::Resumed) => {
            let work = Work { context, trial, rec: &rec, calls: &calls, materials };
            in_new_sandbox(&work, &mut found).await
        }
    };
    let failure = match outcome {
        Ok(failure) => failure,
        Err(Stop::Failed(failure)) => Some(failure),
        Err(Stop::Evidence(error)) => return Err(error),
    };
    let (state, total_us) = rec.finish();
    Ok(Attempt {
        schema_version: SCHEMA_VERSION.into(),
        run: context.run.clone(),
        trial: trial.key.clone(),
        attempt: trial.attempt,
        last: true,
        tag: trial.tag.clone(),
        adapter_version: trial.backend.info().adapter_version.clone(),
        task_digest: trial.task.digest.clone(),
        started_at,
        total_us,
        environment: environment(trial, &found),
        sandbox: found.sandbox,
        proof: found.proof,
        freshness: found.freshness,
        phases: state.phases,
        meter: calls.meter(),
        resolution_us: state.resolution.map(super::recorder::micros),
        requested: trial.task.resources.clone(),
        network: trial.network(),
        observation: with_cost(found.observation, calls.cost_facts()),
        solver: found.solver,
        agent: found.agent,
        replay: found.replay,
        verifier: found.verifier,
        verdict: found.verdict,
        failure,
        cleanup,
        inputs: state.inputs,
        outputs: state.outputs,
        warnings: trial.task.warnings.iter().cloned().chain(state.warnings).collect(),
    })
}

async fn in_new_sandbox(work: &Work<'_>, found: &mut Findings) -> (Outcome, Cleanup) {
    let Work { context, trial, rec, calls, .. } = *work;
    let artifact = match &trial.start {
        Start::Warm(id) => Some(id.as_str()),
        Start::Cold | Start::Resumed | Start::Reuse(_) => None,
    };
    let spec = open::request(context, trial, artifact);
    let created = match open::open(context, rec, calls, &trial.backend, &spec).await {
        Ok(created) => created,
        Err(NotOpened { stop, cleanup }) => return (Err(stop), cleanup),
    };
    let outcome = in_created(work, &created, found).await;
    let reference = created.sandbox.reference().clone();
    let end = async { Ok(open::end(context, calls, &trial.backend, &reference).await) };
    match rec.phase(Phase::Destroy, end).await {
        Ok(cleanup) => (outcome, cleanup),
        Err(stop) => (outcome.and(Err(stop)), Cleanup::Unconfirmed { why: "the end was not recorded".into() }),
    }
}

async fn in_created(work: &Work<'_>, created: &Created, found: &mut Findings) -> Outcome {
    let Created { sandbox, facts } = created;
    let fingerprint = work.trial.setup.fingerprint.to_string();
    let before;
    let expected = match &work.trial.start {
        Start::Warm(id) => Expected::Warm { id, fingerprint: &fingerprint },
        Start::Resumed => {
            found.sandbox = Some(sandbox.reference().clone());
            found.facts = Some(facts.clone());
            before = resumed::resume(work, sandbox, facts).await?;
            Expected::Resumed { before: &before }
        }
        Start::Cold | Start::Reuse(_) => Expected::Cold,
    };
    work.run(sandbox, facts, &expected, found).await
}

async fn in_session(work: &Work<'_>, session: &mut Session, found: &mut Findings) -> (Outcome, Cleanup) {
    let Session::Open(held) = session else {
        let stop = Stop::new(FailureClass::Startup, Phase::Ready, "the session is not open");
        return (Err(stop), Cleanup::Nothing);
    };
    let sandbox: Arc<dyn Sandbox> = held.sandbox.clone();
    let facts = held.facts.clone();
    let previous = std::mem::replace(&mut held.previous, work.trial.tag.clone());
    let outcome = work.run(&sandbox, &facts, &Expected::Reuse { previous: &previous }, found).await;
    if outcome.is_ok() {
        return (outcome, Cleanup::Kept);
    }
    // After an error the sandbox is not to be trusted: the next trial gets a new one.
    *session = Session::Closed;
    let cleanup = open::end(work.context, work.calls, &work.trial.backend, sandbox.reference()).await;
    (outcome, cleanup)
}

/// What was observed while the sandbox ran, and what its backend told about cost when it ended.
fn with_cost(seen: Option<Observation>, told: BTreeMap<String, String>) -> Option<Observation> {
    if told.is_empty() {
        return seen;
    }
    let mut seen = seen.unwrap_or_default();
    seen.cost_evidence.extend(told);
    Some(seen)
}

fn environment(trial: &Trial, found: &Findings) -> Option<EnvironmentRecord> {
    let facts = found.facts.as_ref()?;
    let (way, asked) = match &trial.start {
        Start::Cold | Start::Resumed => (trial.setup.way, trial.setup.asked.clone()),
        Start::Warm(id) => (EnvironmentWay::Artifact, id.clone()),
        Start::Reuse(_) => (EnvironmentWay::Reuse, trial.setup.asked.clone()),
    };
    Some(EnvironmentRecord {
        way,
        fingerprint: trial.setup.fingerprint.clone(),
        asked,
        resolved: facts.resolved_source.clone(),
        cache: facts.environment_cache,
    })
}
