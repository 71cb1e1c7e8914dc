//! Limits that the backend says it enforces.

use std::time::Duration;

use sandbox_bench_core::{Completion, ExecSpec, Resources, SandboxSpec, TailSink};

use crate::check::{Check, same};
use crate::ensure;
use crate::harness::{Handle, Harness};

async fn limited(h: &Harness, resources: Resources) -> Check<Handle> {
    Ok(h.create(&SandboxSpec { resources, ..h.spec() }).await?.sandbox)
}

pub async fn the_memory_limit_ends_a_command_as_out_of_memory(h: &Harness) -> Check {
    let s = limited(h, Resources { memory_mb: Some(64), ..Resources::default() }).await?;
    // One buffer of 512 MiB, filled.
    let spec = ExecSpec::new(["dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"]);
    let ran = h.exec(&s, &spec).await?;
    same("a command that needs 512 MiB of 64", ran.report.completion, Completion::OutOfMemory)?;
    let small = h.exec(&s, &ExecSpec::sh("kill -9 $$")).await?;
    let mistaken = small.report.completion == Completion::OutOfMemory;
    ensure!(!mistaken, "a later command that was killed for another reason is reported as out of memory");
    Ok(())
}

pub async fn the_process_limit_contains_a_fork_bomb(h: &Harness) -> Check {
    let s = limited(h, Resources { pids: Some(64), ..Resources::default() }).await?;
    // Only builtins after the subshell: nothing can be started any more.
    let count = "(i=0; while [ $i -lt 150 ]; do sleep 30 & i=$((i+1)); done) >/dev/null 2>&1
                 n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n";
    let spec = ExecSpec { keep_background: false, ..ExecSpec::sh(count).timeout(Duration::from_secs(30)) };
    let ran = h.exec(&s, &spec).await?;
    let processes: u32 = ran.text()?.parse().unwrap_or(u32::MAX);
    ensure!(processes <= 64, "{processes} processes ran under a limit of 64");
    let bomb = ExecSpec::sh("f() { f | f & }; f; sleep 30").timeout(Duration::from_secs(2));
    drop(s.exec(&h.call(), &bomb, &TailSink::new(0)).await);
    h.destroy(&s).await
}

pub async fn the_storage_limit_stops_a_writer(h: &Harness) -> Check {
    let s = limited(h, Resources { disk_mb: Some(64), ..Resources::default() }).await?;
    let ran =
        h.exec(&s, &ExecSpec::sh("head -c 200000000 /dev/zero > /conformance-big; wc -c < /conformance-big")).await?;
    let written: u64 = ran.text()?.parse().unwrap_or(u64::MAX);
    ensure!(written <= 80 << 20, "{written} bytes were written under a limit of 64 MiB");
    Ok(())
}
