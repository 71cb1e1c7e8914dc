//! The Polyaxon adapter on bad days: each way of not starting, of getting no answer and of not ending has its typed
//! outcome. Over the emulator with a fault script; without layers, so that nothing is repeated.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_conformance::check::{refused, same};
use sandbox_bench_conformance::{Case, Check, Outcome, Stop, ensure, run_cases};
use sandbox_bench_core::{
    Backend, Call, Completion, Created, Destruction, Digest, ErrorKind, ExecSpec, Grants, Input, Result, SandboxSpec,
    Source, Stage, Stream, Tag, TagQuery, TailSink,
};
use sandbox_bench_emulators::faults::{Effect, Ending, Rule};
use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::polyaxon::{PolyaxonOptions, start};
use sandbox_bench_emulators::{Emulation, Listener, Machines, Server, Timing};
use sandbox_bench_polyaxon::{PolyaxonConfig, connect_with};

const LIMIT: Duration = Duration::from_secs(60);
const RUNS: &str = "/api/v1/default/bench/runs";

/// One installation, and a connection to it.
struct Day {
    server: Server,
    backend: Arc<dyn Backend>,
}

impl Day {
    async fn new(config: PolyaxonConfig, rules: Vec<Rule>) -> Check<Self> {
        let trouble = |error: &dyn std::fmt::Display| Stop::Failed(format!("the emulator cannot be used: {error}"));
        let images = ImageTable::new(Default::default(), &["**missing**".into()]).map_err(|e| trouble(&e))?;
        let machines = Machines::open(MachineOptions { images, ..MachineOptions::default() }).await;
        let emulation = Arc::new(Emulation::new(machines.map_err(|e| trouble(&e))?, Timing::default()));
        for rule in rules {
            emulation.faults.add(rule).map_err(|e| trouble(&e))?;
        }
        let server = start(Listener::bind(0).await?, emulation, PolyaxonOptions::default());
        let config = PolyaxonConfig { host: Some(server.base_url().into()), project: Some("bench".into()), ..config };
        let token = |name: &str| (name == "POLYAXON_AUTH_TOKEN").then(|| PolyaxonOptions::default().token);
        let backend = connect_with(&config, &token, &call(LIMIT)).await?;
        Ok(Self { server, backend })
    }

    async fn with(rules: Vec<Rule>) -> Check<Self> {
        Self::new(PolyaxonConfig::default(), rules).await
    }

    async fn create(&self, limit: Duration) -> Result<Created> {
        self.backend.create(&call(limit), &spec("debian"), &TailSink::new(0)).await
    }

    async fn found(&self) -> Check<usize> {
        Ok(self.backend.find(&call(LIMIT), &TagQuery::All).await?.len())
    }

    /// Nothing is left, and nothing was sent that the vendor would refuse.
    async fn ends_clean(self) -> Check {
        same("sandboxes that are found", self.found().await?, 0)?;
        let emulation = self.server.emulation();
        same("machines", emulation.machines.alive(), Vec::new())?;
        same("violations", emulation.violations.all(), Vec::new())
    }
}

fn call(limit: Duration) -> Call {
    let grants = Grants { network: sandbox_bench_core::NetworkPolicy::Public, ..Grants::default() };
    Call::new(tag(), limit, Arc::new(grants))
}

fn tag() -> Tag {
    Tag::new("faults", "u")
}

fn spec(image: &str) -> SandboxSpec {
    SandboxSpec::new(tag(), Source::Image(image.into()))
}

fn on_create(effect: Effect) -> Vec<Rule> {
    vec![Rule::new("POST", RUNS, effect).times(1)]
}

/// A create that ends in an error of this kind, which says `words`, and leaves nothing.
async fn fails(rules: Vec<Rule>, (image, limit): (&str, u64), (kind, words): (&str, &str)) -> Check {
    let day = Day::with(rules).await?;
    let created = day.backend.create(&call(Duration::from_secs(limit)), &spec(image), &TailSink::new(0)).await;
    let error = refused("create", created, &[kind])?;
    ensure!(error.to_string().contains(words), "the error does not say {words:?}: {error}");
    day.ends_clean().await
}

async fn a_run_held_for_approval_is_refused_at_once() -> Check {
    fails(on_create(Effect::flag("needs-approval")), ("debian", 60), ("credentials", "approval")).await
}

