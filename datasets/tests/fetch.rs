//! Fetching from a hub on this machine that misbehaves in every way that is known of real ones.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use futures_util::stream;
use sandbox_bench_core::Digest;
use sandbox_bench_datasets::fetch::{FetchError, FetchSpec, Progress, fetch};
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const TOKEN: &str = "hf_secret_token";

/// What the hub does with the next requests for content.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// Sends this many bytes, then cuts the connection.
    CutAfter(usize),
    /// Answers with a status, and asks to wait no time.
    Status(u16),
    /// Sends other bytes of the same length.
    Corrupt,
    /// Ignores the range.
    NoRanges,
}

#[derive(Default)]
struct Hub {
    files: HashMap<String, Vec<u8>>,
    faults: Vec<Fault>,
    /// Where content is, if not here.
    elsewhere: Option<String>,
    needs_token: bool,
    plain_etags: bool,
    /// Method, path and headers of every request.
    seen: Vec<(Method, String, HeaderMap)>,
}

type Shared = Arc<Mutex<Hub>>;

struct Server {
    address: String,
    hub: Shared,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(hub: Hub) -> Self {
        let hub = Arc::new(Mutex::new(hub));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&hub));
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, hub, task }
    }

    fn requests(&self, method: &Method) -> Vec<HeaderMap> {
        let hub = self.hub.lock().unwrap();
        hub.seen.iter().filter(|(seen, ..)| seen == method).map(|(_, _, headers)| headers.clone()).collect()
    }
}

fn status(code: u16) -> Response {
    Response::builder().status(code).header("retry-after", "0").body(Body::empty()).unwrap()
}

async fn answer(State(hub): State<Shared>, request: Request) -> Response {
    let mut hub = hub.lock().unwrap();
    let path = request.uri().path().to_owned();
    hub.seen.push((request.method().clone(), request.uri().to_string(), request.headers().clone()));
    if hub.needs_token && request.headers().get("authorization").is_none() {
        return status(401);
    }
    if path.starts_with("/api/datasets/owner/set/tree/main") {
        return listing(&hub, request.uri().query().unwrap_or_default(), request.headers());
    }
    let name = path.strip_prefix("/datasets/owner/set/resolve/main/").or(path.strip_prefix("/content/"));
    let Some(content) = name.and_then(|name| hub.files.get(name)).cloned() else { return status(404) };
    if request.method() == Method::HEAD {
        return head(&hub, &content);
    }
    if let (Some(elsewhere), true) = (&hub.elsewhere, path.starts_with("/datasets")) {
        let location = format!("{elsewhere}/content/{}?signature=secret", name.unwrap_or_default());
        return Response::builder().status(302).header("location", location).body(Body::empty()).unwrap();
    }
    let fault = if hub.faults.is_empty() { None } else { Some(hub.faults.remove(0)) };
    body(content, request.headers(), fault)
}

fn head(hub: &Hub, content: &[u8]) -> Response {
    let etag = if hub.plain_etags { "abc123".to_owned() } else { Digest::of(content).hex() };
    let response = Response::builder()
        .header("x-linked-etag", format!("\"{etag}\""))
        .header("x-linked-size", content.len())
        .header("x-repo-commit", "c0ffee");
    match &hub.elsewhere {
        Some(elsewhere) => response.status(302).header("location", elsewhere).body(Body::empty()).unwrap(),
        None => response.body(Body::empty()).unwrap(),
    }
}

