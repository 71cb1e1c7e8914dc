//! Single files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use reqwest::{Method, Response};
use sha2::{Digest, Sha256};

use super::support::*;

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn put(runner: &Runner, query: &str, body: &[u8]) -> Response {
    let request = runner.request(Method::PUT, &format!("/v1/files?{query}"));
    request.header("x-content-sha256", hex(body)).body(body.to_vec()).send().await.unwrap()
}

async fn get(runner: &Runner, query: &str) -> Response {
    runner.request(Method::GET, &format!("/v1/files?{query}")).send().await.unwrap()
}

#[tokio::test]
async fn a_file_arrives_whole_with_its_mode_and_replaces_what_was_there() {
    let runner = Runner::start().await;
    let path = runner.path("a/b/file");
    refused(put(&runner, &format!("path={path}"), b"x").await, 404, "not_found").await;
    let answer = json_of(put(&runner, &format!("path={path}&mode=0751&mkdirs=1"), b"one").await, 200).await;
    assert_eq!((&answer["bytes"], &answer["sha256"]), (&3.into(), &hex(b"one").into()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    // A link is replaced, and what it points at stays.
    let other = runner.path("other");
    fs::write(&other, "other").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&other, &path).unwrap();
    json_of(put(&runner, &format!("path={path}"), b"two").await, 200).await;
    assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"two".to_vec(), b"other".to_vec()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
    for bad in
        ["path=relative", "path=/tmp/../x", &format!("path={path}&mode=9"), &format!("path={}", runner.path("a"))]
    {
        refused(put(&runner, bad, b"x").await, 400, "bad_request").await;
    }
}

#[tokio::test]
async fn what_is_not_as_promised_changes_nothing() {
    let runner = Runner::start().await;
    let path = runner.path("file");
    fs::write(&path, "before").unwrap();
    for query in [format!("path={path}"), format!("path={path}&append_at=6")] {
        let request = runner.request(Method::PUT, &format!("/v1/files?{query}"));
        let answer = request.header("x-content-sha256", hex(b"promised")).body("sent").send().await.unwrap();
        refused(answer, 400, "digest_mismatch").await;
    }
    assert_eq!(fs::read(&path).unwrap(), b"before");
    let left: Vec<_> = fs::read_dir(runner.dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing but the file and the state: {left:?}");
}

#[tokio::test]
async fn pieces_are_added_once_and_a_client_learns_where_to_go_on() {
    let runner = Runner::start().await;
    let path = runner.path("file");
    let append = |at: u64, piece: &'static [u8]| {
        let query = format!("path={path}&mode=0600&append_at={at}");
        let runner = &runner;
        async move { put(runner, &query, piece).await }
    };
    refused(append(3, b"x").await, 404, "not_found").await;
    assert_eq!(append(0, b"abc").await.status(), 200);
    assert_eq!(append(3, b"def").await.status(), 200);
    let again = refused(append(3, b"def").await, 409, "conflict").await;
    assert_eq!(again["error"]["size"], 6);
    assert_eq!(fs::read(&path).unwrap(), b"abcdef");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn pieces_are_read_by_offset_with_their_digest() {
    let runner = Runner::start().await;
    let path = runner.path("file");
    let content: Vec<u8> = (0..9_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(&path, &content).unwrap();
    let piece = get(&runner, &format!("path={path}&offset=8999990&length=100")).await;
    assert_eq!((piece.status().as_u16(), &piece.headers()["x-file-size"]), (200, &"9000000".parse().unwrap()));
    assert_eq!(piece.headers()["x-content-sha256"], hex(&content[8_999_990..]).as_str());
    assert_eq!(piece.bytes().await.unwrap(), &content[8_999_990..]);
    let whole = get(&runner, &format!("path={path}")).await;
    assert_eq!(whole.headers()["content-length"], "9000000");
    assert_eq!(whole.bytes().await.unwrap(), content);
    assert_eq!(get(&runner, &format!("path={path}&offset=9000000")).await.bytes().await.unwrap(), "");
    refused(get(&runner, &format!("path={path}&offset=9000001")).await, 416, "bad_offset").await;
    refused(get(&runner, &format!("path={}", runner.path("none"))).await, 404, "not_found").await;
    refused(get(&runner, "path=/dev/zero").await, 400, "bad_request").await;
    refused(get(&runner, "path=/tmp").await, 400, "bad_request").await;
}

#[tokio::test]
async fn a_file_is_described_and_removed() {
    let runner = Runner::start().await;
    let (path, link) = (runner.path("file"), runner.path("link"));
    fs::write(&path, "abc").unwrap();
    symlink("nowhere", &link).unwrap();
    let stat = |path: String| runner.request(Method::GET, &format!("/v1/stat?path={path}")).send();
    let file = json_of(stat(path.clone()).await.unwrap(), 200).await;
    assert_eq!((&file["type"], &file["size"], &file["mode"]), (&"file".into(), &3.into(), &"0644".into()));
    assert_eq!(json_of(stat(link.clone()).await.unwrap(), 200).await["type"], "symlink");
    for path in [&path, &link] {
        let request = runner.request(Method::DELETE, &format!("/v1/files?path={path}"));
        assert_eq!(request.send().await.unwrap().status(), 204);
        refused(stat(path.clone()).await.unwrap(), 404, "not_found").await;
    }
}

#[tokio::test]
async fn one_request_carries_at_most_64_mebibytes() {
    let runner = Runner::start().await;
    let path = runner.path("file");
    let request = runner.request(Method::PUT, &format!("/v1/files?path={path}"));
    // It may answer before all is sent, and close.
    if let Ok(answer) = request.body(vec![0; (64 << 20) + 1]).send().await {
        refused(answer, 413, "too_large").await;
    }
    assert!(fs::metadata(&path).is_err());
}
