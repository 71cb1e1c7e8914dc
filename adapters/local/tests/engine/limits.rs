//! Limits, as far as this machine can keep them.

use std::time::Duration;

use sandbox_bench_local::engine::{Command, End, Enforcement, Limits, SandboxConfig};

use crate::support::{bench, config, count, run, sh, wait_until};

fn limited(limits: Limits) -> SandboxConfig {
    SandboxConfig { limits, ..config() }
}

#[tokio::test]
async fn limits_that_nobody_asked_for_are_absent() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    assert_eq!(sandbox.limits(), Default::default());
    bench.close().await;
}

#[tokio::test]
async fn the_memory_limit_kills_and_is_seen() {
    let bench = bench().await;
    let limits = Limits { memory: Some(100 << 20), ..Limits::default() };
    let sandbox = bench.engine.create(limited(limits)).await.unwrap();
    let report = sandbox.limits().memory;
    assert_eq!(report, bench.engine.facts().limits.memory);
    let grow = "x = []\nwhile len(x) < 300: x.append(bytearray(1 << 20))\nprint('grown')";
    let (outcome, stdout, _) = run(&sandbox, Command::new(["python3", "-c", grow])).await;
    if report == Enforcement::Enforced {
        assert_eq!(outcome.end, End::Signalled(9));
        assert!(outcome.out_of_memory);
        assert!(sandbox.usage().peak_memory.unwrap() <= 100 << 20);
        // Through a shell, which survives and reports 137.
        let (outcome, ..) =
            run(&sandbox, Command::shell(format!("python3 -c '{}'; exit $?", grow.replace('\'', "\"")))).await;
        assert_eq!((outcome.end, outcome.out_of_memory), (End::Exited(137), true));
    } else {
        assert_eq!((report, stdout.as_str()), (Enforcement::Absent, "grown\n"));
    }
    // The agent survived either way.
    assert_eq!(sh(&sandbox, "echo alive").await, "alive\n");
    bench.close().await;
}

#[tokio::test]
async fn a_fork_bomb_is_contained_and_cleared() {
    let bench = bench().await;
    let limits = Limits { pids: Some(400), ..Limits::default() };
    let sandbox = bench.engine.create(limited(limits)).await.unwrap();
    if sandbox.limits().pids == Enforcement::Absent {
        return bench.close().await;
    }
    let bomb = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.01)";
    let mut command = Command::new(["python3", "-c", bomb]);
    command.timeout = Some(Duration::from_millis(500));
    let (outcome, ..) = run(&sandbox, command).await;
    assert_eq!(outcome.tree_killed, Some(true));
    assert_eq!(count(&sandbox, "python3").await, 0);
    bench.close().await;
}

#[tokio::test]
async fn file_size_and_open_files_are_limited() {
    let bench = bench().await;
    let limits = Limits { file_size: Some(1 << 20), open_files: Some(64), ..Limits::default() };
    let sandbox = bench.engine.create(limited(limits)).await.unwrap();
    assert_eq!(sandbox.limits().file_size, Enforcement::Enforced);
    let script = "head -c 3000000 /dev/zero > /tmp/big 2>/dev/null; stat -c %s /tmp/big; ulimit -n; ulimit -c";
    assert_eq!(sh(&sandbox, script).await, "1048576\n64\n0\n");
    bench.close().await;
}

#[tokio::test]
async fn the_cpu_limit_is_set() {
    let bench = bench().await;
    let limits = Limits { cpus: Some(1.0), ..Limits::default() };
    let sandbox = bench.engine.create(limited(limits)).await.unwrap();
    match sandbox.limits().cpus {
        Enforcement::Advisory => assert_eq!(sh(&sandbox, "nproc").await, "1\n"),
        Enforcement::Enforced => {
            // Two busy loops for the time of one.
            let spin = "t=$(date +%s%N); (i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done) & \
                        i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done; wait";
            let (outcome, ..) = run(&sandbox, Command::shell(spin)).await;
            assert!(outcome.wall.mul_f64(1.3) > outcome.cpu_user, "{outcome:?}");
        }
        Enforcement::Absent => panic!("there is always affinity"),
    }
    bench.close().await;
}

#[tokio::test]
async fn a_sandbox_ends_by_itself_at_the_end_of_its_life() {
    let bench = bench().await;
    let sandbox =
        bench.engine.create(SandboxConfig { lifetime: Some(Duration::from_secs(1)), ..config() }).await.unwrap();
    let running = sandbox.exec(Command::shell("echo up; sleep 600")).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), running.outcome()).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
    assert!(sandbox.ended() && sandbox.exec(Command::shell("true")).is_err());
    wait_until(|| !bench.engine.is_alive(&sandbox.id())).await;
    let listed = bench.engine.list().unwrap();
    assert_eq!((listed.len(), listed[0].alive), (1, false), "it stays to be found");
    bench.close().await;
}
