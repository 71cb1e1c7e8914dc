//! One MicroVM, and requests to the runner in it that survive what happens on the way.
//!
//! Every request of the runner's protocol may be repeated: jobs have ids, pieces of files have offsets. So what fails on the
//! way is tried again until the MicroVM is known to be gone, or patience is at its end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_lambdamicrovms::operation::get_microvm::GetMicrovmOutput;
use bytes::Bytes;
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, Response};
use sandbox_bench_core::{Call, Error, ErrorKind, Result, Tag};
use sandbox_bench_kit::http::{Effect, Refusal, ask, body, secret_header};
use sandbox_bench_kit::wait::bounded;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cloud::{Cloud, over};
use crate::error;
use crate::image::{Image, Images};
use crate::proxy::Proxy;
use crate::suspend::Rest;

/// Every answer of the runner has this header; one without it is the proxy's.
const OURS: &str = "x-sandbox-runner";
/// Most bytes of one JSON answer: two pieces of output in base64.
const ANSWER_LIMIT: usize = 8 << 20;
/// Least time for one try, and the speed that is expected of a slow endpoint, in bytes a second.
const TRY_LIMIT: Duration = Duration::from_secs(30);
const SLOW: u64 = 500_000;
/// How long the runner may be silent while the service says that its MicroVM runs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pauses between two tries.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Pauses between two looks at a MicroVM that starts, and time for one.
const READY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
const READY_TRY: Duration = Duration::from_secs(5);
/// How often the service is asked how it is doing with a MicroVM that does not answer.
const LOOK: Duration = Duration::from_secs(3);

/// A MicroVM.
pub(crate) struct Vm {
    pub(crate) cloud: Arc<Cloud>,
    pub(crate) images: Arc<Images>,
    pub(crate) id: String,
    pub(crate) tag: Tag,
    pub(crate) image: Image,
    proxy: Mutex<Arc<Proxy>>,
    /// The runner's token.
    token: SecretString,
    ready: AtomicBool,
    /// The service was told that it may be suspended for a while.
    pub(crate) resumable: bool,
    rest: Mutex<Rest>,
    /// Why it is gone, once that is known.
    gone: Mutex<Option<String>>,
}

/// A request to the runner, which may be sent more than once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    /// How long the runner may wait before it answers.
    wait: Duration,
}

impl Request {
    pub(crate) fn new(method: Method, path: &[&str]) -> Self {
        Self { method, path: path.iter().map(|part| (*part).to_owned()).collect(), ..Self::default() }
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &serde_json::Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// What the runner says of itself to whoever asks.
#[derive(Debug, Deserialize)]
pub(crate) struct Health {
    protocol: u32,
    microvm_id: Option<String>,
    bootstrapped: bool,
    pub(crate) tag: Option<String>,
}

impl Vm {
    pub(crate) fn new(
        (cloud, images): (Arc<Cloud>, Arc<Images>),
        (id, tag, endpoint): (String, Tag, &str),
        image: Image,
        token: SecretString,
    ) -> Result<Self> {
        let proxy = Mutex::new(Arc::new(Proxy::new(&cloud, endpoint)?));
        let (ready, rest, gone) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        Ok(Self { cloud, images, id, tag, image, proxy, token, ready, resumable: false, rest, gone })
    }

    /// The same, of which the service knows that it may be suspended for a while.
    pub(crate) fn resumable(self, resumable: bool) -> Self {
        Self { resumable, ..self }
    }

    /// How long it was suspended, and whether it is.
    pub(crate) fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it is to be suspended: whoever uses it again waits for its runner anew.
    pub(crate) fn stop_using(&self) {
        self.rest().resting = true;
        self.ready.store(false, Relaxed);
    }

    /// # Errors
    /// `InvalidRequest` while it is suspended, `SandboxLost` once it is known to be gone.
    pub(crate) fn awake(&self) -> Result<()> {
        self.alive()?;
        if self.rest().resting {
            return Err(Error::invalid(format!("MicroVM {} is suspended", self.id)).hint("resume it first"));
        }
        Ok(())
    }

    fn proxy(&self) -> Arc<Proxy> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that it is gone.
    pub(crate) fn end(&self, why: &str) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_owned());
    }

    /// # Errors
    /// `SandboxLost`, once it is known to be gone.
    fn alive(&self) -> Result<()> {
        match self.gone.lock().unwrap_or_else(PoisonError::into_inner).as_deref() {
            Some(why) => Err(error::lost(&self.id, Some(why))),
            None => Ok(()),
        }
    }

