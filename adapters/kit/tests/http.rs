//! The HTTP client against a server that behaves as real ones do on bad days.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::{any, get};
use futures_util::StreamExt;
use reqwest::Method;
use sandbox_bench_core::{Call, ErrorKind, Grants, Tag};
use sandbox_bench_kit::http::{Effect, Service, body, json, lines, refused, secret_header, send};
use secrecy::SecretString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn call() -> Call {
    Call::new(Tag::new("run", "unit"), Duration::from_secs(10), Arc::new(Grants::default()))
}

async fn service(router: Router) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/api/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let secret = SecretString::from("s3cret");
    Service::new(&base, HeaderMap::from_iter([secret_header(AUTHORIZATION, "Bearer ", &secret).unwrap()])).unwrap()
}

/// A server that reads a request and then answers with these bytes and hangs up.
async fn rude(answer: &'static [u8]) -> Service {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer).await;
        }
    });
    Service::new(&base, HeaderMap::new()).unwrap()
}

#[tokio::test]
async fn a_request_goes_below_the_base_with_its_credentials() {
    let echo =
        |uri: Uri, headers: HeaderMap| async move { format!("\"{uri} {}\"", headers[AUTHORIZATION].to_str().unwrap()) };
    let service = service(Router::new().fallback(any(echo))).await;
    let request = service.request(Method::GET, &["sandbox", "a/../b c?d"]).query(&[("q", "1")]);
    let answer = send(&call(), "x", Effect::Idempotent, request).await.unwrap();
    let text: String = json(&call(), "x", Effect::Idempotent, answer, 1000).await.unwrap();
    assert_eq!(text, "/api/sandbox/a%2F..%2Fb%20c%3Fd?q=1 Bearer s3cret");
    assert!(!format!("{service:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_lost_answer_is_uncertain_only_where_it_matters() {
    for (answer, part) in [(&b""[..], "head"), (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\"", "body")] {
        for (effect, kind) in [(Effect::Once, ErrorKind::Transport), (Effect::Idempotent, ErrorKind::Unavailable)] {
            let service = rude(answer).await;
            let error = match send(&call(), "x", effect, service.request(Method::POST, &["create"])).await {
                Ok(answer) => json::<serde_json::Value>(&call(), "x", effect, answer, 100).await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(*error.kind(), kind, "{part} {effect:?}: {error}");
        }
    }
    let closed = Service::new("http://127.0.0.1:1", HeaderMap::new()).unwrap();
    let error = send(&call(), "x", Effect::Once, closed.request(Method::POST, &[])).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "nothing was sent");
}

#[tokio::test]
async fn refusals_are_read_whatever_their_body() {
    let router = Router::new()
        .route("/api/limit", get(|| async { (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "7")], "") }))
        .route("/api/html", get(|| async { (StatusCode::BAD_GATEWAY, "<html>\n<body>sorry</body></html>") }))
        .route("/api/echo", get(|| async { (StatusCode::BAD_REQUEST, "bad header Bearer s3cret") }))
        .route("/api/json", get(|| async { (StatusCode::NOT_FOUND, r#"{"message":"no"}"#) }));
    let service = service(router).await;
    let refusal = async |path: &str| {
        let request = service.request(Method::GET, &[path]);
        let answer = send(&call(), "x", Effect::Idempotent, request).await.unwrap();
        refused(&call(), "x", answer).await
    };
    let limit = refusal("limit").await;
    let wait = ErrorKind::RateLimited { retry_after: Some(Duration::from_secs(7)) };
    assert_eq!((limit.kind(Effect::Once), limit.text().as_str()), (wait, "no explanation"));
    let html = refusal("html").await;
    assert_eq!((html.kind(Effect::Once), html.text().as_str()), (ErrorKind::Transport, "an HTML page"));
    assert_eq!(html.kind(Effect::Idempotent), ErrorKind::Unavailable);
    let echo = refusal("echo").await;
    assert!(!format!("{echo:?}{}", echo.text()).contains("s3cret"), "{echo:?}");
    let json = refusal("json").await;
    assert_eq!((json.kind(Effect::Once), json.json().unwrap()["message"].as_str()), (ErrorKind::NotFound, Some("no")));
}

#[tokio::test]
async fn nothing_is_awaited_for_ever_and_no_answer_is_too_large() {
    let router = Router::new()
        .route("/api/never", get(|| async { std::future::pending::<&str>().await }))
        .route("/api/large", get(|| async { "x".repeat(1001) }));
    let service = service(router).await;
    let short = call().within(Duration::from_millis(50));
    let error = send(&short, "x", Effect::Idempotent, service.request(Method::GET, &["never"])).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::DeadlineExceeded);
    let large = send(&call(), "x", Effect::Idempotent, service.request(Method::GET, &["large"])).await.unwrap();
    let error = body(&call(), "x", Effect::Idempotent, large, 1000).await.unwrap_err();
    assert!(error.to_string().contains("larger than 1000 bytes"), "{error}");
}

#[tokio::test]
async fn lines_arrive_one_by_one_and_a_cut_is_seen() {
    let collect = async |answer: &'static [u8], limit| {
        let service = rude(answer).await;
        let answer = send(&call(), "x", Effect::Idempotent, service.request(Method::GET, &[])).await.unwrap();
        let all: Vec<_> = lines(answer, "x".into(), limit).collect().await;
        all.into_iter()
            .map(|line| line.ok().map(|line| String::from_utf8_lossy(&line).into_owned()))
            .collect::<Vec<_>>()
    };
    let line = |text: &str| Some(text.to_owned());
    assert_eq!(
        collect(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\none\r\n\ntwo", 10).await,
        [line("one"), line(""), line("two")]
    );
    assert_eq!(collect(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\none\ntw", 10).await, [line("one"), None]);
    assert_eq!(collect(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\none\nabcd\n", 3).await.last().unwrap(), &None);
}

#[test]
fn addresses_that_would_leak_or_mislead_are_refused() {
    for bad in
        ["", "example.com", "ftp://example.com", "https://user:s3cret@example.com", "https://e.com/?token=s3cret"]
    {
        let error = Service::new(bad, HeaderMap::new()).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidRequest, "{bad}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
    let secret = SecretString::from("line\nbreak");
    assert_eq!(*secret_header(AUTHORIZATION, "", &secret).unwrap_err().kind(), ErrorKind::Credentials);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_named_without_its_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let service = Service::new(&format!("http://{address}/api"), HeaderMap::new()).unwrap();
    let request = service.request(Method::POST, &["x"]).query(&[("signature", "s3cret")]);
    let error = send(&call(), "create", Effect::Once, request).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains(&format!("cannot connect to {address}")) && !text.contains("s3cret"), "{text}");
}
