//! Sandboxes: created, found, filled, emptied and removed.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox_bench_core::{
    CacheUse, Destruction, ErrorKind, ExecSpec, Input, NetworkPolicy, Resources, SandboxRef, SandboxState, Stage,
    TagQuery, TailSink,
};
use tokio_util::sync::CancellationToken;

use crate::common::{engine, exited};

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

    let error = sandbox.download(&engine.call(), "/run.sh/below", &to, 1000).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);

    let below_file = sandbox.upload(&engine.call(), &[input("/run.sh/below", 0o644, vec![])]).await.unwrap_err();
    assert_eq!(*below_file.kind(), ErrorKind::InvalidRequest, "{below_file}");
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
