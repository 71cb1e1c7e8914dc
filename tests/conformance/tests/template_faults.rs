//! The adapter, with the layers around it, when its service has a bad day: faults are scripted in the emulator. REPLACE
//! the routes, and add what the vendor is known for (`daytona_faults.rs`).

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sandbox_bench_conformance::check::{refused, same};
use sandbox_bench_conformance::{Case, Check, Outcome, Stop, ensure, run_cases};
use sandbox_bench_core::layers::{RetryPolicy, stack};
use sandbox_bench_core::{
    Backend, Call, Completion, Created, Destruction, Error, ExecSpec, Grants, SandboxSpec, Source, Stream, Tag,
    TagQuery, TailSink,
};
use sandbox_bench_emulators::faults::{Effect, Ending, Rule, Script};
use sandbox_bench_emulators::machine::MachineOptions;
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use sandbox_bench_template::{TemplateConfig, connect_with};

const KEY: &str = "emulator-key";
const LIMIT: Duration = Duration::from_secs(40);
const SANDBOXES: &str = "/v1/sandboxes";
const SANDBOX: &str = "/v1/sandboxes/*";
const COMMANDS: &str = "/v1/sandboxes/*/commands";
const OUTPUT: &str = "/v1/sandboxes/*/commands/*/output";

/// An emulator and a connection to it.
struct Bench {
    server: Server,
    backend: Arc<dyn Backend>,
    tags: AtomicU32,
}

impl Bench {
    async fn new(key: &str) -> anyhow::Result<Self> {
        let emulation = Emulation::new(Machines::open(MachineOptions::default()).await?, Timing::default());
        let server = sandbox_bench_emulators::template::start(Listener::bind(0).await?, Arc::new(emulation), KEY);
        let config = TemplateConfig { api_url: Some(server.base_url().to_owned()), ..TemplateConfig::default() };
        let backend = connect_with(&config, |name| (name == "TEMPLATE_API_KEY").then(|| key.to_owned()))?;
        let policy = RetryPolicy { max_retries: 2, min_wait: Duration::from_millis(50), ..RetryPolicy::default() };
        Ok(Self { server, backend: stack(backend, policy), tags: AtomicU32::new(0) })
    }

    fn faults(&self, rules: impl IntoIterator<Item = Rule>) -> Check {
        let script = Script { rules: rules.into_iter().collect() };
        self.server.emulation().faults.set(script).map_err(|e| Stop::Failed(e.to_string()))
    }

    fn call(&self) -> Call {
        let grants = Grants { network: sandbox_bench_core::NetworkPolicy::Public, ..Grants::default() };
        Call::new(self.tag(), LIMIT, Arc::new(grants))
    }

    fn tag(&self) -> Tag {
        Tag::new("faults", &format!("u{}", self.tags.fetch_add(1, Relaxed)))
    }

    async fn create(&self) -> Result<Created, Error> {
        let spec = SandboxSpec::new(self.tag(), Source::Base);
        self.backend.create(&self.call(), &spec, &TailSink::new(0)).await
    }

    /// How a script ends, and what it printed.
    async fn sh(&self, made: &Created, script: &str) -> Result<(Completion, String), Error> {
        let sink = TailSink::new(1 << 20);
        let report = made.sandbox.exec(&self.call(), &ExecSpec::sh(script).timeout(LIMIT), &sink).await?;
        Ok((report.completion, sink.text(Stream::Stdout)))
    }

    /// All is well again: everything that was made goes, and no request was malformed.
    async fn end(self) -> Check {
        self.faults([])?;
        for found in self.backend.find(&self.call(), &TagQuery::All).await? {
            same("destroy", self.backend.destroy(&self.call(), &found.reference).await?, Destruction::Confirmed)?;
        }
        let emulation = self.server.emulation();
        same("machines that run", emulation.machines.alive().len(), 0)?;
        same("requests that the vendor refuses", emulation.violations.all(), Vec::new())?;
        self.server.shutdown(LIMIT).await.map_err(|e| Stop::Failed(e.to_string()))
    }
}

