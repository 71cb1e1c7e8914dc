//! What the service would not take.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Account, BUCKET, image_path, image_request, merge, path};

#[tokio::test]
async fn signatures_are_computed_again() {
    let account = Account::open().await;
    let url = format!("{}/2025-09-09/microvms", account.server.base_url());
    let unsigned = account.http.get(&url).send().await.unwrap();
    assert_eq!(unsigned.status(), 403);
    assert_eq!(unsigned.headers()["x-amzn-errortype"], "MissingAuthenticationTokenException");

    // Signed for one path and body, sent with another.
    let signed = account.signed("lambda", Method::POST, "/2025-09-09/microvms", "{}").build().unwrap();
    let resent =
        |url: &str, body: &'static str| account.http.post(url).headers(signed.headers().clone()).body(body).send();
    let tampered = resent(&url, "{ }").await.unwrap();
    assert_eq!(tampered.status(), 403);
    assert_eq!(tampered.headers()["x-amzn-errortype"], "InvalidSignatureException");
    assert_eq!(resent(&format!("{url}?maxResults=1"), "{}").await.unwrap().status(), 403);
    // As it was signed it is believed, and then has no image.
    assert_eq!(resent(&url, "{}").await.unwrap().status(), 400);
    assert_eq!(account.violations().len(), 3);
    account.server.shutdown(super::LIMIT).await.unwrap();
}

#[tokio::test]
async fn credentials_are_those_of_the_account() {
    let mut account = Account::open().await;
    account.options.access_key = "AKIAOTHER".into();
    let (status, name, _) = account.refused("GET", "/2025-09-09/microvms", Value::Null).await;
    assert_eq!((status, name.as_str()), (403, "UnrecognizedClientException"));
    account.options = sandbox_bench_emulators::aws_microvm::AwsOptions::default();
    account.options.region = "eu-west-1".into();
    let (status, name, message) = account.refused("GET", "/2025-09-09/microvms", Value::Null).await;
    assert_eq!((status, name.as_str()), (403, "InvalidSignatureException"));
    assert!(message.contains("region"), "{message}");
    account.server.shutdown(super::LIMIT).await.unwrap();
}

#[tokio::test]
async fn broken_constraints_are_told_in_the_words_of_the_service() {
    let account = Account::open().await;
    let images = "/2025-09-09/microvm-images";
    let (status, name, message) = account.refused("POST", images, json!({ "name": "a b" })).await;
    assert_eq!((status, name.as_str()), (400, "ValidationException"));
    assert!(message.starts_with("4 validation errors detected: Value null at 'baseImageArn'"), "{message}");
    assert!(message.contains("Value 'a b' at 'name' failed to satisfy constraint: Member must satisfy regular"));

    let run = |changes: Value| {
        let mut request = json!({ "imageIdentifier": "arn:aws:lambda:us-east-1:123456789012:microvm-image:none" });
        merge(&mut request, changes);
        request
    };
    let microvms = "/2025-09-09/microvms";
    let (.., message) = account.refused("POST", microvms, run(json!({ "maximumDurationInSeconds": 28_801 }))).await;
    assert_eq!(
        message,
        "1 validation error detected: Value '28801' at 'maximumDurationInSeconds' failed to satisfy constraint: Member \
         must have value less than or equal to 28800"
    );
    let idle = json!({ "maxIdleDurationSeconds": 59, "suspendedDurationSeconds": 0, "autoResumeEnabled": false });
    let (.., message) = account.refused("POST", microvms, run(json!({ "idlePolicy": idle }))).await;
    assert!(message.contains("'idlePolicy.maxIdleDurationSeconds'"), "{message}");
    let long = "x".repeat(4097);
    let (.., message) = account.refused("POST", microvms, run(json!({ "runHookPayload": long }))).await;
    assert!(message.contains("Value at 'runHookPayload'"), "{message}");
    let (status, name, message) = account.refused("POST", microvms, run(json!({}))).await;
    assert_eq!((status, name.as_str()), (404, "ResourceNotFoundException"));
    assert!(message.contains("MicroVMImage not found"), "{message}");
    account.close().await;
}

#[tokio::test]
async fn what_the_model_does_not_have_is_a_violation() {
    let account = Account::open().await;
    let microvms = "/2025-09-09/microvms";
    let unknown = json!({ "imageIdentifier": "arn:aws:lambda:us-east-1:123456789012:microvm-image:x", "memory": 1 });
    assert_eq!(account.refused("POST", microvms, unknown).await.0, 400);
    assert_eq!(account.refused("GET", &format!("{microvms}?state=RUNNING"), Value::Null).await.0, 400);
    assert_eq!(account.refused("PATCH", microvms, Value::Null).await.0, 404);
    assert_eq!(account.refused("GET", &format!("{microvms}/x"), json!({})).await.0, 400);
    // Identifiers of images are whole ARNs.
    let (status, _, message) = account.refused("GET", &image_path("bare-name"), Value::Null).await;
    assert_eq!((status, message.as_str()), (400, "Invalid ARN format"));
    let what = account.violations();
    assert_eq!(what.len(), 5, "{what:?}");
    assert!(what.iter().any(|what| what.contains("'memory' is not a member")), "{what:?}");
    account.server.shutdown(super::LIMIT).await.unwrap();
}

