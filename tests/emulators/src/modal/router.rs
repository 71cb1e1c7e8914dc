//! The methods of the task command router.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use tonic::codegen::BoxStream;
use tonic::{Extensions, Request, Response, Status, Streaming};
use uuid::Uuid;

use super::fs_tool;
use super::gate::TaskClaim;
use super::output::{Break, Output, read};
use super::process::{Exit, Piping, Process};
use super::proto::task_command_router::task_command_router_server::TaskCommandRouter;
use super::proto::task_command_router::task_exec_stdin_write_stream_request::Payload;
use super::proto::task_command_router::*;
use super::sandbox::Sandbox;
use super::status::{internal, violation};
use super::{Modal, Result};
use crate::Flags;

pub(super) struct Router(pub(super) Arc<Modal>);

type Answer<T> = Result<Response<T>>;

impl Router {
    /// The sandbox of a task that runs, if the request's token is for it.
    fn sandbox(&self, extensions: &Extensions, task_id: &str) -> Result<Arc<Sandbox>> {
        let claim = extensions.get::<TaskClaim>();
        if claim.is_none_or(|claim| claim.0 != task_id) {
            return Err(Status::unauthenticated(format!("The token is not for task {task_id}")));
        }
        let sandbox = self.0.sandbox_of_task(task_id)?;
        if sandbox.result().is_some() { Err(sandbox.gone()) } else { Ok(sandbox) }
    }

    fn process(&self, extensions: &Extensions, task_id: &str, exec_id: &str) -> Result<(Arc<Sandbox>, Arc<Process>)> {
        let sandbox = self.sandbox(extensions, task_id)?;
        let process = sandbox.process(exec_id)?;
        Ok((sandbox, process))
    }
}

#[tonic::async_trait]
impl TaskCommandRouter for Router {
    async fn task_exec_start(&self, request: Request<TaskExecStartRequest>) -> Answer<TaskExecStartResponse> {
        let sandbox = self.sandbox(request.extensions(), &request.get_ref().task_id)?;
        let (modal, asked) = (Arc::clone(&self.0), request.into_inner());
        self.0.to_the_end(async move { modal.exec(&sandbox, asked).await }).await?;
        Ok(Response::new(TaskExecStartResponse {}))
    }

    type TaskExecStdioReadStream = BoxStream<TaskExecStdioReadResponse>;

    async fn task_exec_stdio_read(
        &self,
        request: Request<TaskExecStdioReadRequest>,
    ) -> Answer<Self::TaskExecStdioReadStream> {
        let asked = request.get_ref();
        let (sandbox, process) = self.process(request.extensions(), &asked.task_id, &asked.exec_id)?;
        let log = match asked.file_descriptor() {
            TaskExecStdioFileDescriptor::Stdout => &process.output.stdout,
            TaskExecStdioFileDescriptor::Stderr => &process.output.stderr,
        };
        let ending = move || if sandbox.result().is_some() { Err(sandbox.gone()) } else { Ok(()) };
        let pieces = read(Arc::clone(log), asked.offset, broken(request.extensions()), ending);
        let responses = pieces.map(|piece| piece.map(|data| TaskExecStdioReadResponse { data: data.into() }));
        Ok(Response::new(responses.boxed()))
    }

    async fn task_exec_stdin_write(
        &self,
        request: Request<TaskExecStdinWriteRequest>,
    ) -> Answer<TaskExecStdinWriteResponse> {
        let asked = request.get_ref();
        let (sandbox, process) = self.process(request.extensions(), &asked.task_id, &asked.exec_id)?;
        let asked = request.into_inner();
        let work = async move {
            let _busy = sandbox.busy();
            process.stdin.write(asked.offset, asked.data.into()).await?;
            if asked.eof {
                process.stdin.close().await;
            }
            Ok(Response::new(TaskExecStdinWriteResponse {}))
        };
        self.0.to_the_end(work).await
    }

