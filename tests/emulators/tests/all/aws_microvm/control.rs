//! What holds for the control plane as a whole.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Account, image_request, path};

#[tokio::test]
async fn a_token_of_a_client_makes_one_thing_only() {
    let account = Account::open().await;
    let image = account.image("once", json!({})).await;
    let run = json!({ "imageIdentifier": image, "clientToken": "t-1", "maximumDurationInSeconds": 600 });
    let first = account.ok("POST", "/2025-09-09/microvms", run.clone()).await;
    account.until(&first, "RUNNING").await;
    let again = account.ok("POST", "/2025-09-09/microvms", run.clone()).await;
    assert_eq!(again["microvmId"], first["microvmId"]);
    let mut other = run;
    other["maximumDurationInSeconds"] = json!(601);
    let (status, name, _) = account.refused("POST", "/2025-09-09/microvms", other).await;
    assert_eq!((status, name.as_str()), (409, "ConflictException"));
    let made = account.ok("GET", "/2025-09-09/microvms", Value::Null).await;
    assert_eq!(made["items"].as_array().unwrap().len(), 1);
    account.close().await;
}

#[tokio::test]
async fn memory_and_rates_are_the_accounts() {
    let account = Account::with(|options| {
        options.quotas.memory_mib = 4096;
        options.quotas.rates.suspend = 1;
    })
    .await;
    let image = account.image("small", json!({})).await;
    let first = account.microvm(&image, json!({})).await;
    account.microvm(&image, json!({})).await;
    let run = json!({ "imageIdentifier": image });
    let (status, name, message) = account.refused("POST", "/2025-09-09/microvms", run.clone()).await;
    assert_eq!((status, name.as_str()), (402, "ServiceQuotaExceededException"));
    assert_eq!(message, "The base maximum allocated memory limit has been reached for this account.");
    account.ok("DELETE", &path(&first), Value::Null).await;
    account.until(&first, "TERMINATED").await;
    account.microvm(&image, json!({})).await;

    let suspend = format!("{}/suspend", path(&first));
    account.refused("POST", &suspend, Value::Null).await;
    let throttled = account.signed("lambda", Method::POST, &suspend, "").send().await.unwrap();
    assert_eq!(throttled.status(), 429);
    assert_eq!(throttled.headers()["x-amzn-errortype"], "ThrottlingException");
    assert_eq!(throttled.headers()["retry-after"], "1");
    account.close().await;
}

#[tokio::test]
async fn lists_are_paged_before_they_are_filtered() {
    let account = Account::open().await;
    let (one, two) = (account.image("one", json!({})).await, account.image("two", json!({})).await);
    for image in [&one, &one, &two] {
        account.ok("POST", "/2025-09-09/microvms", json!({ "imageIdentifier": image })).await;
    }
    let filter = format!("imageIdentifier={}", two.replace(':', "%3A"));
    let first = account.ok("GET", &format!("/2025-09-09/microvms?maxResults=2&{filter}"), Value::Null).await;
    assert_eq!(first["items"], json!([]));
    let token = first["nextToken"].as_str().unwrap();
    assert!(token.len() > 600 && !token.contains("microvm"), "{token}");
    let next = format!("/2025-09-09/microvms?maxResults=2&{filter}&nextToken={}", token.replace('=', "%3D"));
    let last = account.ok("GET", &next, Value::Null).await;
    assert_eq!(last["items"][0]["imageArn"], json!(two));
    assert!(last["items"][0].get("endpoint").is_none() && last["nextToken"].is_null());

    let named = account.ok("GET", "/2025-09-09/microvm-images?nameFilter=tw", Value::Null).await;
    assert_eq!(named["items"][0]["name"], "two");
    let foreign = account.refused("GET", "/2025-09-09/microvms?nextToken=abc", Value::Null).await;
    assert_eq!((foreign.0, foreign.1.as_str()), (400, "ValidationException"));
    account.close().await;
}

#[tokio::test]
async fn tags_come_with_an_image_and_change() {
    let account = Account::open().await;
    let image = account.image("tagged", json!({ "tags": { "app": "bench", "x": "1" } })).await;
    let tags = format!("/2017-03-31/tags/{}", image.replace(':', "%3A"));
    let (status, _) = account.call("POST", &tags, json!({ "Tags": { "y": "a b" } })).await;
    assert_eq!(status, 204);
    let (status, _) = account.call("DELETE", &format!("{tags}?tagKeys=x&tagKeys=none"), Value::Null).await;
    assert_eq!(status, 204);
    let expected = json!({ "app": "bench", "y": "a b" });
    assert_eq!(account.ok("GET", &tags, Value::Null).await["Tags"], expected);
    let view = account.ok("GET", &super::image_path(&image), Value::Null).await;
    assert_eq!(view["tags"], expected);
    account.close().await;
}

#[tokio::test]
async fn views_have_numbers_for_times_and_nulls_for_what_is_unset() {
    let account = Account::open().await;
    let image = account.image("views", json!({})).await;
    let microvm = account.microvm(&image, json!({ "runHookPayload": "p" })).await;
    let view = account.get(&microvm).await;
    assert!(view["startedAt"].as_f64().is_some_and(|at| at > 1.7e9), "{view}");
    for name in ["executionRoleArn", "idlePolicy", "stateReason", "terminatedAt", "terminationReasonCode"] {
        assert!(view.get(name).is_some_and(Value::is_null), "{name} in {view}");
    }
    assert_eq!(view["maximumDurationInSeconds"], 28_800);
    let default = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS";
    assert_eq!(view["egressNetworkConnectors"], json!([default]));
    let missing = account.refused("GET", "/2025-09-09/microvms/microvm-none", Value::Null).await;
    assert_eq!(missing.2, "MicroVM not found: microvm-none");
    let made = account.ok("GET", &format!("{}/versions/1.0", super::image_path(&image)), Value::Null).await;
    assert_eq!(made["codeArtifact"], image_request("views")["codeArtifact"]);
    assert!(made["logging"].is_null() && made["stateReason"].is_null());
    account.close().await;
}
