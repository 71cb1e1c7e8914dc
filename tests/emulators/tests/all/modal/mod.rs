//! The Modal emulator over its wire.

mod commands;
mod images;
mod lifecycle;
mod strict;

use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_emulators::faults::{Effect, Rule};
use sandbox_bench_emulators::modal::proto::client::modal_client_client::ModalClientClient;
use sandbox_bench_emulators::modal::proto::client::*;
use sandbox_bench_emulators::modal::proto::task_command_router::task_command_router_client::TaskCommandRouterClient;
use sandbox_bench_emulators::modal::proto::task_command_router::*;
use sandbox_bench_emulators::modal::{self, ModalOptions};
use sandbox_bench_emulators::{Emulation, Listener, Server};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use uuid::Uuid;

use crate::common::{LIMIT, emulation};

const CONTROL: &str = "/modal.client.ModalClient/";
const ROUTER: &str = "/modal.task_command_router.TaskCommandRouter/";

/// An emulator and a client of it.
struct Workspace {
    server: Server,
    emulation: Arc<Emulation>,
    channel: Channel,
    control: ModalClientClient<Channel>,
    router: TaskCommandRouterClient<Channel>,
    auth: String,
    app: String,
}

/// A sandbox with the token of its router.
struct Made {
    id: String,
    task: String,
    token: String,
}

impl Workspace {
    async fn open() -> Workspace {
        Workspace::with(emulation().await, ModalOptions::default()).await
    }

    async fn with(emulation: Arc<Emulation>, options: ModalOptions) -> Workspace {
        let listener = Listener::bind(0).await.unwrap();
        let server = modal::start(listener, Arc::clone(&emulation), options);
        let channel = Endpoint::new(server.base_url().to_owned()).unwrap().connect().await.unwrap();
        let (control, router) =
            (ModalClientClient::new(channel.clone()), TaskCommandRouterClient::new(channel.clone()));
        let (auth, app) = (String::new(), String::new());
        let mut workspace = Workspace { server, emulation, channel, control, router, auth, app };
        let request = workspace.ask(AuthTokenGetRequest {});
        workspace.auth = workspace.control.auth_token_get(request).await.unwrap().into_inner().token;
        let asked = AppGetOrCreateRequest { app_name: "bench".into(), object_creation_type: 1, ..Default::default() };
        let request = workspace.ask(asked);
        workspace.app = workspace.control.app_get_or_create(request).await.unwrap().into_inner().app_id;
        workspace
    }

