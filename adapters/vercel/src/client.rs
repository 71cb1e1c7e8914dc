//! Requests to the service: addressed, bounded, counted, and with errors that say what to do.

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder};
use sandbox_bench_core::{Call, ErrorKind, Result};
use sandbox_bench_kit::http::{Effect, Refusal, Service, ask, json, secret_header};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::config::VercelConfig;
use crate::credentials::Credentials;
use crate::error;
use crate::labels::Labels;
use crate::wire::{OfSandbox, OfSession, Opened, Page, Sandbox, Session};

/// Most bytes of one JSON answer.
const ANSWER_LIMIT: usize = 16 << 20;
/// Entries of a list that are asked for at one time.
const PAGE: &str = "50";
/// Most parts of one list that are read.
const PAGES: usize = 2000;

/// The service, as one project of one team sees it.
#[derive(Debug)]
pub(crate) struct Api {
    service: Service,
    /// Who we are.
    pub(crate) credentials: Credentials,
    /// Settings, resolved.
    pub(crate) config: VercelConfig,
}

impl Api {
    /// A client with these settings.
    ///
    /// # Errors
    /// `InvalidRequest` for an address that is none, `Credentials` for a token that cannot be sent.
    pub(crate) fn new(config: VercelConfig, credentials: Credentials) -> Result<Self> {
        let mut headers = HeaderMap::from_iter([secret_header(AUTHORIZATION, "Bearer ", &credentials.token)?]);
        // Compressed streams arrive in lumps.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let service = Service::new(config.api_url.as_deref().unwrap_or_default(), headers)?;
        Ok(Self { service, credentials, config })
    }

    /// Where requests go.
    pub(crate) fn endpoint(&self) -> &str {
        self.service.base()
    }

    /// A request for this path, on behalf of the team.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.service.request(method, path).query(&[("teamId", &self.credentials.team)])
    }

    /// A request about a sandbox, by name.
    fn named(&self, method: Method, name: &str) -> RequestBuilder {
        self.request(method, &["v2", "sandboxes", name]).query(&[("projectId", &self.credentials.project)])
    }

    /// A request about a session.
    pub(crate) fn of_session(&self, method: Method, session: &str, path: &[&str]) -> RequestBuilder {
        let path = [&["v2", "sandboxes", "sessions", session], path].concat();
        self.request(method, &path)
    }

    /// The sandbox of this name and its session, never resumed; none if there is none.
    pub(crate) async fn find(&self, call: &Call, name: &str) -> Result<Option<Opened>> {
        let what = format!("sandbox {name}");
        match ask(call, &what, Effect::Idempotent, self.named(Method::GET, name)).await? {
            Ok(answer) => json(call, &what, Effect::Idempotent, answer, ANSWER_LIMIT).await.map(Some),
            Err(refusal) if matches!(refusal.status, 404 | 410) => Ok(None),
            Err(refusal) => Err(error::refused(&what, Effect::Idempotent, &refusal)),
        }
    }

    /// The session, in whatever state.
    ///
    /// # Errors
    /// `SandboxLost` if it is not there.
    pub(crate) async fn session(&self, call: &Call, session: &str) -> Result<Session> {
        let what = format!("session {session}");
        match ask(call, &what, Effect::Idempotent, self.of_session(Method::GET, session, &[])).await? {
            Ok(answer) => {
                json::<OfSession>(call, &what, Effect::Idempotent, answer, ANSWER_LIMIT).await.map(|of| of.session)
            }
            Err(refusal) => Err(gone(&what, Effect::Idempotent, &refusal)),
        }
    }

    /// Writes the labels of a sandbox; they replace those that it has.
    pub(crate) async fn label(&self, call: &Call, name: &str, labels: &Labels) -> Result<Sandbox> {
        let request = self.named(Method::PATCH, name).json(&json!({ "tags": labels.write() }));
        let what = format!("sandbox {name}: labels");
        answer::<OfSandbox>(call, &what, Effect::Idempotent, request).await.map(|of| of.sandbox)
    }

    /// Asks for the end of a sandbox; its snapshots stay. Gone already is as good.
    pub(crate) async fn delete(&self, call: &Call, name: &str) -> Result<()> {
        let what = format!("sandbox {name}: delete");
        match ask(call, &what, Effect::Idempotent, self.named(Method::DELETE, name)).await? {
            Ok(_) => Ok(()),
            Err(refusal) if matches!(refusal.status, 404 | 410) => Ok(()),
            Err(refusal) => Err(error::refused(&what, Effect::Idempotent, &refusal)),
        }
    }

    /// All entries of a list: `kind` is the last part of its path, `filter` what is asked for beside the project.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        call: &Call,
        kind: &[&str],
        filter: &[(&str, &str)],
    ) -> Result<Vec<T>> {
        let path = [&["v2", "sandboxes"], kind].concat();
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES {
            let request = self.request(Method::GET, &path).query(&[("project", self.credentials.project.as_str())]);
            let request = request.query(&[("limit", PAGE)]).query(filter);
            let request = request.query(&cursor.iter().map(|cursor| ("cursor", cursor)).collect::<Vec<_>>());
            let page: Page<T> = answer(call, "list", Effect::Idempotent, request).await?;
            all.extend(page.items);
            match page.pagination.next {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => break,
            }
        }
        Ok(all)
    }

    /// All sandboxes whose names begin with `prefix`.
    pub(crate) async fn sandboxes(&self, call: &Call, prefix: &str) -> Result<Vec<Sandbox>> {
        self.list(call, &[], &[("sortBy", "name"), ("sortOrder", "asc"), ("namePrefix", prefix)]).await
    }

    /// All sandboxes with this tag.
    pub(crate) async fn labelled(&self, call: &Call, key: &str, value: &str) -> Result<Vec<Sandbox>> {
        self.list(call, &[], &[("tags", &format!("{key}:{value}"))]).await
    }
}

/// The answer as JSON.
///
/// # Errors
/// Those of the connection, and what the service refused with.
pub(crate) async fn answer<T: DeserializeOwned>(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<T> {
    match ask(call, what, effect, request).await? {
        Ok(answer) => json(call, what, effect, answer, ANSWER_LIMIT).await,
        Err(refusal) => Err(error::refused(what, effect, &refusal)),
    }
}

/// The answer to a request about a session as JSON.
///
/// # Errors
/// As [`answer`]; `SandboxLost` if the session is not there.
pub(crate) async fn session_answer<T: DeserializeOwned>(
    call: &Call,
    what: &str,
    effect: Effect,
    request: RequestBuilder,
) -> Result<T> {
    match ask(call, what, effect, request).await? {
        Ok(answer) => json(call, what, effect, answer, ANSWER_LIMIT).await,
        Err(refusal) => Err(gone(what, effect, &refusal)),
    }
}

/// What a refusal means where only a session was named.
pub(crate) fn gone(what: &str, effect: Effect, refusal: &Refusal) -> sandbox_bench_core::Error {
    let error = error::refused(what, effect, refusal);
    match error.kind() {
        ErrorKind::NotFound => {
            sandbox_bench_core::Error::new(ErrorKind::SandboxLost, format!("{what}: its sandbox is gone"))
                .because(error)
        }
        _ => error,
    }
}

/// An empty body: the service wants one with its content type.
pub(crate) fn nothing() -> Value {
    json!({})
}
