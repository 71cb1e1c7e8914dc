//! The adapter against a real engine: what is particular to Docker. The contract itself is tested by the conformance
//! suite.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{Engine, IMAGE, engine};
use sandbox_bench_core::{
    ArtifactSpec, CacheUse, Completion, Destruction, Digest, ErrorKind, ExecSpec, Input, NetworkPolicy, Resources,
    SandboxRef, SandboxState, SnapshotSpec, Source, Stage, Stream, TagQuery, TailSink, TreeKill,
};
use tokio_util::sync::CancellationToken;

fn exited(code: i32) -> Completion {
    Completion::Exited { code }
}

#[tokio::test]
async fn a_sandbox_from_creation_to_removal() {
    let Some(engine) = engine().await else { return };
    let mut spec = engine.spec();
    spec.env = BTreeMap::from([("GREETING".into(), "hello".into())]);
    spec.workdir = Some("/srv/work".into());
    spec.resources = Resources { cpus: Some(0.5), memory_mb: Some(64), pids: Some(50), ..Resources::default() };
    let created = engine.create(&spec).await;
    assert_eq!(created.facts.environment_cache, Some(CacheUse::Hit));
    assert_eq!(created.facts.workdir.as_deref(), Some("/srv/work"));
    assert!(created.facts.resolved_source.starts_with("sha256:"), "{}", created.facts.resolved_source);
    assert_eq!((created.facts.granted.cpus, created.facts.granted.memory_mb), (Some(0.5), Some(64)));
    assert!(created.facts.provider_times.contains_key("started"));

    let sandbox = created.sandbox;
    assert_eq!(engine.sh(&sandbox, "echo $GREETING $PWD").await, "hello /srv/work\n");
    let ran = engine.exec(&sandbox, &ExecSpec::sh("echo out; echo err >&2; exit 7")).await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(ran.report.completion, exited(7));

    let observed = sandbox.observe(&engine.call()).await.unwrap();
    assert!(observed.cpu_us.is_some_and(|us| us > 0) && observed.peak_memory_bytes.is_some_and(|bytes| bytes > 0));
    engine.destroy(&sandbox).await;
    assert_eq!(engine.backend.destroy(&engine.call(), sandbox.reference()).await.unwrap(), Destruction::Confirmed);
    let error = sandbox.exec(&engine.call(), &ExecSpec::sh("true"), &TailSink::new(1)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SandboxLost);
}

