//! The verifier's phase: tests enter, a reward that was there before is removed and reported, the verifier runs.

use std::collections::BTreeMap;

use sandbox_bench_core::{Completion, ExecSpec, FailureClass, Phase, Stage};
use sandbox_bench_datasets::task::Verifier;

use super::bench::Bench;
use super::context::{MARGIN, TRANSFER_LIMIT};
use super::recorder::Ran;
use super::stop::Stop;
use super::swesmith::{self, HeldFile};

/// File in `/logs/verifier` that says that a reward was there before the verifier ran.
pub const PRESEEDED: &str = ".sandbox-bench-preseeded";

/// Makes the log directories, and removes rewards that the solver may have written. Runs as root. 97 = could not.
const CLEAR: &str = r#"
d=/logs/verifier
for l in /logs $d; do if [ -L $l ]; then rm -f $l; fi; done
mkdir -p $d /logs/agent /logs/artifacts && chmod 777 $d /logs/artifacts || exit 97
for f in $d/reward.txt $d/reward.json; do
  if [ -e $f ] || [ -L $f ]; then rm -rf $f; : >$d/.sandbox-bench-preseeded; fi
  if [ -e $f ] || [ -L $f ]; then exit 97; fi
done
"#;
const CANNOT_CLEAR: i32 = 97;

/// Runs the verifier. How its command ended is the grader's to judge, except for the time limit.
pub async fn verify(bench: &Bench<'_>, image_user_is_root: bool, hidden: &[HeldFile]) -> Result<Ran, Stop> {
    let tests = &bench.materials.tests;
    if !tests.is_empty() {
        let call = bench.calls.call(Stage::Verify, TRANSFER_LIMIT);
        bench.rec.upload(Phase::Verify, "tests", bench.sandbox(), &call, tests).await?;
    }
    let user = bench.task.users.verifier.as_ref();
    let ran = match &bench.task.verifier {
        Verifier::Harbor { script, env, .. } => {
            let env = bench.filled(env, Phase::Verify)?;
            harbor(bench, script, env, user, image_user_is_root).await?
        }
        Verifier::TerminalBench1 { .. } => {
            let run = format!("exec 2>&1; {}", by_shell("/tests/run-tests.sh"));
            let spec = ExecSpec::sh(&run).env("TEST_DIR", "/tests");
            verifier(bench, spec, user).await?
        }
        Verifier::SweSmith(instance) => {
            swesmith::restore_tests(bench, hidden).await?;
            let run =
                r#"if command -v bash >/dev/null 2>&1; then exec bash -c "$0" 2>&1; else exec sh -c "$0" 2>&1; fi"#;
            verifier(bench, ExecSpec::new(["sh", "-c", run, &instance.test_command]), user).await?
        }
    };
    match &ran.report.completion {
        completion @ (Completion::DeadlineExceeded { .. } | Completion::OutOfMemory) => {
            let words = ran.last_words();
            Err(Stop::from_completion(FailureClass::Verifier, Phase::Verify, "verifier", completion, &words))
        }
        _ => Ok(ran),
    }
}

/// Clearing needs root, the script may want another user: one command where both are root, else two.
async fn harbor(
    bench: &Bench<'_>,
    script: &str,
    env: BTreeMap<String, String>,
    user: Option<&String>,
    image_user_is_root: bool,
) -> Result<Ran, Stop> {
    let run = if script.ends_with(".py") {
        format!("exec python3 -m pytest /tests/{script} -rA")
    } else {
        format!("exec /tests/{script}")
    };
    let as_root = match user.or(bench.setup.user.as_ref()) {
        Some(user) => user == "root" || user == "0",
        None => image_user_is_root,
    };
    let text = if as_root { format!("{CLEAR}{run}") } else { run };
    if !as_root {
        let mut spec = ExecSpec::sh(CLEAR).cwd("/");
        spec.user = bench.root();
        let call = bench.calls.call(Stage::Verify, spec.timeout + MARGIN);
        let ran = bench.rec.exec(Phase::Verify, "clear rewards", bench.sandbox(), &call, &spec).await?;
        uncleared(&ran)?;
    }
    let mut spec = ExecSpec::sh(&text);
    spec.env = env;
    let ran = verifier(bench, spec, user).await?;
    if as_root && ran.report.completion.exit_code() == Some(CANNOT_CLEAR) && ran.stdout.output.is_none() {
        uncleared(&ran)?;
    }
    Ok(ran)
}

fn uncleared(ran: &Ran) -> Result<(), Stop> {
    if ran.success() {
        return Ok(());
    }
    let what = "clearing /logs/verifier";
    let words = ran.last_words();
    Err(Stop::from_completion(FailureClass::Verifier, Phase::Verify, what, &ran.report.completion, &words))
}

async fn verifier(bench: &Bench<'_>, spec: ExecSpec, user: Option<&String>) -> Result<Ran, Stop> {
    let limit = bench.context.verify_limit(bench.task);
    let spec = bench.command(spec.timeout(limit), user);
    let call = bench.calls.call(Stage::Verify, limit + MARGIN);
    bench.rec.exec(Phase::Verify, "verifier", bench.sandbox(), &call, &spec).await
}

fn by_shell(path: &str) -> String {
    format!("if command -v bash >/dev/null 2>&1; then exec bash {path}; else exec sh {path}; fi")
}
