//! The methods of the control plane.

use std::sync::Arc;
use std::time::Duration;

use tonic::codegen::BoxStream;
use tonic::{Extensions, Request, Response, Status};

use super::gate::{AUTH, Caller};
use super::proto::client::modal_client_server::ModalClient;
use super::proto::client::sandbox_get_command_router_access_request::Target;
use super::proto::client::*;
use super::status::{missing, violation};
use super::{Modal, Result};
use crate::Flags;

/// Seconds that a token for the sandbox methods is valid.
const AUTH_LIFE: Duration = Duration::from_secs(1200);

pub(super) struct Control(pub(super) Arc<Modal>);

fn flags(extensions: &Extensions) -> Flags {
    extensions.get::<Flags>().cloned().unwrap_or_default()
}

/// The gate puts it there.
fn caller(extensions: &Extensions) -> Result<Caller> {
    extensions.get::<Caller>().cloned().ok_or_else(|| Status::internal("nobody asks"))
}

type Answer<T> = Result<Response<T>>;

#[tonic::async_trait]
impl ModalClient for Control {
    async fn client_hello(&self, _: Request<()>) -> Answer<ClientHelloResponse> {
        let image_builder_version = self.0.options.builder_version.clone();
        Ok(Response::new(ClientHelloResponse { image_builder_version, warning: String::new() }))
    }

    async fn auth_token_get(&self, _: Request<AuthTokenGetRequest>) -> Answer<AuthTokenGetResponse> {
        Ok(Response::new(AuthTokenGetResponse { token: self.0.signer.issue(AUTH, AUTH_LIFE) }))
    }

    async fn token_info_get(&self, _: Request<TokenInfoGetRequest>) -> Answer<TokenInfoGetResponse> {
        Ok(Response::new(TokenInfoGetResponse {
            token_id: self.0.options.token_id.clone(),
            workspace_id: "ac-emulator".to_owned(),
            workspace_name: "emulator".to_owned(),
        }))
    }

    async fn app_get_or_create(&self, request: Request<AppGetOrCreateRequest>) -> Answer<AppGetOrCreateResponse> {
        self.0.get_app(request.into_inner()).map(Response::new)
    }

    async fn environment_get_or_create(
        &self,
        request: Request<EnvironmentGetOrCreateRequest>,
    ) -> Answer<EnvironmentGetOrCreateResponse> {
        self.0.get_environment(request.get_ref()).map(Response::new)
    }

    async fn secret_get_or_create(
        &self,
        request: Request<SecretGetOrCreateRequest>,
    ) -> Answer<SecretGetOrCreateResponse> {
        self.0.get_secret(request.into_inner()).map(Response::new)
    }

    async fn image_get_or_create(&self, request: Request<ImageGetOrCreateRequest>) -> Answer<ImageGetOrCreateResponse> {
        let flags = flags(request.extensions());
        self.0.get_image(request.into_inner(), &flags).map(Response::new)
    }

    type ImageJoinStreamingStream = BoxStream<ImageJoinStreamingResponse>;

    async fn image_join_streaming(
        &self,
        request: Request<ImageJoinStreamingRequest>,
    ) -> Answer<Self::ImageJoinStreamingStream> {
        self.0.join_build(request.get_ref()).map(Response::new)
    }

    async fn image_from_id(&self, request: Request<ImageFromIdRequest>) -> Answer<ImageFromIdResponse> {
        self.0.image_from_id(&request.get_ref().image_id).map(Response::new)
    }

    async fn image_delete(&self, request: Request<ImageDeleteRequest>) -> Answer<()> {
        self.0.delete_image(&request.get_ref().image_id).await.map(Response::new)
    }

    async fn image_publish(&self, request: Request<ImagePublishRequest>) -> Answer<ImagePublishResponse> {
        self.0.publish(request.get_ref()).map(Response::new)
    }

    async fn image_list_tags(&self, request: Request<ImageListTagsRequest>) -> Answer<ImageListTagsResponse> {
        self.0.list_names(request.get_ref()).map(Response::new)
    }

    async fn image_name_delete(&self, request: Request<ImageNameDeleteRequest>) -> Answer<()> {
        self.0.delete_name(&request.get_ref().tag).map(Response::new)
    }

    async fn mount_batched_check_existence(
        &self,
        request: Request<MountBatchedCheckExistenceRequest>,
    ) -> Answer<MountBatchedCheckExistenceResponse> {
        Ok(Response::new(self.0.missing_files(request.into_inner().sha256_hex_hashes)))
    }

    async fn mount_put_file(&self, request: Request<MountPutFileRequest>) -> Answer<MountPutFileResponse> {
        self.0.put_file(request.into_inner()).map(Response::new)
    }

    async fn mount_get_or_create(&self, request: Request<MountGetOrCreateRequest>) -> Answer<MountGetOrCreateResponse> {
        self.0.get_mount(request.into_inner()).map(Response::new)
    }

