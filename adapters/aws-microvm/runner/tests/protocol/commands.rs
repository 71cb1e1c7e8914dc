//! What is run, and as whom.

use std::fs;

use reqwest::Method;
use serde_json::json;

use super::support::*;

#[tokio::test]
async fn a_command_is_run_once_however_often_it_is_asked_for() {
    let runner = Runner::start().await;
    let count = runner.path("count");
    let job = shell("once", &format!("sleep 0.5; echo run >>{count}"));
    let started = json_of(runner.submit(&job).await, 201).await;
    assert_eq!((&started["job_id"], &started["state"]), (&"once".into(), &"running".into()));
    runner.end_of("once").await;
    assert_eq!(json_of(runner.submit(&job).await, 200).await["state"], "exited");
    refused(runner.submit(&shell("once", "echo another")).await, 409, "conflict").await;
    assert_eq!(fs::read_to_string(&count).unwrap(), "run\n");

    let listed = json_of(runner.request(Method::GET, "/v1/jobs").send().await.unwrap(), 200).await;
    assert_eq!(listed["jobs"][0]["job_id"], "once");
    assert!(listed["jobs"][0].get("stdout").is_none());
    assert_eq!(runner.request(Method::DELETE, "/v1/jobs/once").send().await.unwrap().status(), 204);
    refused(runner.request(Method::GET, "/v1/jobs/once").send().await.unwrap(), 404, "not_found").await;
    refused(runner.request(Method::DELETE, "/v1/jobs/once").send().await.unwrap(), 404, "not_found").await;
    json_of(runner.submit(&job).await, 201).await;
}

#[tokio::test]
async fn arguments_arrive_as_they_were_given() {
    let runner = Runner::start().await;
    let argv = ["/bin/sh", "-c", "printf '%s|' \"$@\"", "sh", "a b", "", "$HOME", "ü\n"];
    let done = runner.finish(json!({ "job_id": "a", "argv": argv, "timeout_ms": 10_000 })).await;
    assert_eq!(text(&done["stdout"]), "a b||$HOME|ü\n|");
    // By name, too.
    let done = runner.finish(json!({ "job_id": "b", "argv": ["echo", "hi"], "timeout_ms": 10_000 })).await;
    assert_eq!(text(&done["stdout"]), "hi\n");
    for (id, job) in [
        ("both", json!({ "argv": ["true"], "command": "true" })),
        ("neither", json!({})),
        ("empty", json!({ "argv": [] })),
        ("nul", json!({ "argv": ["a\0b"] })),
        ("name", json!({ "command": "true", "env": { "a=b": "c" } })),
        ("relative", json!({ "command": "true", "cwd": "tmp" })),
        ("stdin", json!({ "command": "true", "stdin_b64": "!" })),
        ("never", json!({ "command": "true", "timeout_ms": 0 })),
        ("long", json!({ "command": "true", "timeout_ms": 28_800_001 })),
        ("large", json!({ "command": "true", "max_output_bytes": 268_435_457 })),
    ] {
        let mut job = job;
        job["job_id"] = id.into();
        job.as_object_mut().unwrap().entry("timeout_ms").or_insert(1000.into());
        refused(runner.submit(&job).await, 400, "bad_request").await;
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_says_so() {
    let runner = Runner::start().await;
    let done = runner.finish(json!({ "job_id": "a", "argv": ["/no/such/program"], "timeout_ms": 10_000 })).await;
    assert_eq!((&done["state"], &done["exit_code"]), (&"failed_to_start".into(), &json!(null)));
    assert!(done["error"].as_str().unwrap().contains("No such file"), "{done}");
}

#[tokio::test]
async fn variables_are_the_images_without_our_own() {
    let runner =
        Runner::fresh(&[("FROM_IMAGE", "yes"), ("SANDBOX_SECRET", "no"), ("SANDBOX_RUNNER_TOKEN_REQUIRED", "0")]);
    let mut job = shell("a", "env");
    job["env"] = json!({ "MINE": "a=b c", "FROM_IMAGE": "over" });
    let done = runner.finish(job).await;
    let seen = text(&done["stdout"]);
    let lines: Vec<&str> = seen.lines().collect();
    assert!(lines.contains(&"MINE=a=b c") && lines.contains(&"FROM_IMAGE=over"), "{seen}");
    assert!(!seen.contains("SANDBOX_"), "{seen}");
    let mut job = shell("b", "env");
    job["clear_env"] = true.into();
    job["env"] = json!({ "ONLY": "1" });
    let seen = text(&runner.finish(job).await["stdout"]);
    let mut names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
    names.retain(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name));
    names.sort();
    assert_eq!(names, ["ONLY", "PATH"]);
}

#[tokio::test]
async fn the_directory_is_there_or_is_made() {
    let runner = Runner::start().await;
    let directory = runner.path("new/one");
    let mut job = shell("a", "pwd");
    job["cwd"] = directory.clone().into();
    refused(runner.submit(&job).await, 400, "no_such_directory").await;
    job["mkdir_cwd"] = true.into();
    assert_eq!(text(&runner.finish(job).await["stdout"]), format!("{directory}\n"));
}

#[tokio::test]
async fn stdin_is_what_was_sent_or_empty() {
    let runner = Runner::start().await;
    assert_eq!(text(&runner.finish(shell("a", "cat")).await["stdout"]), "");
    let mut job = shell("b", "cat");
    job["stdin_b64"] = "AAH/aGk=".into();
    assert_eq!(bytes(&runner.finish(job).await["stdout"]), b"\0\x01\xffhi");
    let mut job = shell("c", "cat");
    job["stdin_b64"] = "AAAA".repeat((1 << 20) / 3 + 1).into();
    refused(runner.submit(&job).await, 413, "too_large").await;
}

#[tokio::test]
async fn root_runs_commands_as_others() {
    let runner = Runner::start().await;
    let mut unknown = shell("u", "id");
    unknown["user"] = "no-such-user".into();
    refused(runner.submit(&unknown).await, 400, "unknown_user").await;
    if fs::metadata(runner.dir.path()).is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) != 0) {
        return;
    }
    let who = "id -u; id -g; id -G; echo $HOME $USER";
    for (id, user, expected) in [
        ("root", json!("root"), "0\n0\n0\n/root root\n"),
        ("number", json!(4321), "4321\n4321\n4321\n/ 4321\n"),
        ("text", json!("4321"), "4321\n4321\n4321\n/ 4321\n"),
    ] {
        let mut job = shell(id, who);
        job["user"] = user;
        assert_eq!(text(&runner.finish(job).await["stdout"]), expected);
    }
    let mut job = shell("nobody", "id -un; cat /etc/shadow");
    job["user"] = "nobody".into();
    let done = runner.finish(job).await;
    assert_eq!(text(&done["stdout"]), "nobody\n");
    assert_ne!(done["exit_code"], 0);
    // What one user's command writes is not another's to read.
    let mut job = shell("spy", &format!("cat {}/jobs/root/stdout", runner.path("state")));
    job["user"] = "nobody".into();
    assert_eq!(text(&runner.finish(job).await["stdout"]), "");
}