    async fn task_exec_stdin_write_stream(
        &self,
        request: Request<Streaming<TaskExecStdinWriteStreamRequest>>,
    ) -> Answer<TaskExecStdinWriteStreamResponse> {
        let (_, extensions, mut messages) = request.into_parts();
        let mut next = async || messages.message().await.map(|message| message.and_then(|message| message.payload));
        let Some(Payload::Start(start)) = next().await? else {
            return Err(violation("the first message of a stdin stream must be start"));
        };
        let (sandbox, process) = self.process(&extensions, &start.task_id, &start.exec_id)?;
        let _busy = sandbox.busy();
        let turn = process.stdin.take_turn();
        process.stdin.expect(start.offset).await?;
        let cut = flags(&extensions).value("stdin-cut");
        let mut offset = start.offset;
        loop {
            if cut.is_some_and(|after| offset - start.offset >= after) {
                return Err(Status::unavailable("The stream was cut."));
            }
            let payload = tokio::select! {
                payload = next() => payload?,
                () = turn.cancelled() => return Err(Status::aborted("another stream writes to this process")),
                _ = process.exited() => return Err(Status::failed_precondition("the process has ended")),
            };
            match payload {
                Some(Payload::Data(data)) if !data.is_empty() => {
                    let count = data.len() as u64;
                    process.stdin.write(offset, data.into()).await?;
                    offset += count;
                }
                Some(Payload::End(_)) => {
                    process.stdin.close().await;
                    return Ok(Response::new(TaskExecStdinWriteStreamResponse {}));
                }
                Some(Payload::Data(_) | Payload::Start(_)) => {
                    return Err(violation("after start, a stdin stream has data that is not empty, then end"));
                }
                None => return Err(Status::aborted("the stream ended without end")),
            }
        }
    }

    async fn task_exec_stdin_status(
        &self,
        request: Request<TaskExecStdinStatusRequest>,
    ) -> Answer<TaskExecStdinStatusResponse> {
        let asked = request.get_ref();
        let (_, process) = self.process(request.extensions(), &asked.task_id, &asked.exec_id)?;
        process.stdin.take_turn();
        let (num_bytes_written, closed) = process.stdin.status().await;
        Ok(Response::new(TaskExecStdinStatusResponse { num_bytes_written, closed }))
    }

    async fn task_exec_poll(&self, request: Request<TaskExecPollRequest>) -> Answer<TaskExecPollResponse> {
        let asked = request.get_ref();
        let (_, process) = self.process(request.extensions(), &asked.task_id, &asked.exec_id)?;
        let exit_status = process.exit().map(|exit| match exit {
            Exit::Code(code) => task_exec_poll_response::ExitStatus::Code(code),
            Exit::Signal(signal) => task_exec_poll_response::ExitStatus::Signal(signal),
        });
        Ok(Response::new(TaskExecPollResponse { exit_status }))
    }

    async fn task_exec_wait(&self, request: Request<TaskExecWaitRequest>) -> Answer<TaskExecWaitResponse> {
        let asked = request.get_ref();
        let (sandbox, process) = self.process(request.extensions(), &asked.task_id, &asked.exec_id)?;
        let exit = process.exited().await;
        if sandbox.result().is_some() {
            return Err(sandbox.gone());
        }
        let exit_status = match exit {
            Exit::Code(code) => task_exec_wait_response::ExitStatus::Code(code),
            Exit::Signal(signal) => task_exec_wait_response::ExitStatus::Signal(signal),
        };
        Ok(Response::new(TaskExecWaitResponse { exit_status: Some(exit_status) }))
    }

    async fn task_snapshot_filesystem(
        &self,
        request: Request<TaskSnapshotFilesystemRequest>,
    ) -> Answer<TaskSnapshotFilesystemResponse> {
        let sandbox = self.sandbox(request.extensions(), &request.get_ref().task_id)?;
        let (modal, asked) = (Arc::clone(&self.0), request.into_inner());
        let image_id = self.0.to_the_end(async move { modal.snapshot(&sandbox, asked).await }).await?;
        Ok(Response::new(TaskSnapshotFilesystemResponse { image_id }))
    }

