//! The router of one sandbox, through which everything in it is done. Its token ends while commands run: a refused one is
//! replaced and the request made again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::{Call, ErrorKind, Result};
use sandbox_bench_kit::wait::bounded;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::client::{self, Client};
use crate::error::{self, Effect};
use crate::proto::client::generic_result::GenericStatus;
use crate::proto::task_command_router::task_command_router_client::TaskCommandRouterClient;
use crate::proto::task_command_router::{self as wire, TaskExecStdioFileDescriptor};

/// Largest answer that is taken, as the official clients have it.
const LARGEST: usize = 100 << 20;
/// Limit for the question whether a sandbox has ended.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

type Grpc = TaskCommandRouterClient<Channel>;

/// The router of one sandbox.
pub(crate) struct Router {
    client: Arc<Client>,
    /// Id of the sandbox.
    sandbox: String,
    /// Id of its inside.
    task: String,
    access: Mutex<Access>,
}

/// A connection and what opens it.
#[derive(Clone)]
struct Access {
    grpc: Grpc,
    url: String,
    token: SecretString,
}

/// How a command's own process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The code by the shell's convention.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

/// How a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Its memory was used up.
    OutOfMemory,
    /// For another reason.
    Ended(String),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Ended(why) => f.write_str(why),
        }
    }
}

impl Router {
    /// The router at `url`, opened by `token`. Nothing is asked of it yet.
    ///
    /// # Errors
    /// `Failed` for an address that no request may go to.
    pub(crate) fn new(client: Arc<Client>, (sandbox, task): (&str, &str), url: &str, token: &str) -> Result<Self> {
        let access = Access::new(&client, url, token)?;
        Ok(Self { client, sandbox: sandbox.to_owned(), task: task.to_owned(), access: Mutex::new(access) })
    }

    /// Id of the sandbox.
    pub(crate) fn sandbox(&self) -> &str {
        &self.sandbox
    }

    /// The control plane.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// What begins messages about something of this sandbox.
    pub(crate) fn what(&self, of: &str) -> String {
        format!("sandbox {}: {of}", self.sandbox)
    }

    /// Whether the sandbox has ended, as far as the service can be asked now.
    pub(crate) async fn gone(&self, call: &Call) -> Option<Gone> {
        let call = call.with_limit(LOOK_LIMIT).with_cancel(Default::default());
        match self.client.end(&call, &self.sandbox, 0.0).await {
            Ok(None) => None,
            Ok(Some(result)) => Some(match result.status() {
                GenericStatus::MemoryManagerEviction
                | GenericStatus::MemoryThrashingEviction
                | GenericStatus::KernelOomKill => Gone::OutOfMemory,
                status => {
                    let name = status.as_str_name().trim_start_matches("GENERIC_STATUS_").to_lowercase();
                    let why =
                        if result.exception.is_empty() { String::new() } else { format!(": {}", result.exception) };
                    Gone::Ended(format!("{name}{why}"))
                }
            }),
            Err(error) if *error.kind() == ErrorKind::NotFound => Some(Gone::Ended("it is unknown".to_owned())),
            Err(error) => {
                tracing::debug!(sandbox = self.sandbox, %error, "it cannot be asked whether a sandbox has ended");
                None
            }
        }
    }

    /// The error of a request that was refused or not answered: `SandboxLost` if that is why.
    pub(crate) async fn refused(
        &self,
        call: &Call,
        what: &str,
        effect: Effect,
        status: &Status,
    ) -> sandbox_bench_core::Error {
        match status.code() {
            Code::InvalidArgument | Code::ResourceExhausted | Code::Unimplemented => {}
            _ => {
                if let Some(gone) = self.gone(call).await {
                    return error::lost(&self.sandbox, &gone.to_string());
                }
            }
        }
        self.client.refused(what, effect, status)
    }

