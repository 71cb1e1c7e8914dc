//! Images: pulled, built, saved, and started from.

use std::collections::BTreeMap;

use sandbox_bench_core::{
    ArtifactSpec, CacheUse, Destruction, Digest, ErrorKind, ExecSpec, SnapshotSpec, Source, Stream, TagQuery, TailSink,
};

use crate::common::{Engine, IMAGE, engine};

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
