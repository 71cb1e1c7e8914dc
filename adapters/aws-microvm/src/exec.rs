//! Running one command: a job of the runner, which goes on whatever happens to connections.
//!
//! It runs under the wrapper of [`sandbox_bench_kit::guest`], so that its own end is known even if a background process keeps its
//! output open, and so that all of its processes can be found and ended.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::Method;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};
use sandbox_bench_kit::guest::{self, Streams, Usage, Wrapped};
use sandbox_bench_kit::wait::{uncancelled, winding_up};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use crate::session::{Command, Session};
use crate::transfer;
use crate::vm::{Request, Vm};

/// Limit for the answer to the start of a command: until then a cancellation waits, for what was started must be known.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long after the limit that is kept from here the runner ends the command by itself, should we be gone.
const BACKSTOP: Duration = Duration::from_secs(30);
/// The runner's own limits.
const LONGEST: Duration = Duration::from_secs(28_800);
const MAX_STDIN: usize = 1 << 20;
const KEPT: [u64; 2] = [16 << 20, 256 << 20];
/// How long a look at a job waits for news.
pub(crate) const WAIT: Duration = Duration::from_secs(15);
/// Most bytes of one look, of each stream.
pub(crate) const PIECE: u64 = 1 << 20;
/// Most bytes kept of what a helper says.
const SAID: usize = 64 << 10;

/// A job as the runner tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) state: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) error: Option<String>,
    pub(crate) stdout: Option<Piece>,
    pub(crate) stderr: Option<Piece>,
}

/// A piece of a stream.
#[derive(Debug, Deserialize)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) data_b64: String,
    pub(crate) eof: bool,
}

impl Piece {
    pub(crate) fn bytes(&self) -> Result<Bytes> {
        let decoded = STANDARD.decode(&self.data_b64);
        decoded
            .map(Bytes::from)
            .map_err(|e| Error::new(ErrorKind::Failed, "the runner's output is no base64").because(e))
    }
}

/// How a helper ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) stdout: String,
}

impl Vm {
    /// Runs `spec`; `workdir` is the directory of commands that name none, and `variables` those of the sandbox. Returns the
    /// report, and what the sandbox has used so far if it said so.
    ///
    /// # Errors
    /// As [`sandbox_bench_core::Sandbox::exec`].
    pub(crate) async fn run(
        &self,
        call: &Call,
        spec: &ExecSpec,
        (workdir, variables): (Option<&str>, &BTreeMap<String, String>),
        sink: &dyn OutputSink,
    ) -> Result<(ExecReport, Usage)> {
        let Wrapped { argv, frame, mark } = Wrapped::new(spec)?;
        let variables = guest::variables(call, variables, spec)?;
        let id = Uuid::now_v7().simple().to_string();
        let limit = (spec.limit(call) + BACKSTOP).min(LONGEST);
        let mut body = json!({
            "job_id": id,
            "argv": argv,
            "env": variables,
            "timeout_ms": u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            "max_output_bytes": spec.output_limit.saturating_mul(2).clamp(KEPT[0], KEPT[1]),
            "keep": "tail",
        });
        match (&spec.cwd, workdir) {
            (Some(cwd), _) => body["cwd"] = json!(cwd),
            (None, Some(own)) => {
                body["cwd"] = json!(own);
                body["mkdir_cwd"] = json!(true);
            }
            (None, None) => {}
        }
        if let Some(user) = &spec.user {
            body["user"] = json!(user);
        }
        match &spec.stdin {
            Some(bytes) if bytes.len() > MAX_STDIN => {
                body["stdin_path"] = json!(transfer::place(self, call, bytes.clone()).await?);
            }
            Some(bytes) => {
                call.meter.sent(bytes.len() as u64);
                body["stdin_b64"] = json!(STANDARD.encode(bytes));
            }
            None => {}
        }
        self.start(call, &body).await?;
        let streams = Streams::new(&frame, spec.output_limit, sink);
        Session::new(Command { vm: self, call, id: &id, mark }, streams).complete(spec).await
    }

    /// Starts a job. The same request again starts nothing more, so a lost answer is asked for again.
    async fn start(&self, call: &Call, body: &serde_json::Value) -> Result<()> {
        let what = format!("MicroVM {}: command", self.id);
        if call.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled")));
        }
        let request = Request::new(Method::POST, &["v1", "jobs"]).json(body);
        let started = self.json::<Job>(&uncancelled(call, START_LIMIT), &what, &request).await;
        let job = started.map_err(|error| match error.kind() {
            ErrorKind::Unavailable | ErrorKind::DeadlineExceeded => {
                Error::new(ErrorKind::Transport, format!("{what}: it is unknown whether it was started")).because(error)
            }
            _ => error,
        })?;
        match job.error {
            Some(why) => Err(Error::new(ErrorKind::Environment, format!("{what}: commands cannot be run: {why}"))
                .hint("an image needs /bin/sh")),
            None => Ok(()),
        }
    }

    /// Looks at a job once, from these offsets of its streams on.
    pub(crate) async fn look_at(&self, call: &Call, id: &str, offsets: [u64; 2], wait: Duration) -> Result<Job> {
        let request = Request::new(Method::GET, &["v1", "jobs", id])
            .query("wait_ms", wait.as_millis())
            .query("stdout_offset", offsets[0])
            .query("stderr_offset", offsets[1])
            .query("max_bytes", PIECE)
            .waiting(wait);
        self.json(call, &format!("MicroVM {}: command {id}", self.id), &request).await
    }

    /// Runs a short command of our own as root and waits for its end.
    ///
    /// # Errors
    /// `Unavailable` if its end was not seen; `SandboxLost`.
    pub(crate) async fn helper(&self, call: &Call, argv: &[String]) -> Result<Done> {
        let id = Uuid::now_v7().simple().to_string();
        let limit = u64::try_from(call.remaining().as_millis()).unwrap_or(u64::MAX).clamp(1, 600_000);
        let body = json!({ "job_id": id, "argv": argv, "user": "0", "timeout_ms": limit, "keep": "head" });
        self.start(call, &body).await?;
        let mut stdout: Vec<u8> = Vec::new();
        let mut offsets = [0; 2];
        loop {
            let job = self.look_at(call, &id, offsets, WAIT.min(call.remaining())).await?;
            let mut open = false;
            for (piece, offset) in [&job.stdout, &job.stderr].into_iter().zip(&mut offsets) {
                let Some(piece) = piece else { continue };
                let bytes = piece.bytes()?;
                *offset = piece.offset + bytes.len() as u64;
                open |= !piece.eof;
            }
            if let Some(piece) = &job.stdout {
                let room = SAID.saturating_sub(stdout.len());
                let bytes = piece.bytes()?;
                stdout.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
            }
            if job.state != "running" && !open {
                return Ok(Done { stdout: String::from_utf8_lossy(&stdout).into_owned() });
            }
        }
    }

    /// Has the runner end a job's process group. Best effort: it does so by itself at the job's limit.
    pub(crate) async fn force(&self, call: &Call, id: &str) {
        let request = Request::new(Method::POST, &["v1", "jobs", id, "kill"]).json(&json!({ "signal": 9 }));
        let what = format!("MicroVM {}: kill", self.id);
        if let Err(error) = self.answer(&winding_up(call, Duration::from_secs(2)), &what, &request).await {
            tracing::warn!(id = self.id, %error, "a command could not be ended");
        }
    }
}
