//! The Modal adapter, with the layers around it, when its service has a bad day: faults are scripted in the emulator.

#[path = "support/faults.rs"]
mod faults;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faults::{Bench, LIMIT, refused};
use sandbox_bench_conformance::check::same;
use sandbox_bench_conformance::{Case, Check, Outcome, Stop, ensure, run_cases};
use sandbox_bench_core::{
    Completion, Destruction, Digest, Error, ExecSpec, SandboxSpec, SnapshotSpec, Source, Stream, TagQuery, TailSink,
    TreeKill,
};
use sandbox_bench_emulators::faults::{Effect, Rule};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::modal::{ModalOptions, start};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Timing};
use sandbox_bench_modal::{Account, ModalConfig, connect_as};
use secrecy::SecretString;

const SECRET: &str = "as-emulator";
/// gRPC status codes.
const INTERNAL: u64 = 13;
const UNAVAILABLE: u64 = 14;
const DATA_LOSS: u64 = 15;

/// How the emulator and the connection to it are set up.
#[derive(Default)]
struct Settings {
    service: ModalOptions,
    config: ModalConfig,
    secret: Option<&'static str>,
}

/// Every request of this method of the control plane meets the effect.
fn control(method: &str, effect: Effect) -> Rule {
    Rule::new("POST", &format!("/modal.client.ModalClient/{method}"), effect)
}

/// Every request of this method of the router meets the effect.
fn router(method: &str, effect: Effect) -> Rule {
    Rule::new("POST", &format!("/modal.task_command_router.TaskCommandRouter/{method}"), effect)
}

fn flag(name: &str, value: u64) -> Effect {
    Effect::Flag { name: name.to_owned(), value }
}

impl Bench {
    async fn with(settings: Settings) -> Result<Self, Box<dyn std::error::Error>> {
        let images = ImageTable::new(Default::default(), &["missing*".to_owned()])?;
        let machines = Machines::open(MachineOptions { images, ..MachineOptions::default() }).await?;
        let emulation = Arc::new(Emulation::new(machines, Timing::default()));
        let token_id = SecretString::from(settings.service.token_id.clone());
        let server = start(Listener::bind(0).await?, emulation, settings.service);
        let account = Account {
            server_url: server.base_url().to_owned(),
            token_id,
            token_secret: SecretString::from(settings.secret.unwrap_or(SECRET)),
            environment: String::new(),
            builder_version: None,
        };
        let backend = connect_as(account, &settings.config)?;
        Ok(Self::over(server, backend, Source::Image("image".into())))
    }
}

fn kind<T>(what: &str, result: Result<T, Error>, expected: &str) -> Check<Error> {
    refused(SECRET, what, result, expected)
}

async fn a_lost_answer_to_create_is_looked_up(bench: Bench) -> Check {
    for effect in [Effect::LoseResponse, flag("late-status", UNAVAILABLE), flag("late-status", INTERNAL)] {
        bench.faults([
            control("SandboxCreateV2", effect).times(1),
            control("SandboxListV2", flag("stale-list", 60_000)),
        ])?;
        let made = bench.create(&bench.spec()).await?;
        let tag = made.sandbox.reference().tag.clone();
        // The list does not show it yet; its name does.
        same("what its tag finds", bench.found(TagQuery::Exact(tag)).await?, 1)?;
        same("what the run finds", bench.found(TagQuery::Run("faults".into())).await?, 1)?;
        same("a command", bench.sh(&made, "echo fine").await?.1, "fine\n".into())?;
        bench.destroyed(&made).await?;
    }
    bench.end().await
}

async fn a_create_that_cannot_be_looked_up_is_uncertain(bench: Bench) -> Check {
    bench.faults([
        control("SandboxCreateV2", Effect::LoseResponse),
        control("SandboxGetFromNameV2", flag("status", UNAVAILABLE)),
    ])?;
    let spec = bench.spec();
    kind("create", bench.create(&spec).await, "uncertain_submission")?;
    bench.faults([])?;
    let found = bench.backend.find(&bench.call(), &TagQuery::Exact(spec.tag.clone())).await?;
    same("what its tag finds", found.len(), 1)?;
    for found in found {
        same("destroy", bench.backend.destroy(&bench.call(), &found.reference).await?, Destruction::Confirmed)?;
    }
    bench.end().await
}

