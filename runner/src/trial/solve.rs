//! The solver's phase. A solver that fails or runs out of time does not end the trial: the verifier has the word.

use sandbox_bench_core::{Completion, ExecSpec, FailureClass, Phase, Stage};
use sandbox_bench_datasets::patch::Direction;
use sandbox_bench_datasets::task::{Family, ImageSpec, Solution, Verifier};

use super::bench::Bench;
use super::context::{MARGIN, TRANSFER_LIMIT};
use super::freshness::HOME;
use super::stop::Stop;
use super::swesmith;
use crate::solver::Solver;

/// Runs the solver; returns how its command ended, if it has one.
pub async fn solve(bench: &Bench<'_>) -> Result<Option<Completion>, Stop> {
    let spec = match (&bench.context.solver, &bench.task.solution) {
        (Solver::None, _) => return Ok(None),
        (Solver::Gold, Some(Solution::ReversePatch)) => {
            let Verifier::SweSmith(instance) = &bench.task.verifier else { return Ok(None) };
            swesmith::patch(bench, Phase::Solve, instance, Direction::Reverse).await?;
            return Ok(None);
        }
        (Solver::Gold, Some(Solution::Script { destination, entry, env, .. })) => {
            let path = format!("{destination}/{entry}");
            let mut spec = script(&path, bench.task.family == Family::TerminalBench1);
            spec.env = bench.filled(env, Phase::Solve)?;
            spec.env.entry("DEBIAN_FRONTEND".into()).or_insert_with(|| "noninteractive".into());
            spec
        }
        (Solver::Gold, None) => {
            let message = "the task has no reference solution";
            return Err(Stop::new(FailureClass::Unavailable, Phase::Solve, message));
        }
        (Solver::Command { script: text, .. }, _) => {
            let path = format!("{HOME}/solver");
            let mut spec = script(&path, !text.starts_with(b"#!"));
            spec.env = bench_variables(bench);
            spec.secret_env = bench.context.forwarded.keys().map(|name| (name.clone(), name.clone())).collect();
            spec
        }
    };
    let limit = bench.context.solve_limit(bench.task);
    let spec = bench.command(spec.timeout(limit), bench.task.users.solver.as_ref());
    let call = bench.calls.call(Stage::Solve, TRANSFER_LIMIT);
    bench.rec.upload(Phase::Solve, "solver material", bench.sandbox(), &call, &bench.materials.solver).await?;
    let call = bench.calls.call(Stage::Solve, limit + MARGIN);
    let ran = bench.rec.exec(Phase::Solve, "solver", bench.sandbox(), &call, &spec).await?;
    Ok(Some(ran.report.completion))
}

/// A script by its own shebang, or by bash (else sh) if `by_shell`. Going through `sh` also runs a script without a
/// shebang, as an interactive shell would.
fn script(path: &str, by_shell: bool) -> ExecSpec {
    let run = if by_shell {
        r#"if command -v bash >/dev/null 2>&1; then exec bash "$0"; else exec sh "$0"; fi"#
    } else {
        r#"exec "$0""#
    };
    ExecSpec::new(["sh", "-c", run, path])
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
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
