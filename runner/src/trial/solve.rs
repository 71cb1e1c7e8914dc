//! The solver's phase. A solver that fails or runs out of time does not end the trial: the verifier has the word.

use sandbox_bench_core::{Completion, ExecSpec, FailureClass, Phase};
use sandbox_bench_datasets::patch::Direction;
use sandbox_bench_datasets::task::{Family, ImageSpec, Solution, Verifier};

use super::bench::Bench;
use super::freshness::HOME;
use super::steps::Steps;
use super::stop::Stop;
use super::work::Findings;
use super::{agent, replay, swesmith};
use crate::recording::Run;
use crate::solver::Solver;

/// Runs the solver; returns how its command ended, if it has one. What a model or a replay did is in `found`.
pub async fn solve(bench: &Bench<'_>, found: &mut Findings) -> Result<Option<Completion>, Stop> {
    let (run, more) = match (&bench.context.solver, &bench.task.solution) {
        (Solver::None, _) => return Ok(None),
        (Solver::Gold, Some(Solution::ReversePatch)) => {
            let Verifier::SweSmith(instance) = &bench.task.verifier else { return Ok(None) };
            swesmith::patch(bench, Phase::Solve, instance, Direction::Reverse).await?;
            return Ok(None);
        }
        (Solver::Gold, Some(Solution::Script { destination, entry, env, .. })) => {
            let mut run = script(&format!("{destination}/{entry}"), bench.task.family == Family::TerminalBench1);
            run.env = bench.filled(env, Phase::Solve)?;
            run.env.entry("DEBIAN_FRONTEND".into()).or_insert_with(|| "noninteractive".into());
            (run, ExecSpec::new([""; 0]))
        }
        (Solver::Gold, None) => {
            let message = "the task has no reference solution";
            return Err(Stop::new(FailureClass::Unavailable, Phase::Solve, message));
        }
        (Solver::Command { script: text, .. }, _) => {
            (script(&format!("{HOME}/solver"), !text.starts_with(b"#!")), told(bench, true))
        }
        (Solver::Agent(agent), _) => return agent::agent(bench, agent, &told(bench, false), found).await,
        (Solver::Replay(replay), _) => return replay::replay(bench, replay, &told(bench, true), found).await,
    };
    let mut steps = Steps::new(bench);
    if filled_from_host(bench) {
        steps.gap("the solution's variables come from the host");
    }
    steps.place("solver material", &bench.materials.solver).await?;
    let ran = steps.run("solver", &run, bench.context.solve_limit(bench.task), &more).await?;
    steps.keep()?;
    Ok(Some(ran.report.completion))
}

/// What a command is told that is no part of it: the trial's variables and, if it may have them, the forwarded ones.
fn told(bench: &Bench<'_>, forwarded: bool) -> ExecSpec {
    let mut spec = ExecSpec::new([""; 0]);
    spec.env = bench_variables(bench);
    if forwarded {
        spec.secret_env = bench.context.forwarded.keys().map(|name| (name.clone(), name.clone())).collect();
    }
    spec
}

/// True if the gold solution gets values of host variables, which may be secrets.
fn filled_from_host(bench: &Bench<'_>) -> bool {
    match (&bench.context.solver, &bench.task.solution) {
        (Solver::Gold, Some(Solution::Script { env, .. })) => env.values().any(|value| value.contains("${")),
        _ => false,
    }
}

/// A script by its own shebang, or by bash (else sh) if `by_shell`. Going through `sh` also runs a script without a
/// shebang, as an interactive shell would.
fn script(path: &str, by_shell: bool) -> Run {
    let run = if by_shell {
        r#"if command -v bash >/dev/null 2>&1; then exec bash "$0"; else exec sh "$0"; fi"#
    } else {
        r#"exec "$0""#
    };
    Run::argv(["sh", "-c", run, path])
}

/// The variables that tell a command solver about its task.
fn bench_variables(bench: &Bench<'_>) -> std::collections::BTreeMap<String, String> {
    let workdir = bench.setup.workdir.clone().unwrap_or_default();
    let image = match &bench.task.environment.image {
        ImageSpec::Image(image) => image.clone(),
        ImageSpec::Dockerfile { recipe, .. } => recipe.from.clone(),
        ImageSpec::Base => String::new(),
    };
    [
        ("BENCH_TASK_ID", bench.task.id.clone()),
        ("BENCH_TASK_ENV_TYPE", bench.task.family.name().to_owned()),
        ("BENCH_TASK_WORKDIR", workdir),
        ("BENCH_TASK_FILE", format!("{HOME}/TASK.md")),
        ("BENCH_TASK_DOCKER_IMAGE", image),
    ]
    .into_iter()
    .chain(bench.model.map(|model| ("BENCH_MODEL", model.to_owned())))
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
