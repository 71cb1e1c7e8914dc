//! Commands: how they are started, followed and ended.

use std::time::Duration;

use bytes::Bytes;
use sandbox_bench_core::{Completion, Digest, ErrorKind, ExecSpec, SandboxSpec, Stream, TailSink, TreeKill};
use tokio_util::sync::CancellationToken;

use crate::common::{engine, exited};

/// Processes that hide from their command: no environment, own session, no parent; and one that is deaf to SIGTERM.
const HIDDEN: &str = "echo begun; env -i /usr/bin/setsid /bin/sh -c '/bin/sleep 301 & /bin/sleep 302' & \
    (trap '' TERM; while :; do sleep 303; done) & sleep 304";

/// All `sleep` commands of the tests, by their command lines.
const LIST: &str =
    "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep '^[^ ]*sleep 30[0-9] ' ; done; true";

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
async fn a_command_that_kills_everything_ends_alone() {
    let Some(engine) = engine().await else { return };
    let sandbox = engine.sandbox().await;
    for script in ["kill -9 -1", "kill -9 1", "kill -TERM 1; kill -INT 1", "kill -9 -1; kill -9 -1"] {
        let ran = engine.exec(&sandbox, &ExecSpec::sh(&format!("echo partial; {script}; sleep 0.3"))).await;
        assert!(matches!(ran.report.completion, Completion::Exited { .. }), "{script}: {:?}", ran.report.completion);
        assert_eq!(ran.stdout, "partial\n", "{script}");
        assert_eq!(engine.sh(&sandbox, "echo alive").await, "alive\n", "after {script}");
    }
    engine.destroy(&sandbox).await;
}

#[tokio::test]
async fn what_commands_leave_behind_is_reaped_and_the_lifetime_holds() {
    let Some(engine) = engine().await else { return };
    let spec = SandboxSpec { lifetime: Duration::from_secs(6), ..engine.spec() };
    let sandbox = engine.create(&spec).await.sandbox;
    engine.sh(&sandbox, "(sh -c 'sleep 0.1' &) ; (sh -c 'exit 3' &) ; sleep 0.5").await;
    let zombies = engine.sh(&sandbox, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null || true").await;
    assert_eq!(zombies, "");
    // The sleeper dies with everything else, and another one keeps the time.
    engine.exec(&sandbox, &ExecSpec::sh("kill -9 -1")).await;
    let error = loop {
        match sandbox.exec(&engine.call(), &ExecSpec::sh("sleep 0.2"), &TailSink::new(100)).await {
            Ok(report) if report.completion != Completion::SandboxLost => {}
            Ok(report) => break format!("{:?}", report.completion),
            Err(error) => break error.kind().name().to_owned(),
        }
    };
    assert!(["SandboxLost", "sandbox_lost"].contains(&error.as_str()), "{error}");
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