/// Two files on a page.
fn listing(hub: &Hub, query: &str, headers: &HeaderMap) -> Response {
    let mut names: Vec<&String> = hub.files.keys().collect();
    names.sort();
    let skip = query.split("page=").nth(1).map_or(0, |page| page.parse().unwrap());
    let entry = |name: &&String| format!("{{\"type\":\"file\",\"path\":\"{name}\",\"size\":1,\"oid\":\"x\"}}");
    let page: Vec<String> = names.iter().skip(skip).take(2).map(entry).collect();
    let json = format!("[{{\"type\":\"directory\",\"path\":\"d\",\"oid\":\"y\"}},{}]", page.join(","));
    let host = headers["host"].to_str().unwrap();
    let mut response = Response::builder();
    if skip + 2 < names.len() {
        let next = format!("<http://{host}/api/datasets/owner/set/tree/main?page={}>; rel=\"next\"", skip + 2);
        response = response.header("link", next);
    }
    response.body(Body::from(json)).unwrap()
}

fn body(content: Vec<u8>, headers: &HeaderMap, fault: Option<Fault>) -> Response {
    let range = headers.get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-'));
    let from: usize = range.map_or(0, |from| from.parse().unwrap());
    let from = if fault == Some(Fault::NoRanges) { 0 } else { from };
    let total = content.len();
    let mut rest = content[from..].to_vec();
    match fault {
        Some(Fault::Status(code)) => return status(code),
        Some(Fault::Corrupt) => rest.iter_mut().for_each(|byte| *byte ^= 1),
        _ => {}
    }
    let mut response = Response::builder();
    if from > 0 {
        let range = format!("bytes {from}-{}/{total}", total - 1);
        response = response.status(StatusCode::PARTIAL_CONTENT).header("content-range", range);
    }
    let response = response.header("content-length", rest.len());
    match fault {
        Some(Fault::CutAfter(length)) => {
            // Between the two, the server gets to send what it has.
            let pieces = stream::unfold((Some(rest[..length].to_vec()), 0), |(data, step)| async move {
                tokio::task::yield_now().await;
                match (data, step) {
                    (Some(data), _) => Some((Ok(data), (None, 1))),
                    (None, 1) => Some((Err(std::io::Error::other("cut")), (None, 2))),
                    _ => None,
                }
            });
            response.body(Body::from_stream(pieces)).unwrap()
        }
        _ => response.body(Body::from(rest)).unwrap(),
    }
}

fn content() -> Vec<u8> {
    (0..200_000u32).flat_map(u32::to_le_bytes).collect()
}

fn hub(faults: &[Fault]) -> Hub {
    let files = HashMap::from([("data/train.parquet".to_owned(), content())]);
    Hub { files, faults: faults.to_vec(), ..Hub::default() }
}

fn spec(server: &Server, out: &Path) -> FetchSpec {
    FetchSpec {
        dataset: "owner/set".to_owned(),
        revision: "main".to_owned(),
        paths: vec!["data/train.parquet".to_owned()],
        out: out.to_owned(),
        endpoint: server.address.clone(),
        token: Some(SecretString::from(TOKEN)),
        deadline: Duration::from_secs(60),
        backoff: Duration::from_millis(1),
    }
}

