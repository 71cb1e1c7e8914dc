//! The adapter against the contract, where it has something of its own to get wrong. The conformance suite has the rest.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandbox_bench_core::{
    Backend, Call, Completion, Created, Destruction, Digest, ErrorKind, ExecSpec, Grants, Input, NetworkPolicy,
    OutputSink, SandboxSpec, SandboxState, SnapshotSpec, Source, Stage, Stream, Tag, TagQuery, TailSink, TreeKill,
};
use sandbox_bench_local::{LocalConfig, connect};
use tempfile::TempDir;

struct Bench {
    backend: Arc<dyn Backend>,
    dir: TempDir,
}

async fn bench(configure: impl FnOnce(&mut LocalConfig)) -> Bench {
    let usual = if Path::new("/.dockerenv").exists() { "/dev/shm" } else { "/var/tmp" };
    let base = std::env::var_os("TEST_STATE_DIR").map_or_else(|| PathBuf::from(usual), PathBuf::from);
    let dir = tempfile::Builder::new().prefix("sandbox-bench-test-").tempdir_in(base).unwrap();
    let mut config = LocalConfig {
        state_dir: Some(dir.path().join("state")),
        helper: Some(env!("CARGO_BIN_EXE_sandbox-bench-local-helper").into()),
        ..LocalConfig::default()
    };
    configure(&mut config);
    Bench { backend: connect(config).await.unwrap(), dir }
}

fn call() -> Call {
    let grants = Grants { network: NetworkPolicy::Public, ..Grants::default() };
    Call::new(Tag::new("run", "unit"), Duration::from_secs(120), Arc::new(grants))
}

fn spec(source: Source) -> SandboxSpec {
    SandboxSpec { network: NetworkPolicy::NoNetwork, ..SandboxSpec::new(Tag::new("run", "unit"), source) }
}

#[derive(Default)]
struct Text(Mutex<[Vec<u8>; 2]>);

impl OutputSink for Text {
    fn write(&self, stream: Stream, chunk: &[u8]) {
        let index = usize::from(stream == Stream::Stderr);
        self.0.lock().unwrap()[index].extend_from_slice(chunk);
    }
}

impl Text {
    fn take(&self) -> (String, String) {
        let [out, err] = std::mem::take(&mut *self.0.lock().unwrap());
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }
}

impl Bench {
    async fn create(&self, spec: &SandboxSpec) -> Created {
        self.backend.create(&call(), spec, &TailSink::new(0)).await.unwrap()
    }

    /// Destroys everything, because control groups outlive the state directory.
    async fn close(self) {
        for found in self.backend.find(&call(), &TagQuery::All).await.unwrap() {
            assert_eq!(self.backend.destroy(&call(), &found.reference).await.unwrap(), Destruction::Confirmed);
        }
    }

    async fn base(&self) -> Created {
        self.create(&spec(Source::Base)).await
    }
}

async fn out(created: &Created, script: &str) -> String {
    let text = Text::default();
    let report = created.sandbox.exec(&call(), &ExecSpec::sh(script), &text).await.unwrap();
    let (stdout, stderr) = text.take();
    assert!(report.completion.success(), "{script}: {:?} {stderr}", report.completion);
    stdout
}