#[tokio::test]
async fn a_program_is_run_as_it_is_and_not_as_a_shell_builtin() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let ran = engine.exec(&sandbox, &ExecSpec::new(["printf", "%s|", "a\\nb", "", "$HOME", "\u{1e}"])).await;
    assert_eq!(ran.stdout, "a\\nb||$HOME|\u{1e}|");
    // `exit` is a builtin only: there is no such program.
    let ran = engine.exec(&sandbox, &ExecSpec::new(["exit", "3"])).await;
    assert_eq!(ran.report.completion, exited(127));
    let ran = engine.exec(&sandbox, &ExecSpec::new(["/etc/passwd"])).await;
    assert_eq!(ran.report.completion, exited(126));
    let ran = engine.exec(&sandbox, &ExecSpec::sh("kill -9 $$")).await;
    assert_eq!((ran.report.completion, ran.stderr.as_str()), (exited(137), ""));
    // A command that ends its own wrapper takes the other witness away; the engine still knows the code.
    let ran = engine.exec(&sandbox, &ExecSpec::sh("echo partial; kill -9 $PPID; sleep 0.3")).await;
    assert_eq!((ran.report.completion, ran.stdout.as_str()), (exited(137), "partial\n"));
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn stdin_arrives_whole_and_ends() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let mut spec = ExecSpec::sh("sha256sum | cut -d' ' -f1");
    let bytes = Bytes::from_iter((0..5_000_000u32).map(|n| (n % 251) as u8));
    spec.stdin = Some(bytes.clone());
    assert_eq!(engine.exec(&sandbox, &spec).await.stdout.trim(), Digest::of(&bytes).hex());
    // A command that does not read its input is not kept waiting, nor are we.
    spec.argv = vec!["true".into()];
    assert_eq!(engine.exec(&sandbox, &spec).await.report.completion, exited(0));
    assert_eq!(engine.sh(&sandbox, "wc -c").await.trim(), "0");
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn a_flood_is_bounded_with_head_and_tail() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let mut spec = ExecSpec::sh("echo first; head -c 50000000 /dev/zero; echo last");
    spec.output_limit = 1000;
    let sink = TailSink::new(4000);
    let report = sandbox.exec(&engine.call(), &spec, &sink).await.unwrap();
    assert_eq!(report.completion, exited(0));
    assert_eq!((report.stdout.total_bytes, report.stdout.delivered_bytes), (Some(50_000_011), 1000));
    let out = sink.bytes(Stream::Stdout);
    assert!(out.starts_with(b"first\n") && out.ends_with(b"last\n"));
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn what_cannot_be_started_is_explained() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let refused = async |spec: ExecSpec| {
        let sink = TailSink::new(100);
        let error = sandbox.exec(&engine.call(), &spec, &sink).await.unwrap_err();
        assert_eq!(sink.text(Stream::Stdout), "", "the engine's words are not output");
        error.kind().clone()
    };
    assert_eq!(refused(ExecSpec::sh("true").user("nosuch")).await, ErrorKind::NotFound);
    assert_eq!(refused(ExecSpec::sh("true").cwd("/nosuch")).await, ErrorKind::NotFound);
    assert_eq!(refused(ExecSpec::sh("true").cwd("/etc/passwd")).await, ErrorKind::NotFound);
    assert_eq!(refused(ExecSpec::sh("true").cwd("relative")).await, ErrorKind::InvalidRequest);
    assert_eq!(refused(ExecSpec::new([""])).await, ErrorKind::InvalidRequest);
    engine.destroy(&sandbox).await;
}

const HIDDEN: &str = "echo begun; env -i /usr/bin/setsid /bin/sh -c '/bin/sleep 301 & /bin/sleep 302' & \
    (trap '' TERM; while :; do sleep 303; done) & sleep 304";

#[tokio::test]
async fn a_deadline_ends_the_whole_tree_and_nothing_else() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    engine.sh(&sandbox, "setsid sleep 300 >/dev/null 2>&1 &").await;
    for user in ["0", "1234"] {
        let spec = ExecSpec::sh(HIDDEN).timeout(Duration::from_millis(500)).user(user);
        let ran = engine.exec(&sandbox, &spec).await;
        assert_eq!(ran.report.completion, Completion::DeadlineExceeded { tree_killed: TreeKill::Yes });
        assert_eq!(ran.stdout, "begun\n");
    }
    assert_eq!(engine.sh(&sandbox, LIST).await, "sleep 300 \n", "the earlier command's process lives");
    engine.destroy(&sandbox).await;
}

/// All `sleep` commands of the tests, by their command lines.
const LIST: &str =
    "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep '^[^ ]*sleep 30[0-9] ' ; done; true";

