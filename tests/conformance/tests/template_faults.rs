//! The adapter, with the layers around it, when its service has a bad day: faults are scripted in the emulator. REPLACE
//! the routes, and add what the vendor is known for (`daytona_faults.rs`).

#[path = "support/faults.rs"]
mod faults;

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use faults::{Bench, LIMIT};
use sandbox_bench_conformance::check::{refused, same};
use sandbox_bench_conformance::{Case, Check, Outcome, Stop, ensure, run_cases};
use sandbox_bench_core::{Completion, Destruction, ExecSpec, Source, TagQuery, TailSink};
use sandbox_bench_emulators::faults::{Effect, Ending, Rule};
use sandbox_bench_emulators::machine::MachineOptions;
use sandbox_bench_emulators::{Emulation, Listener, Machines, Timing};
use sandbox_bench_template::{TemplateConfig, connect_with};

const KEY: &str = "emulator-key";
const SANDBOXES: &str = "/v1/sandboxes";
const SANDBOX: &str = "/v1/sandboxes/*";
const COMMANDS: &str = "/v1/sandboxes/*/commands";
const OUTPUT: &str = "/v1/sandboxes/*/commands/*/output";

impl Bench {
    async fn new(key: &str) -> anyhow::Result<Self> {
        let emulation = Emulation::new(Machines::open(MachineOptions::default()).await?, Timing::default());
        let server = sandbox_bench_emulators::template::start(Listener::bind(0).await?, Arc::new(emulation), KEY);
        let config = TemplateConfig { api_url: Some(server.base_url().to_owned()), ..TemplateConfig::default() };
        let backend = connect_with(&config, |name| (name == "TEMPLATE_API_KEY").then(|| key.to_owned()))?;
        Ok(Self::over(server, backend, Source::Base))
    }
}

async fn a_lost_answer_to_create_is_looked_for(bench: Bench) -> Check {
    bench.faults([Rule::new("POST", SANDBOXES, Effect::LoseResponse)])?;
    let made = bench.create(&bench.spec()).await?;
    same("a command", bench.sh(&made, "echo there").await?.1, "there\n".into())?;
    // Where it cannot be looked for either, nobody may think that there is nothing.
    bench
        .faults([Rule::new("POST", SANDBOXES, Effect::LoseResponse), Rule::new("GET", SANDBOX, Effect::status(503))])?;
    refused("create", bench.create(&bench.spec()).await, &["uncertain_submission"])?;
    bench.faults([])?;
    same("what is found", bench.backend.find(&bench.call(), &TagQuery::All).await?.len(), 2)?;
    bench.clear().await
}

async fn a_lost_start_is_never_repeated(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.sh(&made, "true").await?;
    bench.faults([Rule::new("POST", COMMANDS, Effect::LoseResponse).times(1)])?;
    refused("a command", bench.sh(&made, "echo ran >> /tmp/ran").await, &["transport"])?;
    let looked = "i=0; while [ ! -e /tmp/ran ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done; cat /tmp/ran";
    same("how often it ran", bench.sh(&made, looked).await?.1, "ran\n".into())?;
    bench.clear().await
}

async fn an_output_that_breaks_off_is_read_on(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let cut = |after, ending| Rule::new("GET", OUTPUT, Effect::Cut { after, ending }).times(1);
    bench.faults([
        cut(300, Ending::Reset),
        Rule { skip: 1, ..cut(3000, Ending::Close) },
        Rule { skip: 2, ..cut(9000, Ending::Clean) },
        Rule::new("GET", OUTPUT, Effect::status(502)).skip(3).times(1),
    ])?;
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 7";
    let expected: String = (0..2000).map(|i| format!("line {i}\n")).collect();
    same("a command", bench.sh(&made, script).await?, (Completion::Exited { code: 7 }, expected))?;
    bench.clear().await
}

async fn a_service_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.sh(&made, "true").await?;
    bench.faults([
        Rule::new("GET", OUTPUT, Effect::Cut { after: 2000, ending: Ending::Clean }).times(1),
        Rule::new("GET", OUTPUT, Effect::status(503)).skip(1),
        Rule::new("POST", COMMANDS, Effect::status(503)).skip(1),
    ])?;
    let spec = ExecSpec::sh("seq 1000; sleep 30").timeout(Duration::from_secs(2));
    let report = made.sandbox.exec(&bench.call(), &spec, &TailSink::new(0)).await?;
    same("a command", report.completion, Completion::TransportLost)?;
    bench.clear().await
}

async fn a_delete_that_does_nothing_is_not_confirmed(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([Rule::new("DELETE", SANDBOX, Effect::status(202))])?;
    let call = bench.call().within(Duration::from_secs(3));
    let outcome = bench.backend.destroy(&call, made.sandbox.reference()).await?;
    ensure!(matches!(outcome, Destruction::Unconfirmed { .. }), "a delete that did nothing is {outcome:?}");
    bench.clear().await
}

async fn passing_faults_are_survived(bench: Bench) -> Check {
    let wait = Effect::Answer { status: 429, headers: [("Retry-After".into(), "1".into())].into(), body: "".into() };
    let html = Effect::Answer { status: 502, headers: Default::default(), body: "<html>Bad Gateway</html>".into() };
    bench.faults([
        Rule::new("POST", SANDBOXES, wait).times(1),
        Rule::new("GET", OUTPUT, html.clone()).times(2),
        Rule::new("DELETE", SANDBOX, html).times(1),
    ])?;
    let made = bench.create(&bench.spec()).await?;
    same("a command", bench.sh(&made, "exit 3").await?.0, Completion::Exited { code: 3 })?;
    let destroyed = bench.backend.destroy(&bench.call(), made.sandbox.reference()).await?;
    same("destroy", destroyed, Destruction::Confirmed)?;
    bench.clear().await
}

async fn a_wrong_key_says_what_to_do(bench: Bench) -> Check {
    let error = refused("preflight", bench.backend.preflight(&bench.call()).await, &["credentials"])?;
    let text = format!("{error} {error:?}");
    ensure!(text.contains("TEMPLATE_API_KEY") && !text.contains("wrong-key"), "the error is {text}");
    refused("create", bench.create(&bench.spec()).await, &["credentials"]).map(drop)
}

fn case<F>(name: &str, promise: &str, key: &'static str, test: fn(Bench) -> F) -> Case
where
    F: Future<Output = Check> + Send + 'static,
{
    Case::new(name, promise, move || async move {
        let run = async { test(Bench::new(key).await.map_err(|e| Stop::Failed(format!("{e:#}")))?).await };
        match tokio::time::timeout(LIMIT * 2, run).await {
            Ok(Ok(())) => Outcome::Ok,
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Ok(Err(Stop::Failed(why))) => Outcome::Failed(why),
            Err(_) => Outcome::Failed("it did not end".to_owned()),
        }
    })
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    macro_rules! cases {
        ($($test:ident, $key:expr => $promise:literal;)*) => {
            vec![$(case(stringify!($test), $promise, $key, $test)),*]
        };
    }
    run_cases(cases! {
        a_lost_answer_to_create_is_looked_for, KEY => "found, or uncertain and then found";
        a_lost_start_is_never_repeated, KEY => "it ran once, and nobody claims to know";
        an_output_that_breaks_off_is_read_on, KEY => "nothing twice, nothing missing";
        a_service_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out, KEY => "the transport is at fault";
        a_delete_that_does_nothing_is_not_confirmed, KEY => "the service's word is looked at";
        passing_faults_are_survived, KEY => "429, 5xx, HTML";
        a_wrong_key_says_what_to_do, "wrong-key" => "and is not shown";
    })
}
