//! What happens between the creation of a sandbox and its end.

use std::sync::Arc;

use sandbox_bench_core::condition::{ConditionProof, Freshness};
use sandbox_bench_core::evidence::Failure;
use sandbox_bench_core::{
    AgentRecord, Completion, CreateFacts, ExecSpec, FailureClass, Observation, Phase, ReplayRecord, Sandbox,
    SandboxRef, Stage, Verdict,
};
use sandbox_bench_datasets::patch::Direction;
use sandbox_bench_datasets::task::Verifier;

use super::bench::Bench;
use super::context::{CONTROL_LIMIT, Calls, Context, MARGIN, TRANSFER_LIMIT, Trial};
use super::freshness::{self, Expected};
use super::materials::Materials;
use super::recorder::Recorder;
use super::stop::Stop;
use super::{grade, prepare, resumed, session, solve, swesmith, verify};
use crate::environment::fill_templates;
use crate::solver::Solver;

/// What is known of an attempt while it runs.
#[derive(Default)]
pub struct Findings {
    /// The sandbox.
    pub sandbox: Option<SandboxRef>,
    /// How it came to be.
    pub facts: Option<CreateFacts>,
    /// Facts read in it.
    pub freshness: Option<Freshness>,
    /// Whether the condition held.
    pub proof: Option<ConditionProof>,
    /// How the solver ended.
    pub solver: Option<Completion>,
    /// What the model did.
    pub agent: Option<AgentRecord>,
    /// How the repetition of a recording went.
    pub replay: Option<ReplayRecord>,
    /// How the verifier ended.
    pub verifier: Option<Completion>,
    /// The verdict.
    pub verdict: Option<Verdict>,
    /// What the backend says.
    pub observation: Option<Observation>,
}

/// One attempt's work.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// What the run shares.
    pub context: &'a Context,
    /// The attempt.
    pub trial: &'a Trial,
    /// The record.
    pub rec: &'a Recorder<'a>,
    /// The calls.
    pub calls: &'a Calls,
    /// What may be placed.
    pub materials: &'a Materials,
}

impl<'a> Work<'a> {
    /// Runs all phases from *ready* to *collect*. `Ok` means that the verifier had its word; the failure says why that
    /// was not acceptance.
    pub async fn run(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        facts: &CreateFacts,
        expected: &Expected<'_>,
        found: &mut Findings,
    ) -> Result<Option<Failure>, Stop> {
        let rec = self.rec;
        found.sandbox = Some(sandbox.reference().clone());
        found.facts = Some(facts.clone());
        let bench = self.bench(sandbox.clone())?;
        let command = freshness::command(expected.witness());
        let probe = rec.phase(Phase::Ready, probe(&bench, Phase::Ready, "first command", &command)).await?;
        found.freshness = Some(probe.facts.clone());
        let proof = freshness::prove(expected, &probe.facts, facts);
        found.proof = Some(proof.clone());
        if let ConditionProof::Violated { why } = proof {
            let message = format!("the declared condition does not hold: {why}");
            return Err(Stop::new(FailureClass::Startup, Phase::Ready, message));
        }
        if matches!(expected, Expected::Reuse { .. }) {
            rec.phase(Phase::Prepare, session::reset(&bench)).await?;
        }
        if let Expected::Resumed { before } = expected {
            rec.phase(Phase::Prepare, resumed::dismiss(&bench, before)).await?;
        }
        rec.phase(Phase::Inputs, inputs(&bench)).await?;
        let bare = matches!(expected, Expected::Cold | Expected::Resumed { .. });
        let hidden = rec.phase(Phase::Prepare, prepared(&bench, bare)).await?;
        if !matches!(self.context.solver, Solver::None) {
            found.solver = rec.phase(Phase::Solve, solve::solve(&bench, found)).await?;
        }
        let ran = rec.phase(Phase::Verify, verify::verify(&bench, probe.root, &hidden)).await?;
        found.verifier = Some(ran.report.completion.clone());
        let verdict = rec.phase(Phase::Collect, grade::grade(&bench, &ran)).await?;
        found.verdict = Some(verdict.clone());
        let call = self.calls.call(Stage::Verify, CONTROL_LIMIT);
        found.observation = sandbox.observe(&call).await.ok();
        Ok(grade::failure(&verdict, found.solver.as_ref(), found.agent.as_ref().map(|agent| agent.end)))
    }

    /// The working set for a sandbox.
    pub fn bench(&self, sandbox: Arc<dyn Sandbox>) -> Result<Bench<'a>, Stop> {
        let setup = self.trial.setup.as_ref();
        let env =
            fill_templates(&setup.env).map_err(|why| Stop::new(FailureClass::Environment, Phase::Prepare, why))?;
        Ok(Bench {
            context: self.context,
            rec: self.rec,
            calls: self.calls,
            task: self.trial.task.as_ref(),
            dataset: &self.trial.key.dataset,
            model: self.trial.key.model.as_deref(),
            setup,
            materials: self.materials,
            sandbox,
            env,
            has_root: self.trial.backend.info().capabilities.root_user,
            separate_streams: self.trial.backend.info().capabilities.separate_streams,
        })
    }
}

/// Runs the first command.
pub async fn ready(bench: &Bench<'_>) -> Result<freshness::Probe, Stop> {
    probe(bench, Phase::Ready, "first command", &freshness::command(None)).await
}

/// Runs a command that reads the facts.
pub async fn probe(bench: &Bench<'_>, phase: Phase, label: &str, command: &ExecSpec) -> Result<freshness::Probe, Stop> {
    let spec = command.clone().timeout(CONTROL_LIMIT);
    let call = bench.calls.call(Stage::Setup, spec.timeout + MARGIN);
    let ran = bench.rec.exec(phase, label, bench.sandbox(), &call, &spec).await?;
    if ran.success() {
        return Ok(freshness::parse(&ran.stdout.tail));
    }
    let (class, completion) = (FailureClass::Startup, &ran.report.completion);
    Err(Stop::from_completion(class, phase, &format!("the {label}"), completion, &ran.last_words()))
}

/// Places the instruction and this trial's marker.
pub async fn inputs(bench: &Bench<'_>) -> Result<(), Stop> {
    let call = bench.calls.call(Stage::Setup, TRANSFER_LIMIT);
    bench.rec.upload(Phase::Inputs, "instruction", bench.sandbox(), &call, &bench.materials.first).await
}

/// Makes the environment fit the task; returns the test files taken out of the solver's sight.
async fn prepared(bench: &Bench<'_>, bare: bool) -> Result<Vec<swesmith::HeldFile>, Stop> {
    if bare {
        prepare::environment(bench).await?;
    }
    prepare::healthy(bench, &bench.task.environment).await?;
    match &bench.task.verifier {
        Verifier::SweSmith(instance) => {
            swesmith::patch(bench, Phase::Prepare, instance, Direction::Forward).await?;
            swesmith::hide_tests(bench, instance).await
        }
        Verifier::Harbor { .. } | Verifier::TerminalBench1 { .. } => Ok(Vec::new()),
    }
}
