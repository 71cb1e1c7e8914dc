//! Makes the environment fit the task: replays the recipe in a cold sandbox, waits for health, applies task patches.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox_bench_core::{ExecSpec, FailureClass, Phase, Stage};
use sandbox_bench_datasets::task::{Environment, Healthcheck, RecipeStep};
use tokio::time::Instant;

use super::bench::Bench;
use super::context::{MARGIN, TRANSFER_LIMIT};
use super::recorder::Ran;
use super::stop::Stop;

/// How a step's output begins a line that belongs into the record.
const WARNING: &str = "sandbox-bench: warning: ";

/// Brings a cold sandbox to the state that prewarm would save: recipe replayed, working directory made, files placed.
pub async fn environment(bench: &Bench<'_>) -> Result<(), Stop> {
    let deadline = Instant::now() + bench.task.environment.build_timeout;
    if let Some((recipe, _)) = &bench.setup.replay {
        let mut at = Place { env: BTreeMap::new(), workdir: "/".into(), user: None };
        for (position, step) in recipe.steps.iter().enumerate() {
            replay(bench, &mut at, position, step, deadline).await?;
        }
    }
    if let Some(workdir) = &bench.setup.workdir {
        make_directory(bench, workdir).await?;
    }
    if let Some(files) = &bench.materials.files {
        let call = bench.calls.call(Stage::Setup, TRANSFER_LIMIT);
        let inputs = std::slice::from_ref(files);
        bench.rec.upload(Phase::Prepare, "environment files", bench.sandbox(), &call, inputs).await?;
    }
    if let Some(script) = &bench.materials.install {
        let call = bench.calls.call(Stage::Setup, TRANSFER_LIMIT);
        let inputs = std::slice::from_ref(script);
        bench.rec.upload(Phase::Prepare, "solver set-up", bench.sandbox(), &call, inputs).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        let mut spec = ExecSpec::new(["sh", "-c", r#"exec "$0""#, &script.entry.destination]).timeout(left);
        spec.env.clone_from(&bench.env);
        spec.cwd.clone_from(&bench.setup.workdir);
        spec.user = bench.root();
        spec.keep_background = false;
        run(bench, "solver set-up", &spec).await?;
    }
    Ok(())
}

struct Place {
    env: BTreeMap<String, String>,
    workdir: String,
    user: Option<String>,
}

async fn replay(
    bench: &Bench<'_>,
    at: &mut Place,
    position: usize,
    step: &RecipeStep,
    deadline: Instant,
) -> Result<(), Stop> {
    match step {
        RecipeStep::Env { name, value } => {
            at.env.insert(name.clone(), value.clone());
        }
        RecipeStep::User(user) => at.user = Some(user.clone()),
        RecipeStep::Workdir(directory) => {
            make_directory(bench, directory).await?;
            at.workdir.clone_from(directory);
        }
        RecipeStep::Copy { line, .. } => {
            if let Some(input) = bench.materials.copies.get(&position) {
                let call = bench.calls.call(Stage::Setup, TRANSFER_LIMIT);
                let inputs = std::slice::from_ref(input);
                let label = format!("COPY of line {line}");
                bench.rec.upload(Phase::Prepare, &label, bench.sandbox(), &call, inputs).await?;
            }
        }
        RecipeStep::Run { argv, line } => {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut spec = ExecSpec::new(argv.clone()).timeout(left).cwd(at.workdir.clone());
            spec.env.clone_from(&at.env);
            spec.user = at.user.clone().or_else(|| bench.root());
            // A build step's daemons do not become part of an image.
            spec.keep_background = false;
            let ran = run(bench, &format!("RUN of line {line}"), &spec).await?;
            for told in ran.stdout.tail.lines().filter_map(|line| line.strip_prefix(WARNING)) {
                bench.rec.warn(format!("recipe: {told}"));
            }
        }
    }
    Ok(())
}

async fn make_directory(bench: &Bench<'_>, directory: &str) -> Result<(), Stop> {
    let mut spec = ExecSpec::new(["mkdir", "-p", "--", directory]).cwd("/");
    spec.user = bench.root();
    run(bench, &format!("mkdir {directory}"), &spec).await.map(drop)
}

/// Runs a step that must succeed; otherwise the environment is not what the task describes.
async fn run(bench: &Bench<'_>, label: &str, spec: &ExecSpec) -> Result<Ran, Stop> {
    let call = bench.calls.call(Stage::Setup, spec.timeout + MARGIN);
    let ran = bench.rec.exec(Phase::Prepare, label, bench.sandbox(), &call, spec).await?;
    if ran.success() {
        return Ok(ran);
    }
    let class = FailureClass::Environment;
    Err(Stop::from_completion(class, Phase::Prepare, label, &ran.report.completion, &ran.last_words()))
}

/// Waits until the task's health check succeeds (Harbor's algorithm: failures within the start period do not count).
pub async fn healthy(bench: &Bench<'_>, environment: &Environment) -> Result<(), Stop> {
    let Some(check) = &environment.healthcheck else { return Ok(()) };
    let start = Instant::now();
    // Bounded also if every try hangs: the start period, then so many tries.
    let longest = check.start_period + (check.timeout + check.interval) * (check.retries + 1);
    let mut failures = 0;
    loop {
        let words = match try_health(bench, check).await? {
            None => return Ok(()),
            Some(words) => words,
        };
        let wait = if start.elapsed() < check.start_period {
            check.start_interval
        } else {
            failures += 1;
            check.interval
        };
        if failures >= check.retries.max(1) || start.elapsed() > longest {
            let message = format!("the health check failed {failures} times in a row: {words}");
            return Err(Stop::new(FailureClass::Environment, Phase::Prepare, message));
        }
        pause(bench, wait).await?;
    }
}

/// One try: none if healthy, else the command's last words.
async fn try_health(bench: &Bench<'_>, check: &Healthcheck) -> Result<Option<String>, Stop> {
    let spec = bench.command(ExecSpec::sh(&check.command).timeout(check.timeout), None);
    let call = bench.calls.call(Stage::Setup, spec.timeout + MARGIN);
    let ran = bench.rec.exec(Phase::Prepare, "health check", bench.sandbox(), &call, &spec).await?;
    Ok((!ran.success()).then(|| format!("{} {}", ran.report.completion, ran.last_words())))
}

async fn pause(bench: &Bench<'_>, wait: Duration) -> Result<(), Stop> {
    let call = bench.calls.call(Stage::Setup, wait);
    tokio::select! {
        () = tokio::time::sleep(wait) => Ok(()),
        () = call.cancel.cancelled() => Err(Stop::interrupted(Phase::Prepare)),
    }
}
