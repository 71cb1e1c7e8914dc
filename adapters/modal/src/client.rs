//! The control plane: one function for each question, every request counted and bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_bench_core::{Call, Error, ErrorKind, Result, Tag};
use sandbox_bench_kit::wait::bounded;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Uri};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::account::Account;
use crate::config::{ClientShape, ModalConfig};
use crate::error::{self, Effect};
use crate::proto::client::modal_client_client::ModalClientClient;
use crate::proto::client::{self as wire, GenericResult, SandboxInfo, SandboxTag};
use crate::token;

/// Largest answer that is taken, as the official clients have it.
const LARGEST: usize = 100 << 20;
/// Time to reach an address.
const CONNECT: Duration = Duration::from_secs(10);
/// A connection is asked whether it lives this often, and given up after this (Python package modal 1.6.4).
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_LIMIT: Duration = Duration::from_secs(10);
/// What may be on its way of one stream, and of one connection: enough for fast networks, little for memory.
const WINDOWS: (u32, u32) = (4 << 20, 16 << 20);
/// Limit for getting a token for requests.
const TOKEN_LIMIT: Duration = Duration::from_secs(15);
/// Builders older than this need more in an image than the image itself.
const OLDEST_BUILDER: &str = "2025.06";
/// Most pages of a list.
const PAGES: usize = 1000;
/// Hosts that are this machine, for which the official clients speak without encryption.
const LOCAL: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "172.21.0.1"];

type Grpc = ModalClientClient<Channel>;

/// The control plane, with an account and a configuration.
pub(crate) struct Client {
    grpc: Grpc,
    uri: Uri,
    pub(crate) account: Account,
    pub(crate) config: ModalConfig,
    /// What every request carries.
    metadata: MetadataMap,
    auth: tokio::sync::Mutex<Option<Auth>>,
    builder: OnceCell<String>,
    app: OnceCell<String>,
    rates: OnceCell<BTreeMap<String, String>>,
    /// What this process created and has not seen the end of: lists may lag behind.
    made: Mutex<BTreeMap<String, Tag>>,
    /// What this process destroyed without being able to write that on it.
    unmarked: Mutex<BTreeSet<String>>,
}

/// A token for requests, and when it is to be replaced.
struct Auth {
    token: SecretString,
    replace_at: Instant,
}

impl Client {
    /// Nothing is asked of the service yet.
    ///
    /// # Errors
    /// `InvalidRequest` for an address that is none, `Credentials` for a token that no header can hold.
    pub(crate) fn new(account: Account, config: ModalConfig) -> Result<Self> {
        let uri = account.uri()?;
        let channel = channel(&uri)?;
        Ok(Self {
            grpc: ModalClientClient::new(channel).max_decoding_message_size(LARGEST),
            metadata: metadata(&account, &config, &uri)?,
            uri,
            account,
            config,
            auth: Default::default(),
            builder: OnceCell::new(),
            app: OnceCell::new(),
            rates: OnceCell::new(),
            made: Mutex::default(),
            unmarked: Mutex::default(),
        })
    }

    /// The address, for people.
    pub(crate) fn endpoint(&self) -> &str {
        &self.account.server_url
    }

    /// The connection to a router at the address that the service gave out. It must be encrypted, unless the service itself
    /// is on this machine.
    ///
    /// # Errors
    /// `Failed` for an address that no request may go to.
    pub(crate) fn router_channel(&self, url: &str) -> Result<Channel> {
        let refused = |why: &str| Error::new(ErrorKind::Failed, format!("the address of a sandbox's router: {why}"));
        let local = self.uri.host().is_some_and(|host| LOCAL.contains(&host));
        let uri: Uri = url.parse().map_err(|_| refused("it is malformed"))?;
        match uri.scheme_str() {
            Some("https") if local && self.uri.scheme_str() == Some("http") => {
                let plain = format!("http{}", url.strip_prefix("https").unwrap_or_default());
                channel(&plain.parse().map_err(|_| refused("it is malformed"))?)
            }
            Some("https") => channel(&uri),
            Some("http") if local => channel(&uri),
            _ => Err(refused("it is not https://")),
        }
    }

