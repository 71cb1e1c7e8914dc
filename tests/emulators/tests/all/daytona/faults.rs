//! Fault scripts against the emulated vendor.

use sandbox_bench_emulators::faults::{Effect, Ending};
use serde_json::{Value, json};

use super::Daytona;

#[tokio::test]
async fn a_lost_create_leaves_a_sandbox_that_can_be_found() {
    let daytona = Daytona::new().await;
    daytona.fault("POST", "/api/sandbox", Effect::LoseResponse);
    let lost = daytona.request("POST", "/api/sandbox").json(&json!({"name": "lost"})).send().await;
    assert!(lost.is_err());
    assert_eq!(daytona.state("lost").await, "started");
    daytona.close().await;
}

#[tokio::test]
async fn a_delete_can_lie_and_a_state_can_be_stuck() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let path = format!("/api/sandbox/{id}");
    daytona.fault("DELETE", &path, Effect::flag("delete-ignored"));
    assert_eq!(daytona.ok("DELETE", &path, Value::Null).await["state"], "destroying");
    assert_eq!(daytona.state(&id).await, "started");
    daytona.fault("DELETE", &path, Effect::flag("state-stuck"));
    daytona.ok("DELETE", &path, Value::Null).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(daytona.state(&id).await, "destroying");
    assert_eq!(daytona.refused("DELETE", &path, Value::Null).await.0, 409);
    daytona.close().await;
}

#[tokio::test]
async fn a_start_that_fails_says_so_and_can_be_recovered() {
    let daytona = Daytona::new().await;
    daytona.fault("POST", "/api/sandbox", Effect::flag("start-fails"));
    let refusal = daytona.refused("POST", "/api/sandbox", json!({"name": "n"})).await;
    assert_eq!(refusal, (400, "Sandbox failed to start: runner failed to start container".into()));
    let failed = daytona.ok("GET", "/api/sandbox/n", Value::Null).await;
    assert_eq!((&failed["state"], &failed["recoverable"]), (&json!("error"), &json!(true)));
    assert_eq!(daytona.ok("POST", "/api/sandbox/n/recover", Value::Null).await["state"], "started");
    let id = failed["id"].as_str().unwrap();
    assert_eq!(daytona.execute(id, "echo up").await["result"], "up\n");
    daytona.close().await;
}

#[tokio::test]
async fn outputs_and_downloads_can_be_cut() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    daytona.fault("POST", "/toolbox/*/process/execute", Effect::Flag { name: "truncated-output".into(), value: 3 });
    assert_eq!(daytona.execute(&id, "echo 123456").await, json!({"exitCode": 0, "result": "123"}));
    daytona.execute(&id, "head -c 100000 /dev/zero > /f").await;
    let download = format!("/toolbox/{id}/files/download?path=/f");
    daytona.fault("GET", "/toolbox/*/files/download", Effect::Cut { after: 5, ending: Ending::Close });
    let answer = daytona.request("GET", &download).send().await.unwrap();
    assert!(answer.bytes().await.is_err());
    daytona.fault("GET", "/toolbox/*/files/download", Effect::Cut { after: 5, ending: Ending::Clean });
    assert_eq!(daytona.request("GET", &download).send().await.unwrap().bytes().await.unwrap().len(), 5);
    daytona.close().await;
}

#[tokio::test]
async fn a_command_goes_on_when_the_platform_gives_up_on_its_call() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let flag = Effect::Flag { name: "platform-timeout".into(), value: 50 };
    daytona.fault("POST", "/toolbox/*/process/execute", flag);
    let body = json!({"command": "sleep 0.3; touch /went-on", "timeout": 30});
    let refusal = daytona.call("POST", &format!("/toolbox/{id}/process/execute"), body).await;
    assert_eq!((refusal.0.as_u16(), &refusal.1["source"]), (408, &json!("DAYTONA_PROXY")));
    let wait = "for i in $(seq 500); do [ -e /went-on ] && exec echo yes; sleep 0.01; done";
    assert_eq!(daytona.execute(&id, wait).await["result"], "yes\n");
    daytona.close().await;
}
