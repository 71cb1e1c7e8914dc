//! Endpoints: tokens, ports, and what passes.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Account, path};

async fn text(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn the_program_sees_requests_as_behind_the_proxy() {
    let account = Account::open().await;
    let image = account.image("seen", json!({ "environmentVariables": { "BAKED": "1" } })).await;
    let microvm = account.microvm(&image, json!({ "runHookPayload": "{\"v\":1}" })).await;
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    account.ask(&microvm, &token, "/").await;
    let post = account.endpoint(&microvm, &token, Method::POST, "/a%20b?c=d").header("x-aws-proxy-port", "8080");
    let seen: Value = post.header("x-own", "1").body("hello").send().await.unwrap().json().await.unwrap();
    assert_eq!(
        (&seen["method"], &seen["path"], &seen["body"]),
        (&json!("POST"), &json!("/a%20b?c=d"), &json!("hello"))
    );
    assert_eq!((&seen["peer"], &seen["cwd"]), (&json!("127.0.0.1"), &json!("/srv")));
    assert_eq!((&seen["headers"]["host"], &seen["headers"]["x-own"]), (&microvm["endpoint"], &json!("1")));
    assert!(seen["headers"].get("x-amzn-requestid").is_some());
    let names: Vec<&String> = seen["headers"].as_object().unwrap().keys().collect();
    assert!(!names.iter().any(|name| name.starts_with("x-aws-proxy")), "{names:?}");

    let env = account.ask(&microvm, &token, "/env").await;
    assert_eq!(
        (&env["BAKED"], &env["FROM_BUILD"], &env["AWS_REGION"]),
        (&json!("1"), &json!("yes"), &json!("us-east-1"))
    );
    assert_eq!(env["AWS_LAMBDA_MICROVM_IMAGE_ARN"], json!(image));

    let hooks = account.ask(&microvm, &token, "/seen").await;
    let run = hooks.as_array().unwrap().iter().find(|call| call["hook"] == "run").unwrap();
    assert_eq!(run["path"], "/aws/lambda-microvms/runtime/v1/run");
    assert_eq!(run["host"], "localhost:9000");
    let body: Value = serde_json::from_str(run["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({ "microvmId": microvm["microvmId"], "runHookPayload": "{\"v\":1}" }));

    let big = account.endpoint(&microvm, &token, Method::GET, "/big").send().await.unwrap();
    assert_eq!(big.bytes().await.unwrap().len(), 3_000_000);
    account.close().await;
}

#[tokio::test]
async fn tokens_are_for_one_microvm_some_ports_and_a_time() {
    let account = Account::open().await;
    let image = account.image("tokens", json!({})).await;
    let (one, two) = (account.microvm(&image, json!({})).await, account.microvm(&image, json!({})).await);
    let token = account.token(&one, json!([{ "range": { "startPort": 8000, "endPort": 8080 } }])).await;
    account.ask(&one, &token, "/").await;
    let get = |microvm: &Value, token: &str| account.endpoint(microvm, token, Method::GET, "/");
    let failed = (403, "Token authentication failed".to_owned());
    assert_eq!(text(get(&two, &token)).await, failed);
    assert_eq!(text(get(&json!({ "endpoint": "nobody.lambda-microvm.us-east-1.on.aws" }), &token)).await, failed);
    assert_eq!(text(get(&one, "nonsense")).await, (403, "Request missing authentication".to_owned()));
    let other_port = get(&one, &token).header("x-aws-proxy-port", "9000");
    assert_eq!(text(other_port).await, (403, "Access to port denied".to_owned()));
    assert_eq!(text(get(&one, &token).header("x-aws-proxy-port", "http")).await.0, 400);
    let silent = account.token(&one, json!([{ "allPorts": {} }])).await;
    assert_eq!(text(get(&one, &silent).header("x-aws-proxy-port", "1234")).await, (502, String::new()));

    let body = json!({ "expirationInMinutes": 1, "allowedPorts": [{ "port": 8080 }] });
    let short = account.ok("POST", &format!("{}/auth-token", path(&one)), body).await;
    let short = short["authToken"]["X-aws-proxy-auth"].as_str().unwrap().to_owned();
    let mut expired = false;
    for _ in 0..1000 {
        let answer = text(get(&one, &short)).await;
        expired = answer == failed;
        if expired {
            break;
        }
        assert_eq!(answer.0, 200);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(expired, "a minute of the API is long over");
    assert_eq!(account.violations(), [""; 0]);

    let url = format!("{}/", account.server.base_url());
    let bare = account.http.get(url).header("host", one["endpoint"].as_str().unwrap());
    assert_eq!(text(bare).await, (403, "Request missing authentication".to_owned()));
    assert_eq!(account.violations().len(), 1);
    account.server.shutdown(super::LIMIT).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_answers_only_after_a_while_and_not_after_the_end() {
    let account = Account::with(|options| options.endpoint_lag = Duration::from_secs(3600)).await;
    let image = account.image("late", json!({})).await;
    let microvm = account.microvm(&image, json!({})).await;
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    let get = || account.endpoint(&microvm, &token, Method::GET, "/");
    assert_eq!(text(get()).await, (502, String::new()));
    account.ok("DELETE", &path(&microvm), Value::Null).await;
    account.until(&microvm, "TERMINATED").await;
    assert_eq!(text(get()).await, (502, String::new()));
    account.close().await;
}

#[tokio::test]
async fn connections_at_one_time_are_limited_by_size() {
    let account = Account::open().await;
    let image = account.image("few", json!({ "resources": [{ "minimumMemoryInMiB": 512 }] })).await;
    let microvm = account.microvm(&image, json!({})).await;
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    account.ask(&microvm, &token, "/").await;
    let slow = (0..9).map(|_| text(account.endpoint(&microvm, &token, Method::GET, "/sleep/3")));
    let answers: Vec<(u16, String)> = futures_util::stream::iter(slow).buffer_unordered(9).collect().await;
    let refused = answers.iter().filter(|(status, _)| *status == 429).count();
    assert_eq!(refused, 1, "{answers:?}");
    account.close().await;
}