    /// The error of a request that was refused or not answered.
    pub(crate) fn refused(&self, what: &str, effect: Effect, status: &Status) -> Error {
        let hidden = self.account.hide(status.message());
        if hidden == status.message() {
            return error::refused(what, effect, status);
        }
        error::refused(what, effect, &Status::with_details(status.code(), hidden, status.details().to_vec().into()))
    }

    /// Asks, with what every request carries. A token that was refused is replaced once.
    async fn ask<Q, A, F>(
        &self,
        call: &Call,
        what: &str,
        effect: Effect,
        message: Q,
        send: impl Fn(Grpc, Request<Q>) -> F,
    ) -> Result<A>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.said(call, what, message, send).await?.map_err(|status| self.refused(what, effect, &status))
    }

    /// As [`Client::ask`], with the service's own words for what it refused.
    async fn said<Q, A, F>(
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
        let key = uuid::Uuid::new_v4().to_string();
        let mut fresh = false;
        loop {
            let token = match self.auth(call, fresh).await? {
                Ok(token) => token,
                Err(status) => return Ok(Err(status)),
            };
            let mut request = Request::new(message.clone());
            *request.metadata_mut() = self.metadata.clone();
            insert(request.metadata_mut(), "x-idempotency-key", &key)?;
            insert(request.metadata_mut(), "x-modal-auth-token", token.expose_secret())?;
            call.meter.api_call();
            match bounded(call, what, send(self.grpc.clone(), request)).await? {
                Ok(answer) => return Ok(Ok(answer.into_inner())),
                // Refused before anything was done.
                Err(status) if status.code() == Code::Unauthenticated && !fresh => fresh = true,
                Err(status) => return Ok(Err(status)),
            }
        }
    }

    /// The token for requests; `fresh`: the last one was refused.
    async fn auth(&self, call: &Call, fresh: bool) -> Result<Result<SecretString, Status>> {
        let what = "token for requests";
        let call = call.within(TOKEN_LIMIT);
        let mut held = bounded(&call, what, self.auth.lock()).await?;
        let old = held.take().filter(|auth| !fresh && auth.replace_at > Instant::now());
        if let Some(auth) = old {
            let token = auth.token.clone();
            *held = Some(auth);
            return Ok(Ok(token));
        }
        let mut request = Request::new(wire::AuthTokenGetRequest {});
        *request.metadata_mut() = self.metadata.clone();
        call.meter.api_call();
        let mut grpc = self.grpc.clone();
        match bounded(&call, what, grpc.auth_token_get(request)).await? {
            Ok(answer) => {
                let token = answer.into_inner().token;
                let replace_at = token::replace_at(&token);
                let token = SecretString::from(token);
                *held = Some(Auth { token: token.clone(), replace_at });
                Ok(Ok(token))
            }
            Err(status) => Ok(Err(status)),
        }
    }

    /// The workspace, as the token names it.
    pub(crate) async fn token_info(&self, call: &Call) -> Result<wire::TokenInfoGetResponse> {
        let message = wire::TokenInfoGetRequest {};
        let send = |mut grpc: Grpc, request| async move { grpc.token_info_get(request).await };
        self.ask(call, "token", Effect::Idempotent, message, send).await
    }

    /// The environment, with its settings, as the service has it now.
    pub(crate) async fn environment(&self, call: &Call) -> Result<wire::EnvironmentGetOrCreateResponse> {
        let message = wire::EnvironmentGetOrCreateRequest { deployment_name: self.account.environment.clone() };
        let send = |mut grpc: Grpc, request| async move { grpc.environment_get_or_create(request).await };
        self.ask(call, &format!("environment {:?}", self.account.environment), Effect::Idempotent, message, send).await
    }

    /// Version of the image builder: the account's, else the environment's, but none too old.
    pub(crate) async fn builder(&self, call: &Call) -> Result<String> {
        let asked = async {
            let version = match &self.account.builder_version {
                Some(version) => version.clone(),
                None => {
                    let metadata = self.environment(call).await?.metadata.unwrap_or_default();
                    metadata.settings.unwrap_or_default().image_builder_version
                }
            };
            Ok(if version.as_str() < OLDEST_BUILDER { OLDEST_BUILDER.to_owned() } else { version })
        };
        self.builder.get_or_try_init(|| asked).await.cloned()
    }

    /// Id of the app that sandboxes belong to, which is made if it is missing.
    pub(crate) async fn app(&self, call: &Call) -> Result<String> {
        let made = self.find_app(call, wire::ObjectCreationType::CreateIfMissing);
        self.app.get_or_try_init(|| made).await.cloned()
    }

    /// Id of the app, if there is one.
    pub(crate) async fn known_app(&self, call: &Call) -> Result<Option<String>> {
        if let Some(id) = self.app.get() {
            return Ok(Some(id.clone()));
        }
        match self.find_app(call, wire::ObjectCreationType::Unspecified).await {
            Ok(id) => Ok(Some(id)),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn find_app(&self, call: &Call, creation: wire::ObjectCreationType) -> Result<String> {
        let message = wire::AppGetOrCreateRequest {
            app_name: self.config.app.clone(),
            environment_name: self.account.environment.clone(),
            object_creation_type: creation.into(),
        };
        let send = |mut grpc: Grpc, request| async move { grpc.app_get_or_create(request).await };
        let app = self.ask(call, &format!("app {}", self.config.app), Effect::Idempotent, message, send).await?;
        Ok(app.app_id)
    }

    /// What the workspace pays, by name, as the service writes it; asked once.
    pub(crate) async fn rates(&self, call: &Call) -> Result<&BTreeMap<String, String>> {
        let asked = async {
            let message = wire::WorkspaceBillingRatesRequest {};
            let send = |mut grpc: Grpc, request| async move { grpc.workspace_billing_rates(request).await };
            let answer = self.ask(call, "billing rates", Effect::Idempotent, message, send).await?;
            Ok(answer.rates.into_iter().collect())
        };
        self.rates.get_or_try_init(|| asked).await
    }

    /// The image of this recipe: its id, and its result if it was built already.
    pub(crate) async fn image(
        &self,
        call: &Call,
        what: &str,
        image: wire::Image,
    ) -> Result<wire::ImageGetOrCreateResponse> {
        let (app_id, builder_version) = (self.app(call).await?, self.builder(call).await?);
        let message = wire::ImageGetOrCreateRequest { image: Some(image), app_id, builder_version };
        let send = |mut grpc: Grpc, request| async move { grpc.image_get_or_create(request).await };
        self.ask(call, what, Effect::Idempotent, message, send).await
    }

    /// What the build of an image says, from after the entry `last` on.
    pub(crate) async fn build_log(
        &self,
        call: &Call,
        image: &str,
        (last, seconds): (&str, f32),
    ) -> Result<Result<Streaming<wire::ImageJoinStreamingResponse>, Status>> {
        let message = wire::ImageJoinStreamingRequest {
            image_id: image.to_owned(),
            timeout: seconds,
            last_entry_id: last.to_owned(),
            // It may end before it is asked for.
            include_logs_for_finished: true,
        };
        let send = |mut grpc: Grpc, request| async move { grpc.image_join_streaming(request).await };
        self.said(call, &format!("build of image {image}"), message, send).await
    }

    /// The image of this id.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn image_by_id(&self, call: &Call, id: &str) -> Result<wire::ImageFromIdResponse> {
        let message = wire::ImageFromIdRequest { image_id: id.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.image_from_id(request).await };
        self.ask(call, &format!("image {id}"), Effect::Idempotent, message, send).await
    }

    /// Deletes an image.
    pub(crate) async fn delete_image(&self, call: &Call, id: &str) -> Result<()> {
        let message = wire::ImageDeleteRequest { image_id: id.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.image_delete(request).await };
        self.ask(call, &format!("image {id}: delete"), Effect::Idempotent, message, send).await
    }

    /// A name with a tag, as the service wants it: with the environment, if there is one.
    fn image_name(&self, name: &str) -> String {
        match self.account.environment.as_str() {
            "" => name.to_owned(),
            environment => format!("{environment}/{name}"),
        }
    }

    /// Gives an image the name `NAME:TAG`.
    pub(crate) async fn name_image(&self, call: &Call, id: &str, name: &str) -> Result<()> {
        let message = wire::ImagePublishRequest { image_id: id.to_owned(), tag: self.image_name(name) };
        let send = |mut grpc: Grpc, request| async move { grpc.image_publish(request).await };
        self.ask(call, &format!("image {id}: name"), Effect::Idempotent, message, send).await.map(drop)
    }

    /// Takes the name `NAME:TAG` from whatever has it.
    pub(crate) async fn forget_name(&self, call: &Call, name: &str) -> Result<()> {
        let message = wire::ImageNameDeleteRequest { tag: self.image_name(name) };
        let send = |mut grpc: Grpc, request| async move { grpc.image_name_delete(request).await };
        self.ask(call, &format!("image name {name}: delete"), Effect::Idempotent, message, send).await
    }

    /// Every named image whose name begins so, or the names of the image of this id.
    pub(crate) async fn named_images(
        &self,
        call: &Call,
        (prefix, image): (&str, &str),
    ) -> Result<Vec<wire::ImageListTagsItem>> {
        let mut message = wire::ImageListTagsRequest {
            environment_name: self.account.environment.clone(),
            tag_prefix: prefix.to_owned(),
            max_objects: 100,
            page_token: String::new(),
            image_id: image.to_owned(),
        };
        let mut all = Vec::new();
        for _ in 0..PAGES {
            let send = |mut grpc: Grpc, request| async move { grpc.image_list_tags(request).await };
            let page = self.ask(call, "names of images", Effect::Idempotent, message.clone(), send).await?;
            all.extend(page.items);
            if page.next_page_token.is_empty() {
                break;
            }
            message.page_token = page.next_page_token;
        }
        Ok(all)
    }

    /// Which files of these digests the service does not have yet.
    pub(crate) async fn missing_files(&self, call: &Call, digests: Vec<String>) -> Result<Vec<String>> {
        let message = wire::MountBatchedCheckExistenceRequest { sha256_hex_hashes: digests };
        let send = |mut grpc: Grpc, request| async move { grpc.mount_batched_check_existence(request).await };
        let answer = self.ask(call, "build context", Effect::Idempotent, message, send).await?;
        Ok(answer.missing_sha256_hex_hashes)
    }

    /// Sends one file of a build context; tells if the service has it now.
    pub(crate) async fn put_file(&self, call: &Call, digest: &str, content: bytes::Bytes) -> Result<bool> {
        call.meter.sent(content.len() as u64);
        let data = wire::mount_put_file_request::DataOneof::Data(content.into());
        let message = wire::MountPutFileRequest { sha256_hex: digest.to_owned(), data_oneof: Some(data) };
        let send = |mut grpc: Grpc, request| async move { grpc.mount_put_file(request).await };
        let answer = self.ask(call, "build context", Effect::Idempotent, message, send).await?;
        Ok(answer.exists)
    }

    /// Makes a build context of files that the service has; returns its id.
    pub(crate) async fn mount(&self, call: &Call, files: Vec<wire::MountFile>) -> Result<String> {
        let message = wire::MountGetOrCreateRequest {
            object_creation_type: wire::ObjectCreationType::AnonymousOwnedByApp.into(),
            files,
            app_id: self.app(call).await?,
        };
        let send = |mut grpc: Grpc, request| async move { grpc.mount_get_or_create(request).await };
        let answer = self.ask(call, "build context", Effect::Idempotent, message, send).await?;
        Ok(answer.mount_id)
    }

    /// Asks for a sandbox. Refusals are told in the service's own words.
    pub(crate) async fn create(
        &self,
        call: &Call,
        what: &str,
        message: wire::SandboxCreateV2Request,
    ) -> Result<Result<wire::SandboxCreateV2Response, Status>> {
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_create_v2(request).await };
        self.said(call, what, message, send).await
    }

    /// Id of the running sandbox with this name.
    pub(crate) async fn named(&self, call: &Call, name: &str) -> Result<Option<String>> {
        let message = wire::SandboxGetFromNameRequest {
            sandbox_name: name.to_owned(),
            environment_name: self.account.environment.clone(),
            app_name: self.config.app.clone(),
        };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_get_from_name_v2(request).await };
        match self.ask(call, &format!("sandbox {name}"), Effect::Idempotent, message, send).await {
            Ok(answer) => Ok(Some(answer.sandbox_id)),
            Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Id of the task that is the sandbox's inside; none if it ended before it had one, with the reason.
    pub(crate) async fn task(&self, call: &Call, id: &str) -> Result<wire::SandboxGetTaskIdResponse> {
        let message = wire::SandboxGetTaskIdRequest { sandbox_id: id.to_owned(), timeout: Some(0.0) };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_get_task_id_v2(request).await };
        self.ask(call, &format!("sandbox {id}: task"), Effect::Idempotent, message, send).await
    }

    /// Address and token of the sandbox's router.
    ///
    /// # Errors
    /// `SandboxLost` if it has ended.
    pub(crate) async fn access(&self, call: &Call, id: &str) -> Result<wire::SandboxGetCommandRouterAccessResponse> {
        let target = wire::sandbox_get_command_router_access_request::Target::SandboxId(id.to_owned());
        let message = wire::SandboxGetCommandRouterAccessRequest { target: Some(target) };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_get_command_router_access(request).await };
        let what = format!("sandbox {id}: access");
        match self.said(call, &what, message, send).await? {
            Ok(access) => Ok(access),
            Err(status) if matches!(status.code(), Code::FailedPrecondition | Code::NotFound) => {
                Err(error::lost(id, "the service gives no access to it any more"))
            }
            Err(status) => Err(self.refused(&what, Effect::Idempotent, &status)),
        }
    }

    /// How a sandbox ended; none while it runs. Waits so many seconds for it.
    ///
    /// # Errors
    /// `NotFound` if there is no such sandbox.
    pub(crate) async fn end(&self, call: &Call, id: &str, seconds: f32) -> Result<Option<GenericResult>> {
        let message = wire::SandboxWaitRequest { sandbox_id: id.to_owned(), timeout: seconds };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_wait_v2(request).await };
        let answer = self.ask(call, &format!("sandbox {id}: end"), Effect::Idempotent, message, send).await?;
        Ok(answer.result.filter(|result| result.status != 0))
    }

    /// Asks for the end of a sandbox.
    ///
    /// # Errors
    /// `NotFound` if there is no such sandbox.
    pub(crate) async fn terminate(&self, call: &Call, id: &str) -> Result<()> {
        let message = wire::SandboxTerminateRequest { sandbox_id: id.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_terminate_v2(request).await };
        self.ask(call, &format!("sandbox {id}: terminate"), Effect::Idempotent, message, send).await.map(drop)
    }

    /// What is written on a sandbox.
    ///
    /// # Errors
    /// `NotFound` if there is no such sandbox.
    pub(crate) async fn tags(&self, call: &Call, id: &str) -> Result<Vec<SandboxTag>> {
        let message = wire::SandboxTagsGetRequest { sandbox_id: id.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_tags_get_v2(request).await };
        let answer = self.ask(call, &format!("sandbox {id}: tags"), Effect::Idempotent, message, send).await?;
        Ok(answer.tags)
    }

    /// Replaces what is written on a sandbox.
    ///
    /// # Errors
    /// `NotFound` if there is no such sandbox.
    pub(crate) async fn set_tags(&self, call: &Call, id: &str, tags: Vec<SandboxTag>) -> Result<()> {
        let message = wire::SandboxTagsSetRequest { sandbox_id: id.to_owned(), tags };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_tags_set_v2(request).await };
        self.ask(call, &format!("sandbox {id}: tags"), Effect::Idempotent, message, send).await
    }

    /// Every sandbox of the app that carries all of this; `ended`: also those that have ended.
    pub(crate) async fn list(&self, call: &Call, tags: Vec<SandboxTag>, ended: bool) -> Result<Vec<SandboxInfo>> {
        let Some(app_id) = self.known_app(call).await? else { return Ok(Vec::new()) };
        let mut message = wire::SandboxListRequest {
            app_id,
            before_timestamp: 0.0,
            environment_name: self.account.environment.clone(),
            include_finished: ended,
            tags,
        };
        let mut all: Vec<SandboxInfo> = Vec::new();
        for _ in 0..PAGES {
            let send = |mut grpc: Grpc, request| async move { grpc.sandbox_list_v2(request).await };
            let page = self.ask(call, "list of sandboxes", Effect::Idempotent, message.clone(), send).await?;
            let Some(last) = page.sandboxes.last().map(|info| info.created_at) else { break };
            all.extend(page.sandboxes);
            // Newest first. A service that does not go on is not asked for ever.
            if message.before_timestamp != 0.0 && last >= message.before_timestamp {
                break;
            }
            message.before_timestamp = last;
        }
        Ok(all)
    }

    /// What a sandbox cost so far. The service tells it minutes later.
    pub(crate) async fn stats(&self, call: &Call, id: &str) -> Result<wire::SandboxGetStatsResponse> {
        let message = wire::SandboxGetStatsRequest { sandbox_id: id.to_owned() };
        let send = |mut grpc: Grpc, request| async move { grpc.sandbox_get_stats(request).await };
        self.ask(call, &format!("sandbox {id}: cost"), Effect::Idempotent, message, send).await
    }

    /// What this process created and has not seen the end of, by id.
    pub(crate) fn made(&self) -> MutexGuard<'_, BTreeMap<String, Tag>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process destroyed without being able to write that on it, by id.
    pub(crate) fn unmarked(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unmarked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, which is made when it is first used.
fn channel(uri: &Uri) -> Result<Channel> {
    let endpoint = Endpoint::from(uri.clone())
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_LIMIT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOWS.0)
        .initial_connection_window_size(WINDOWS.1)
        .user_agent(concat!("sandbox-bench/", env!("CARGO_PKG_VERSION")));
    let failed = |e: tonic::transport::Error| Error::new(ErrorKind::Failed, "cannot make a gRPC client").because(e);
    let endpoint = endpoint.map_err(failed)?;
    let endpoint = match uri.scheme_str() {
        Some("https") => endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(failed)?,
        _ => endpoint,
    };
    Ok(endpoint.connect_lazy())
}

