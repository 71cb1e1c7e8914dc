//! Creation, destruction, and what is left when somebody dies.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};

use sandbox_bench_local::engine::{Base, Command, Engine, EngineError, EngineOptions, SandboxConfig};

use crate::support::{bench, config, helper, open, run, scratch, sh, wait_until};

#[tokio::test]
async fn destroy_is_idempotent_and_works_while_busy() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let mut running = sandbox.exec(Command::shell("echo started; setsid sleep 600 & sleep 600")).unwrap();
    running.next().await.unwrap();
    bench.engine.destroy(&sandbox.id()).await.unwrap();
    assert!(matches!(running.next().await, Err(EngineError::Lost { .. })));
    assert!(matches!(sandbox.exec(Command::shell("true")), Err(EngineError::Lost { .. })));
    bench.engine.destroy(&sandbox.id()).await.unwrap();
    bench.engine.destroy("never-existed").await.unwrap();
    bench.engine.destroy("../../etc").await.unwrap();
    assert!(matches!(bench.engine.attach(&sandbox.id()), Err(EngineError::NoSandbox(_))));
    bench.close().await;
}

#[tokio::test]
async fn unreadable_and_foreign_files_are_removed_with_the_sandbox() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "mkdir -p /d/e; touch /d/e/f; chmod 0 /d/e /d").await;
    if bench.engine.facts().non_root_user() {
        sh(&sandbox, "mkdir /home/u; touch /home/u/f; chown -R 1000:1000 /home/u; chmod 700 /home/u").await;
    }
    bench.engine.destroy(&sandbox.id()).await.unwrap();
    bench.close().await;
}

#[tokio::test]
async fn bad_requests_leave_nothing_behind() {
    let bench = bench().await;
    for id in ["", "../x", ".hidden", "a b"] {
        let bad = bench.engine.create(SandboxConfig::new(id, Base::Host)).await;
        assert!(matches!(bad, Err(EngineError::Invalid(_))), "{id:?}");
    }
    let empty = scratch();
    for base in [Base::Rootfs("/nowhere".into()), Base::Rootfs(empty.path().into()), Base::Snapshot("none".into())] {
        assert!(bench.engine.create(SandboxConfig { base, ..config() }).await.is_err());
    }
    let twin = config();
    bench.engine.create(twin.clone()).await.unwrap();
    assert!(bench.engine.create(twin.clone()).await.is_err());
    let survivor = bench.engine.attach(&twin.id).unwrap();
    assert_eq!(sh(&survivor, "echo alive").await, "alive\n", "the loser of a name must not hurt the owner");
    bench.close().await;
}

#[tokio::test]
async fn labels_are_found_on_disk_by_another_engine() {
    let bench = bench().await;
    let mut labelled = config();
    labelled.labels.insert("tag".into(), "mine".into());
    let sandbox = bench.engine.create(labelled).await.unwrap();
    let other = open(bench.dir.path()).await;
    let listed = other.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].labels["tag"].as_str(), listed[0].alive), ("mine", true));
    assert!(matches!(other.attach(&sandbox.id()), Err(EngineError::Foreign(_))));
    other.destroy(&sandbox.id()).await.unwrap();
    assert!(matches!(sandbox.exec(Command::shell("true")), Err(EngineError::Lost { .. })) || sandbox.ended());
    bench.close().await;
}

#[tokio::test]
async fn attaching_finds_the_same_sandbox() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "echo here > /mark").await;
    let id = sandbox.id();
    drop(sandbox);
    let again = bench.engine.attach(&id).unwrap();
    assert_eq!(sh(&again, "cat /mark").await, "here\n");
    bench.close().await;
}

#[tokio::test]
async fn sandboxes_end_with_the_last_engine() {
    let dir = scratch();
    let engine = open(dir.path()).await;
    let sandbox = engine.create(config()).await.unwrap();
    let id = sandbox.id();
    drop(sandbox);
    assert!(engine.is_alive(&id));
    drop(engine);
    let later = open(dir.path()).await;
    wait_until(|| !later.is_alive(&id)).await;
    later.destroy(&id).await.unwrap();
    assert!(later.list().unwrap().is_empty());
}

/// Not a test of its own: the process that [`a_killed_owner_leaves_no_process`] kills.
#[tokio::test]
async fn owner_that_will_be_killed() {
    let Some(dir) = std::env::var_os("OWNER_STATE_DIR") else {
        return;
    };
    let engine = open(Path::new(&dir)).await;
    let sandbox = engine.create(config()).await.unwrap();
    let marker = std::env::var("OWNER_MARKER").unwrap();
    sh(&sandbox, &format!("setsid sleep {marker} >/dev/null 2>&1 &")).await;
    println!("\nready");
    let _ = run(&sandbox, Command::shell(format!("sleep {marker}"))).await;
}

#[tokio::test]
async fn a_killed_owner_leaves_no_process() {
    let dir = scratch();
    let marker = format!("8{}", std::process::id());
    let mut owner = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::owner_that_will_be_killed", "--nocapture"])
        .env("OWNER_STATE_DIR", dir.path())
        .env("OWNER_MARKER", &marker)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "ready"));
    let engine = open(dir.path()).await;
    let id = engine.list().unwrap()[0].id.clone();
    wait_until(|| sleeping(&marker) == 2).await;
    assert!(engine.is_alive(&id));
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until(|| sleeping(&marker) == 0).await;
    assert_eq!(engine.list().unwrap().iter().map(|listed| listed.alive).collect::<Vec<_>>(), [false]);
    engine.destroy(&id).await.unwrap();
    assert!(engine.list().unwrap().is_empty());
}

/// How many processes of the machine have these arguments.
fn sleeping(marker: &str) -> usize {
    let arguments = format!("sleep\0{marker}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == arguments.as_bytes()))
        .count()
}

#[tokio::test]
async fn a_program_that_is_no_helper_is_named() {
    let dir = scratch();
    let options = EngineOptions { helper: Some("/bin/true".into()) };
    let error = Engine::open(dir.path(), options).await.unwrap_err();
    assert!(error.to_string().contains("helper_main_if_requested"), "{error}");
    let options = EngineOptions { helper: Some("/no/such/helper".into()) };
    assert!(Engine::open(dir.path(), options).await.unwrap_err().to_string().contains("/no/such/helper"));
}

/// Not a test of its own: run by [`a_forbidden_namespace_is_explained`] where namespaces are switched off.
#[tokio::test]
async fn opening_where_namespaces_are_switched_off() {
    let Some(dir) = std::env::var_os("BLOCKED_STATE_DIR") else {
        return;
    };
    match Engine::open(&dir, EngineOptions { helper: Some(helper()) }).await {
        Ok(_) => println!("\nopened"),
        Err(error) => println!("\nerror: {error}"),
    }
}

#[tokio::test]
async fn a_forbidden_namespace_is_explained() {
    let dir = scratch();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --exact \
                  life::opening_where_namespaces_are_switched_off --nocapture";
    let output = Process::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("BLOCKED_STATE_DIR", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("sysctl -w user.max_user_namespaces"), "{said}");
}