    /// Asks, with a token that is replaced once if it was refused. Outer errors are the call's own end, and a sandbox that
    /// gives no access any more.
    async fn ask<Q, A, F>(
        &self,
        call: &Call,
        what: &str,
        message: Q,
        send: impl Fn(Grpc, Request<Q>) -> F,
    ) -> Result<Result<A, Status>>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut access = bounded(call, what, self.access.lock()).await?.clone();
        let mut replaced = false;
        loop {
            let mut request = Request::new(message.clone());
            bearer(request.metadata_mut(), &access.token)?;
            call.meter.api_call();
            match bounded(call, what, send(access.grpc.clone(), request)).await? {
                Ok(answer) => return Ok(Ok(answer.into_inner())),
                Err(status) if status.code() == Code::Unauthenticated && !replaced => {
                    replaced = true;
                    access = self.renew(call, &access).await?;
                }
                Err(status) => return Ok(Err(status)),
            }
        }
    }

    /// New access, unless somebody has got one since `old`.
    async fn renew(&self, call: &Call, old: &Access) -> Result<Access> {
        let mut held = bounded(call, "access to a sandbox", self.access.lock()).await?;
        if held.token.expose_secret() == old.token.expose_secret() {
            let new = self.client.access(call, &self.sandbox).await?;
            tracing::debug!(sandbox = self.sandbox, "the token of a sandbox's router was replaced");
            if new.url == held.url {
                held.token = SecretString::from(new.jwt);
            } else {
                *held = Access::new(&self.client, &new.url, &new.jwt)?;
            }
        }
        Ok(held.clone())
    }

    /// A stream broke because its token had ended: the next request gets a new one.
    pub(crate) async fn token_ended(&self, call: &Call) -> Result<()> {
        let old = bounded(call, "access to a sandbox", self.access.lock()).await?.clone();
        self.renew(call, &old).await.map(drop)
    }

    /// Starts a command. The same `exec_id` again starts nothing more.
    pub(crate) async fn start(
        &self,
        call: &Call,
        mut message: wire::TaskExecStartRequest,
    ) -> Result<Result<(), Status>> {
        message.task_id.clone_from(&self.task);
        let send = |mut grpc: Grpc, request| async move { grpc.task_exec_start(request).await };
        Ok(self.ask(call, &self.what("command"), message, send).await?.map(|wire::TaskExecStartResponse {}| ()))
    }

    /// What a command writes to one of its streams, from this byte on.
    pub(crate) async fn read(
        &self,
        call: &Call,
        (exec, descriptor): (&str, TaskExecStdioFileDescriptor),
        offset: u64,
    ) -> Result<Result<Streaming<wire::TaskExecStdioReadResponse>, Status>> {
        let message = wire::TaskExecStdioReadRequest {
            task_id: self.task.clone(),
            exec_id: exec.to_owned(),
            offset,
            file_descriptor: descriptor.into(),
        };
        let send = |mut grpc: Grpc, request| async move { grpc.task_exec_stdio_read(request).await };
        self.ask(call, &self.what("output of a command"), message, send).await
    }

    /// Gives a command bytes on its stdin, which are those from `offset` on; `last`: there are no more.
    pub(crate) async fn write(
        &self,
        call: &Call,
        exec: &str,
        (offset, data, last): (u64, bytes::Bytes, bool),
    ) -> Result<Result<(), Status>> {
        let message = wire::TaskExecStdinWriteRequest {
            task_id: self.task.clone(),
            exec_id: exec.to_owned(),
            offset,
            data: data.into(),
            eof: last,
        };
        let send = |mut grpc: Grpc, request| async move { grpc.task_exec_stdin_write(request).await };
        let what = self.what("input of a command");
        Ok(self.ask(call, &what, message, send).await?.map(|wire::TaskExecStdinWriteResponse {}| ()))
    }

    /// How much of its stdin a command was given.
    pub(crate) async fn written(
        &self,
        call: &Call,
        exec: &str,
    ) -> Result<Result<wire::TaskExecStdinStatusResponse, Status>> {
        let message = wire::TaskExecStdinStatusRequest { task_id: self.task.clone(), exec_id: exec.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.task_exec_stdin_status(request).await };
        self.ask(call, &self.what("input of a command"), message, send).await
    }

    /// Waits for the end of a command's own process; none if the answer does not say it.
    pub(crate) async fn wait(&self, call: &Call, exec: &str) -> Result<Result<Option<Exit>, Status>> {
        let message = wire::TaskExecWaitRequest { task_id: self.task.clone(), exec_id: exec.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.task_exec_wait(request).await };
        let answer: Result<wire::TaskExecWaitResponse, Status> =
            self.ask(call, &self.what("end of a command"), message, send).await?;
        Ok(answer.map(|answer| {
            answer.exit_status.map(|status| match status {
                wire::task_exec_wait_response::ExitStatus::Code(code) => Exit::Code(code),
                wire::task_exec_wait_response::ExitStatus::Signal(signal) => Exit::Signal(signal),
            })
        }))
    }

    /// Saves the files of the sandbox as an image that is kept for `seconds`. The same `id` again makes nothing more.
    pub(crate) async fn snapshot(&self, call: &Call, id: &str, seconds: i64) -> Result<Result<String, Status>> {
        let message = wire::TaskSnapshotFilesystemRequest {
            task_id: self.task.clone(),
            snapshot_id: id.to_owned(),
            ttl_seconds: Some(seconds),
        };
        let send = |mut grpc: Grpc, request| async move { grpc.task_snapshot_filesystem(request).await };
        let answer: Result<wire::TaskSnapshotFilesystemResponse, Status> =
            self.ask(call, &self.what("snapshot"), message, send).await?;
        Ok(answer.map(|answer| answer.image_id))
    }
}

impl Access {
    fn new(client: &Client, url: &str, token: &str) -> Result<Self> {
        let grpc = Grpc::new(client.router_channel(url)?).max_decoding_message_size(LARGEST);
        Ok(Self { grpc, url: url.to_owned(), token: SecretString::from(token) })
    }
}

/// What every request to a router carries.
fn bearer(all: &mut MetadataMap, token: &SecretString) -> Result<()> {
    client::insert(all, "authorization", &format!("Bearer {}", token.expose_secret()))?;
    client::insert(all, "x-throttle-retry-attempt", "0")
}