/// What every request carries, in the shape of an official client.
fn metadata(account: &Account, config: &ModalConfig, uri: &Uri) -> Result<MetadataMap> {
    let mut all = MetadataMap::new();
    let shape: &[(&'static str, &str)] = match config.client {
        ClientShape::Libmodal => &[
            ("x-modal-client-type", "8"),
            ("x-modal-client-version", "1.0.0"),
            ("x-modal-libmodal-version", concat!("sandbox-bench/", env!("CARGO_PKG_VERSION"))),
        ],
        ClientShape::Python => {
            &[("x-modal-client-type", "1"), ("x-modal-client-version", "1.6.4"), ("x-modal-python-version", "3.12.0")]
        }
    };
    for (name, value) in shape {
        insert(&mut all, name, value)?;
    }
    insert(&mut all, "x-modal-host", uri.host().unwrap_or_default())?;
    // Repetitions are calls of their own here: the layers above repeat.
    insert(&mut all, "x-retry-attempt", "0")?;
    insert(&mut all, "x-throttle-retry-attempt", "0")?;
    insert(&mut all, "x-modal-token-id", account.token_id.expose_secret())?;
    insert(&mut all, "x-modal-token-secret", account.token_secret.expose_secret())?;
    Ok(all)
}

/// Adds one header, which no debug output shows.
pub(crate) fn insert(all: &mut MetadataMap, name: &'static str, value: &str) -> Result<()> {
    let mut value = AsciiMetadataValue::try_from(value.trim())
        .map_err(|_| Error::new(ErrorKind::Credentials, format!("{name} holds characters that no header can hold")))?;
    value.set_sensitive(true);
    all.insert(AsciiMetadataKey::from_static(name), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn client(url: &str) -> Result<Client> {
        let account = Account {
            server_url: url.to_owned(),
            token_id: SecretString::from("ak-123456"),
            token_secret: SecretString::from("as-123456"),
            environment: String::new(),
            builder_version: None,
        };
        Client::new(account, ModalConfig::default())
    }

    #[tokio::test]
    async fn tokens_go_to_encrypted_routers_only_unless_all_is_on_this_machine() {
        let refused = |control: &str, router: &str| client(control).unwrap().router_channel(router).is_err();
        assert!(refused("https://api.modal.com", "http://router.example.com"));
        assert!(refused("http://example.com", "http://127.0.0.1:1"));
        assert!(refused("http://127.0.0.1:1", "ftp://127.0.0.1"));
        assert!(refused("http://127.0.0.1:1", "a b"));
        assert!(!refused("https://api.modal.com", "https://router.example.com"));
        for router in ["http://127.0.0.1:2", "https://127.0.0.1:2"] {
            assert!(!refused("http://localhost:1", router), "{router}");
        }
    }

    #[tokio::test]
    async fn no_debug_output_shows_what_requests_carry() {
        let client = client("http://127.0.0.1:1").unwrap();
        assert!(!format!("{:?}", client.metadata).contains("123456"));
        let error = client.refused("x", Effect::Once, &Status::unauthenticated("no: as-123456"));
        assert!(!error.to_string().contains("123456"), "{error}");
    }
}
