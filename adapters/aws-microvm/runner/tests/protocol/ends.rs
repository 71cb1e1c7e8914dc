//! How commands end, and what they leave.

use std::fs;
use std::process::Command;

use reqwest::Method;
use serde_json::json;

use super::support::*;

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    let runner = Runner::start().await;
    let done = runner.finish(shell("code", "echo out; echo err >&2; exit 143")).await;
    assert_eq!((&done["state"], &done["exit_code"], &done["signal"]), (&"exited".into(), &143.into(), &json!(null)));
    assert_eq!((text(&done["stdout"]), text(&done["stderr"])), ("out\n".into(), "err\n".into()));
    assert!(
        done["finished_ms"].as_u64() >= done["started_ms"].as_u64() && done["rusage"]["max_rss_kb"].as_u64() > Some(0)
    );
    let done = runner.finish(shell("signal", "kill -TERM $$")).await;
    assert_eq!((&done["state"], &done["exit_code"], &done["signal"]), (&"exited".into(), &json!(null), &15.into()));
}

#[tokio::test]
async fn at_its_time_a_command_ends_with_its_group_and_its_output_stays() {
    let runner = Runner::start().await;
    let pids = runner.path("pids");
    let line =
        format!("trap '' TERM; echo begun; (trap '' TERM; sleep 600) & echo $$ $! >{pids}; while :; do sleep 1; done");
    let mut job = shell("slow", &line);
    job["timeout_ms"] = 700.into();
    job["kill_grace_ms"] = 200.into();
    let done = runner.finish(job).await;
    assert_eq!((&done["state"], &done["exit_code"]), (&"timed_out".into(), &json!(null)));
    assert_eq!(text(&done["stdout"]), "begun\n");
    let pids: Vec<i32> = fs::read_to_string(pids).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    eventually(|| pids.iter().all(|pid| !alive(*pid))).await;
}

#[tokio::test]
async fn a_command_is_ended_on_request_and_asked_first() {
    let runner = Runner::start().await;
    let line = "trap 'echo asked; exit 3' TERM; echo begun; while :; do sleep 0.1; done";
    assert_eq!(runner.submit(&shell("k", line)).await.status(), 201);
    runner.look("k", "wait_ms=20000").await;
    refused(runner.request(Method::DELETE, "/v1/jobs/k").send().await.unwrap(), 409, "conflict").await;
    let kill = || runner.request(Method::POST, "/v1/jobs/k/kill").body(r#"{"signal":15}"#).send();
    assert_eq!(kill().await.unwrap().status(), 202);
    let done = runner.end_of("k").await;
    assert_eq!((&done["state"], &done["exit_code"]), (&"killed".into(), &3.into()));
    assert_eq!(text(&done["stdout"]), "begun\nasked\n");
    assert_eq!(kill().await.unwrap().status(), 202, "again changes nothing");
    assert_eq!(runner.look("k", "").await["exit_code"], 3);
    let odd = runner.request(Method::POST, "/v1/jobs/k/kill").body(r#"{"signal":0}"#).send().await.unwrap();
    refused(odd, 400, "bad_request").await;
    refused(runner.request(Method::POST, "/v1/jobs/x/kill").send().await.unwrap(), 404, "not_found").await;
}

#[tokio::test]
async fn what_goes_on_in_the_background_neither_delays_the_end_nor_dies_of_it() {
    let runner = Runner::start().await;
    let (go, file) = (runner.path("go"), runner.path("later"));
    let wait = format!("while [ ! -e {go} ]; do sleep 0.05; done; echo on; echo on; echo $? >{file}");
    let done = runner.finish(shell("bg", &format!("({wait}) & echo begun"))).await;
    assert_eq!((&done["exit_code"], &done["writers_left"]), (&0.into(), &true.into()));
    assert_eq!(text(&done["stdout"]), "begun\n");
    fs::write(&go, "").unwrap();
    eventually(|| fs::read_to_string(&file).is_ok_and(|text| text == "0\n")).await;
    assert_eq!(text(&runner.look("bg", "").await["stdout"]), "begun\n");
}

#[tokio::test]
async fn orphans_do_not_stay_as_zombies() {
    let runner = Runner::start().await;
    let done = runner.finish(shell("o", "for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.1' &) ; done; echo ok")).await;
    assert_eq!(text(&done["stdout"]), "ok\n");
    let own = runner.process.id().to_string();
    let zombies = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let stats = processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        stats.filter(|stat| stat.split(") ").nth(1).is_some_and(|rest| rest.split(' ').nth(1) == Some(&own))).count()
    };
    eventually(|| zombies() == 0).await;
}

#[tokio::test]
async fn when_the_runner_is_asked_to_end_its_commands_end_too() {
    let mut runner = Runner::start().await;
    let pid = runner.path("pid");
    let job = shell("t", &format!("echo $$ >{pid}; echo begun; exec sleep 600"));
    assert_eq!(runner.submit(&job).await.status(), 201);
    runner.look("t", "wait_ms=20000").await;
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    assert!(alive(pid));
    let own = runner.process.id().to_string();
    assert!(Command::new("kill").arg(&own).status().unwrap().success());
    assert!(runner.process.wait().unwrap().success());
    eventually(|| !alive(pid)).await;
}

#[tokio::test]
async fn many_commands_run_side_by_side() {
    let runner = Runner::start().await;
    let jobs: Vec<String> = (0..40).map(|number| format!("job-{number}")).collect();
    for id in &jobs {
        assert_eq!(runner.submit(&shell(id, &format!("sleep 0.2; echo {id}; exit 7"))).await.status(), 201);
    }
    for id in &jobs {
        let done = runner.end_of(id).await;
        assert_eq!((text(&done["stdout"]), &done["exit_code"]), (format!("{id}\n"), &7.into()));
    }
}
