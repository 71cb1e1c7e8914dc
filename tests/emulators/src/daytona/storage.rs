//! Object storage for build contexts: as much of S3 as an upload needs. Signatures must be there and name the right
//! key; they are not computed again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use uuid::Uuid;

use super::state::Daytona;

/// The bucket of build contexts.
pub(super) const BUCKET: &str = "daytona-volume-builds";
/// Largest object.
const MAX_OBJECT: usize = 1 << 30;

pub(super) struct Keys {
    pub(super) access: String,
    pub(super) secret: String,
    pub(super) session: String,
}

pub(super) struct Storage {
    url: String,
    keys: Keys,
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    /// By path below the bucket.
    whole: BTreeMap<String, Bytes>,
    /// By upload and number.
    parts: BTreeMap<(String, u32), Bytes>,
}

impl Storage {
    pub(super) fn new(base_url: &str) -> Storage {
        let key = || Uuid::new_v4().simple().to_string();
        let keys = Keys { access: key(), secret: key(), session: key() };
        Storage { url: format!("{base_url}/storage"), keys, objects: Mutex::default() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The tar file of a build context.
    pub(super) fn context(&self, organization: &str, hash: &str) -> Option<Vec<u8>> {
        self.lock().whole.get(&format!("{organization}/{hash}/context.tar")).map(|context| context.to_vec())
    }

    /// By headers, or by the query of an address that was signed beforehand.
    fn signed(&self, headers: &HeaderMap, query: &BTreeMap<String, String>) -> bool {
        let part = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        let others = ["X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature"];
        let presigned = part("X-Amz-Algorithm") == "AWS4-HMAC-SHA256"
            && part("X-Amz-Credential").starts_with(&format!("{}/", self.keys.access))
            && part("X-Amz-Security-Token") == self.keys.session
            && others.iter().all(|name| query.contains_key(*name));
        presigned || self.signed_by_headers(headers)
    }

    fn signed_by_headers(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let credential = format!("AWS4-HMAC-SHA256 Credential={}/", self.keys.access);
        let authorization = text(header::AUTHORIZATION.as_str());
        authorization.starts_with(&credential)
            && authorization.contains("Signature=")
            && text("x-amz-security-token") == self.keys.session
            && headers.contains_key("x-amz-date")
            && headers.contains_key("x-amz-content-sha256")
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn router() -> Router<Arc<Daytona>> {
    Router::new().route("/storage/{bucket}/{*key}", any(object))
}

async fn object(
    State(daytona): State<Arc<Daytona>>,
    Path((bucket, key)): Path<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    request: Request,
) -> Response {
    let (storage, method) = (&daytona.storage, request.method().clone());
    let what = format!("{method} {}", request.uri().path());
    if !storage.signed(request.headers(), &query) {
        daytona.emulation.violations.record(what, "not signed with the credentials of push-access");
        return error(StatusCode::FORBIDDEN, "SignatureDoesNotMatch");
    }
    if bucket != BUCKET || !key.starts_with(&format!("{}/", daytona.organization_id())) {
        daytona.emulation.violations.record(what, "outside of the organization's part of the bucket");
        return error(StatusCode::FORBIDDEN, "AccessDenied");
    }
    let Ok(body) = axum::body::to_bytes(request.into_body(), MAX_OBJECT).await else {
        return error(StatusCode::BAD_REQUEST, "EntityTooLarge");
    };
    let etag = |name: &str| [(header::ETAG, format!("\"{name}\""))];
    let mut objects = storage.lock();
    match (&method, query.get("uploadId"), query.get("partNumber").and_then(|number| number.parse().ok())) {
        (&Method::HEAD | &Method::GET, None, None) => match objects.whole.get(&key) {
            Some(bytes) => (etag("whole"), bytes.clone()).into_response(),
            None => error(StatusCode::NOT_FOUND, "NoSuchKey"),
        },
        (&Method::PUT, None, None) => {
            objects.whole.insert(key, body);
            etag("whole").into_response()
        }
        (&Method::POST, None, None) if query.contains_key("uploads") => {
            let id = Uuid::new_v4().simple();
            xml(format!(
                "<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>\
                 </InitiateMultipartUploadResult>"
            ))
        }
        (&Method::PUT, Some(upload), Some(number)) => {
            objects.parts.insert((upload.clone(), number), body);
            etag(&number.to_string()).into_response()
        }
        (&Method::POST, Some(upload), None) => {
            let whole: Vec<u8> = objects
                .parts
                .iter()
                .filter(|((of, _), _)| of == upload)
                .flat_map(|(_, part)| part.iter().copied())
                .collect();
            objects.parts.retain(|(of, _), _| of != upload);
            objects.whole.insert(key.clone(), whole.into());
            xml(format!(
                "<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>\"whole\"</ETag>\
                 </CompleteMultipartUploadResult>"
            ))
        }
        (&Method::DELETE, Some(upload), None) => {
            objects.parts.retain(|(of, _), _| of != upload);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => {
            daytona.emulation.violations.record(what, "not an operation of an upload");
            error(StatusCode::NOT_IMPLEMENTED, "NotImplemented")
        }
    }
}

fn xml(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/xml")], body).into_response()
}

fn error(status: StatusCode, code: &str) -> Response {
    (status, xml(format!("<Error><Code>{code}</Code></Error>"))).into_response()
}
