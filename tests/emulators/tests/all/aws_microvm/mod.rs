//! The AWS Lambda MicroVMs emulator over its wire.

mod control;
mod endpoint;
mod faults;
mod images;
mod lifecycle;
mod strict;

use std::io::{Cursor, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, sign,
};
use aws_sigv4::sign::v4;
use reqwest::{Method, RequestBuilder, Response};
use sandbox_bench_emulators::aws_microvm::{self, AwsOptions, Quotas, Rates};
use sandbox_bench_emulators::faults::{Effect, Rule};
use sandbox_bench_emulators::{Emulation, Listener, Server, Timing};
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;

use crate::common::{LIMIT, machines};

const BASE: &str = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1";
const ROLE: &str = "arn:aws:iam::123456789012:role/build";
const BUCKET: &str = "artifacts";

/// A program for images: an echo at 8080, hooks at 9000 which are written to a file that the echo shows.
const PROGRAM: &str = r#"
import http.server, json, os, sys, threading, time
seen = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def reply(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
    def log_message(self, *arguments): pass
class Hooks(Handler):
    def do_POST(self):
        name = self.path.rsplit("/", 1)[1]
        seen.append({"hook": name, "path": self.path, "host": self.headers["host"], "body": self.body()})
        self.reply(int(os.environ.get("HOOK_" + name.upper(), "200")), {})
class Echo(Handler):
    def answer(self):
        if self.path == "/seen": return self.reply(200, seen)
        if self.path == "/env": return self.reply(200, dict(os.environ))
        if self.path == "/big": return self.reply(200, b"x" * 3_000_000, "text/plain")
        if self.path.startswith("/sleep/"): time.sleep(float(self.path[7:]))
        self.reply(200, {"method": self.command, "path": self.path, "headers": {n.lower(): v for n, v in self.headers.items()},
                         "peer": self.client_address[0], "cwd": os.getcwd(), "uid": os.getuid(), "body": self.body()})
    do_GET = do_POST = do_PUT = do_DELETE = answer
http.server.ThreadingHTTPServer.daemon_threads = True
threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Echo).serve_forever).start()
print("the program runs", flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", 9000), Hooks).serve_forever()
"#;

const DOCKERFILE: &str = "FROM any\nWORKDIR /srv\nENV FROM_BUILD=yes\nCOPY program.py /opt/program.py\n\
                          RUN echo built > /srv/made && chmod 755 /opt/program.py\nEXPOSE 8080 9000\n\
                          CMD [\"python3\", \"/opt/program.py\"]\n";

/// An emulator and a client of it.
struct Account {
    server: Server,
    emulation: Arc<Emulation>,
    http: reqwest::Client,
    options: AwsOptions,
}

impl Account {
    async fn open() -> Account {
        Account::with(|_| {}).await
    }

    /// Seconds of the API take ten milliseconds.
    async fn with(change: impl FnOnce(&mut AwsOptions)) -> Account {
        let rates = Rates { run: 1000, resume: 1000, suspend: 1000, terminate: 1000, get: 100_000, token: 1000 };
        let mut options = AwsOptions {
            buckets: vec![BUCKET.into()],
            second: Duration::from_millis(10),
            quotas: Quotas { rates, ..Quotas::default() },
            ..AwsOptions::default()
        };
        change(&mut options);
        let timing = Timing { transition: Duration::from_millis(10), list_lag: Duration::ZERO };
        let emulation = Arc::new(Emulation::new(machines().await, timing));
        let server = aws_microvm::start(Listener::bind(0).await.unwrap(), Arc::clone(&emulation), options.clone());
        Account { server, emulation, http: reqwest::Client::new(), options }
    }

    /// A request as the official client signs it.
    fn signed(&self, service: &str, method: Method, path: &str, body: impl Into<Vec<u8>>) -> RequestBuilder {
        let (body, url) = (body.into(), format!("{}{path}", self.server.base_url()));
        let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        let identity = Credentials::new(&self.options.access_key, &self.options.secret_key, None, None, "test").into();
        let mut settings = SigningSettings::default();
        if service == "s3" {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        }
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.options.region)
            .name(service)
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .unwrap()
            .into();
        let headers = [("host", host.as_str())];
        let signable =
            SignableRequest::new(method.as_str(), &url, headers.into_iter(), SignableBody::Bytes(&body)).unwrap();
        let (instructions, _) = sign(signable, &parameters).unwrap().into_parts();
        let request = self.http.request(method, &url);
        let (headers, _) = instructions.into_parts();
        headers.iter().fold(request, |request, header| request.header(header.name(), header.value())).body(body)
    }

    async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        answer(self.signed("lambda", method, path, body).send().await.unwrap()).await
    }

    async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Status, name and message of what must be refused.
    async fn refused(&self, method: &str, path: &str, body: Value) -> (u16, String, String) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let named = Method::from_bytes(method.as_bytes()).unwrap();
        let response = self.signed("lambda", named, path, body).send().await.unwrap();
        let name = response.headers().get("x-amzn-errortype").map(|name| name.to_str().unwrap().to_owned());
        assert!(response.headers().contains_key("x-amzn-requestid"));
        let (status, answer) = answer(response).await;
        assert!(status >= 400, "{method} {path}: {status} {answer}");
        (status, name.unwrap_or_default(), answer["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn upload(&self, key: &str, bytes: Vec<u8>) {
        let put = self.signed("s3", Method::PUT, &format!("/{BUCKET}/{key}"), bytes);
        assert_eq!(put.send().await.unwrap().status(), 200);
    }

    /// The ARN of an image that is built from the program, or from another Dockerfile.
    async fn image(&self, name: &str, changes: Value) -> String {
        self.upload(&format!("{name}.zip"), archive(&[("Dockerfile", DOCKERFILE), ("program.py", PROGRAM)])).await;
        let mut request = image_request(name);
        merge(&mut request, changes);
        let arn = self.ok("POST", "/2025-09-09/microvm-images", request).await["imageArn"].as_str().unwrap().to_owned();
        assert_eq!(self.built(&arn).await, "CREATED", "{}", self.state().await);
        arn
    }

    /// The state that an image comes to.
    async fn built(&self, arn: &str) -> String {
        for _ in 0..4000 {
            let image = self.ok("GET", &image_path(arn), Value::Null).await;
            let state = image["state"].as_str().unwrap().to_owned();
            if !state.ends_with("ING") {
                return state;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the build of {arn} does not end");
    }

    async fn state(&self) -> Value {
        let url = format!("{}/__emulator/state", self.server.base_url());
        self.http.get(url).send().await.unwrap().json().await.unwrap()
    }

    /// A MicroVM, as it begins.
    async fn pending(&self, image: &str, changes: Value) -> Value {
        let mut request = json!({ "imageIdentifier": image });
        merge(&mut request, changes);
        self.ok("POST", "/2025-09-09/microvms", request).await
    }

    /// A MicroVM that runs.
    async fn microvm(&self, image: &str, changes: Value) -> Value {
        let microvm = self.pending(image, changes).await;
        self.until(&microvm, "RUNNING").await;
        microvm
    }

    async fn get(&self, microvm: &Value) -> Value {
        self.ok("GET", &path(microvm), Value::Null).await
    }

    /// Polls until it is in this state, and returns its last view.
    async fn until(&self, microvm: &Value, wanted: &str) -> Value {
        let mut view = Value::Null;
        for _ in 0..4000 {
            view = self.get(microvm).await;
            if view["state"] == wanted {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        panic!("{wanted} never came: {view} {}", self.state().await);
    }

    async fn token(&self, microvm: &Value, ports: Value) -> String {
        let body = json!({ "expirationInMinutes": 30, "allowedPorts": ports });
        let answer = self.ok("POST", &format!("{}/auth-token", path(microvm)), body).await;
        answer["authToken"]["X-aws-proxy-auth"].as_str().unwrap().to_owned()
    }

    /// A request to a MicroVM's endpoint.
    fn endpoint(&self, microvm: &Value, token: &str, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.server.base_url()))
            .header("host", microvm["endpoint"].as_str().unwrap())
            .header("X-aws-proxy-auth", token)
    }

    /// What the program answers, as soon as the proxy lets it.
    async fn ask(&self, microvm: &Value, token: &str, path: &str) -> Value {
        for _ in 0..1000 {
            let response = self.endpoint(microvm, token, Method::GET, path).send().await.unwrap();
            if response.status() == 200 {
                return response.json().await.unwrap();
            }
            assert_eq!(response.status(), 502);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{path} is not answered: {}", self.state().await);
    }

    fn script(&self, method: &str, path: &str, effect: Effect) {
        self.emulation.faults.add(Rule::new(method, path, effect).times(1)).unwrap();
    }

    fn violations(&self) -> Vec<String> {
        self.emulation.violations.all().into_iter().map(|violation| violation.what).collect()
    }

    /// Nothing was against the protocol, and nothing is left.
    async fn close(self) {
        assert_eq!(self.emulation.violations.all(), []);
        self.server.shutdown(LIMIT).await.unwrap();
    }
}

fn image_request(name: &str) -> Value {
    json!({
        "name": name,
        "baseImageArn": BASE,
        "buildRoleArn": ROLE,
        "codeArtifact": { "uri": format!("s3://{BUCKET}/{name}.zip") },
        "hooks": {
            "port": 9000,
            "microvmImageHooks": { "ready": "ENABLED", "readyTimeoutInSeconds": 60 },
            "microvmHooks": { "run": "ENABLED", "runTimeoutInSeconds": 10 },
        },
    })
}

/// Members of `changes` in place of those of `to`; null takes one away.
fn merge(to: &mut Value, changes: Value) {
    if let Value::Object(changes) = changes {
        for (name, value) in changes {
            to[name] = value;
        }
    }
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn image_path(arn: &str) -> String {
    format!("/2025-09-09/microvm-images/{}", arn.replace(':', "%3A"))
}

fn path(microvm: &Value) -> String {
    format!("/2025-09-09/microvms/{}", microvm["microvmId"].as_str().unwrap())
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}