    /// What the service says of it.
    ///
    /// # Errors
    /// `SandboxLost` if it runs nothing any more; those of the service.
    pub(crate) async fn look(&self, call: &Call) -> Result<GetMicrovmOutput> {
        match self.cloud.microvm(call, &self.id).await {
            Ok(seen) if over(&seen.state) => {
                self.end(seen.state_reason.as_deref().unwrap_or("the service says that it has ended"));
                Err(error::lost(&self.id, seen.state_reason.as_deref()))
            }
            Ok(seen) => Ok(seen),
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                self.end("the service does not know it any more");
                Err(error::lost(&self.id, None))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until its runner answers as this very MicroVM's.
    ///
    /// # Errors
    /// `SandboxLost` with the service's reason if it ended; `DeadlineExceeded`.
    pub(crate) async fn ready(&self, call: &Call) -> Result<()> {
        self.alive()?;
        if self.ready.load(Relaxed) {
            return Ok(());
        }
        let what = format!("MicroVM {}: start", self.id);
        let mut pause = READY_PAUSES[0];
        let mut looked = Instant::now();
        let mut last: Option<Error> = None;
        loop {
            let health = tokio::time::timeout(READY_TRY, self.health(call)).await;
            match health {
                Ok(Ok(health))
                    if health.bootstrapped && health.microvm_id.as_deref().is_none_or(|id| id == self.id) =>
                {
                    if health.protocol != 1 {
                        let message = format!("{what}: its runner speaks protocol {}, not 1", health.protocol);
                        return Err(
                            Error::new(ErrorKind::Environment, message).hint("make the image anew with prewarm")
                        );
                    }
                    self.ready.store(true, Relaxed);
                    return Ok(());
                }
                Ok(Err(error)) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded) => {
                    return Err(error);
                }
                // Tokens of a MicroVM are refused before the service knows it everywhere.
                Ok(Err(error)) => last = Some(error),
                Ok(Ok(_)) | Err(_) => {}
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                match self.look(call).await {
                    // Its address may have become known only now.
                    Ok(seen) if !seen.endpoint.is_empty() => {
                        let proxy = Arc::new(Proxy::new(&self.cloud, &seen.endpoint)?);
                        *self.proxy.lock().unwrap_or_else(PoisonError::into_inner) = proxy;
                    }
                    Err(error) if *error.kind() == ErrorKind::SandboxLost => return Err(error),
                    _ => {}
                }
            }
            if let Err(over) = bounded(call, &what, tokio::time::sleep(pause)).await {
                return Err(match last {
                    Some(last) => over.because(last),
                    None => over,
                });
            }
            pause = (pause * 3 / 2).min(READY_PAUSES[1]);
        }
    }

    /// What the runner says of itself, asked once.
    pub(crate) async fn health(&self, call: &Call) -> Result<Health> {
        let what = format!("MicroVM {}: health", self.id);
        let answer = self.once(call, &what, &Request::new(Method::GET, &["v1", "health"])).await?;
        let answer = answer.map_err(|refusal| refused(&what, &refusal))?;
        sandbox_bench_kit::http::json(call, &what, Effect::Idempotent, answer, ANSWER_LIMIT).await
    }

    /// Sends a request once: the runner's answer, or its refusal.
    ///
    /// # Errors
    /// `Unavailable` for whatever happened on the way, `RateLimited`, and those of the service.
    pub(crate) async fn once(&self, call: &Call, what: &str, request: &Request) -> Result<Result<Response, Refusal>> {
        let sent = self.send(call, what, request).await?;
        match sent {
            Err(refusal) if refusal.status == 403 && !ours(&refusal) => {
                // It may have ended in the meantime: a new one is tried once.
                self.proxy().forget().await;
                proxied(what, self.send(call, what, request).await?)
            }
            sent => proxied(what, sent),
        }
    }

    async fn send(&self, call: &Call, what: &str, request: &Request) -> Result<Result<Response, Refusal>> {
        let Request { method, path, query, headers, body, wait } = request;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let proxy = self.proxy();
        let mut sending = proxy.request(&self.cloud, call, &self.id, (method.clone(), &path)).await?.query(query);
        let (name, value) = secret_header(AUTHORIZATION, "Bearer ", &self.token)?;
        sending = sending.header(name, value);
        for (name, value) in headers {
            sending = sending.header(*name, value);
        }
        if !body.is_empty() || *method != Method::GET {
            sending = sending.body(body.clone());
        }
        let limit = TRY_LIMIT + *wait + Duration::from_secs(body.len() as u64 / SLOW);
        match tokio::time::timeout(limit, ask(call, what, Effect::Idempotent, sending)).await {
            Ok(answer) => match answer? {
                Ok(answer) if answer.headers().contains_key(OURS) => Ok(Ok(answer)),
                Ok(_) => {
                    Err(Error::new(ErrorKind::Unavailable, format!("{what}: something else than the runner answers")))
                }
                Err(refusal) => Ok(Err(refusal)),
            },
            Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("{what}: no answer within {limit:?}"))),
        }
    }

    /// Tries until it succeeds, is refused, the MicroVM is gone, or the runner was silent for too long.
    ///
    /// # Errors
    /// `SandboxLost`, those of `attempt`, and its last one when patience is at its end.
    pub(crate) async fn insist<T, F, Fut>(&self, call: &Call, what: &str, attempt: F) -> Result<T>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T>> + Send,
    {
        let begun = Instant::now();
        let mut pause = PAUSES[0];
        let mut looked: Option<Instant> = None;
        loop {
            self.alive()?;
            let error = match attempt().await {
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::RateLimited { .. }) => error,
                // A token is refused for a MicroVM that has ended.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::InvalidRequest | ErrorKind::Credentials
                    ) =>
                {
                    match self.look(call).await {
                        Err(lost) if *lost.kind() == ErrorKind::SandboxLost => return Err(lost),
                        _ => return Err(error),
                    }
                }
                done => return done,
            };
            tracing::debug!(id = self.id, %error, "the runner was not reached");
            if looked.is_none_or(|at| at.elapsed() > LOOK) {
                looked = Some(Instant::now());
                match self.look(call).await {
                    Err(lost) if *lost.kind() == ErrorKind::SandboxLost => return Err(lost),
                    _ => {}
                }
            }
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            call.meter.retried();
            bounded(call, what, tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// The runner's answer, or its refusal.
    ///
    /// # Errors
    /// As [`Vm::insist`].
    pub(crate) async fn ask(&self, call: &Call, what: &str, request: &Request) -> Result<Result<Response, Refusal>> {
        self.insist(call, what, || self.once(call, what, request)).await
    }

    /// The whole body of the runner's answer, or its refusal.
    ///
    /// # Errors
    /// As [`Vm::insist`]: an answer that is cut is asked for again.
    pub(crate) async fn answer(&self, call: &Call, what: &str, request: &Request) -> Result<Result<Bytes, Refusal>> {
        let attempt = || async {
            match self.once(call, what, request).await? {
                Ok(answer) => body(call, what, Effect::Idempotent, answer, ANSWER_LIMIT).await.map(Ok),
                Err(refusal) => Ok(Err(refusal)),
            }
        };
        self.insist(call, what, attempt).await
    }

    /// The runner's answer as JSON.
    ///
    /// # Errors
    /// As [`Vm::insist`], and what [`refused`] makes of a refusal.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: &Call, what: &str, request: &Request) -> Result<T> {
        let bytes = self.answer(call, what, request).await?.map_err(|refusal| refused(what, &refusal))?;
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::new(ErrorKind::Failed, format!("{what}: the runner's answer is odd")).because(e))
    }
}

