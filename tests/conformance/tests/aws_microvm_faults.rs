//! The adapter of AWS Lambda MicroVMs, with the layers around it, when the service has a bad day: faults are scripted in the
//! emulator.

#[path = "support/aws_microvm.rs"]
mod account;
#[path = "support/faults.rs"]
mod faults;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use faults::{Bench, LIMIT, refused};
use sandbox_bench_aws_microvm::{AwsMicrovmConfig, connect_with};
use sandbox_bench_conformance::check::same;
use sandbox_bench_conformance::{Case, Check, Outcome, Stop, ensure, run_cases};
use sandbox_bench_core::{
    Call, Completion, Destruction, Error, ExecSpec, Grants, Input, NetworkPolicy, SandboxSpec, SandboxState, Source,
    Stage, Stream, TagQuery, TailSink,
};
use sandbox_bench_emulators::aws_microvm::{AwsOptions, Quotas};
use sandbox_bench_emulators::faults::{Effect, Ending, Rule};

const RUN: &str = "/2025-09-09/microvms";
const IMAGES: &str = "/2025-09-09/microvm-images";
/// A look at a command, through a MicroVM's endpoint.
const LOOK: &str = "/v1/jobs/*";
const SECRET: &str = "emulator-secret";

impl Bench {
    async fn with(options: AwsOptions, secret: Option<&str>) -> Result<Self, Box<dyn std::error::Error>> {
        let (server, variables) = account::serve(options).await?;
        let variable = |name: &str| match (name, secret) {
            ("AWS_SECRET_ACCESS_KEY", Some(secret)) => Some(secret.to_owned()),
            _ => account::read(&variables, name),
        };
        let backend = connect_with(&AwsMicrovmConfig::default(), variable).await?;
        Ok(Self::over(server, backend, Source::Base))
    }
}

fn kind<T>(what: &str, result: Result<T, Error>, expected: &str) -> Check<Error> {
    refused(SECRET, what, result, expected)
}

