//! Files over the toolbox.

use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

use super::Daytona;

#[tokio::test]
async fn several_files_go_in_and_out_in_one_form_each() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let large: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let part = |bytes: &[u8]| Part::bytes(bytes.to_vec()).file_name("x");
    let form = Form::new()
        .text("files[0].path", "/new/dir/a b")
        .text("files[1].path", "/new/ü")
        .part("files[0].file", part(&large))
        .part("files[1].file", part(b""));
    let upload = daytona.request("POST", &format!("/toolbox/{id}/files/bulk-upload"));
    let answer: Value = upload.multipart(form).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["files"][0], json!({"path": "/new/dir/a b", "bytes": large.len()}));
    let paths = json!({"paths": ["/new/dir/a b", "/new/none", "/new/ü"]});
    let answer =
        daytona.request("POST", &format!("/toolbox/{id}/files/bulk-download")).json(&paths).send().await.unwrap();
    let body = answer.bytes().await.unwrap();
    let at = |needle: &[u8]| body.windows(needle.len()).position(|window| window == needle);
    assert!(at(&large).is_some() && at(b"filename*=utf-8''%2Fnew%2Fdir%2Fa%20b").is_some());
    assert!(at(b"name=\"error\"; filename=\"/new/none\"").is_some() && at(b"FILE_NOT_FOUND").is_some());
    assert!(body.ends_with(b"--DAYTONA-FILE-BOUNDARY--\r\n"));
    let info = daytona.ok("GET", &format!("/toolbox/{id}/files/info?path=/new/dir/a%20b"), Value::Null).await;
    assert_eq!(
        (&info["size"], &info["permissions"], &info["isDir"]),
        (&json!(large.len()), &json!("0644"), &json!(false))
    );
    daytona.close().await;
}

#[tokio::test]
async fn a_form_in_the_wrong_order_is_a_violation_and_one_bad_path_leaves_the_others() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let url = format!("/toolbox/{id}/files/bulk-upload");
    let part = || Part::bytes(b"x".to_vec()).file_name("x");
    let wrong = Form::new().part("files[0].file", part()).text("files[0].path", "/x");
    assert_eq!(daytona.request("POST", &url).multipart(wrong).send().await.unwrap().status(), 400);
    assert_eq!(daytona.violations().len(), 1);
    daytona.server.emulation().violations.clear();
    let mixed = Form::new()
        .text("files[0].path", "/proc/nothing")
        .text("files[1].path", "/good")
        .part("files[0].file", part())
        .part("files[1].file", part());
    let answer = daytona.request("POST", &url).multipart(mixed).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let body: Value = answer.json().await.unwrap();
    assert_eq!((body["errors"].as_array().unwrap().len(), &body["files"][0]["path"]), (1, &json!("/good")));
    assert_eq!(daytona.execute(&id, "cat /good").await["result"], "x");
    daytona.close().await;
}

#[tokio::test]
async fn several_refusals_have_no_body() {
    let daytona = Daytona::new().await;
    let id = daytona.sandbox(json!({})).await;
    let cases = [
        ("GET", "download?path=/none", 404),
        ("GET", "info?path=/none", 404),
        ("POST", "permissions?path=/none&mode=644", 404),
        ("DELETE", "?path=/etc", 400),
    ];
    for (method, rest, status) in cases {
        let path = format!("/toolbox/{id}/files/{rest}").replace("/?", "?");
        let answer = daytona.request(method, &path).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{method} {rest}");
        assert!(answer.bytes().await.unwrap().is_empty(), "{method} {rest}");
    }
    daytona.ok("POST", &format!("/toolbox/{id}/files/folder?path=/d/e&mode=700"), Value::Null).await;
    daytona.ok("DELETE", &format!("/toolbox/{id}/files?path=/d&recursive=true"), Value::Null).await;
    daytona.close().await;
}

#[tokio::test]
async fn commands_and_files_belong_to_the_user_of_the_image() {
    let daytona = Daytona::new().await;
    let dockerfile = "FROM a:1\nRUN useradd -m agent\nUSER agent\nWORKDIR /home/agent\n";
    let id = daytona.sandbox(json!({"buildInfo": {"dockerfileContent": dockerfile}})).await;
    let write = |path: &str| {
        let url = format!("/toolbox/{id}/files/upload-v2?path={path}");
        daytona.request("POST", &url).header("content-type", "application/octet-stream").body("x").send()
    };
    assert_eq!(write("/root/x").await.unwrap().status(), 403);
    assert_eq!(write("/home/agent/x").await.unwrap().status(), 200);
    assert_eq!(daytona.execute(&id, "whoami; pwd; stat -c %U x").await["result"], "agent\n/home/agent\nagent\n");
    let dir = daytona.ok("GET", &format!("/toolbox/{id}/work-dir"), Value::Null).await;
    assert_eq!(dir["dir"], "/home/agent");
    // A capture is the platform's work, not the daemon's.
    daytona.ok("POST", &format!("/api/sandbox/{id}/snapshot"), json!({"name": "c"})).await;
    daytona.until(&id, "started").await;
    daytona.close().await;
}