fn ours(refusal: &Refusal) -> bool {
    refusal.headers.contains_key(OURS)
}

/// What the proxy says on its own is an error; what the runner says is an answer.
fn proxied(what: &str, sent: Result<Response, Refusal>) -> Result<Result<Response, Refusal>> {
    match sent {
        Err(refusal) if !ours(&refusal) => {
            let kind = match refusal.status {
                429 => ErrorKind::RateLimited { retry_after: refusal.retry_after },
                401 | 403 => ErrorKind::Credentials,
                _ => ErrorKind::Unavailable,
            };
            Err(refusal.error(what, kind, &format!("the MicroVM's proxy says: {}", refusal.text())))
        }
        sent => Ok(sent),
    }
}

/// The code of a refusal of the runner.
pub(crate) fn code(refusal: &Refusal) -> String {
    let json = refusal.json();
    let code = json.as_ref().and_then(|json| json.get("error")?.get("code")?.as_str());
    code.unwrap_or_default().to_owned()
}

/// What a refusal of the runner means.
pub(crate) fn refused(what: &str, refusal: &Refusal) -> Error {
    let json = refusal.json();
    let message = json.as_ref().and_then(|json| json.get("error")?.get("message")?.as_str()).map(str::to_owned);
    let message = message.unwrap_or_else(|| refusal.text());
    let kind = match (code(refusal).as_str(), refusal.status) {
        ("unknown_user" | "no_such_directory", _) => ErrorKind::NotFound,
        ("digest_mismatch" | "busy" | "not_bootstrapped", _) => ErrorKind::Unavailable,
        ("unauthorized", _) => ErrorKind::SandboxLost,
        (_, 404) => ErrorKind::NotFound,
        (_, 500..) if message.contains("os error 28") => ErrorKind::Capacity,
        (_, 500..) => ErrorKind::Failed,
        _ => ErrorKind::InvalidRequest,
    };
    Error::new(kind, format!("{what}: {message}"))
}