async fn fetch_one(server: &Server, out: &Path) -> Result<u64, FetchError> {
    fetch(&spec(server, out), |_| {}).await.map(|files| files[0].bytes)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_comes_whole_checked_and_once() {
    let server = Server::start(hub(&[])).await;
    let out = tempfile::tempdir().unwrap();
    let mut seen: Vec<Progress> = Vec::new();
    let fetched = fetch(&spec(&server, out.path()), |progress| seen.push(progress)).await.unwrap();
    assert_eq!(std::fs::read(&fetched[0].file).unwrap(), content());
    assert!(fetched[0].verified && !fetched[0].already_there);
    assert_eq!(fetched[0].commit.as_deref(), Some("c0ffee"));
    let last = seen.last().unwrap();
    assert_eq!((last.bytes, last.total), (800_000, Some(800_000)));
    assert_eq!(names(&out.path().join("data")), ["train.parquet"]);
    let again = fetch(&spec(&server, out.path()), |_| {}).await.unwrap();
    assert!(again[0].already_there);
    assert_eq!(server.requests(&Method::GET).len(), 1);
}

#[tokio::test]
async fn cut_connections_are_gone_on_with() {
    let server = Server::start(hub(&[Fault::CutAfter(300_000), Fault::CutAfter(100_000)])).await;
    let out = tempfile::tempdir().unwrap();
    fetch_one(&server, out.path()).await.unwrap();
    assert_eq!(std::fs::read(out.path().join("data/train.parquet")).unwrap(), content());
    let gets = server.requests(&Method::GET);
    assert!(gets.len() >= 2);
    assert!(gets[1..].iter().all(|headers| headers.contains_key("range")), "what is there is not fetched again");
}

#[tokio::test]
async fn another_call_goes_on_and_a_hub_without_ranges_starts_again() {
    let cuts =
        [Fault::CutAfter(200_000), Fault::Status(500), Fault::Status(500), Fault::Status(500), Fault::Status(500)];
    let server = Server::start(hub(&cuts)).await;
    let out = tempfile::tempdir().unwrap();
    let error = fetch_one(&server, out.path()).await.unwrap_err();
    assert!(matches!(error, FetchError::Unavailable { .. }), "{error}");
    assert_eq!(names(&out.path().join("data")).len(), 1, "only what came so far");
    assert!(!out.path().join("data/train.parquet").exists());
    server.hub.lock().unwrap().faults = vec![Fault::NoRanges];
    fetch_one(&server, out.path()).await.unwrap();
    assert_eq!(std::fs::read(out.path().join("data/train.parquet")).unwrap(), content());
}

#[tokio::test]
async fn a_wrong_checksum_leaves_nothing() {
    let server = Server::start(hub(&[Fault::Corrupt])).await;
    let out = tempfile::tempdir().unwrap();
    let error = fetch_one(&server, out.path()).await.unwrap_err();
    assert!(matches!(error, FetchError::Checksum { .. }), "{error}");
    assert_eq!(names(&out.path().join("data")), Vec::<String>::new());
}

#[tokio::test]
async fn a_bad_beginning_is_thrown_away() {
    let server = Server::start(hub(&[
        Fault::CutAfter(0),
        Fault::Status(503),
        Fault::Status(503),
        Fault::Status(503),
        Fault::Status(503),
    ]))
    .await;
    let out = tempfile::tempdir().unwrap();
    fetch_one(&server, out.path()).await.unwrap_err();
    let part = out.path().join("data").join(&names(&out.path().join("data"))[0]);
    std::fs::write(part, vec![7; 1000]).unwrap();
    fetch_one(&server, out.path()).await.unwrap();
    assert_eq!(std::fs::read(out.path().join("data/train.parquet")).unwrap(), content());
}

#[tokio::test]
async fn statuses_say_what_to_do() {
    let out = tempfile::tempdir().unwrap();
    let private = Server::start(Hub { needs_token: true, ..hub(&[]) }).await;
    let mut anonymous = spec(&private, out.path());
    anonymous.token = None;
    let error = fetch(&anonymous, |_| {}).await.unwrap_err();
    assert!(matches!(error, FetchError::Refused { status: 401, .. }), "{error}");
    assert!(error.to_string().contains("HF_TOKEN"));
    assert!(fetch_one(&private, out.path()).await.is_ok());

    let mut missing = spec(&private, out.path());
    missing.paths = vec!["data/none.parquet".to_owned()];
    let error = fetch(&missing, |_| {}).await.unwrap_err();
    assert!(matches!(error, FetchError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_busy_hub_is_waited_for_but_not_for_ever() {
    let out = tempfile::tempdir().unwrap();
    let busy = Server::start(hub(&[Fault::Status(429), Fault::Status(429), Fault::Status(503)])).await;
    fetch_one(&busy, out.path()).await.unwrap();
    let out = tempfile::tempdir().unwrap();
    let always = Server::start(hub(&[Fault::Status(429); 20])).await;
    let error = fetch_one(&always, out.path()).await.unwrap_err();
    assert!(matches!(error, FetchError::Unavailable { tries: 5, .. }), "{error}");
}

#[tokio::test]
async fn the_token_never_leaves_the_hub() {
    let storage = Server::start(hub(&[])).await;
    let front = Server::start(Hub { elsewhere: Some(storage.address.clone()), needs_token: true, ..hub(&[]) }).await;
    let out = tempfile::tempdir().unwrap();
    fetch_one(&front, out.path()).await.unwrap();
    let at_front = front.requests(&Method::GET);
    assert!(at_front.iter().all(|headers| headers["authorization"] == format!("Bearer {TOKEN}").as_str()));
    let at_storage = storage.requests(&Method::GET);
    assert_eq!(at_storage.len(), 1);
    assert!(!at_storage[0].contains_key("authorization"));
    assert!(storage.requests(&Method::HEAD).is_empty());
}

#[tokio::test]
async fn errors_hold_no_secret() {
    let storage = Server::start(Hub { faults: vec![Fault::CutAfter(10); 40], ..hub(&[]) }).await;
    let front = Server::start(Hub { elsewhere: Some(storage.address.clone()), ..hub(&[]) }).await;
    drop(storage);
    let out = tempfile::tempdir().unwrap();
    let error = fetch_one(&front, out.path()).await.unwrap_err().to_string();
    assert!(!error.contains("signature") && !error.contains(TOKEN), "{error}");
    assert!(!format!("{:?}", spec(&front, out.path())).contains(TOKEN));
}

#[tokio::test]
async fn globs_read_every_page_of_the_listing() {
    let mut hub = hub(&[]);
    for name in ["data/a.jsonl", "data/b.jsonl", "data/sub/c.jsonl", "x.txt", "z.jsonl"] {
        hub.files.insert(name.to_owned(), name.as_bytes().to_vec());
    }
    let server = Server::start(hub).await;
    let out = tempfile::tempdir().unwrap();
    let mut spec = spec(&server, out.path());
    spec.paths = vec!["data/*.jsonl".to_owned(), "z.jsonl".to_owned()];
    let fetched = fetch(&spec, |_| {}).await.unwrap();
    let paths: Vec<&str> = fetched.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["data/a.jsonl", "data/b.jsonl", "z.jsonl"]);
    spec.paths = vec!["*.zip".to_owned()];
    let error = fetch(&spec, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("data/a.jsonl"), "{error}");
}

#[tokio::test]
async fn a_hub_that_lists_a_path_outside_is_not_obeyed() {
    let mut hub = hub(&[]);
    hub.files.insert("../outside.jsonl".to_owned(), b"x".to_vec());
    let server = Server::start(hub).await;
    let out = tempfile::tempdir().unwrap();
    let mut spec = spec(&server, &out.path().join("inner"));
    spec.paths = vec!["**/*.jsonl".to_owned()];
    let error = fetch(&spec, |_| {}).await.unwrap_err();
    assert!(matches!(error, FetchError::InvalidSpec(_)), "{error}");
    assert!(!out.path().join("outside.jsonl").exists());
}

#[tokio::test]
async fn without_a_checksum_the_size_counts() {
    let server = Server::start(Hub { plain_etags: true, ..hub(&[]) }).await;
    let out = tempfile::tempdir().unwrap();
    let fetched = fetch(&spec(&server, out.path()), |_| {}).await.unwrap();
    assert!(!fetched[0].verified);
    assert_eq!(fetched[0].digest, Digest::of(&content()));
}

#[tokio::test]
async fn a_hub_that_hangs_meets_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let out = tempfile::tempdir().unwrap();
    let server = Server::start(hub(&[])).await;
    let mut spec = spec(&server, out.path());
    spec.endpoint = address;
    spec.deadline = Duration::from_millis(200);
    let error = fetch(&spec, |_| {}).await.unwrap_err();
    assert!(matches!(error, FetchError::Deadline { .. }), "{error}");
}