#[tokio::test]
async fn images_must_make_sense() {
    let account = Account::open().await;
    let refused = async |changes: Value| {
        let mut request = image_request("sense");
        merge(&mut request, changes);
        account.refused("POST", "/2025-09-09/microvm-images", request).await
    };
    let hooks = json!({ "port": 9000, "microvmHooks": { "run": "ENABLED" } });
    assert!(refused(json!({ "hooks": hooks })).await.2.contains("ready hook"));
    let hooks = json!({ "microvmImageHooks": { "ready": "ENABLED" } });
    assert!(refused(json!({ "hooks": hooks })).await.2.contains("port"));
    assert_eq!(refused(json!({ "resources": [{ "minimumMemoryInMiB": 1000 }] })).await.0, 400);
    assert_eq!(refused(json!({ "codeArtifact": { "uri": "https://x/y" } })).await.0, 400);
    assert_eq!(
        refused(json!({ "egressNetworkConnectors": ["INTERNET_EGRESS"] })).await.2,
        "Malformed network connector ARN"
    );
    let base = "arn:aws:lambda:us-east-1:aws:microvm-image:al1999-1";
    assert_eq!(refused(json!({ "baseImageArn": base })).await.0, 404);
    account.close().await;
}

#[tokio::test]
async fn payloads_need_a_hook_and_tokens_an_end() {
    let account = Account::open().await;
    let hooks = json!({ "port": 9000, "microvmImageHooks": { "ready": "ENABLED", "readyTimeoutInSeconds": 60 } });
    let image = account.image("no-run", json!({ "hooks": hooks })).await;
    let run = json!({ "imageIdentifier": image, "runHookPayload": "x" });
    assert_eq!(account.refused("POST", "/2025-09-09/microvms", run).await.0, 400);
    let microvm = account.microvm(&image, json!({})).await;
    let long = json!({ "expirationInMinutes": 61, "allowedPorts": [{ "port": 8080 }] });
    let (.., message) = account.refused("POST", &format!("{}/auth-token", path(&microvm)), long).await;
    assert_eq!(message, "ExpirationMinutes 61 exceeded max allowed of 60.");
    let none = json!({ "expirationInMinutes": 1, "allowedPorts": [] });
    assert_eq!(account.refused("POST", &format!("{}/auth-token", path(&microvm)), none).await.0, 400);
    let shell = json!({ "expirationInMinutes": 1 });
    let (.., message) = account.refused("POST", &format!("{}/shell-auth-token", path(&microvm)), shell).await;
    assert!(message.contains("SHELL_INGRESS"), "{message}");
    account.close().await;
}

#[tokio::test]
async fn objects_are_whole_and_their_digests_true() {
    let account = Account::open().await;
    let object = format!("/{BUCKET}/a%20b/c.zip");
    let put = account.signed("s3", Method::PUT, &object, "bytes").header("x-amz-checksum-crc32", "AAAAAA==");
    assert_eq!(put.send().await.unwrap().status(), 400);
    let put =
        account.signed("s3", Method::PUT, &object, "bytes").header("x-amz-meta-content", "1").send().await.unwrap();
    assert_eq!(put.status(), 200);
    let got = account.signed("s3", Method::GET, &object, "").send().await.unwrap();
    assert_eq!(got.headers()["x-amz-meta-content"], "1");
    assert_eq!(got.headers()["etag"], put.headers()["etag"]);
    assert_eq!(got.text().await.unwrap(), "bytes");
    let head = account.signed("s3", Method::HEAD, &object, "").send().await.unwrap();
    assert_eq!((head.status().as_u16(), head.headers()["content-length"].to_str().unwrap()), (200, "5"));
    assert_eq!(account.signed("s3", Method::HEAD, "/nobody/x", "").send().await.unwrap().status(), 404);
    assert_eq!(account.signed("s3", Method::PUT, "/my-bucket", "").send().await.unwrap().status(), 200);
    assert_eq!(account.state().await["objects"], json!([format!("{BUCKET}/a b/c.zip")]));
    assert_eq!(account.violations(), ["the checksum is not the body's"]);
    account.server.shutdown(super::LIMIT).await.unwrap();
}