async fn a_lost_answer_to_run_makes_one_microvm(bench: Bench) -> Check {
    bench.faults([Rule::new("POST", RUN, Effect::LoseResponse).times(1)])?;
    let made = bench.create(&bench.spec()).await?;
    same("what is there", bench.found(TagQuery::All).await?, 1)?;
    same("a command", bench.sh(&made, "echo fine").await?, (Completion::Exited { code: 0 }, "fine\n".into()))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_run_that_is_never_answered_is_uncertain_and_found(bench: Bench) -> Check {
    bench.faults([Rule::new("POST", RUN, Effect::LoseResponse)])?;
    let spec = bench.spec();
    kind("create", bench.create(&spec).await, "uncertain_submission")?;
    bench.faults([])?;
    let found = bench.backend.find(&bench.call(), &TagQuery::Exact(spec.tag.clone())).await?;
    same("what its tag finds", found.len(), 1)?;
    for found in found {
        same("destroy", bench.backend.destroy(&bench.call(), &found.reference).await?, Destruction::Confirmed)?;
    }
    same("what its tag finds then", bench.found(TagQuery::Exact(spec.tag)).await?, 0)?;
    bench.end().await
}

async fn passing_faults_are_survived(bench: Bench) -> Check {
    let html = Effect::Answer { status: 502, headers: Default::default(), body: "<html>Bad Gateway</html>".into() };
    let wait = Effect::Answer {
        status: 429,
        headers: [
            ("Retry-After".to_owned(), "1".to_owned()),
            ("x-amzn-errortype".to_owned(), "TooManyRequestsException".to_owned()),
        ]
        .into(),
        body: "{}".into(),
    };
    bench.faults([
        Rule::new("POST", RUN, wait.clone()).times(1),
        Rule::new("GET", &format!("{IMAGES}/*"), html.clone()).times(1),
        Rule::new("POST", "/v1/jobs", html).times(2),
        Rule::new("GET", LOOK, Effect::status(503)).times(2),
        Rule::new("GET", LOOK, wait).skip(2).times(1),
        Rule::new("DELETE", &format!("{RUN}/*"), Effect::status(503)).times(1),
    ])?;
    let made = bench.create(&bench.spec()).await?;
    let ran = bench.sh(&made, "sleep 1; echo fine; exit 3").await?;
    same("a command", ran, (Completion::Exited { code: 3 }, "fine\n".into()))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_connection_that_is_cut_loses_and_repeats_nothing(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let count = "echo run >>/tmp/count; ";
    let cut = |after, ending| Effect::Cut { after, ending };
    bench.faults([
        Rule::new("POST", "/v1/jobs", Effect::LoseResponse).times(1),
        Rule::new("GET", LOOK, cut(300, Ending::Reset)).times(1),
        Rule::new("GET", LOOK, cut(4000, Ending::Close)).skip(1).times(1),
        Rule::new("GET", LOOK, Effect::LoseResponse).skip(2).times(1),
    ])?;
    let script = format!("{count}i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 7");
    let expected: String = (0..2000).map(|i| format!("line {i}\n")).collect();
    same("a command", bench.sh(&made, &script).await?, (Completion::Exited { code: 7 }, expected))?;
    bench.faults([])?;
    same("how often it ran", bench.sh(&made, "cat /tmp/count").await?.1, "run\n".into())?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_runner_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out(bench: Bench) -> Check {
    bench.away_at_the_limit(["GET", "POST"].map(|method| Rule::new(method, "/v1/**", Effect::status(502)))).await?;
    bench.end().await
}

async fn pieces_of_an_upload_arrive_once(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let content: Vec<u8> = (0..20_000_000u32).map(|i| (i % 251) as u8).collect();
    let input = Input::bytes("large", "/tmp/large", Stage::Setup, 0o640, content.clone());
    let grants = Grants { network: NetworkPolicy::Public, inputs: vec![input.entry.clone()], ..Grants::default() };
    let call = Call::new(bench.tag(), LIMIT, Arc::new(grants));
    bench.faults([
        Rule::new("PUT", "/v1/files", Effect::LoseResponse).skip(1).times(1),
        Rule::new("PUT", "/v1/files", Effect::status(502)).skip(2).times(1),
    ])?;
    made.sandbox.upload(&call, &[input]).await?;
    bench.faults([])?;
    let digest = sandbox_bench_core::Digest::of(&content).to_string();
    let (_, seen) =
        bench.sh(&made, "sha256sum </tmp/large; stat -c %a /tmp/large; ls /opt/sandbox-bench/incoming").await?;
    let seen: Vec<&str> = seen.split_whitespace().collect();
    ensure!(digest.ends_with(seen.first().unwrap_or(&"nothing")), "another file arrived: {seen:?}, not {digest}");
    same("its mode, and what stays of the pieces", seen.get(2..).unwrap_or_default().to_vec(), vec!["640"])?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_token_that_ends_within_a_command_is_replaced(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([Rule::new("GET", LOOK, Effect::flag("token-revoked")).skip(1).times(1)])?;
    let script = "echo one; sleep 1; echo two; sleep 1; echo three; exit 5";
    let ran = bench.sh(&made, script).await?;
    same("a command", ran, (Completion::Exited { code: 5 }, "one\ntwo\nthree\n".into()))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_microvm_that_dies_under_a_command_is_lost_with_what_was_said(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let (asking, spec) = (bench.call(), ExecSpec::sh("echo begun; sleep 30; echo never").timeout(LIMIT));
    let sink = TailSink::new(4096);
    let dies = async {
        while sink.text(Stream::Stdout).is_empty() && !asking.remaining().is_zero() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bench.faults([Rule::new("GET", LOOK, Effect::flag("dies")).times(1)])
    };
    let (ran, dies) = tokio::join!(made.sandbox.exec(&asking, &spec, &sink), dies);
    dies?;
    same("a command", (ran?.completion, sink.text(Stream::Stdout)), (Completion::SandboxLost, "begun\n".into()))?;
    kind("another one", bench.sh(&made, "true").await, "sandbox_lost")?;
    let found = bench.backend.find(&bench.call(), &TagQuery::Run("faults".into())).await?;
    same("its state", found.iter().map(|found| found.state).collect(), vec![SandboxState::Stopped])?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_microvm_that_was_idle_for_too_long_is_lost(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    same("a command", bench.sh(&made, "echo fine").await?.1, "fine\n".into())?;
    // The account's seconds are short: its five idle minutes have passed before a sandbox is spoken to again.
    tokio::time::sleep(Duration::from_secs(9)).await;
    kind("a command", bench.sh(&made, "echo late").await, "sandbox_lost")?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn orders_to_suspend_and_resume_survive_what_happens_to_them(bench: Bench) -> Check {
    let made = bench.create(&SandboxSpec { resumable: true, ..bench.spec() }).await?;
    bench.sh(&made, "sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid").await?;
    let (suspend, resume) = (format!("{RUN}/*/suspend"), format!("{RUN}/*/resume"));
    let no_effect = Effect::Answer { status: 200, headers: Default::default(), body: "{}".into() };
    bench.faults([
        Rule::new("POST", &suspend, Effect::status(503)).times(1),
        Rule::new("POST", &suspend, Effect::LoseResponse).times(1),
        Rule::new("POST", &resume, Effect::LoseResponse).times(1),
        Rule::new("POST", &resume, no_effect).times(1),
    ])?;
    for _ in 0..2 {
        made.sandbox.suspend(&bench.call()).await?;
        made.sandbox.resume(&bench.call()).await?;
    }
    bench.faults([])?;
    same("a process", bench.sh(&made, "kill -0 $(cat /tmp/pid)").await?.0, Completion::Exited { code: 0 })?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_suspended_microvm_whose_time_is_over_is_lost(bench: Bench) -> Check {
    // The account's seconds are short.
    let spec = SandboxSpec { resumable: true, lifetime: Duration::from_secs(900), ..bench.spec() };
    let made = bench.create(&spec).await?;
    bench.sh(&made, "true").await?;
    made.sandbox.suspend(&bench.call()).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    kind("resume", made.sandbox.resume(&bench.call()).await, "sandbox_lost")?;
    kind("a command", bench.sh(&made, "true").await, "sandbox_lost")?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_microvm_of_another_process_is_found_by_its_tag(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let url = bench.server.base_url().to_owned();
    let again = connect_with(&AwsMicrovmConfig::default(), |name| match name {
        "AWS_ENDPOINT_URL" | "AWS_MICROVM_DATA_PLANE_URL" => Some(url.clone()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        "AWS_ACCESS_KEY_ID" => Some(AwsOptions::default().access_key),
        "AWS_SECRET_ACCESS_KEY" => Some(SECRET.to_owned()),
        _ => None,
    })
    .await?;
    let reference = made.sandbox.reference();
    let found = again.find(&bench.call(), &TagQuery::Exact(reference.tag.clone())).await?;
    same("what its tag finds", found.iter().map(|found| &found.reference).collect(), vec![reference])?;
    same("destroy", again.destroy(&bench.call(), reference).await?, Destruction::Confirmed)?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn an_image_that_is_not_built_says_why_and_can_be_asked_for_again(bench: Bench) -> Check {
    bench.faults([Rule::new("POST", IMAGES, Effect::Flag { name: "build-fails".into(), value: 7 }).times(1)])?;
    let error = kind("create", bench.create(&bench.spec()).await, "environment")?;
    ensure!(error.to_string().contains("CONTAINER_BUILD_FAILED"), "the reason is not told: {error}");
    ensure!(error.to_string().contains("aws logs tail"), "where the log is is not told: {error}");
    bench.faults([])?;
    let made = bench.create(&bench.spec()).await?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_full_account_is_capacity(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let error = kind("a second one", bench.create(&bench.spec()).await, "capacity")?;
    ensure!(error.to_string().contains("quota"), "it does not say what to do: {error}");
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn an_end_that_does_nothing_is_not_confirmed(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([Rule::new("DELETE", &format!("{RUN}/*"), Effect::flag("terminate-ignored"))])?;
    let call = bench.call().within(Duration::from_secs(6));
    let outcome = bench.backend.destroy(&call, made.sandbox.reference()).await?;
    ensure!(matches!(outcome, Destruction::Unconfirmed { .. }), "it was confirmed: {outcome:?}");
    bench.faults([])?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn wrong_credentials_say_what_to_do(bench: Bench) -> Check {
    let error = kind("preflight", bench.backend.preflight(&bench.call()).await, "credentials")?;
    ensure!(error.to_string().contains("AWS_ACCESS_KEY_ID"), "it does not say what to do: {error}");
    Ok(())
}

fn case<F>(
    name: &'static str,
    promise: &'static str,
    options: AwsOptions,
    secret: Option<&'static str>,
    test: fn(Bench) -> F,
) -> Case
where
    F: Future<Output = Check> + Send + 'static,
{
    Case::new(name, promise, move || async move {
        let bench = Bench::with(options, secret).await.map_err(|e| e.to_string());
        let bench = match bench {
            Ok(bench) => bench,
            Err(error) => return Outcome::Failed(error),
        };
        match tokio::time::timeout(LIMIT * 3, test(bench)).await {
            Ok(Ok(())) => Outcome::Ok,
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Ok(Err(Stop::Failed(why))) => Outcome::Failed(why),
            Err(_) => Outcome::Failed("it did not end".to_owned()),
        }
    })
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    let usual = AwsOptions::default;
    let small = || AwsOptions { quotas: Quotas { memory_mib: 2048, ..Quotas::default() }, ..usual() };
    let hasty = || AwsOptions { second: Duration::from_millis(20), ..usual() };
    macro_rules! cases {
        ($($test:ident, $options:expr, $secret:expr => $promise:literal;)*) => {
            vec![$(case(stringify!($test), $promise, $options, $secret, $test)),*]
        };
    }
    run_cases(cases! {
        a_lost_answer_to_run_makes_one_microvm, usual(), None => "the request is sent again with its token";
        a_run_that_is_never_answered_is_uncertain_and_found, usual(), None => "and can be ended";
        passing_faults_are_survived, usual(), None => "429, 5xx, HTML, of the service and of the endpoint";
        a_connection_that_is_cut_loses_and_repeats_nothing, usual(), None => "nothing twice, nothing missing";
        a_runner_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out, usual(), None => "the transport is at fault";
        pieces_of_an_upload_arrive_once, usual(), None => "and go on where they were cut";
        a_token_that_ends_within_a_command_is_replaced, usual(), None => "and the command does not notice";
        a_microvm_that_dies_under_a_command_is_lost_with_what_was_said, usual(), None => "never a wrong exit code";
        a_microvm_that_was_idle_for_too_long_is_lost, hasty(), None => "and nothing of it stays";
        orders_to_suspend_and_resume_survive_what_happens_to_them, usual(), None => "they may be given twice";
        a_suspended_microvm_whose_time_is_over_is_lost, hasty(), None => "and is not taken for one that sleeps";
        a_microvm_of_another_process_is_found_by_its_tag, usual(), None => "its runner says whose it is";
        an_image_that_is_not_built_says_why_and_can_be_asked_for_again, usual(), None => "by the reason of its build";
        a_full_account_is_capacity, small(), None => "402 is told as such";
        an_end_that_does_nothing_is_not_confirmed, usual(), None => "the service's word is looked at";
        wrong_credentials_say_what_to_do, usual(), Some("wrong") => "and show no secret";
    })
}
