//! A runner as a process, and a client that speaks to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A runner; it ends with the test.
pub struct Runner {
    pub process: Child,
    pub api: String,
    pub hooks: String,
    /// For the test's own files.
    pub dir: TempDir,
    client: Client,
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Runner {
    /// A runner that nobody has told its token.
    pub fn fresh(variables: &[(&str, &str)]) -> Self {
        let command = std::env::var("SANDBOX_RUNNER_COMMAND")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_sandbox-bench-microvm-runner").to_owned());
        let mut words = command.split_whitespace();
        let dir = tempfile::tempdir().unwrap();
        let mut process = Command::new(words.next().unwrap())
            .args(words)
            .env("SANDBOX_RUNNER_API_ADDRESS", "127.0.0.1:0")
            .env("SANDBOX_RUNNER_HOOKS_ADDRESS", "127.0.0.1:0")
            .env("SANDBOX_RUNNER_STATE_DIRECTORY", dir.path().join("state"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        let address = |name: &str| format!("http://{}", addresses[name].as_str().unwrap());
        // What is compressed is looked at as it was sent.
        let client = Client::builder().no_gzip().timeout(Duration::from_secs(60)).build().unwrap();
        Self { process, api: address("api"), hooks: address("hooks"), dir, client }
    }

    /// A runner that knows its token.
    pub async fn start() -> Self {
        let runner = Self::fresh(&[]);
        assert_eq!(runner.run_hook(&payload(TOKEN)).await.status(), 200);
        runner
    }

    pub async fn hook(&self, name: &str, body: String) -> Response {
        let url = format!("{}/aws/lambda-microvms/runtime/v1/{name}", self.hooks);
        self.client.post(url).body(body).send().await.unwrap()
    }

    pub async fn run_hook(&self, payload: &str) -> Response {
        self.hook("run", json!({ "microvmId": "microvm-1", "runHookPayload": payload }).to_string()).await
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(TOKEN)
    }

    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.api))
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub async fn submit(&self, job: &Value) -> Response {
        self.request(Method::POST, "/v1/jobs").json(job).send().await.unwrap()
    }

    /// Looks at a job once.
    pub async fn look(&self, id: &str, query: &str) -> Value {
        json_of(self.request(Method::GET, &format!("/v1/jobs/{id}?{query}")).send().await.unwrap(), 200).await
    }

    /// Starts a job, waits for its end, and returns its last answer with all output from offset 0.
    pub async fn finish(&self, job: Value) -> Value {
        let answer = self.submit(&job).await;
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
        self.end_of(job["job_id"].as_str().unwrap()).await
    }

    pub async fn end_of(&self, id: &str) -> Value {
        let (mut stdout, mut stderr) = (0, 0);
        loop {
            let seen = self.look(id, &format!("wait_ms=20000&stdout_offset={stdout}&stderr_offset={stderr}")).await;
            stdout = after(&seen["stdout"]);
            stderr = after(&seen["stderr"]);
            if seen["state"] != "running" && seen["stdout"]["eof"] == true && seen["stderr"]["eof"] == true {
                return self.look(id, "max_bytes=1048576").await;
            }
        }
    }
}

/// What the adapter sends for this token.
pub fn payload(token: &str) -> String {
    let digest: String = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "v": 1, "token_sha256": digest }).to_string()
}

/// A job that runs a line of shell.
pub fn shell(id: &str, line: &str) -> Value {
    json!({ "job_id": id, "command": line, "timeout_ms": 60_000 })
}

pub fn bytes(piece: &Value) -> Vec<u8> {
    STANDARD.decode(piece["data_b64"].as_str().unwrap()).unwrap()
}

pub fn text(piece: &Value) -> String {
    String::from_utf8(bytes(piece)).unwrap()
}

/// Offset after a piece.
pub fn after(piece: &Value) -> u64 {
    piece["offset"].as_u64().unwrap() + bytes(piece).len() as u64
}

pub async fn json_of(answer: Response, status: u16) -> Value {
    assert_eq!(answer.headers().get("x-sandbox-runner").unwrap(), "1");
    let (found, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(found, status, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The answer is a refusal with this status and code.
pub async fn refused(answer: Response, status: u16, code: &str) -> Value {
    let body = json_of(answer, status).await;
    assert_eq!(body["error"]["code"], code, "{body}");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    body
}

/// Waits until `what` holds.
pub async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen within 20 seconds");
}

pub fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}