    /// A request as the Python client makes it.
    fn ask<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let headers = [
            ("x-modal-client-type", "1"),
            ("x-modal-client-version", "1.6.4"),
            ("x-modal-python-version", "3.11.7"),
            ("x-modal-token-id", "ak-emulator"),
            ("x-modal-token-secret", "as-emulator"),
            ("x-modal-auth-token", &self.auth),
            ("x-idempotency-key", &Uuid::new_v4().to_string()),
        ];
        for (name, value) in headers {
            request.metadata_mut().insert(name, value.parse().unwrap());
        }
        request
    }

    async fn try_image(&self, image: Image) -> Result<ImageGetOrCreateResponse, Status> {
        let asked = ImageGetOrCreateRequest {
            image: Some(image),
            app_id: self.app.clone(),
            builder_version: "2025.06".into(),
            ..Default::default()
        };
        self.control.clone().image_get_or_create(self.ask(asked)).await.map(Response::into_inner)
    }

    /// The id of an image, and what its build has said, when it is built.
    async fn build(&self, image: Image) -> (String, String, GenericResult) {
        let made = self.try_image(image).await.unwrap();
        let (mut log, mut entry) = (String::new(), String::new());
        loop {
            let asked = ImageJoinStreamingRequest {
                image_id: made.image_id.clone(),
                timeout: 55.0,
                last_entry_id: entry.clone(),
                include_logs_for_finished: true,
            };
            let mut parts = self.control.clone().image_join_streaming(self.ask(asked)).await.unwrap().into_inner();
            while let Some(part) = parts.message().await.unwrap() {
                log.extend(part.task_logs.into_iter().map(|part| part.data));
                if !part.entry_id.is_empty() {
                    entry = part.entry_id;
                }
                if let Some(result) = part.result {
                    return (made.image_id, log, result);
                }
            }
        }
    }

    async fn base(&self) -> String {
        let (id, _, result) = self.build(commands(&["FROM debian:bookworm-slim"])).await;
        assert_eq!(result.status(), generic_result::GenericStatus::Success, "{result:?}");
        id
    }

    fn create_request(&self, image_id: &str) -> SandboxCreateV2Request {
        let access = NetworkAccess { network_access_type: 1, ..Default::default() };
        let definition = Sandbox {
            image_id: image_id.into(),
            timeout_secs: 600,
            network_access: Some(access),
            ..Default::default()
        };
        SandboxCreateV2Request { app_id: self.app.clone(), definition: Some(definition), ..Default::default() }
    }

    async fn try_create(&self, asked: SandboxCreateV2Request) -> Result<Made, Status> {
        let made = self.control.clone().sandbox_create_v2(self.ask(asked)).await?.into_inner();
        let token = made.command_router_access.unwrap().jwt;
        Ok(Made { id: made.sandbox_id, task: made.task_id, token })
    }

    async fn create(&self, image_id: &str) -> Made {
        self.try_create(self.create_request(image_id)).await.unwrap()
    }

    async fn wait(&self, id: &str, timeout: f32) -> GenericResult {
        let asked = SandboxWaitRequest { sandbox_id: id.into(), timeout };
        self.control.clone().sandbox_wait_v2(self.ask(asked)).await.unwrap().into_inner().result.unwrap()
    }

    async fn terminate(&self, id: &str) -> Option<GenericResult> {
        let asked = SandboxTerminateRequest { sandbox_id: id.into() };
        self.control.clone().sandbox_terminate_v2(self.ask(asked)).await.unwrap().into_inner().existing_result
    }

    async fn start(&self, made: &Made, asked: TaskExecStartRequest) -> Result<String, Status> {
        let id = asked.exec_id.clone();
        self.router.clone().task_exec_start(made.ask(asked)).await.map(|_| id)
    }

    /// Runs a script to its end.
    async fn run(&self, made: &Made, script: &str) -> (i32, String) {
        let exec = self.start(made, made.shell(script)).await.unwrap();
        let out = self.output(made, &exec, 0).await.unwrap();
        (self.exit(made, &exec).await.unwrap(), String::from_utf8(out).unwrap())
    }

    /// Standard output from an offset to its end.
    async fn output(&self, made: &Made, exec: &str, offset: u64) -> Result<Vec<u8>, Status> {
        let asked =
            TaskExecStdioReadRequest { task_id: made.task.clone(), exec_id: exec.into(), offset, file_descriptor: 0 };
        let mut parts = self.router.clone().task_exec_stdio_read(made.ask(asked)).await?.into_inner();
        let mut all = Vec::new();
        while let Some(part) = parts.message().await? {
            all.extend(part.data);
        }
        Ok(all)
    }

    async fn exit(&self, made: &Made, exec: &str) -> Result<i32, Status> {
        let asked = TaskExecWaitRequest { task_id: made.task.clone(), exec_id: exec.into() };
        let exited = self.router.clone().task_exec_wait(made.ask(asked)).await?.into_inner();
        Ok(match exited.exit_status.unwrap() {
            task_exec_wait_response::ExitStatus::Code(code) => code,
            task_exec_wait_response::ExitStatus::Signal(signal) => 128 + signal,
        })
    }

    async fn snapshot(&self, made: &Made, id: Uuid, ttl: Option<i64>) -> Result<String, Status> {
        let asked = TaskSnapshotFilesystemRequest {
            task_id: made.task.clone(),
            snapshot_id: id.to_string(),
            ttl_seconds: ttl,
            ..Default::default()
        };
        let saved = self.router.clone().task_snapshot_filesystem(made.ask(asked)).await;
        saved.map(|saved| saved.into_inner().image_id)
    }

    fn flag(&self, method: &str, name: &str, value: u64) {
        let effect = Effect::Flag { name: name.into(), value };
        self.emulation.faults.add(Rule::new("POST", method, effect).times(1)).unwrap();
    }

    /// Ends with no violation.
    async fn close(self) {
        assert_eq!(self.emulation.violations.all(), []);
        self.server.shutdown(LIMIT).await.unwrap();
    }
}

impl Made {
    fn ask<T>(&self, message: T) -> Request<T> {
        bearer(&self.token, message)
    }

    fn shell(&self, script: &str) -> TaskExecStartRequest {
        TaskExecStartRequest {
            task_id: self.task.clone(),
            exec_id: Uuid::new_v4().to_string(),
            command_args: ["sh", "-c", script].map(str::to_owned).to_vec(),
            stdout_config: 1,
            stderr_config: 1,
            ..Default::default()
        }
    }
}

fn bearer<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

fn commands(lines: &[&str]) -> Image {
    Image { dockerfile_commands: lines.iter().map(|line| (*line).to_owned()).collect(), ..Default::default() }
}

fn on(image_id: &str, lines: &[&str]) -> Image {
    let base = BaseImage { image_id: image_id.into(), docker_tag: "base".into() };
    Image { base_images: vec![base], ..commands(&[&["FROM base"], lines].concat()) }
}

fn code<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    answer.expect_err("refused").code()
}

/// Until it is so.
async fn until(what: &str, so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}
