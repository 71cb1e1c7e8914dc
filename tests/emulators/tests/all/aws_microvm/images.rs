//! Builds, versions, and the ends of images.

use serde_json::{Value, json};

use super::{Account, DOCKERFILE, PROGRAM, archive, image_path, image_request, merge, path};

async fn reasons(account: &Account, arn: &str) -> Vec<String> {
    let builds = account.ok("GET", &format!("{}/versions/1.0/builds", image_path(arn)), Value::Null).await;
    let reasons = builds["items"].as_array().unwrap().iter();
    reasons.map(|build| build["stateReason"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_build_executes_the_dockerfile_and_waits_for_the_program() {
    let account = Account::open().await;
    let hooks = json!({
        "port": 9000,
        "microvmImageHooks": { "ready": "ENABLED", "readyTimeoutInSeconds": 60, "validate": "ENABLED", "validateTimeoutInSeconds": 60 },
    });
    account.upload("built.zip", archive(&[("Dockerfile", DOCKERFILE), ("program.py", PROGRAM)])).await;
    let mut request = image_request("built");
    merge(&mut request, json!({ "hooks": hooks, "environmentVariables": { "BAKED": "1" } }));
    let made = account.ok("POST", "/2025-09-09/microvm-images", request.clone()).await;
    assert_eq!((&made["state"], &made["imageVersion"]), (&json!("CREATING"), &json!("1.0")));
    assert_eq!(made["hooks"], request["hooks"]);
    let arn = made["imageArn"].as_str().unwrap();
    let refused = account.refused("DELETE", &image_path(arn), Value::Null).await;
    assert_eq!((refused.0, refused.2.as_str()), (400, "Cannot delete MicroVM image in its current state"));
    assert_eq!(account.refused("POST", "/2025-09-09/microvms", json!({ "imageIdentifier": arn })).await.0, 404);
    assert_eq!(account.built(arn).await, "CREATED", "{}", account.state().await);
    let view = account.ok("GET", &image_path(arn), Value::Null).await;
    assert_eq!(view["latestActiveImageVersion"], "1.0");
    let log = account.state().await["images"]["built:1.0"]["log"].as_str().unwrap().to_owned();
    assert!(log.contains("Step 5/7 : RUN echo built") && log.contains("the program runs"), "{log}");

    let builds =
        account.ok("GET", &format!("{}/versions/1.0/builds?architecture=ARM_64", image_path(arn)), Value::Null).await;
    let generations: Vec<&Value> =
        builds["items"].as_array().unwrap().iter().map(|build| &build["chipsetGeneration"]).collect();
    assert_eq!(generations, [&json!("3"), &json!("4")]);
    let id = builds["items"][0]["buildId"].as_str().unwrap();
    let build = account.ok("GET", &format!("{}/versions/1.0/builds/{id}", image_path(arn)), Value::Null).await;
    assert!(build["snapshotBuild"]["codeInstallSizeInBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{build}");

    let clash = account.refused("POST", "/2025-09-09/microvm-images", request).await;
    assert_eq!(clash.0, 400);
    assert!(clash.2.contains("already exists"), "{}", clash.2);
    account.close().await;
}

#[tokio::test]
async fn failed_builds_say_why_in_their_builds_alone() {
    let account = Account::open().await;
    let cases = [
        ("no-object", None, "S3_NO_SUCH_KEY"),
        ("no-zip", Some(b"text".to_vec()), "ARCHIVE_INVALID"),
        ("no-file", Some(archive(&[("sub/Dockerfile", "FROM x")])), "ARCHIVE_DOCKERFILE_NOT_FOUND"),
        ("no-step", Some(archive(&[("Dockerfile", "FROM x\nRUN false\n")])), "The container image build failed."),
        ("no-base", Some(archive(&[("Dockerfile", "FROM missing:1\n")])), "The container image build failed."),
        (
            "no-program",
            Some(archive(&[("Dockerfile", "FROM x\nCMD [\"/no/such/program\"]\n")])),
            "The container exited before it was ready.",
        ),
        (
            "no-ready",
            Some(archive(&[("Dockerfile", "FROM x\nCMD sleep 100\n")])),
            "Ready hook invocation timed out after PT1S",
        ),
    ];
    for (name, archive, reason) in cases {
        if let Some(archive) = archive {
            account.upload(&format!("{name}.zip"), archive).await;
        }
        let mut request = image_request(name);
        request["hooks"]["microvmImageHooks"]["readyTimeoutInSeconds"] = json!(1);
        let made = account.ok("POST", "/2025-09-09/microvm-images", request).await;
        let arn = made["imageArn"].as_str().unwrap();
        assert_eq!(account.built(arn).await, "CREATE_FAILED", "{name}");
        assert_eq!(reasons(&account, arn).await, [reason, reason], "{name}");
        let view = account.ok("GET", &image_path(arn), Value::Null).await;
        assert_eq!(view["latestFailedImageVersion"], "1.0");
        let version = account.ok("GET", &format!("{}/versions/1.0", image_path(arn)), Value::Null).await;
        assert_eq!((&version["state"], &version["stateReason"]), (&json!("FAILED"), &Value::Null));
        let deleted = account.ok("DELETE", &image_path(arn), Value::Null).await;
        assert_eq!(deleted["state"], "DELETING");
    }
    let mut elsewhere = image_request("no-bucket");
    elsewhere["codeArtifact"]["uri"] = json!("s3://nobody/x.zip");
    let made = account.ok("POST", "/2025-09-09/microvm-images", elsewhere).await;
    let arn = made["imageArn"].as_str().unwrap();
    assert_eq!(account.built(arn).await, "CREATE_FAILED");
    assert_eq!(reasons(&account, arn).await[0], "S3_NO_SUCH_BUCKET");
    account.close().await;
}

#[tokio::test]
async fn versions_follow_each_other_and_go_one_by_one() {
    let account = Account::open().await;
    let arn = account.image("versions", json!({})).await;
    let mut update = image_request("versions");
    merge(&mut update, json!({ "environmentVariables": { "V": "2" } }));
    update.as_object_mut().unwrap().remove("name");
    let updated = account.ok("PUT", &image_path(&arn), update.clone()).await;
    assert_eq!((&updated["state"], &updated["imageVersion"]), (&json!("UPDATING"), &json!("2.0")));
    let (status, name, message) = account.refused("PUT", &image_path(&arn), update).await;
    assert_eq!((status, name.as_str()), (409, "ConflictException"));
    assert!(message.contains("already in state: UPDATING"), "{message}");
    assert_eq!(account.built(&arn).await, "UPDATED");
    let microvm = account.microvm(&arn, json!({})).await;
    assert_eq!(microvm["imageVersion"], "2.0");
    let token = account.token(&microvm, json!([{ "port": 8080 }])).await;
    assert_eq!(account.ask(&microvm, &token, "/env").await["V"], "2");

    let second = format!("{}/versions/2.0", image_path(&arn));
    assert_eq!(
        account.refused("DELETE", &second, Value::Null).await.2,
        "Cannot delete microvm image with running microvms."
    );
    let off = account.ok("PATCH", &second, json!({ "status": "INACTIVE" })).await;
    assert_eq!(off["status"], "INACTIVE");
    let named = json!({ "imageIdentifier": arn, "imageVersion": "2.0" });
    assert_eq!(account.refused("POST", "/2025-09-09/microvms", named).await.0, 404);
    let older = account.microvm(&arn, json!({})).await;
    assert_eq!(older["imageVersion"], "1.0");

    for microvm in [&microvm, &older] {
        account.ok("DELETE", &path(microvm), Value::Null).await;
        account.until(microvm, "TERMINATED").await;
    }
    account.ok("DELETE", &second, Value::Null).await;
    assert_eq!(account.built(&arn).await, "UPDATED");
    let last = account.refused("DELETE", &format!("{}/versions/1.0", image_path(&arn)), Value::Null).await;
    assert_eq!(last.2, "This is the last version. Please delete the entire image");
    account.ok("DELETE", &image_path(&arn), Value::Null).await;
    for _ in 0..1000 {
        if account.call("GET", &image_path(&arn), Value::Null).await.0 == 404 {
            return account.close().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the image does not go");
}