async fn passing_faults_are_survived(bench: Bench) -> Check {
    bench.faults([
        control("AppGetOrCreate", flag("status", UNAVAILABLE)).times(1),
        control("SandboxCreateV2", flag("throttle", 300)).times(1),
        router("TaskExecStart", flag("status", UNAVAILABLE)).times(2),
        router("TaskExecStdioRead", flag("status", INTERNAL)).times(2),
        router("TaskExecWait", flag("status", UNAVAILABLE)).times(2),
        control("SandboxTerminateV2", flag("status", UNAVAILABLE)).times(1),
        control("SandboxWaitV2", Effect::Reset).times(1),
    ])?;
    let made = bench.create(&bench.spec()).await?;
    let ran = bench.sh(&made, "sleep 1; echo fine; exit 3").await?;
    same("a command", ran, (Completion::Exited { code: 3 }, "fine\n".into()))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

const LINES: &str = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; sleep 1; echo last; exit 7";

fn lines() -> String {
    (0..2000).map(|i| format!("line {i}\n")).chain(["last\n".to_owned()]).collect()
}

async fn a_stream_that_breaks_off_is_read_on(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([
        router("TaskExecStdioRead", flag("stdio-cut", 400)).times(2),
        router("TaskExecStdioRead", flag("stdio-fails", 5000)).skip(2).times(3),
        router("TaskExecStdioRead", Effect::Reset).skip(5).times(2),
    ])?;
    same("a command", bench.sh(&made, LINES).await?, (Completion::Exited { code: 7 }, lines()))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_router_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out(bench: Bench) -> Check {
    bench.away_at_the_limit([Rule::new("POST", "/**", Effect::Reset)]).await?;
    bench.end().await
}

async fn what_cannot_be_read_on_is_lost_and_never_a_success(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([
        router("TaskExecStdioRead", flag("stdio-cut", 400)).times(2),
        router("TaskExecStdioRead", flag("status", DATA_LOSS)).skip(2),
    ])?;
    let (completion, output) = bench.sh(&made, "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done").await?;
    same("its end", completion, Completion::TransportLost)?;
    ensure!(lines().starts_with(&output) && !output.is_empty(), "the beginning of the output was not kept: {output:?}");
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_token_that_ends_is_replaced(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    // The streams break when the token has ended, and need another to go on.
    bench.faults([router("TaskExecStdioRead", flag("stdio-cut", 100)).times(2)])?;
    let script = "echo first; sleep 3; i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); done; exit 5";
    let (completion, output) = bench.sh(&made, script).await?;
    same("its end", completion, Completion::Exited { code: 5 })?;
    ensure!(output.starts_with("first\nline 0\n") && output.ends_with("line 99\n"), "not the whole output: {output:?}");
    // A limit is kept with another token than that of the start.
    let limited = ExecSpec::sh("echo begun; sleep 30").timeout(Duration::from_secs(3));
    let ended = bench.run(&made, &limited).await?;
    same("a limit", ended, (Completion::DeadlineExceeded { tree_killed: TreeKill::Yes }, "begun\n".into()))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_token_that_never_worked_is_replaced(bench: Bench) -> Check {
    bench.faults([control("SandboxCreateV2", flag("expired-token", 0))])?;
    let made = bench.create(&bench.spec()).await?;
    same("a command", bench.sh(&made, "echo fine").await?.1, "fine\n".into())?;
    bench.faults([control("SandboxCreateV2", flag("no-access", 0))])?;
    let other = bench.create(&bench.spec()).await?;
    same("a command", bench.sh(&other, "echo fine").await?.1, "fine\n".into())?;
    bench.destroyed(&other).await?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_lost_answer_to_a_start_starts_nothing_twice(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([
        router("TaskExecStart", Effect::LoseResponse).times(1),
        router("TaskExecStart", flag("late-status", UNAVAILABLE)).skip(1).times(1),
    ])?;
    same("a command", bench.sh(&made, "echo ran >>/tmp/runs; exit 4").await?.0, Completion::Exited { code: 4 })?;
    same("how often it ran", bench.sh(&made, "cat /tmp/runs").await?.1, "ran\n".into())?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn no_byte_of_stdin_is_lost_or_sent_twice(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([
        router("TaskExecStdinWrite", flag("late-status", UNAVAILABLE)).skip(1).times(1),
        router("TaskExecStdinWrite", flag("status", UNAVAILABLE)).skip(2).times(1),
        router("TaskExecStdinWrite", Effect::LoseResponse).skip(3).times(1),
    ])?;
    let input: Vec<u8> = (0..3_500_000u32).map(|i| (i % 251) as u8).collect();
    let digest = Digest::of(&input).hex();
    let spec = ExecSpec { stdin: Some(Bytes::from(input)), ..ExecSpec::sh("sha256sum") };
    same("what arrived", bench.run(&made, &spec).await?, (Completion::Exited { code: 0 }, format!("{digest}  -\n")))?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_sandbox_that_ends_under_a_command_is_told(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    let sink = TailSink::new(4096);
    let (call, spec) = (bench.call(), ExecSpec::sh("echo begun; sleep 30").timeout(LIMIT));
    let ending = async {
        while !sink.text(Stream::Stdout).contains("begun") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bench.destroyed(&made).await
    };
    let (report, ended) = tokio::join!(made.sandbox.exec(&call, &spec, &sink), ending);
    ended?;
    same("its end", report?.completion, Completion::SandboxLost)?;
    same("what it printed", sink.text(Stream::Stdout), "begun\n".into())?;
    kind("another command", bench.sh(&made, "true").await, "sandbox_lost")?;
    bench.end().await
}

async fn long_commands_write_to_files(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    // A look that fails is repeated.
    bench.faults([router("TaskExecStdioRead", flag("status", INTERNAL)).skip(3).times(3)])?;
    same("a command", bench.sh(&made, LINES).await?, (Completion::Exited { code: 7 }, lines()))?;
    bench.faults([])?;
    let large = ExecSpec::sh("head -c 3000000 /dev/zero | tr '\\0' x; echo over >&2").timeout(LIMIT);
    let (completion, output) = bench.run(&made, &ExecSpec { output_limit: 8 << 20, ..large }).await?;
    same("a large output", (completion, output.len()), (Completion::Exited { code: 0 }, 3_000_000))?;
    let limited = ExecSpec::sh("echo begun; sleep 30").timeout(Duration::from_secs(3));
    let ended = bench.run(&made, &limited).await?;
    same("a limit", ended, (Completion::DeadlineExceeded { tree_killed: TreeKill::Yes }, "begun\n".into()))?;
    let read = ExecSpec { stdin: Some(Bytes::from_static(b"given")), ..ExecSpec::sh("cat; exit 9") };
    same("stdin", bench.run(&made, &read).await?, (Completion::Exited { code: 9 }, "given".into()))?;
    let missing = ExecSpec::sh("true").cwd("/no/such/directory");
    kind("a directory that is not there", bench.run(&made, &missing).await, "not_found")?;
    same("what is left of them", bench.sh(&made, "ls -d /tmp/.sandbox-bench-* | wc -l").await?.1, "1\n".into())?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_build_that_fails_says_why(bench: Bench) -> Check {
    for (status, expected) in [(2, "environment"), (4, "environment"), (3, "unavailable")] {
        bench.faults([control("ImageGetOrCreate", flag("build-fails", status))])?;
        let error = kind("create", bench.create(&bench.spec()).await, expected)?;
        ensure!(error.to_string().contains("fault script"), "the service's reason is not told: {error}");
    }
    bench.end().await
}

async fn a_termination_that_does_nothing_is_not_confirmed(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([control("SandboxTerminateV2", flag("terminate-ignored", 0))])?;
    let call = bench.call().within(Duration::from_secs(4));
    let outcome = bench.backend.destroy(&call, made.sandbox.reference()).await?;
    ensure!(matches!(outcome, Destruction::Unconfirmed { .. }), "a termination that did nothing is {outcome:?}");
    bench.faults([])?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn wrong_credentials_say_what_to_do(bench: Bench) -> Check {
    let error = kind("preflight", bench.backend.preflight(&bench.call()).await, "credentials")?;
    ensure!(error.to_string().contains("MODAL_TOKEN_ID"), "the error does not name the variable: {error}");
    kind("create", bench.create(&bench.spec()).await, "credentials").map(drop)
}

async fn a_full_workspace_is_capacity(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    kind("a second sandbox", bench.create(&bench.spec()).await, "capacity")?;
    bench.destroyed(&made).await?;
    bench.end().await
}

async fn a_lost_answer_to_a_snapshot_makes_nothing_twice(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    same("a command", bench.sh(&made, "echo kept >/root/kept").await?.0, Completion::Exited { code: 0 })?;
    bench.faults([
        router("TaskSnapshotFilesystem", flag("late-status", UNAVAILABLE)).times(1),
        router("TaskSnapshotFilesystem", Effect::LoseResponse).skip(1).times(1),
    ])?;
    let spec = SnapshotSpec { tag: bench.tag(), fingerprint: Digest::of(b"x"), keep_for: None };
    let saved = made.sandbox.snapshot(&bench.call(), &spec).await?;
    same("how often it was asked for", bench.server.emulation().faults.matched(), vec![3, 3])?;
    let listed = bench.backend.artifacts(&bench.call(), &TagQuery::Exact(spec.tag)).await?;
    same("what is listed", listed.into_iter().map(|artifact| artifact.id).collect(), vec![saved.id.clone()])?;
    let clone = bench.create(&SandboxSpec { source: Source::Artifact(saved.id.clone()), ..bench.spec() }).await?;
    same("what it started from", clone.facts.resolved_source.clone(), saved.id.clone())?;
    same("a command in it", bench.sh(&clone, "cat /root/kept").await?.1, "kept\n".into())?;
    bench.destroyed(&clone).await?;
    bench.destroyed(&made).await?;
    same("delete", bench.backend.delete_artifact(&bench.call(), &saved.id).await?, Destruction::Confirmed)?;
    bench.end().await
}

async fn a_snapshot_without_a_name_is_taken_back(bench: Bench) -> Check {
    let made = bench.create(&bench.spec()).await?;
    bench.faults([control("ImagePublish", flag("status", 7)), control("ImageDelete", Effect::Delay { ms: 0 })])?;
    let spec = SnapshotSpec { tag: bench.tag(), fingerprint: Digest::of(b"x"), keep_for: None };
    kind("snapshot", made.sandbox.snapshot(&bench.call(), &spec).await, "credentials")?;
    same("images named and deleted", bench.server.emulation().faults.matched(), vec![1, 1])?;
    bench.destroyed(&made).await?;
    bench.end().await
}

fn case<F>(name: &'static str, promise: &'static str, settings: fn() -> Settings, test: fn(Bench) -> F) -> Case
where
    F: Future<Output = Check> + Send + 'static,
{
    Case::new(name, promise, move || async move {
        let bench = Bench::with(settings()).await.map_err(|e| e.to_string());
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

fn short_tokens() -> Settings {
    let service = ModalOptions { router_token_life: Duration::from_secs(2), ..ModalOptions::default() };
    Settings { service, ..Settings::default() }
}

fn one_sandbox() -> Settings {
    let service = ModalOptions { concurrent_sandboxes: 1, ..ModalOptions::default() };
    Settings { service, ..Settings::default() }
}

fn always_files() -> Settings {
    Settings { config: ModalConfig { spool_minutes: 0, ..ModalConfig::default() }, ..Settings::default() }
}

fn wrong_secret() -> Settings {
    Settings { secret: Some("as-wrong-one"), ..Settings::default() }
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    let usual = Settings::default;
    macro_rules! cases {
        ($($test:ident, $settings:expr => $promise:literal;)*) => {
            vec![$(case(stringify!($test), $promise, $settings, $test)),*]
        };
    }
    run_cases(cases! {
        a_lost_answer_to_create_is_looked_up, usual => "by its name, also while the list does not show it";
        a_create_that_cannot_be_looked_up_is_uncertain, usual => "and found by its tag later";
        passing_faults_are_survived, usual => "throttling, unavailable, internal, a reset";
        a_router_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out, usual => "the transport is at fault";
        a_stream_that_breaks_off_is_read_on, usual => "nothing twice, nothing missing";
        what_cannot_be_read_on_is_lost_and_never_a_success, usual => "and what had arrived is kept";
        a_token_that_ends_is_replaced, short_tokens => "in the middle of a command";
        a_token_that_never_worked_is_replaced, usual => "and one that was left out is asked for";
        a_lost_answer_to_a_start_starts_nothing_twice, usual => "the command runs once";
        no_byte_of_stdin_is_lost_or_sent_twice, usual => "whatever answers are lost";
        a_sandbox_that_ends_under_a_command_is_told, usual => "and what it had printed is kept";
        long_commands_write_to_files, always_files => "whole output, exit code, limit, stdin, errors";
        a_build_that_fails_says_why, usual => "and whose fault it is";
        a_termination_that_does_nothing_is_not_confirmed, usual => "the service's word is looked at";
        wrong_credentials_say_what_to_do, wrong_secret => "and show no secret";
        a_full_workspace_is_capacity, one_sandbox => "nothing took effect";
        a_lost_answer_to_a_snapshot_makes_nothing_twice, usual => "and it is found by its tag";
        a_snapshot_without_a_name_is_taken_back, usual => "nothing is left that nobody finds";
    })
}