#[tokio::test]
async fn cancellation_ends_the_tree_as_well() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let cancel = CancellationToken::new();
    let call = engine.call().with_cancel(cancel.clone());
    let sink = TailSink::new(100);
    let spec = ExecSpec::sh(HIDDEN);
    let running = sandbox.exec(&call, &spec, &sink);
    let soon = async {
        while sink.bytes(Stream::Stdout).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(running, soon);
    assert_eq!(report.unwrap().completion, Completion::Cancelled { tree_killed: TreeKill::Yes });
    assert_eq!(engine.sh(&sandbox, LIST).await, "");
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn a_fork_bomb_is_ended() {
    let Some(engine) = engine().await else { return };
    let mut spec = engine.spec();
    spec.resources.pids = Some(60);
    let sandbox = engine.create(&spec).await.sandbox;
    // Each process forks as often as it can; the limit of processes is reached at once.
    let bomb = ExecSpec::new(["perl", "-e", "while (1) { fork // select(undef, undef, undef, 0.01) }"]);
    let bomb = bomb.timeout(Duration::from_secs(1));
    let ran = engine.exec(&sandbox, &bomb).await;
    assert_eq!(ran.report.completion, Completion::DeadlineExceeded { tree_killed: TreeKill::Yes });
    assert_eq!(engine.sh(&sandbox, "cat /proc/[0-9]*/comm | grep -c perl || true").await, "0\n");
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn background_processes_are_kept_or_ended_as_asked() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    // It holds the output open, which must delay nothing, and writes on, which must not end it.
    let ran =
        engine.exec(&sandbox, &ExecSpec::sh("(while echo more; do sleep 0.05; done) & sleep 300 & echo done")).await;
    assert_eq!(ran.report.completion, exited(0));
    assert!(ran.report.guest_time.unwrap() < Duration::from_secs(1));
    assert_eq!(engine.sh(&sandbox, LIST).await, "sleep 300 \n");
    let mut spec = ExecSpec::sh("setsid sleep 301 >/dev/null 2>&1 & echo done");
    spec.keep_background = false;
    assert_eq!(engine.exec(&sandbox, &spec).await.stdout, "done\n");
    assert_eq!(engine.sh(&sandbox, LIST).await, "sleep 300 \n");
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn the_memory_limit_is_told_from_an_ordinary_kill() {
    let Some(engine) = engine().await else { return };
    if !engine.backend.info().capabilities.reports_oom {
        return;
    }
    let mut spec = engine.spec();
    spec.resources.memory_mb = Some(64);
    let sandbox = engine.create(&spec).await.sandbox;
    assert_eq!(
        engine.exec(&sandbox, &ExecSpec::new(["tail", "/dev/zero"])).await.report.completion,
        Completion::OutOfMemory
    );
    assert_eq!(engine.exec(&sandbox, &ExecSpec::sh("kill -9 $$")).await.report.completion, exited(137));
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn a_sandbox_that_is_removed_under_a_command_is_lost_with_its_output_kept() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let sink = TailSink::new(100);
    let call = engine.call();
    let spec = ExecSpec::sh("echo begun; sleep 300");
    let running = sandbox.exec(&call, &spec, &sink);
    let removal = async {
        while sink.bytes(Stream::Stdout).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        engine.destroy(&sandbox).await;
    };
    let (report, ()) = tokio::join!(running, removal);
    assert_eq!(report.unwrap().completion, Completion::SandboxLost);
    assert_eq!(sink.text(Stream::Stdout), "begun\n");
}

#[tokio::test]
async fn a_sandbox_ends_by_itself_when_its_lifetime_is_over() {
    let Some(engine) = engine().await else { return };
    let mut spec = engine.spec();
    spec.lifetime = Duration::from_secs(1);
    let sandbox = engine.create(&spec).await.sandbox;
    let query = TagQuery::Exact(spec.tag.clone());
    let stopped = async {
        while engine.backend.find(&engine.call(), &query).await.unwrap()[0].state != SandboxState::Stopped {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), stopped).await.unwrap();
    let error = sandbox.exec(&engine.call(), &ExecSpec::sh("true"), &TailSink::new(1)).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SandboxLost);
    let attached = engine.backend.attach(&engine.call(), sandbox.reference()).await;
    assert_eq!(*attached.err().unwrap().kind(), ErrorKind::SandboxLost);
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn files_go_in_and_come_out() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    let dir = tempfile::tempdir().unwrap();
    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let input = |to: &str, mode, bytes: Vec<u8>| Input::bytes("x", to, Stage::Setup, mode, bytes);
    let inputs =
        [input("/opt/new/dir/data.bin", 0o640, binary.clone()), input("/run.sh", 0o755, b"#!/bin/sh\n".to_vec())];
    let sent = sandbox.upload(&engine.call(), &inputs).await.unwrap();
    assert!(sent.bytes > 300_000);
    assert_eq!(
        engine.sh(&sandbox, "stat -c '%a %u:%g %s' /opt/new/dir/data.bin /run.sh; stat -c %a /opt/new").await,
        "640 0:0 300000\n755 0:0 10\n755\n"
    );

    let to = dir.path().join("out.tar");
    sandbox.download(&engine.call(), "/opt/new/dir", &to, 1 << 20).await.unwrap();
    let mut archive = tar::Archive::new(std::fs::File::open(&to).unwrap());
    let names: Vec<_> = archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().display().to_string()).collect();
    assert_eq!(names, ["dir/", "dir/data.bin"]);

    let error = sandbox.download(&engine.call(), "/opt/new/dir", &to, 1000).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidRequest);
    assert!(!to.exists());
    let error = sandbox.download(&engine.call(), "/nosuch", &to, 1000).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);

    let over_directory = sandbox.upload(&engine.call(), &[input("/opt/new", 0o644, vec![])]).await.unwrap_err();
    assert_eq!(*over_directory.kind(), ErrorKind::InvalidRequest, "{over_directory}");
    let climbing = sandbox.upload(&engine.call(), &[input("/opt/../etc/passwd", 0o644, vec![])]).await.unwrap_err();
    assert_eq!(*climbing.kind(), ErrorKind::InvalidRequest);
    engine.destroy(&sandbox).await;
    let gone = sandbox.upload(&engine.call(), &inputs).await.unwrap_err();
    assert_eq!(*gone.kind(), ErrorKind::SandboxLost, "{gone}");
    let gone = sandbox.download(&engine.call(), "/etc", &to, 1000).await.unwrap_err();
    assert_eq!(*gone.kind(), ErrorKind::SandboxLost, "{gone}");
}