    async fn sandbox_wait_until_ready(
        &self,
        request: Request<SandboxWaitUntilReadyTcrRequest>,
    ) -> Answer<SandboxWaitUntilReadyTcrResponse> {
        let asked = request.get_ref();
        self.sandbox(request.extensions(), &asked.task_id)?;
        let ready_at = self.0.wait_until_ready(&asked.task_id, asked.timeout).await?;
        Ok(Response::new(SandboxWaitUntilReadyTcrResponse { ready_at }))
    }

    type SandboxStdioReadV2Stream = BoxStream<SandboxStdioReadV2Response>;

    async fn sandbox_stdio_read_v2(
        &self,
        request: Request<SandboxStdioReadV2Request>,
    ) -> Answer<Self::SandboxStdioReadV2Stream> {
        let asked = request.get_ref();
        // Also when it has ended: its last output is still there.
        let claim = request.extensions().get::<TaskClaim>();
        if claim.is_none_or(|claim| claim.0 != asked.task_id) {
            return Err(Status::unauthenticated("The token is not for this task"));
        }
        let Output { stdout, stderr } = self.0.sandbox_of_task(&asked.task_id)?.output.clone();
        let log = match asked.file_descriptor() {
            SandboxStdioFileDescriptor::Stdout => stdout,
            SandboxStdioFileDescriptor::Stderr => stderr,
        };
        let mut offset = asked.offset;
        let pieces = read(log, offset, broken(request.extensions()), || Ok(()));
        let responses = pieces.map(move |piece| {
            piece.map(|data| {
                let starting_offset = offset;
                offset += data.len() as u64;
                SandboxStdioReadV2Response { data: data.into(), starting_offset }
            })
        });
        Ok(Response::new(responses.boxed()))
    }

    async fn sandbox_stdin_write_v2(
        &self,
        request: Request<SandboxStdinWriteV2Request>,
    ) -> Answer<SandboxStdinWriteV2Response> {
        let sandbox = self.sandbox(request.extensions(), &request.get_ref().task_id)?;
        let asked = request.into_inner();
        if sandbox.definition.entrypoint_args.is_empty() {
            return Err(Status::failed_precondition("The sandbox has no main process"));
        }
        let mut input = sandbox.input.subscribe();
        let stdin = tokio::select! {
            started = input.wait_for(Option::is_some) => started.ok().and_then(|stdin| stdin.clone()),
            () = sandbox.over.cancelled() => None,
        };
        let stdin = stdin.ok_or_else(|| sandbox.gone())?;
        stdin.write(asked.offset, asked.data.into()).await?;
        if asked.eof {
            stdin.close().await;
        }
        Ok(Response::new(SandboxStdinWriteV2Response {}))
    }
}

fn flags(extensions: &Extensions) -> Flags {
    extensions.get::<Flags>().cloned().unwrap_or_default()
}

/// How the fault script breaks a stream of output.
fn broken(extensions: &Extensions) -> Break {
    let flags = flags(extensions);
    match (flags.value("stdio-cut"), flags.value("stdio-fails")) {
        (None, Some(after)) => {
            Break { after: Some(after), status: Some(Status::internal("Failed to read exec stdio stream")) }
        }
        (after, _) => Break { after, status: None },
    }
}

/// Ids that clients choose are UUIDs, as official clients choose them.
fn check_uuid(what: &str, id: &str) -> Result<()> {
    Uuid::parse_str(id).map(drop).map_err(|_| violation(format!("{what} {id:?} is no UUID")))
}