async fn a_lost_answer_to_create_is_looked_for(bench: Bench) -> Check {
    bench.faults([Rule::new("POST", SANDBOXES, Effect::LoseResponse)])?;
    let made = bench.create().await?;
    same("a command", bench.sh(&made, "echo there").await?.1, "there\n".into())?;
    // Where it cannot be looked for either, nobody may think that there is nothing.
    bench
        .faults([Rule::new("POST", SANDBOXES, Effect::LoseResponse), Rule::new("GET", SANDBOX, Effect::status(503))])?;
    refused("create", bench.create().await, &["uncertain_submission"])?;
    bench.faults([])?;
    same("what is found", bench.backend.find(&bench.call(), &TagQuery::All).await?.len(), 2)?;
    bench.end().await
}

async fn a_lost_start_is_never_repeated(bench: Bench) -> Check {
    let made = bench.create().await?;
    bench.sh(&made, "true").await?;
    bench.faults([Rule::new("POST", COMMANDS, Effect::LoseResponse).times(1)])?;
    refused("a command", bench.sh(&made, "echo ran >> /tmp/ran").await, &["transport"])?;
    let looked = "i=0; while [ ! -e /tmp/ran ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done; cat /tmp/ran";
    same("how often it ran", bench.sh(&made, looked).await?.1, "ran\n".into())?;
    bench.end().await
}

async fn an_output_that_breaks_off_is_read_on(bench: Bench) -> Check {
    let made = bench.create().await?;
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
    bench.end().await
}

async fn a_service_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out(bench: Bench) -> Check {
    let made = bench.create().await?;
    bench.sh(&made, "true").await?;
    bench.faults([
        Rule::new("GET", OUTPUT, Effect::Cut { after: 2000, ending: Ending::Clean }).times(1),
        Rule::new("GET", OUTPUT, Effect::status(503)).skip(1),
        Rule::new("POST", COMMANDS, Effect::status(503)).skip(1),
    ])?;
    let spec = ExecSpec::sh("seq 1000; sleep 30").timeout(Duration::from_secs(2));
    let report = made.sandbox.exec(&bench.call(), &spec, &TailSink::new(0)).await?;
    same("a command", report.completion, Completion::TransportLost)?;
    bench.end().await
}

async fn a_delete_that_does_nothing_is_not_confirmed(bench: Bench) -> Check {
    let made = bench.create().await?;
    bench.faults([Rule::new("DELETE", SANDBOX, Effect::status(202))])?;
    let call = bench.call().within(Duration::from_secs(3));
    let outcome = bench.backend.destroy(&call, made.sandbox.reference()).await?;
    ensure!(matches!(outcome, Destruction::Unconfirmed { .. }), "a delete that did nothing is {outcome:?}");
    bench.end().await
}

async fn passing_faults_are_survived(bench: Bench) -> Check {
    let wait = Effect::Answer { status: 429, headers: [("Retry-After".into(), "1".into())].into(), body: "".into() };
    let html = Effect::Answer { status: 502, headers: Default::default(), body: "<html>Bad Gateway</html>".into() };
    bench.faults([
        Rule::new("POST", SANDBOXES, wait).times(1),
        Rule::new("GET", OUTPUT, html.clone()).times(2),
        Rule::new("DELETE", SANDBOX, html).times(1),
    ])?;
    let made = bench.create().await?;
    same("a command", bench.sh(&made, "exit 3").await?.0, Completion::Exited { code: 3 })?;
    let destroyed = bench.backend.destroy(&bench.call(), made.sandbox.reference()).await?;
    same("destroy", destroyed, Destruction::Confirmed)?;
    bench.end().await
}

async fn a_wrong_key_says_what_to_do(bench: Bench) -> Check {
    let error = refused("preflight", bench.backend.preflight(&bench.call()).await, &["credentials"])?;
    let text = format!("{error} {error:?}");
    ensure!(text.contains("TEMPLATE_API_KEY") && !text.contains("wrong-key"), "the error is {text}");
    refused("create", bench.create().await, &["credentials"]).map(drop)
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
