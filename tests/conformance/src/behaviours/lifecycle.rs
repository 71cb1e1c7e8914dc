//! The end of sandboxes, and handles to them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sandbox_bench_core::{
    Completion, Destruction, ExecSpec, Input, SandboxRef, SandboxSpec, Stage, TagQuery, TailSink,
};

use super::beats;
use crate::check::{Check, Stop, refused, same};
use crate::ensure;
use crate::harness::{Collected, Handle, Harness};

const GONE: &[&str] = &["sandbox_lost", "not_found"];

pub async fn destroying_twice_is_confirmed_twice(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "true").await?;
    for _ in 0..2 {
        h.destroy(&s).await?;
        same("sandboxes after destroy", h.found(TagQuery::Exact(s.reference().tag.clone())).await?, Vec::new())?;
    }
    Ok(())
}

pub async fn what_never_existed_is_confirmed_gone(h: &Harness) -> Check {
    // As long as the ids of containers are, and of no backend's making.
    let reference =
        SandboxRef { id: "0123456789abcdef".repeat(4), tag: h.tag(), backend: h.backend.info().name.clone() };
    same("destroy", h.backend.destroy(&h.call(), &reference).await?, Destruction::Confirmed)?;
    refused("attach", h.backend.attach(&h.call(), &reference).await, GONE).map(drop)
}

pub async fn ids_are_never_taken_for_paths(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let long = "x".repeat(10_000);
    let up = format!("../{}", s.reference().id);
    for id in ["", ".", "..", "../..", "/", "a/b", "*", "%2e%2e", "nul\0", "ü", "-f", up.as_str(), long.as_str()] {
        let reference = SandboxRef { id: id.to_owned(), ..s.reference().clone() };
        // Both are right: it is no id of this backend, and nothing of that name is there.
        match h.backend.destroy(&h.call(), &reference).await {
            Ok(Destruction::Confirmed) => {}
            Ok(other) => return same(&format!("destroy of {id:?}"), other, Destruction::Confirmed),
            result => drop(refused(&format!("destroy of {id:?}"), result, &["invalid_request", "not_found"])?),
        }
        let kinds = ["not_found", "invalid_request", "sandbox_lost"];
        refused(&format!("attach to {id:?}"), h.backend.attach(&h.call(), &reference).await, &kinds)?;
    }
    same("the sandbox beside all this", h.sh(&s, "echo alive").await?, "alive".into())
}

pub async fn a_busy_sandbox_is_destroyed_at_once(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let sink = Collected::default();
    let script =
        format!("trap '' TERM INT; {} echo started; while :; do sleep 0.1; done", beats::starting(&["busy"], ""));
    let spec = ExecSpec::sh(&script).timeout(Duration::from_secs(50));
    let call = h.call();
    let (ran, destroyed) = tokio::join!(h.exec_into(&call, &s, &spec, &sink), async {
        let seen = sink.shows("started", h.pace.soon).await;
        let start = Instant::now();
        h.destroy(&s).await?;
        seen.map(|()| (start.elapsed(), Instant::now()))
    });
    let (took, gone_at) = destroyed?;
    ensure!(took < h.pace.soon, "destroying a busy sandbox took {took:?}");
    ensure!(gone_at.elapsed() < h.pace.soon, "its command returned {:?} after it was gone", gone_at.elapsed());
    // Whatever a kill looks like to the backend, a lost sandbox has no exit code.
    let ran = ran?;
    let lost = [Completion::SandboxLost, Completion::TransportLost].contains(&ran.report.completion);
    ensure!(lost, "a command whose sandbox was destroyed ended with: {}", ran.report.completion);
    same("what it had written", ran.stdout, b"started\n".to_vec())
}

/// Every use of a sandbox that is gone is an error that says so.
async fn unusable(h: &Harness, s: &Handle) -> Check {
    match s.exec(&h.call(), &ExecSpec::new(["true"]), &TailSink::new(0)).await {
        Ok(report) => same("exec", report.completion, Completion::SandboxLost)?,
        result => drop(refused("exec", result, GONE)?),
    }
    let input = Input::bytes("f", "/tmp/f", Stage::Setup, 0o644, "x");
    refused("upload", h.upload(s, &[input]).await, GONE)?;
    let to = h.host_path();
    refused("download", s.download(&h.call(), "/etc/passwd", &to, 1 << 20).await, GONE)?;
    ensure!(!to.exists(), "a failed download left a file on the host");
    refused("observe", s.observe(&h.call()).await, GONE)?;
    refused("attach", h.backend.attach(&h.call(), s.reference()).await, GONE).map(drop)
}

pub async fn a_destroyed_sandbox_cannot_be_used(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "true").await?;
    h.destroy(&s).await?;
    unusable(h, &s).await
}

pub async fn destroying_one_leaves_the_others_alone(h: &Harness) -> Check {
    let (a, b) = (h.sandbox().await?, h.sandbox().await?);
    h.exec(&b, &ExecSpec::sh(&beats::starting(&["other"], "true"))).await?.text()?;
    h.destroy(&a).await?;
    beats::alive(h, &b, &["other"]).await
}

/// A sandbox with settings and state of its own.
async fn distinctive(h: &Harness) -> Check<Handle> {
    let env = BTreeMap::from([("OF_THE_SANDBOX".to_owned(), "yes".to_owned())]);
    let s = h.create(&SandboxSpec { env, workdir: Some("/usr".into()), ..h.spec() }).await?.sandbox;
    h.put(&s, "/conformance/state", "kept").await?;
    Ok(s)
}