#[tokio::test]
async fn without_a_network_there_is_only_loopback() {
    let Some(engine) = engine().await else { return };
    let mut spec = engine.spec();
    spec.network = NetworkPolicy::NoNetwork;
    let sandbox = engine.create(&spec).await.sandbox;
    assert_eq!(engine.sh(&sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo\n");
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn a_snapshot_starts_clones_and_keeps_the_commands_of_its_origin() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    engine.sh(&sandbox, "echo warm >/state").await;
    let spec = SnapshotSpec { tag: engine.tag(), fingerprint: Digest::of(b"environment"), keep_for: None };
    let artifact = sandbox.snapshot(&engine.call(), &spec).await.unwrap();
    assert_eq!((artifact.tag.as_ref(), artifact.fingerprint.as_ref()), (Some(&spec.tag), Some(&spec.fingerprint)));
    assert!(artifact.id.starts_with("sha256:") && artifact.created_at.is_some() && artifact.ready);
    engine.sh(&sandbox, "echo later >/state").await;

    let mut clone = engine.spec();
    clone.source = Source::Artifact(artifact.id.clone());
    let created = engine.create(&clone).await;
    assert_eq!(created.facts.resolved_source, artifact.id);
    assert_eq!(engine.sh(&created.sandbox, "cat /state").await, "warm\n");

    assert_eq!(engine.backend.artifact(&engine.call(), &artifact.id).await.unwrap().id, artifact.id);
    let listed = engine.backend.artifacts(&engine.call(), &TagQuery::Run(engine.run.clone())).await.unwrap();
    assert_eq!(listed.iter().map(|a| &a.id).collect::<Vec<_>>(), [&artifact.id]);
    let config = docker(&["inspect", "-f", "{{.Config.Cmd}}{{len .Config.Entrypoint}}", &artifact.id]);
    assert_eq!(config, docker(&["inspect", "-f", "{{.Config.Cmd}}{{len .Config.Entrypoint}}", IMAGE]));

    let refused = engine.backend.delete_artifact(&engine.call(), IMAGE).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidRequest, "it is not an artifact of ours");
    let busy = engine.backend.delete_artifact(&engine.call(), &artifact.id).await.unwrap();
    assert!(matches!(busy, Destruction::Unconfirmed { .. }), "a clone runs on it: {busy:?}");
    engine.destroy(&created.sandbox).await;
    for _ in 0..2 {
        let gone = engine.backend.delete_artifact(&engine.call(), &artifact.id).await.unwrap();
        assert_eq!(gone, Destruction::Confirmed);
    }
    let error = engine.backend.artifact(&engine.call(), &artifact.id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    let error = engine.backend.create(&engine.call(), &clone, &TailSink::new(1)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    engine.destroy(&sandbox).await;
}

fn docker(args: &[&str]) -> String {
    let out = std::process::Command::new("docker").args(args).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

struct Context(tempfile::TempDir, Digest);

impl Context {
    /// A build context whose images differ from those of every other run.
    fn new(engine: &Engine, steps: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let dockerfile = format!("FROM {IMAGE}\n{steps}\n");
        std::fs::write(dir.path().join("unique"), &engine.run).unwrap();
        std::fs::write(dir.path().join("secret"), "no").unwrap();
        std::fs::write(dir.path().join(".dockerignore"), "secret\n").unwrap();
        std::fs::write(dir.path().join("Dockerfile"), &dockerfile).unwrap();
        let fingerprint = Digest::of(format!("{}{dockerfile}", engine.run).as_bytes());
        Self(dir, fingerprint)
    }

    fn source(&self) -> Source {
        Source::Dockerfile {
            context: self.0.path().to_path_buf(),
            dockerfile: "Dockerfile".into(),
            fingerprint: self.1.clone(),
        }
    }

    fn remove_image(&self) {
        docker(&["rmi", "-f", &format!("sandbox-bench/env:{}", self.1.short(24))]);
    }
}

#[tokio::test]
async fn a_dockerfile_is_built_once_however_many_ask() {
    let Some(engine) = engine().await else { return };
    let context = Context::new(&engine, "COPY . /context\nWORKDIR /context\nRUN echo building && ls -A >/list");
    let mut specs = [engine.spec(), engine.spec()];
    specs.iter_mut().for_each(|spec| spec.source = context.source());
    let [log_a, log_b] = [TailSink::new(1 << 16), TailSink::new(1 << 16)];
    let (call, [spec_a, spec_b]) = (engine.call(), &specs);
    let (a, b) =
        tokio::join!(engine.backend.create(&call, spec_a, &log_a), engine.backend.create(&call, spec_b, &log_b));
    let (a, b) = (a.unwrap(), b.unwrap());
    let mut uses = [a.facts.environment_cache.unwrap(), b.facts.environment_cache.unwrap()];
    uses.sort_by_key(|cache| *cache == CacheUse::Hit);
    assert_eq!(uses, [CacheUse::Miss, CacheUse::Hit], "one built, the other waited for it");
    let logs = format!("{}{}", log_a.text(Stream::Stdout), log_b.text(Stream::Stdout));
    assert_eq!(logs.matches("\nbuilding").count(), 1, "{logs}");
    assert_eq!(engine.sh(&a.sandbox, "cat /list; pwd").await, ".dockerignore\nDockerfile\nunique\n/context\n");
    engine.destroy(&a.sandbox).await;
    engine.destroy(&b.sandbox).await;
    context.remove_image();
}

#[tokio::test]
async fn a_failing_build_and_a_missing_image_are_faults_of_the_environment() {
    let Some(engine) = engine().await else { return };
    let context = Context::new(&engine, "RUN echo the reason && false");
    let mut spec = engine.spec();
    spec.source = context.source();
    let error = engine.backend.create(&engine.call(), &spec, &TailSink::new(1)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Environment);
    let text = error.to_string();
    assert!(text.contains("RUN echo the reason && false") && text.contains("\nthe reason"), "{text}");

    spec.source = Source::Image("localhost:1/nosuch:image".into());
    let error = engine.backend.create(&engine.call(), &spec, &TailSink::new(1)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Environment, "{error}");
    spec.source = Source::Image("Not A Name".into());
    let error = engine.backend.create(&engine.call(), &spec, &TailSink::new(1)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(engine.backend.find(&engine.call(), &TagQuery::Run(engine.run.clone())).await.unwrap(), []);
}

#[tokio::test]
async fn an_artifact_is_built_without_a_sandbox() {
    let Some(engine) = engine().await else { return };
    let spec = ArtifactSpec {
        tag: engine.tag(),
        fingerprint: Digest::of(b"f"),
        source: Source::Image(IMAGE.into()),
        labels: BTreeMap::from([("team".into(), "a".into())]),
    };
    let artifact = engine.backend.build_artifact(&engine.call(), &spec, &TailSink::new(1)).await.unwrap();
    assert_eq!(artifact.tag.as_ref(), Some(&spec.tag));
    let mut clone = engine.spec();
    clone.source = Source::Artifact(artifact.id.clone());
    let sandbox = engine.create(&clone).await.sandbox;
    assert_eq!(engine.sh(&sandbox, "echo works").await, "works\n");
    engine.destroy(&sandbox).await;
    let gone = engine.backend.delete_artifact(&engine.call(), &artifact.id).await.unwrap();
    assert_eq!(gone, Destruction::Confirmed);
}

#[tokio::test]
async fn an_image_without_a_shell_is_a_fault_of_the_environment() {
    let Some(engine) = engine().await else { return };
    let dir = tempfile::tempdir().unwrap();
    let dockerfile = format!("FROM scratch\nCOPY Dockerfile /{}\n", engine.run);
    std::fs::write(dir.path().join("Dockerfile"), &dockerfile).unwrap();
    let context = Context(dir, Digest::of(dockerfile.as_bytes()));
    let mut spec = engine.spec();
    spec.source = context.source();
    let kind = match engine.backend.create(&engine.call(), &spec, &TailSink::new(1)).await {
        Err(error) => error.kind().clone(),
        Ok(created) => {
            let ran = created.sandbox.exec(&engine.call(), &ExecSpec::new(["true"]), &TailSink::new(1)).await;
            ran.unwrap_err().kind().clone()
        }
    };
    assert_eq!(kind, ErrorKind::Environment);
    drop(engine);
    context.remove_image();
}

#[tokio::test]
async fn a_tag_names_one_sandbox() {
    let Some(engine) = engine().await else { return };
    let mut spec = engine.spec();
    spec.env = BTreeMap::from([("VARIABLE".into(), "kept".into())]);
    let sandbox = engine.create(&spec).await.sandbox;
    let error = engine.backend.create(&engine.call(), &spec, &TailSink::new(1)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::InvalidRequest);
    let found = engine.backend.find(&engine.call(), &TagQuery::Exact(spec.tag.clone())).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].reference, found[0].state), (sandbox.reference(), SandboxState::Running));
    let attached = engine.backend.attach(&engine.call(), &found[0].reference).await.unwrap();
    assert_eq!(engine.sh(&attached, "echo attached $VARIABLE").await, "attached kept\n");
    let mistaken = SandboxRef { tag: engine.tag(), ..found[0].reference.clone() };
    let refused = engine.backend.destroy(&engine.call(), &mistaken).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidRequest);
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn preflight_tells_clock_and_quota() {
    let Some(engine) = engine().await else { return };
    let preflight = engine.backend.preflight(&engine.call()).await.unwrap();
    assert!(preflight.identity.is_some() && preflight.clock_offset.is_some());
    assert!(preflight.quota["cpus"].parse::<u32>().unwrap() > 0);
}

#[tokio::test]
async fn a_cancelled_create_leaves_nothing() {
    let Some(engine) = engine().await else { return };
    let cancel = CancellationToken::new();
    let call = engine.call().with_cancel(cancel.clone());
    let spec = engine.spec();
    let log = TailSink::new(1);
    let creation = engine.backend.create(&call, &spec, &log);
    let query = TagQuery::Exact(spec.tag.clone());
    let soon = async {
        while engine.backend.find(&engine.call(), &query).await.unwrap().is_empty() {}
        cancel.cancel();
    };
    let (created, ()) = tokio::join!(creation, soon);
    match created {
        Err(error) => assert_eq!(*error.kind(), ErrorKind::Cancelled),
        Ok(created) => engine.destroy(&created.sandbox).await,
    }
    assert_eq!(engine.backend.find(&engine.call(), &query).await.unwrap(), []);
}
