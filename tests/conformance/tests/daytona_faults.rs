//! The Daytona adapter, with the layers around it, when its service has a bad day: faults are scripted in the emulator.

#[path = "support/faults.rs"]
mod faults;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use faults::{Bench, LIMIT, refused};
use sandbox_bench_conformance::check::same;
use sandbox_bench_conformance::{Case, Check, Outcome, Stop, ensure, run_cases};
use sandbox_bench_core::{
    Call, Completion, Destruction, Digest, Error, ExecSpec, SandboxSpec, SnapshotSpec, Source, Tag, TagQuery, TailSink,
};
use sandbox_bench_daytona::{Account, Credential, DaytonaConfig, connect_as};
use sandbox_bench_emulators::daytona::{DaytonaOptions, Permission, Quota, start};
use sandbox_bench_emulators::faults::{Effect, Ending, Rule};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Timing};
use secrecy::SecretString;

const KEY: &str = "dtn_emulator";
/// The toolbox of any sandbox.
const COMMAND: &str = "/toolbox/*/process/session/*/command/*";

impl Bench {
    async fn with(options: DaytonaOptions, key: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let images = ImageTable::new(Default::default(), &["missing*".to_owned()])?;
        let machines = Machines::open(MachineOptions { images, ..MachineOptions::default() }).await?;
        let emulation = Arc::new(Emulation::new(machines, Timing::default()));
        let server = start(Listener::bind(0).await?, emulation, options);
        let account = Account {
            api_url: format!("{}/api", server.base_url()),
            credential: Credential::Key(SecretString::from(key)),
            target: None,
        };
        let call = Call::new(Tag::new("faults", "connect"), LIMIT, Arc::default());
        let backend = connect_as(&account, &DaytonaConfig::default(), &call).await?;
        Ok(Self::over(server, backend, Source::Image("image".into())))
    }
}

fn kind<T>(what: &str, result: Result<T, Error>, expected: &str) -> Check<Error> {
    refused(KEY, what, result, expected)
}

async fn a_lost_answer_to_create_is_uncertain_and_found(bench: Bench) -> Check {
    bench.faults([
        Rule::new("POST", "/api/sandbox", Effect::LoseResponse),
        Rule::new("GET", "/api/sandbox", Effect::flag("stale-list")),
    ])?;
    let spec = bench.spec();
    kind("create", bench.create(&spec).await, "uncertain_submission")?;
    // The list does not show it yet; its name does.
    let found = bench.backend.find(&bench.call(), &TagQuery::Exact(spec.tag.clone())).await?;
    same("what its tag finds", found.len(), 1)?;
    for found in found {
        same("destroy", bench.backend.destroy(&bench.call(), &found.reference).await?, Destruction::Confirmed)?;
    }
    bench.end().await
}

async fn a_start_that_fails_leaves_nothing(bench: Bench) -> Check {
    bench.faults([Rule::new("POST", "/api/sandbox", Effect::flag("start-fails"))])?;
    let error = kind("create", bench.create(&bench.spec()).await, "environment")?;
    ensure!(error.to_string().contains("runner failed"), "the platform's reason is not told: {error}");
    bench.end().await
}

