//! Limits and cancellation: what runs out of time is stopped, all of it, and what it wrote is kept.

use std::time::{Duration, Instant};

use sandbox_bench_core::{Call, Completion, ExecSpec, SandboxSpec, TagQuery, TailSink, TreeKill};
use tokio_util::sync::CancellationToken;

use super::beats;
use crate::check::{Check, refused, same};
use crate::ensure;
use crate::harness::{Collected, Handle, Harness, Ran};

const LIMIT: Duration = Duration::from_secs(3);

/// A command that has started processes of every kind, has said so, and goes on for ever.
fn whole_tree() -> ExecSpec {
    let script = beats::starting(&["child"], &beats::starting_detached("detached"));
    ExecSpec::sh(&format!("trap '' TERM; {script} echo started; while :; do sleep 0.1; done"))
}

fn tree_kill(h: &Harness, told: TreeKill) -> Check {
    if h.can().tree_kill {
        return same("whether the whole tree was killed", told, TreeKill::Yes);
    }
    ensure!(told != TreeKill::Yes, "a backend without tree_kill reports that the tree was killed");
    Ok(())
}

/// What has to hold after the whole tree was stopped, for whatever reason.
async fn stopped(h: &Harness, s: &Handle, ran: &Ran) -> Check {
    same("what it had written", String::from_utf8_lossy(&ran.stdout).into_owned(), "started\n".into())?;
    if h.can().tree_kill {
        beats::dead(h, s, &["child", "detached"]).await?;
    }
    beats::alive(h, s, &["other"]).await
}

/// A sandbox in which another command's background process lives, which no stop may touch.
async fn sandbox_with_another_process(h: &Harness) -> Check<Handle> {
    let s = h.sandbox().await?;
    h.exec(&s, &ExecSpec::sh(&beats::starting(&["other"], "true"))).await?.text()?;
    Ok(s)
}

pub async fn a_time_limit_kills_the_whole_tree(h: &Harness) -> Check {
    let s = sandbox_with_another_process(h).await?;
    let start = Instant::now();
    let ran = h.exec(&s, &whole_tree().timeout(LIMIT)).await?;
    let took = start.elapsed();
    let Completion::DeadlineExceeded { tree_killed } = ran.report.completion else {
        return same(
            "the end of a command out of time",
            ran.report.completion.to_string(),
            "time limit exceeded".into(),
        );
    };
    ensure!(took >= LIMIT && took < LIMIT + h.pace.soon, "a limit of {LIMIT:?} ended the command after {took:?}");
    tree_kill(h, tree_killed)?;
    stopped(h, &s, &ran).await
}

pub async fn the_deadline_of_the_call_is_a_time_limit_too(h: &Harness) -> Check {
    let s = sandbox_with_another_process(h).await?;
    let call = h.call().with_limit(LIMIT + Duration::from_secs(3));
    let sink = Collected::default();
    let ran = h.exec_into(&call, &s, &whole_tree(), &sink).await?;
    let Completion::DeadlineExceeded { tree_killed } = ran.report.completion else {
        return same("the end at the call's deadline", ran.report.completion.to_string(), "time limit exceeded".into());
    };
    tree_kill(h, tree_killed)?;
    stopped(h, &s, &ran).await
}

pub async fn cancellation_kills_the_whole_tree_soon(h: &Harness) -> Check {
    let s = sandbox_with_another_process(h).await?;
    let cancel = CancellationToken::new();
    let call = h.call().with_cancel(cancel.clone());
    let (sink, spec) = (Collected::default(), whole_tree().timeout(Duration::from_secs(50)));
    let command = h.exec_into(&call, &s, &spec, &sink);
    let (ran, cancelled) = tokio::join!(command, async {
        let seen = sink.shows("started", h.pace.soon).await;
        cancel.cancel();
        seen.map(|()| Instant::now())
    });
    let (ran, took) = (ran?, cancelled?.elapsed());
    ensure!(took < h.pace.soon, "the command ended {took:?} after its cancellation");
    let Completion::Cancelled { tree_killed } = ran.report.completion else {
        return same("the end of a cancelled command", ran.report.completion.to_string(), "cancelled".into());
    };
    tree_kill(h, tree_killed)?;
    stopped(h, &s, &ran).await
}

pub async fn a_time_limit_holds_for_other_users_too(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "chmod 1777 /tmp").await?;
    let ran = h.exec(&s, &whole_tree().timeout(LIMIT).user("nobody")).await?;
    let Completion::DeadlineExceeded { .. } = ran.report.completion else {
        return same(
            "the end of a command out of time",
            ran.report.completion.to_string(),
            "time limit exceeded".into(),
        );
    };
    beats::dead(h, &s, &["child", "detached"]).await
}

pub async fn a_sandbox_works_on_after_a_time_limit(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let ran = h.exec(&s, &ExecSpec::sh("touch /tmp/before; sleep 60").timeout(Duration::from_secs(1))).await?;
    let out_of_time = matches!(ran.report.completion, Completion::DeadlineExceeded { .. });
    ensure!(out_of_time, "a sleep of a minute under a limit of a second ended with {}", ran.report.completion);
    same("a file from before", h.sh(&s, "ls /tmp/before").await?, "/tmp/before".into())
}

/// Calls that may not do anything any more, and the kind of error that says so.
fn expired(call: &Call) -> [(Call, &'static str); 2] {
    let cancelled = call.with_cancel(CancellationToken::new());
    cancelled.cancel.cancel();
    [(call.with_limit(Duration::ZERO), "deadline_exceeded"), (cancelled, "cancelled")]
}

pub async fn an_expired_call_has_no_effect(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    for (call, kind) in expired(&h.call()) {
        let sink = TailSink::new(0);
        refused("exec", s.exec(&call, &ExecSpec::sh("touch /tmp/ran"), &sink).await, &[kind])?;
        refused("find", h.backend.find(&call, &TagQuery::All).await, &[kind])?;
        refused("destroy", h.backend.destroy(&call, s.reference()).await, &[kind])?;
        refused("download", s.download(&call, "/etc/passwd", &h.host_path(), 1 << 20).await, &[kind])?;
        let spec = h.spec();
        refused("create", h.backend.create(&call, &spec, &sink).await, &[kind])?;
        same("sandboxes after it", h.found(TagQuery::Exact(spec.tag)).await?.len(), 0)?;
    }
    h.sh(&s, "test ! -e /tmp/ran").await.map(drop)
}

pub async fn a_sandbox_ends_by_itself_after_its_lifetime(h: &Harness) -> Check {
    let lifetime = Duration::from_secs(4);
    let s = h.create(&SandboxSpec { lifetime, ..h.spec() }).await?.sandbox;
    let start = Instant::now();
    h.sh(&s, "true").await?;
    tokio::time::sleep(lifetime).await;
    loop {
        match s.exec(&h.call(), &ExecSpec::sh("true"), &TailSink::new(0)).await {
            Ok(report) if report.completion == Completion::SandboxLost => return Ok(()),
            Ok(_) => {}
            result => return refused("exec after the lifetime", result, &["sandbox_lost", "not_found"]).map(drop),
        }
        let over = start.elapsed().saturating_sub(lifetime);
        ensure!(over < h.pace.soon, "a sandbox with a lifetime of {lifetime:?} still runs commands {over:?} after it");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