#[tokio::test]
async fn completions_are_those_of_the_contract() {
    let bench = bench(|_| {}).await;
    let created = bench.base().await;
    let text = Text::default();
    let run = async |spec: ExecSpec| created.sandbox.exec(&call(), &spec, &text).await;
    assert_eq!(run(ExecSpec::sh("exit 7")).await.unwrap().completion, Completion::Exited { code: 7 });
    assert_eq!(run(ExecSpec::sh("kill -15 $$")).await.unwrap().completion, Completion::Signalled { signal: 15 });
    let report = run(ExecSpec::new(["no-such-program"])).await.unwrap();
    assert_eq!(report.completion, Completion::Exited { code: 127 });
    assert!(text.take().1.contains("no-such-program"));
    assert_eq!(run(ExecSpec::new(["/etc/passwd"])).await.unwrap().completion, Completion::Exited { code: 126 });
    let late = ExecSpec::sh("echo begun; setsid sleep 700 & sleep 700").timeout(Duration::from_millis(200));
    let report = run(late).await.unwrap();
    assert_eq!(report.completion, Completion::DeadlineExceeded { tree_killed: TreeKill::Yes });
    assert!(text.take().0.contains("begun"));
    assert!(report.guest_time.unwrap() >= Duration::from_millis(200));
    for bad in [ExecSpec::new(Vec::<String>::new()), ExecSpec::sh("true\0"), ExecSpec::sh("true").env("A=B", "x")] {
        assert_eq!(*run(bad).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
    for absent in [ExecSpec::sh("true").user("nobody-here"), ExecSpec::sh("true").cwd("/nowhere")] {
        assert_eq!(*run(absent).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    bench.close().await;
}

#[tokio::test]
async fn the_end_of_the_call_is_a_deadline_and_cancelling_kills() {
    let bench = bench(|_| {}).await;
    let created = bench.base().await;
    let sink = TailSink::new(100);
    let short = call().within(Duration::from_millis(1300));
    let report = created.sandbox.exec(&short, &ExecSpec::sh("sleep 700"), &sink).await.unwrap();
    assert_eq!(report.completion, Completion::DeadlineExceeded { tree_killed: TreeKill::Yes });
    let cancelled = call();
    let running = ExecSpec::sh("echo begun; sleep 700");
    let (report, ()) = tokio::join!(created.sandbox.exec(&cancelled, &running, &sink), async {
        while sink.text(Stream::Stdout).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancelled.cancel.cancel();
    });
    assert_eq!(report.unwrap().completion, Completion::Cancelled { tree_killed: TreeKill::Yes });
    let sleeping = "for f in /proc/[0-9]*/comm; do cat $f 2>/dev/null; done | grep -c sleep || true";
    assert_eq!(out(&created, sleeping).await, "0\n");
    bench.close().await;
}

#[tokio::test]
async fn a_flood_is_reported_with_its_gap() {
    let bench = bench(|_| {}).await;
    let created = bench.base().await;
    let text = Text::default();
    let mut flood = ExecSpec::sh("head -c 1000000 /dev/zero | tr '\\0' x; echo end");
    flood.output_limit = 1000;
    let report = created.sandbox.exec(&call(), &flood, &text).await.unwrap();
    let stdout = text.take().0;
    assert_eq!(report.stdout.total_bytes, Some(1_000_004));
    assert_eq!((report.stdout.delivered_bytes, report.stdout.gap_at), (1000, Some(500)));
    assert!(report.stdout.truncated() && stdout.len() == 1000 && stdout.ends_with("xend\n"));
    assert!(!report.stderr.truncated());
    bench.close().await;
}

#[tokio::test]
async fn inputs_arrive_as_listed_and_outputs_come_back() {
    let bench = bench(|_| {}).await;
    let created = bench.base().await;
    let host = bench.dir.path().join("host.bin");
    std::fs::write(&host, vec![9; 100_001]).unwrap();
    let tree = bench.dir.path().join("tree.tar");
    let mut builder = tar::Builder::new(std::fs::File::create(&tree).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o750);
    header.set_size(4);
    builder.append_data(&mut header, "sub/run.sh", &b"echo"[..]).unwrap();
    builder.finish().unwrap();
    let digest = Digest::of(&std::fs::read(&host).unwrap());
    let mut file = Input::bytes("file", "/in/host.bin", Stage::Setup, 0o600, "");
    file.payload = sandbox_bench_core::Payload::File { path: host, mode: 0o600 };
    let inputs = [
        Input::bytes("a", "/in/deep/a.txt", Stage::Setup, 0o644, "hello"),
        file,
        Input::tree("tree", "/in/tree", Stage::Setup, tree).unwrap(),
    ];
    created.sandbox.upload(&call(), &inputs).await.unwrap();
    let seen =
        out(&created, "cd /in; cat deep/a.txt; stat -c '%a %s %u' host.bin tree/sub/run.sh; sha256sum host.bin").await;
    assert_eq!(seen, format!("hello600 100001 0\n750 4 0\n{}  host.bin\n", digest.hex()));
    let to = bench.dir.path().join("back.tar");
    let downloaded = created.sandbox.download(&call(), "/in", &to, 1 << 20).await.unwrap();
    assert_eq!(downloaded.bytes, std::fs::metadata(&to).unwrap().len());
    let first = tar::Archive::new(std::fs::File::open(&to).unwrap())
        .entries()
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
        .unwrap()
        .into_owned();
    assert_eq!(first, PathBuf::from("in"));
    for (from, limit, kind) in [
        ("/in", 5000, ErrorKind::InvalidRequest),
        ("/no", 5000, ErrorKind::NotFound),
        ("in", 5000, ErrorKind::InvalidRequest),
    ] {
        let error = created.sandbox.download(&call(), from, &to, limit).await.unwrap_err();
        assert_eq!(*error.kind(), kind, "{error}");
        assert!(!to.exists() || from == "in");
    }
    let bad = [Input::bytes("x", "relative", Stage::Setup, 0o644, "x")];
    assert_eq!(*created.sandbox.upload(&call(), &bad).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    bench.close().await;
}

#[tokio::test]
async fn sandboxes_are_found_by_tag_attached_and_destroyed() {
    let bench = bench(|_| {}).await;
    let with = SandboxSpec { workdir: Some("/work/deep".into()), ..spec(Source::Base) };
    let created = bench.create(&with).await;
    assert_eq!(out(&created, "pwd").await, "/work/deep\n");
    let reference = created.sandbox.reference().clone();
    let found = bench.backend.find(&call(), &TagQuery::Exact(with.tag.clone())).await.unwrap();
    assert_eq!(
        found.iter().map(|f| (&f.reference, f.state)).collect::<Vec<_>>(),
        [(&reference, SandboxState::Running)]
    );
    assert!(bench.backend.find(&call(), &TagQuery::Run("other".into())).await.unwrap().is_empty());
    let again = bench.backend.attach(&call(), &reference).await.unwrap();
    let text = Text::default();
    again.exec(&call(), &ExecSpec::sh("pwd"), &text).await.unwrap();
    assert_eq!(text.take().0, "/work/deep\n", "an attached handle knows the working directory");
    assert_eq!(bench.backend.destroy(&call(), &reference).await.unwrap(), Destruction::Confirmed);
    assert_eq!(bench.backend.destroy(&call(), &reference).await.unwrap(), Destruction::Confirmed);
    assert!(bench.backend.find(&call(), &TagQuery::All).await.unwrap().is_empty());
    assert_eq!(*bench.backend.attach(&call(), &reference).await.err().unwrap().kind(), ErrorKind::NotFound);
    let error = again.exec(&call(), &ExecSpec::sh("true"), &text).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::SandboxLost);
    assert_eq!(*again.observe(&call()).await.unwrap_err().kind(), ErrorKind::SandboxLost);
    bench.close().await;
}

#[tokio::test]
async fn a_command_whose_sandbox_is_destroyed_ends_as_lost() {
    let bench = bench(|_| {}).await;
    let created = bench.base().await;
    let sink = TailSink::new(100);
    let (call, hung) = (call(), ExecSpec::sh("echo begun; sleep 700"));
    let (report, destroyed) = tokio::join!(created.sandbox.exec(&call, &hung, &sink), async {
        while sink.text(Stream::Stdout).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench.backend.destroy(&call, created.sandbox.reference()).await
    });
    assert_eq!(destroyed.unwrap(), Destruction::Confirmed);
    assert_eq!(report.unwrap().completion, Completion::SandboxLost);
    assert_eq!(sink.text(Stream::Stdout), "begun\n");
    bench.close().await;
}

#[tokio::test]
async fn a_cancelled_or_impossible_creation_leaves_nothing() {
    let bench = bench(|_| {}).await;
    let cancelled = call();
    cancelled.cancel.cancel();
    let error = bench.backend.create(&cancelled, &spec(Source::Base), &TailSink::new(0)).await.err();
    assert!(error.is_none_or(|error| *error.kind() == ErrorKind::Cancelled));
    let impossible = [
        (spec(Source::Image("unmapped:1".into())), ErrorKind::Environment),
        (spec(Source::Artifact("none".into())), ErrorKind::NotFound),
        (
            SandboxSpec { network: NetworkPolicy::Allowlist(vec!["a".into()]), ..spec(Source::Base) },
            ErrorKind::Unsupported,
        ),
        (SandboxSpec { workdir: Some("relative".into()), ..spec(Source::Base) }, ErrorKind::InvalidRequest),
        (SandboxSpec { workdir: Some("/etc/passwd/x".into()), ..spec(Source::Base) }, ErrorKind::InvalidRequest),
    ];
    for (spec, kind) in impossible {
        let error = bench.backend.create(&call(), &spec, &TailSink::new(0)).await.err().unwrap();
        assert_eq!(*error.kind(), kind, "{error}");
    }
    for found in bench.backend.find(&call(), &TagQuery::All).await.unwrap() {
        // Only the cancelled one may have been quick enough to exist.
        assert_eq!(found.state, SandboxState::Running);
    }
    bench.close().await;
}

#[tokio::test]
async fn an_artifact_keeps_files_but_not_the_request_and_expires() {
    let bench = bench(|_| {}).await;
    let mut asked = SandboxSpec { workdir: Some("/work".into()), ..spec(Source::Base) };
    asked.env.insert("ASKED".into(), "yes".into());
    let created = bench.create(&asked).await;
    out(&created, "echo $ASKED > /work/file; echo x > /tmp/x; echo x > /run/x").await;
    let keep_for = Some(Duration::from_secs(3600));
    let snapshot = SnapshotSpec { tag: Tag::new("warm", "a"), fingerprint: Digest::of(b"environment"), keep_for };
    let artifact = created.sandbox.snapshot(&call(), &snapshot).await.unwrap();
    assert_eq!(
        (artifact.tag.as_ref(), artifact.fingerprint.as_ref()),
        (Some(&snapshot.tag), Some(&snapshot.fingerprint))
    );
    assert!(artifact.ready && artifact.expires_at > artifact.created_at && artifact.size_bytes > Some(0));
    assert_eq!(bench.backend.artifact(&call(), &artifact.id).await.unwrap(), artifact);
    assert_eq!(
        bench.backend.artifacts(&call(), &TagQuery::Run("warm".into())).await.unwrap(),
        std::slice::from_ref(&artifact)
    );
    let clone = bench.create(&spec(Source::Artifact(artifact.id.clone()))).await;
    assert_eq!(clone.facts.resolved_source, artifact.id);
    assert_eq!(
        out(&clone, "cat /work/file; echo \"[$ASKED]\"; pwd; ls -A /tmp; ls /run/x 2>/dev/null; true").await,
        "yes\n[]\n/\n"
    );
    assert_eq!(bench.backend.delete_artifact(&call(), &artifact.id).await.unwrap(), Destruction::Confirmed);
    assert_eq!(bench.backend.delete_artifact(&call(), &artifact.id).await.unwrap(), Destruction::Confirmed);
    assert_eq!(*bench.backend.artifact(&call(), &artifact.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(out(&clone, "cat /work/file").await, "yes\n", "what was started from it goes on");
    let brief = SnapshotSpec { keep_for: Some(Duration::ZERO), ..snapshot };
    let brief = clone.sandbox.snapshot(&call(), &brief).await.unwrap();
    let later = connect(LocalConfig {
        state_dir: Some(bench.dir.path().join("state")),
        helper: Some(env!("CARGO_BIN_EXE_sandbox-bench-local-helper").into()),
        ..LocalConfig::default()
    });
    let error = later.await.unwrap().artifact(&call(), &brief.id).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound, "the next one to connect tidies up");
    bench.close().await;
}

#[tokio::test]
async fn caches_go_when_they_are_old_and_nothing_stands_on_them() {
    let bench = bench(|_| {}).await;
    let state = bench.dir.path().join("state");
    let sandbox = bench.create(&spec(Source::Base)).await;
    let used = std::fs::read_dir(state.join("host")).unwrap().next().unwrap().unwrap().path();
    let (unused, recent) = (state.join("bases/unused"), state.join("bases/recent"));
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(31 * 24 * 3600);
    for path in [&unused, &recent] {
        std::fs::create_dir_all(path.join("rootfs")).unwrap();
    }
    for path in [&used, &unused] {
        std::fs::File::open(path).unwrap().set_modified(long_ago).unwrap();
    }
    let config = |cache_days| LocalConfig {
        state_dir: Some(state.clone()),
        helper: Some(env!("CARGO_BIN_EXE_sandbox-bench-local-helper").into()),
        cache_days,
        ..LocalConfig::default()
    };
    connect(config(0)).await.unwrap();
    assert!(unused.exists(), "0 keeps everything");
    connect(config(30)).await.unwrap();
    assert_eq!((used.exists(), unused.exists(), recent.exists()), (true, false, true));
    assert_eq!(out(&sandbox, "echo alive").await, "alive\n");
    bench.close().await;
}

#[tokio::test]
async fn capabilities_say_what_is_there() {
    let bench = bench(|config| {
        config.bases.insert("mapped:1".into(), "/no/such/archive.tar".into());
    })
    .await;
    let info = bench.backend.info();
    let capabilities = &info.capabilities;
    assert!(capabilities.base && capabilities.base_name.starts_with("host ("));
    assert!(!capabilities.images && capabilities.mapped_images == ["mapped:1"]);
    assert!(capabilities.base_commands.contains(&"python3".to_owned()));
    let preflight = bench.backend.preflight(&call()).await.unwrap();
    assert!(preflight.warnings.iter().any(|warning| warning.contains("/no/such/archive.tar")));
    let error =
        bench.backend.create(&call(), &spec(Source::Image("mapped:1".into())), &TailSink::new(0)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Environment);
    let created = bench.base().await;
    assert_eq!(
        created.facts.granted.pids.is_some(),
        capabilities.pids_limit != sandbox_bench_core::Enforcement::Absent
    );
    assert_eq!(created.sandbox.observe(&call()).await.unwrap().granted, created.facts.granted);
    bench.close().await;
}

#[tokio::test]
async fn a_configuration_with_unknown_fields_is_refused() {
    assert!(serde_json::from_str::<LocalConfig>(r#"{"state_dir":"/x","default_base":"host"}"#).is_ok());
    assert!(serde_json::from_str::<LocalConfig>(r#"{"sate_dir":"/x"}"#).is_err());
}