async fn passing_faults_are_survived(bench: Bench) -> Check {
    let html = Effect::Answer { status: 502, headers: Default::default(), body: "<html>Bad Gateway</html>".into() };
    let wait = Effect::Answer {
        status: 429,
        headers: [("Retry-After-sandbox-create".to_owned(), "1".to_owned())].into(),
        body: String::new(),
    };
    bench.faults([
        Rule::new("POST", "/api/sandbox", wait).times(1),
        Rule::new("GET", "/api/sandbox/*", html).times(1),
        Rule::new("POST", "/toolbox/*/files/folder", Effect::status(503)).times(2),
        Rule::new("GET", COMMAND, Effect::status(500)).times(2),
        Rule::new("DELETE", "/api/sandbox/*", Effect::status(502)).times(1),
    ])?;
    let made = bench.create(&bench.spec()).await?;
    same(
        "a command",
        bench.sh(&made, "sleep 1; echo fine; exit 3").await?,
        (Completion::Exited { code: 3 }, "fine\n".into()),
    )?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_log_that_breaks_off_is_read_on(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let cut = |after, ending| Effect::Cut { after, ending };
    let logs = format!("{COMMAND}/logs");
    bench.faults([
        Rule::new("GET", &logs, cut(400, Ending::Reset)).times(1),
        Rule::new("GET", &logs, cut(5000, Ending::Close)).skip(1).times(1),
    ])?;
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 7";
    let expected: String = (0..2000).map(|i| format!("line {i}\n")).collect();
    same("a command", bench.sh(&made, script).await?, (Completion::Exited { code: 7 }, expected))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn an_exit_code_survives_the_loss_of_its_log(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let logs = |effect| Rule::new("GET", &format!("{COMMAND}/logs"), effect);
    // It cannot be followed, but read at once.
    bench.faults([Rule { query: Some("follow=true".into()), ..logs(Effect::status(500)) }])?;
    let ran = bench.sh(&made, "echo whole; exit 9").await?;
    same("a command whose log cannot be followed", ran, (Completion::Exited { code: 9 }, "whole\n".into()))?;
    // Without any log nobody knows whether it was started, and nobody may think that it was not.
    bench.faults([logs(Effect::status(500))])?;
    kind("a command without a log", bench.sh(&made, "exit 9").await, "transport")?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_platform_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([Rule::new("GET", COMMAND, Effect::status(503))])?;
    // Shorter than it takes to give up asking.
    let spec = ExecSpec::sh("sleep 30").timeout(Duration::from_secs(1));
    let report = made.sandbox.exec(&bench.call(), &spec, &TailSink::new(0)).await?;
    same("a command", report.completion, Completion::TransportLost)?;
    // Nothing of another command is to be learnt at all: nobody may think that it did not start, and start it again.
    bench.faults([
        Rule::new("GET", &format!("{COMMAND}/**"), Effect::status(503)),
        Rule::new("GET", COMMAND, Effect::status(503)),
    ])?;
    kind("a command that is never heard of", bench.sh(&made, "echo ran >>/tmp/ran").await, "transport")?;
    bench.faults([])?;
    same("how often it ran", bench.sh(&made, "cat /tmp/ran").await?.1, "ran\n".into())?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_key_that_may_not_delete_stops_instead(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_delete_that_does_nothing_is_not_confirmed(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([Rule::new("DELETE", "/api/sandbox/*", Effect::flag("delete-ignored"))])?;
    let call = bench.call().within(Duration::from_secs(3));
    let outcome = bench.backend.destroy(&call, made.sandbox.reference()).await?;
    ensure!(matches!(outcome, Destruction::Unconfirmed { .. }), "a delete that did nothing is {outcome:?}");
    bench.faults([])?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn wrong_credentials_say_what_to_do(bench: Bench) -> Check {
    let error = kind("preflight", bench.backend.preflight(&bench.call()).await, "credentials")?;
    ensure!(error.to_string().contains("DAYTONA_API_KEY"), "the error does not name the variable: {error}");
    kind("create", bench.create(&bench.spec()).await, "credentials").map(drop)
}

async fn a_full_quota_is_capacity(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    kind("a second sandbox", bench.create(&bench.spec()).await, "capacity")?;
    let snapshot = |tag: Tag| SnapshotSpec { tag, fingerprint: Digest::of(b"x"), keep_for: None };
    let saved = made.sandbox.snapshot(&bench.call(), &snapshot(bench.tag())).await?;
    kind("a second artifact", made.sandbox.snapshot(&bench.call(), &snapshot(bench.tag())).await, "capacity")?;
    same("delete", bench.backend.delete_artifact(&bench.call(), &saved.id).await?, Destruction::Confirmed)?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn an_idle_artifact_is_activated(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let spec = SnapshotSpec { tag: bench.tag(), fingerprint: Digest::of(b"x"), keep_for: None };
    let saved = made.sandbox.snapshot(&bench.call(), &spec).await?;
    let url = format!("{}/api/snapshots/{}", bench.server.base_url(), saved.id);
    let client = reqwest::Client::new();
    let found = client.get(&url).bearer_auth(KEY).send().await.map_err(|e| Stop::Failed(e.to_string()))?;
    let found = found.text().await.map_err(|e| Stop::Failed(e.to_string()))?;
    let id = found.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let url = format!("{}/api/snapshots/{id}/deactivate", bench.server.base_url());
    let done = client.post(&url).bearer_auth(KEY).send().await.map_err(|e| Stop::Failed(e.to_string()))?;
    ensure!(done.status().is_success(), "deactivation: {}", done.status());
    let clone = bench.create(&SandboxSpec { source: Source::Artifact(saved.id.clone()), ..bench.spec() }).await?;
    same("a command in it", bench.sh(&clone, "echo warm").await?.1, "warm\n".into())?;
    bench.destroyed(&clone).await?;
    bench.destroyed(&made).await?;
    same("delete", bench.backend.delete_artifact(&bench.call(), &saved.id).await?, Destruction::Confirmed)?;
    bench.end().await
}

fn case<F>(
    name: &'static str,
    promise: &'static str,
    options: DaytonaOptions,
    key: &'static str,
    test: fn(Bench) -> F,
) -> Case
where
    F: Future<Output = Check> + Send + 'static,
{
    Case::new(name, promise, move || async move {
        let bench = Bench::with(options, key).await.map_err(|e| e.to_string());
        let bench = match bench {
            Ok(bench) => bench,
            Err(error) => return Outcome::Failed(error),
        };
        match tokio::time::timeout(LIMIT * 2, test(bench)).await {
            Ok(Ok(())) => Outcome::Ok,
            Ok(Err(Stop::Skipped(why))) => Outcome::Skipped(why),
            Ok(Err(Stop::Failed(why))) => Outcome::Failed(why),
            Err(_) => Outcome::Failed("it did not end".to_owned()),
        }
    })
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    let usual = DaytonaOptions::default;
    let no_delete = || {
        let mut options = usual();
        options.permissions.remove(&Permission::DeleteSandboxes);
        options
    };
    let small = || DaytonaOptions { quota: Quota { cpu: 1, snapshots: 1, ..Quota::default() }, ..usual() };
    macro_rules! cases {
        ($($test:ident, $options:expr, $key:expr => $promise:literal;)*) => {
            vec![$(case(stringify!($test), $promise, $options, $key, $test)),*]
        };
    }
    run_cases(cases! {
        a_lost_answer_to_create_is_uncertain_and_found, usual(), KEY => "also while the list does not show it";
        a_start_that_fails_leaves_nothing, usual(), KEY => "the platform's reason is told";
        passing_faults_are_survived, usual(), KEY => "429, 5xx, HTML";
        a_log_that_breaks_off_is_read_on, usual(), KEY => "nothing twice, nothing missing";
        an_exit_code_survives_the_loss_of_its_log, usual(), KEY => "and without any log the outcome is unknown, never wrong";
        a_platform_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out, usual(), KEY => "the transport is at fault";
        a_key_that_may_not_delete_stops_instead, no_delete(), KEY => "an ephemeral sandbox goes when it stops";
        a_delete_that_does_nothing_is_not_confirmed, usual(), KEY => "the platform's word is looked at";
        wrong_credentials_say_what_to_do, usual(), "dtn_wrong" => "and show no secret";
        a_full_quota_is_capacity, small(), KEY => "of sandboxes and of snapshots";
        an_idle_artifact_is_activated, usual(), KEY => "before a sandbox starts from it";
    })
}