    /// List prices that were seen once; the vendor's names for them are not known.
    async fn workspace_billing_rates(
        &self,
        _: Request<WorkspaceBillingRatesRequest>,
    ) -> Answer<WorkspaceBillingRatesResponse> {
        let rates = [("sandbox_cpu_core_hour", "0.1419"), ("sandbox_memory_gib_hour", "0.0242")];
        let rates = rates.map(|(name, rate)| (name.to_owned(), rate.to_owned())).into();
        Ok(Response::new(WorkspaceBillingRatesResponse { rates }))
    }

    async fn sandbox_create_v2(&self, request: Request<SandboxCreateV2Request>) -> Answer<SandboxCreateV2Response> {
        let (flags, caller) = (flags(request.extensions()), caller(request.extensions())?);
        self.0.create(request.into_inner(), &caller, &flags).map(Response::new)
    }

    async fn sandbox_get_command_router_access(
        &self,
        request: Request<SandboxGetCommandRouterAccessRequest>,
    ) -> Answer<SandboxGetCommandRouterAccessResponse> {
        let (flags, caller) = (flags(request.extensions()), caller(request.extensions())?);
        let sandbox = match request.into_inner().target {
            Some(Target::SandboxId(id)) => self.0.sandbox(&id)?,
            Some(Target::TaskId(id)) => self.0.sandbox_of_task(&id)?,
            None => return Err(violation("neither sandbox_id nor task_id")),
        };
        if sandbox.result().is_some() {
            return Err(Status::failed_precondition(format!("Sandbox {:?} has ended", sandbox.id)));
        }
        let life = if flags.has("expired-token") { Duration::ZERO } else { self.0.options.router_token_life };
        let CommandRouterAccess { jwt, url } = self.0.access(&sandbox, &caller, life);
        Ok(Response::new(SandboxGetCommandRouterAccessResponse { jwt, url }))
    }

    async fn sandbox_get_task_id_v2(
        &self,
        request: Request<SandboxGetTaskIdRequest>,
    ) -> Answer<SandboxGetTaskIdResponse> {
        let asked = request.into_inner();
        let sandbox = self.0.sandbox(&asked.sandbox_id)?;
        if asked.wait_until_ready {
            self.0.wait_until_ready(&sandbox.task_id, asked.timeout.unwrap_or(0.0)).await?;
        }
        Ok(Response::new(SandboxGetTaskIdResponse {
            task_id: Some(sandbox.task_id.clone()),
            task_result: sandbox.result(),
        }))
    }

    async fn sandbox_wait_v2(&self, request: Request<SandboxWaitRequest>) -> Answer<SandboxWaitResponse> {
        self.0.wait(request.get_ref()).await.map(Response::new)
    }

    async fn sandbox_terminate_v2(
        &self,
        request: Request<SandboxTerminateRequest>,
    ) -> Answer<SandboxTerminateResponse> {
        let ignored = flags(request.extensions()).has("terminate-ignored");
        let existing_result = self.0.terminate(&request.get_ref().sandbox_id, ignored)?;
        Ok(Response::new(SandboxTerminateResponse { existing_result }))
    }

    async fn sandbox_list_v2(&self, request: Request<SandboxListRequest>) -> Answer<SandboxListResponse> {
        let flags = flags(request.extensions());
        let sandboxes = self.0.list(request.into_inner(), &flags)?;
        Ok(Response::new(SandboxListResponse { sandboxes }))
    }

    async fn sandbox_tags_set_v2(&self, request: Request<SandboxTagsSetRequest>) -> Answer<()> {
        self.0.set_tags(request.into_inner()).map(Response::new)
    }

    async fn sandbox_tags_get_v2(&self, request: Request<SandboxTagsGetRequest>) -> Answer<SandboxTagsGetResponse> {
        let sandbox = self.0.sandbox(&request.get_ref().sandbox_id)?;
        Ok(Response::new(SandboxTagsGetResponse { tags: sandbox.tags() }))
    }

    async fn sandbox_get_from_name_v2(
        &self,
        request: Request<SandboxGetFromNameRequest>,
    ) -> Answer<SandboxGetFromNameResponse> {
        self.0.named(request.get_ref()).map(Response::new)
    }

    /// There are no V1 sandboxes; the Python client asks when there is no V2 one.
    async fn sandbox_get_from_name(
        &self,
        request: Request<SandboxGetFromNameRequest>,
    ) -> Answer<SandboxGetFromNameResponse> {
        Err(missing("Sandbox", &request.get_ref().sandbox_name))
    }

    /// Nothing is recorded yet, as it is in a sandbox's first minutes.
    async fn sandbox_get_stats(&self, request: Request<SandboxGetStatsRequest>) -> Answer<SandboxGetStatsResponse> {
        self.0.sandbox(&request.get_ref().sandbox_id)?;
        Ok(Response::new(SandboxGetStatsResponse::default()))
    }
}
