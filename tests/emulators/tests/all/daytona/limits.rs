//! Quotas, rate limits, intervals.

use std::time::Duration;

use sandbox_bench_emulators::daytona::{DaytonaOptions, Quota, RateLimits};
use serde_json::{Value, json};

use super::Daytona;

#[tokio::test]
async fn quotas_are_refused_with_400_and_freed_again() {
    let quota = Quota { cpu: 2, disk: 8, snapshots: 1, ..Quota::default() };
    let daytona = Daytona::with(DaytonaOptions { quota, ..DaytonaOptions::default() }).await;
    let first = daytona.sandbox(json!({})).await;
    let build = |cpu: u64| json!({"buildInfo": {"dockerfileContent": "FROM a:1\n"}, "cpu": cpu});
    let too_large = daytona.refused("POST", "/api/sandbox", build(5)).await;
    assert_eq!(too_large, (400, "CPU request 5 exceeds maximum allowed per sandbox (4).".into()));
    let full = daytona.refused("POST", "/api/sandbox", build(2)).await;
    assert_eq!(full, (400, "Total CPU limit exceeded. Maximum allowed: 2.".into()));
    // A stopped one needs no CPU, but its disk stays taken.
    daytona.ok("POST", &format!("/api/sandbox/{first}/stop"), Value::Null).await;
    daytona.until(&first, "stopped").await;
    let second = daytona.ok("POST", "/api/sandbox", build(2)).await;
    daytona.until(second["id"].as_str().unwrap(), "started").await;
    assert_eq!(daytona.refused("POST", &format!("/api/sandbox/{first}/start"), Value::Null).await.0, 400);
    let organization = second["organizationId"].as_str().unwrap();
    let usage = daytona.ok("GET", &format!("/api/organizations/{organization}/usage"), Value::Null).await;
    assert_eq!(
        (&usage["regionUsage"][0]["currentCpuUsage"], &usage["regionUsage"][0]["currentDiskUsage"]),
        (&json!(2), &json!(6))
    );
    let snapshot = |name: &str| json!({"name": name, "imageName": "a:1"});
    daytona.ok("POST", "/api/snapshots", snapshot("s1")).await;
    let full = daytona.refused("POST", "/api/snapshots", snapshot("s2")).await;
    assert_eq!(full, (400, "Snapshot quota exceeded. Maximum allowed: 1".into()));
    daytona.close().await;
}

#[tokio::test]
async fn each_rate_limit_counts_its_own_calls_and_names_itself() {
    let rates = RateLimits { sandbox_create: 1, ..RateLimits::default() };
    let daytona = Daytona::with(DaytonaOptions { rates, ..DaytonaOptions::default() }).await;
    daytona.sandbox(json!({})).await;
    let limited = daytona.request("POST", "/api/sandbox").json(&json!({})).send().await.unwrap();
    assert_eq!(limited.status(), 429);
    let header = |name: &str| limited.headers().get(name).unwrap().to_str().unwrap().parse::<u64>().unwrap();
    assert_eq!((header("x-ratelimit-limit-sandbox-create"), header("x-ratelimit-remaining-sandbox-create")), (1, 0));
    assert!((1..=60).contains(&header("retry-after-sandbox-create")));
    let other = daytona.request("GET", "/api/sandbox").send().await.unwrap();
    assert_eq!(other.status(), 200);
    assert!(other.headers().contains_key("x-ratelimit-remaining-authenticated"));
    daytona.close().await;
}

#[tokio::test]
async fn intervals_stop_and_delete() {
    let minute = Duration::from_millis(300);
    let daytona = Daytona::with(DaytonaOptions { minute, ..DaytonaOptions::default() }).await;
    let idle = daytona.sandbox(json!({"autoStopInterval": 1, "autoDeleteInterval": 1})).await;
    let short = daytona.sandbox(json!({"autoStopInterval": 0, "ttlMinutes": 3})).await;
    let kept = daytona.sandbox(json!({"autoStopInterval": 0, "autoDeleteInterval": 0})).await;
    daytona.until(&idle, "stopped").await;
    daytona.until(&idle, "gone").await;
    daytona.until(&short, "gone").await;
    assert_eq!(daytona.state(&kept).await, "started");
    daytona.close().await;
}