impl Modal {
    /// Starts a command, unless the same request has started one before.
    async fn exec(self: &Arc<Self>, sandbox: &Arc<Sandbox>, asked: TaskExecStartRequest) -> Result<()> {
        check_uuid("exec_id", &asked.exec_id)?;
        if asked.command_args.is_empty() {
            return Err(violation("command_args is empty"));
        }
        if asked.workdir.as_ref().is_some_and(|path| !path.starts_with('/')) {
            return Err(violation("workdir must be absolute"));
        }
        if !asked.env.is_empty() {
            return Err(violation("env was used up to Python 1.5.4; it is secret_sources now"));
        }
        if asked.pty_info.as_ref().is_some_and(|pty| pty.enabled) {
            return Err(Status::invalid_argument("terminals are not emulated"));
        }
        if asked.timeout_secs == Some(0) {
            return Err(Status::invalid_argument("timeout_secs must be positive"));
        }
        if !asked.container_id.is_empty() {
            return Err(super::status::missing("Container", &asked.container_id));
        }
        let piping = Piping {
            stdout: asked.stdout_config() == TaskExecStdoutConfig::Pipe,
            stderr: asked.stderr_config() == TaskExecStderrConfig::Pipe,
            merged: asked.stderr_config() == TaskExecStderrConfig::Stdout,
        };
        if piping.merged {
            return Err(violation("stderr_config STDOUT: no official client sends it"));
        }
        let variables = self.variables(&asked.secret_ids, asked.secret_sources)?;
        let tool = fs_tool::Ask::of(&asked.command_args)?;
        let machine = sandbox.machine().await?;
        let limit = asked.timeout_secs.map(|seconds| Duration::from_secs(seconds.into()));
        let _no_saving = sandbox.saving.read().await;
        let mut processes = sandbox.processes();
        if processes.contains_key(&asked.exec_id) {
            return Ok(());
        }
        let busy = sandbox.busy();
        let process = match tool {
            Some(ask) => {
                let play = |input, output| ask.play(machine, input, output).boxed();
                let (process, task) = Process::tool(sandbox.over.clone(), limit, play);
                self.attend(Arc::clone(&process), task, busy);
                process
            }
            None => {
                let mut command = sandbox.command(&machine, &asked.command_args, asked.workdir.as_deref());
                command.env.extend(variables);
                let started = Process::start(&machine, command, Output::default(), piping, limit);
                let (process, task) = started.map_err(|error| match sandbox.result() {
                    Some(_) => sandbox.gone(),
                    None => internal(error),
                })?;
                self.attend(Arc::clone(&process), task, busy);
                process
            }
        };
        processes.insert(asked.exec_id, process);
        Ok(())
    }

    /// Runs a process to its end.
    fn attend(
        &self,
        process: Arc<Process>,
        task: impl Future<Output = ()> + Send + 'static,
        busy: super::sandbox::Busy,
    ) {
        self.emulation.tasks.spawn(async move {
            task.await;
            process.output.close();
            drop(busy);
        });
    }

    /// Saves the files of a sandbox as an image, unless the same request has done so before.
    async fn snapshot(&self, sandbox: &Arc<Sandbox>, asked: TaskSnapshotFilesystemRequest) -> Result<String> {
        check_uuid("snapshot_id", &asked.snapshot_id)?;
        let life = match asked.ttl_seconds {
            Some(-1) => None,
            Some(seconds @ 1..) => Some(Duration::from_secs(seconds.unsigned_abs())),
            other => return Err(violation(format!("ttl_seconds must be positive or -1, not {other:?}"))),
        };
        if !asked.container_id.is_empty() {
            return Err(super::status::missing("Container", &asked.container_id));
        }
        let machine = sandbox.machine().await?;
        let _busy = sandbox.busy();
        let _alone = sandbox.saving.write().await;
        let key = (asked.task_id, asked.snapshot_id);
        if let Some(known) = self.world().snapshots.get(&key).cloned() {
            return Ok(known);
        }
        sandbox.saves.fetch_add(1, Relaxed);
        tokio::time::sleep(self.emulation.timing.transition).await;
        let saved = self.emulation.machines.save(&machine).await.map_err(|error| match sandbox.result() {
            Some(_) => sandbox.gone(),
            None => internal(error),
        })?;
        let id = self.add_saved(saved, life);
        self.world().snapshots.insert(key, id.clone());
        Ok(id)
    }
}