const DISTINCTIVE: &str = "cat /conformance/state; echo; echo $OF_THE_SANDBOX; pwd";

pub async fn attaching_gives_the_same_sandbox(h: &Harness) -> Check {
    let s = distinctive(h).await?;
    let attached = h.backend.attach(&h.call(), s.reference()).await?;
    same("its reference", attached.reference(), s.reference())?;
    same("files, variables and directory", h.sh(&attached, DISTINCTIVE).await?, "kept\nyes\n/usr".into())?;
    h.sh(&attached, "echo changed > /conformance/state").await?;
    same("a change, seen by the first handle", h.sh(&s, "cat /conformance/state").await?, "changed".into())
}

pub async fn another_process_can_attach_and_destroy(h: &Harness) -> Check {
    let s = distinctive(h).await?;
    let again = h.connect_again().await?;
    let attached = again.attach(&h.call(), s.reference()).await?;
    same("files, variables and directory", h.sh(&attached, DISTINCTIVE).await?, "kept\nyes\n/usr".into())?;
    let found = again.find(&h.call(), &TagQuery::Exact(s.reference().tag.clone())).await?;
    same("what the other connection finds", found.iter().map(|f| &f.reference).collect(), vec![s.reference()])?;
    same("destroy", again.destroy(&h.call(), s.reference()).await?, Destruction::Confirmed)?;
    unusable(h, &s).await
}

/// Counts in memory, and notes with each number the seconds since the boot; over and over, until it is ended.
const COUNTING: &str = r#"
sh -c 'n=0; while :; do n=$((n+1)); read -r up rest </proc/uptime; echo "$n $up" >>/tmp/counted; sleep 0.1; done' &
until [ -s /tmp/counted ]; do sleep 0.05; done
"#;
/// How long it is kept from counting, in seconds.
const HELD: f64 = 2.0;

async fn resumable(h: &Harness) -> Check<Handle> {
    let s = h.create(&SandboxSpec { resumable: true, ..h.spec() }).await?.sandbox;
    h.put(&s, "/conformance/state", "kept").await?;
    h.sh(&s, COUNTING).await?;
    Ok(s)
}

pub async fn a_resumed_sandbox_goes_on_where_it_stopped(h: &Harness) -> Check {
    let s = resumable(h).await?;
    for _ in 0..2 {
        s.suspend(&h.call()).await?;
    }
    tokio::time::sleep(Duration::from_secs_f64(HELD)).await;
    same(
        "what its tag finds",
        h.found(TagQuery::Exact(s.reference().tag.clone())).await?,
        vec![s.reference().id.clone()],
    )?;
    refused("a command", s.exec(&h.call(), &ExecSpec::sh("true"), &TailSink::new(0)).await, &["invalid_request"])?;
    refused("an upload", h.put(&s, "/conformance/state", "changed").await, &["invalid_request"])?;
    refused("a download", s.download(&h.call(), "/conformance", &h.host_path(), 1 << 20).await, &["invalid_request"])?;
    for _ in 0..2 {
        s.resume(&h.call()).await?;
    }
    same("its files", h.sh(&s, "cat /conformance/state").await?, "kept".into())?;
    let counted = h.sh(
        &s,
        "a=$(wc -l </tmp/counted); until [ $(wc -l </tmp/counted) -gt $((a+1)) ]; do sleep 0.1; done; cat /tmp/counted",
    );
    let counted = counted.await?;
    let mut steps = Vec::new();
    for (expected, line) in (1..).zip(counted.lines()) {
        let step = line.split_once(' ').and_then(|(n, up)| Some((n.parse::<u64>().ok()?, up.parse::<f64>().ok()?)));
        let Some((n, up)) = step else { return Err(Stop::Failed(format!("the process wrote {line:?}"))) };
        same("the number that the process has come to", n, expected)?;
        steps.push(up);
    }
    let longest = steps.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    let held = longest >= HELD;
    ensure!(held, "suspended for {HELD} s, but the process was never still for longer than {longest} s");
    Ok(())
}

pub async fn a_suspended_sandbox_is_destroyed_as_any_other(h: &Harness) -> Check {
    let s = resumable(h).await?;
    s.suspend(&h.call()).await?;
    h.destroy(&s).await?;
    same("sandboxes after destroy", h.found(TagQuery::Exact(s.reference().tag.clone())).await?, Vec::new())?;
    refused("resume", s.resume(&h.call()).await, GONE).map(drop)
}

pub async fn only_what_was_created_to_be_suspended_is(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "true").await?;
    refused("suspend", s.suspend(&h.call()).await, &["invalid_request"])?;
    same("a command", h.sh(&s, "echo on").await?, "on".into())
}

pub async fn what_cannot_suspend_says_so(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    refused("suspend", s.suspend(&h.call()).await, &["unsupported"])?;
    refused("resume", s.resume(&h.call()).await, &["unsupported"])?;
    same("a command", h.sh(&s, "echo on").await?, "on".into())
}

pub async fn dropping_a_handle_ends_nothing(h: &Harness) -> Check {
    let s = distinctive(h).await?;
    let reference = s.reference().clone();
    drop(s);
    // Long enough for a clean-up that somebody starts in the background.
    tokio::time::sleep(Duration::from_secs(1)).await;
    same("what its tag finds", h.found(TagQuery::Exact(reference.tag.clone())).await?, vec![reference.id.clone()])?;
    if h.can().attach {
        let attached = h.backend.attach(&h.call(), &reference).await?;
        same("its state", h.sh(&attached, DISTINCTIVE).await?, "kept\nyes\n/usr".into())?;
    }
    Ok(())
}