async fn a_run_held_for_approval_is_approved_where_that_is_wanted() -> Check {
    let config = PolyaxonConfig { approve: true, ..PolyaxonConfig::default() };
    let day = Day::new(config, on_create(Effect::flag("needs-approval"))).await?;
    let created = day.create(LIMIT).await?;
    same("destroy", destroy(&day, &created).await?, Destruction::Confirmed)?;
    day.ends_clean().await
}

async fn a_run_that_no_agent_takes_is_a_lack_of_capacity() -> Check {
    fails(on_create(Effect::flag("stay-queued")), ("debian", 4), ("capacity", "agent")).await
}

async fn a_run_that_no_node_takes_is_a_lack_of_capacity() -> Check {
    fails(on_create(Effect::flag("unschedulable")), ("debian", 4), ("capacity", "Insufficient cpu")).await
}

async fn an_image_that_cannot_be_pulled_is_named() -> Check {
    fails(vec![], ("registry.invalid/missing:1", 60), ("environment", "registry.invalid/missing:1")).await
}

async fn a_container_that_cannot_be_started_is_the_environments_fault() -> Check {
    fails(on_create(Effect::flag("start-fails")), ("debian", 60), ("environment", "containerd")).await
}

async fn failing_looks_at_a_status_are_repeated() -> Check {
    let rule = Rule::new("GET", "/api/v1/default/bench/runs/*/statuses", Effect::status(500)).times(3);
    let day = Day::with(vec![rule]).await?;
    let created = day.create(LIMIT).await?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

/// What cannot be known is said so, with the tag.
async fn uncertain(effect: Effect, really_there: usize) -> Check {
    let day = Day::with(on_create(effect)).await?;
    let error = refused("create", day.create(Duration::from_secs(10)).await, &["uncertain_submission"])?;
    same("the kind", error.kind(), &ErrorKind::UncertainSubmission { tag: tag() })?;
    let found = day.backend.find(&call(LIMIT), &TagQuery::Exact(tag())).await?;
    same("sandboxes of the tag", found.len(), really_there)?;
    for found in found {
        same("destroy", day.backend.destroy(&call(LIMIT), &found.reference).await?, Destruction::Confirmed)?;
    }
    day.ends_clean().await
}

async fn an_empty_405_to_a_create_is_uncertain() -> Check {
    uncertain(Effect::status(405), 0).await
}

async fn a_lost_answer_to_a_create_is_uncertain_and_found_again() -> Check {
    uncertain(Effect::LoseResponse, 1).await
}

async fn a_fault_of_the_server_at_a_create_is_uncertain() -> Check {
    uncertain(Effect::status(504), 0).await
}

async fn a_cut_answer_to_a_create_is_uncertain_and_found_again() -> Check {
    uncertain(Effect::Cut { after: 20, ending: Ending::Clean }, 1).await
}

async fn a_refused_create_is_certain() -> Check {
    let answer = |status, body: &str| Effect::Answer { status, headers: Default::default(), body: body.into() };
    for (effect, kind) in [
        (answer(400, "[\"1 validation error\"]"), "invalid_request"),
        (answer(403, "{\"detail\":\"no\"}"), "credentials"),
        (answer(429, "{\"detail\":\"over the allowed limits\"}"), "rate_limited"),
    ] {
        fails(on_create(effect), ("debian", 10), (kind, "")).await?;
    }
    Ok(())
}

async fn a_sandbox_that_does_not_stop_stays_visible() -> Check {
    let day = Day::with(on_create(Effect::flag("never-stops"))).await?;
    let created = day.create(LIMIT).await?;
    let reference = created.sandbox.reference().clone();
    let outcome = day.backend.destroy(&call(Duration::from_secs(3)), &reference).await?;
    let Destruction::Unconfirmed { why } = outcome else {
        return same(
            "destroy of a run that stays `stopping`",
            outcome,
            Destruction::Unconfirmed { why: String::new() },
        );
    };
    ensure!(why.contains("stopping"), "it is not said where it stands: {why}");
    same("sandboxes that are found", day.found().await?, 1)
}

async fn a_sandbox_of_somebody_else_is_not_stopped() -> Check {
    let day = Day::with(vec![]).await?;
    let created = day.create(LIMIT).await?;
    let mut other = created.sandbox.reference().clone();
    other.tag = Tag::new("faults", "other");
    refused("destroy", day.backend.destroy(&call(LIMIT), &other).await, &["invalid_request"])?;
    refused("attach", day.backend.attach(&call(LIMIT), &other).await, &["not_found"])?;
    same("a command in it", sh(&created, "echo alive", 10).await?, (Completion::Exited { code: 0 }, "alive\n".into()))?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

async fn a_gateway_that_comes_late_is_waited_for() -> Check {
    let late = Effect::Flag { name: "late-gateway".into(), value: 1500 };
    let day = Day::with(on_create(late)).await?;
    let created = day.create(LIMIT).await?;
    same("a command", sh(&created, "echo up", 10).await?, (Completion::Exited { code: 0 }, "up\n".into()))?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

async fn a_long_command_survives_the_loss_of_its_start() -> Check {
    let lost = Rule::new("POST", "/sandbox/v1/**/exec/bg", Effect::LoseResponse).times(1);
    let day = Day::with(vec![lost]).await?;
    let created = day.create(LIMIT).await?;
    let ran = sh(&created, "echo start; sleep 1; echo end; exit 7", 120).await?;
    same("a command in the background", ran, (Completion::Exited { code: 7 }, "start\nend\n".into()))?;
    let starts = day.server.emulation().requests.count("POST", "/exec/bg");
    same("starts", starts, 1)?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

async fn a_cut_event_stream_is_no_exit_code() -> Check {
    for ending in [Ending::Close, Ending::Clean] {
        let cut = Rule::new("POST", "/sandbox/v1/**/exec/stream", Effect::Cut { after: 10, ending }).skip(1).times(1);
        let day = Day::with(vec![cut]).await?;
        let created = day.create(LIMIT).await?;
        sh(&created, "true", 10).await?;
        let ran = sh(&created, "echo before; sleep 20", 30).await?;
        same("a command whose stream was cut", ran.0, Completion::TransportLost)?;
        let left =
            sh(&created, "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p; done | grep -c 'sleep 2[0]'", 10).await?;
        same("its processes", left.1, "0\n".into())?;
        destroy(&day, &created).await?;
        day.ends_clean().await?;
    }
    Ok(())
}

async fn a_sandbox_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out() -> Check {
    let day = Day::with(vec![]).await?;
    let created = day.create(LIMIT).await?;
    sh(&created, "true", 10).await?;
    let gone = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        for method in ["GET", "POST", "DELETE"] {
            let rule = Rule::new(method, "/sandbox/v1/**", Effect::status(503));
            day.server.emulation().faults.add(rule).map_err(|e| Stop::Failed(e.to_string()))?;
        }
        Ok::<(), Stop>(())
    };
    // So long a limit has it run in the background.
    let limit = ExecSpec::sh("echo begun; sleep 60").timeout(Duration::from_secs(40));
    let asking = call(Duration::from_secs(8));
    let sink = TailSink::new(64);
    let (ran, gone) = tokio::join!(created.sandbox.exec(&asking, &limit, &sink), gone);
    gone?;
    same("a command", ran?.completion, Completion::TransportLost)?;
    day.server.emulation().faults.set(Default::default()).map_err(|e| Stop::Failed(e.to_string()))?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

async fn offsets_that_make_no_sense_end_the_command_honestly() -> Check {
    let stuck = Rule::new("GET", "/sandbox/v1/**/fs/read", Effect::flag("stuck-offset"));
    let day = Day::with(vec![stuck]).await?;
    let created = day.create(LIMIT).await?;
    same("a command", sh(&created, "echo x", 10).await?.0, Completion::TransportLost)?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

async fn an_upload_that_breaks_off_ends_and_can_be_repeated() -> Check {
    let day =
        Day::with(vec![Rule::new("POST", "/sandbox/v1/**/fs/write", Effect::status(503)).skip(2).times(1)]).await?;
    let created = day.create(LIMIT).await?;
    let input = Input::bytes("big", "/srv/big", Stage::Setup, 0o644, vec![7; 3 << 20]);
    let grants = Grants { inputs: vec![input.entry.clone()], ..Grants::default() };
    let call = Call { grants: grants.into(), ..call(LIMIT) };
    refused(
        "an upload that breaks off",
        created.sandbox.upload(&call, std::slice::from_ref(&input)).await,
        &["unavailable"],
    )?;
    let left = sh(&created, "ls -A /tmp/.sandbox-bench /srv | grep -c 'tar\\|big'", 10).await?;
    same("what is left of it", left.1, "0\n".into())?;
    created.sandbox.upload(&call, &[input]).await?;
    same("the file", sh(&created, "wc -c </srv/big", 10).await?.1.trim(), "3145728")?;
    destroy(&day, &created).await?;
    day.ends_clean().await
}

async fn a_pre_pulled_image_is_an_artifact_with_its_fingerprint() -> Check {
    let (image, fingerprint) = ("registry.invalid/env@sha256:00", Digest::of(b"environment"));
    let prepulled = [(image.to_owned(), fingerprint.clone())].into();
    let day = Day::new(PolyaxonConfig { prepulled, ..PolyaxonConfig::default() }, vec![]).await?;
    same("its fingerprint", day.backend.artifact(&call(LIMIT), image).await?.fingerprint, Some(fingerprint))?;
    let from = |id: &str| SandboxSpec::new(tag(), Source::Artifact(id.into()));
    let created = day.backend.create(&call(LIMIT), &from(image), &TailSink::new(0)).await?;
    same("what it started from", created.facts.resolved_source.as_str(), image)?;
    destroy(&day, &created).await?;
    let other = day.backend.create(&call(LIMIT), &from("debian"), &TailSink::new(0)).await;
    refused("another image as an artifact", other, &["not_found"])?;
    day.ends_clean().await
}

async fn a_wrong_token_is_told_and_not_shown() -> Check {
    let day = Day::with(vec![]).await?;
    let host = Some(day.server.base_url().to_owned());
    let config = PolyaxonConfig { host, project: Some("bench".into()), ..PolyaxonConfig::default() };
    let token = |name: &str| (name == "POLYAXON_AUTH_TOKEN").then(|| "hunter2".to_owned());
    let backend = connect_with(&config, &token, &call(LIMIT)).await?;
    let error = refused("preflight", backend.preflight(&call(LIMIT)).await, &["credentials"])?;
    let text = format!("{error} {error:?}");
    ensure!(text.contains("POLYAXON_AUTH_TOKEN") && !text.contains("hunter2"), "not a helpful error: {text}");
    Ok(())
}

async fn destroy(day: &Day, created: &Created) -> Check<Destruction> {
    Ok(day.backend.destroy(&call(LIMIT), created.sandbox.reference()).await?)
}

/// Runs a script under a limit in seconds; its end and standard output.
async fn sh(created: &Created, script: &str, limit: u64) -> Check<(Completion, String)> {
    let (sink, limit) = (TailSink::new(4096), Duration::from_secs(limit));
    let report = created.sandbox.exec(&call(limit * 2), &ExecSpec::sh(script).timeout(limit), &sink).await?;
    Ok((report.completion, sink.text(Stream::Stdout)))
}

fn case<F>(name: &str, run: fn() -> F) -> Case
where
    F: Future<Output = Check> + Send + 'static,
{
    Case::new(name, "", move || async move {
        match run().await {
            Ok(()) => Outcome::Ok,
            Err(Stop::Failed(why)) => Outcome::Failed(why),
            Err(Stop::Skipped(why)) => Outcome::Skipped(why),
        }
    })
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => { vec![$(case(stringify!($name), $name)),*] };
}

fn main() -> ExitCode {
    sandbox_bench_local::engine::helper_main_if_requested();
    run_cases(cases![
        a_run_held_for_approval_is_refused_at_once,
        a_run_held_for_approval_is_approved_where_that_is_wanted,
        a_run_that_no_agent_takes_is_a_lack_of_capacity,
        a_run_that_no_node_takes_is_a_lack_of_capacity,
        an_image_that_cannot_be_pulled_is_named,
        a_container_that_cannot_be_started_is_the_environments_fault,
        failing_looks_at_a_status_are_repeated,
        an_empty_405_to_a_create_is_uncertain,
        a_lost_answer_to_a_create_is_uncertain_and_found_again,
        a_fault_of_the_server_at_a_create_is_uncertain,
        a_cut_answer_to_a_create_is_uncertain_and_found_again,
        a_refused_create_is_certain,
        a_sandbox_that_does_not_stop_stays_visible,
        a_sandbox_of_somebody_else_is_not_stopped,
        a_gateway_that_comes_late_is_waited_for,
        a_long_command_survives_the_loss_of_its_start,
        a_cut_event_stream_is_no_exit_code,
        a_sandbox_that_is_away_when_a_commands_time_is_over_has_not_seen_it_time_out,
        offsets_that_make_no_sense_end_the_command_honestly,
        an_upload_that_breaks_off_ends_and_can_be_repeated,
        a_pre_pulled_image_is_an_artifact_with_its_fingerprint,
        a_wrong_token_is_told_and_not_shown,
    ])
}
