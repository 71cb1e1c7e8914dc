//! As much of S3 as uploads of archives need: buckets and whole objects, path style, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use super::Aws;
use super::chunked;
use super::signature::{self, CONTENT_DIGEST, Distrust, Service};

/// Largest object.
const LIMIT: usize = 256 << 20;
/// Of all objects together.
const TOTAL: usize = 4 << 30;
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-checksum-crc32");
/// How the names of what a client attaches to an object begin.
const METADATA: &str = "x-amz-meta-";
/// What a digest is when the body is not part of the signature.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// How the digest of a body in signed or unsigned chunks begins.
const STREAMING: &str = "STREAMING-";
/// The region whose buckets need no location.
const FIRST_REGION: &str = "us-east-1";

/// Buckets and what is in them, by key.
pub(super) struct Storage(Mutex<BTreeMap<String, BTreeMap<String, Arc<Object>>>>);

struct Object {
    bytes: Bytes,
    modified: Timestamp,
    /// Content type, metadata, checksum: as they were sent.
    headers: HeaderMap,
}

/// A refusal: status, code, and whether no client sends such a request.
struct Refusal(StatusCode, &'static str, Option<String>);

impl Refusal {
    fn new(status: StatusCode, code: &'static str) -> Refusal {
        Refusal(status, code, None)
    }

    fn violation(status: StatusCode, code: &'static str, what: impl Into<String>) -> Refusal {
        Refusal(status, code, Some(what.into()))
    }
}

impl Storage {
    /// Empty buckets.
    pub(super) fn with(buckets: &[String]) -> Storage {
        Storage(Mutex::new(buckets.iter().map(|bucket| (bucket.clone(), BTreeMap::new())).collect()))
    }

    /// The bytes of an object, for a build.
    ///
    /// # Errors
    /// The reason of a build that failed.
    pub(super) fn read(&self, bucket: &str, key: &str) -> Result<Bytes, &'static str> {
        let buckets = self.lock();
        let objects = buckets.get(bucket).ok_or("S3_NO_SUCH_BUCKET")?;
        objects.get(key).map(|object| object.bytes.clone()).ok_or("S3_NO_SUCH_KEY")
    }

    /// All objects, as `bucket/key`.
    pub(super) fn names(&self) -> Vec<String> {
        let buckets = self.lock();
        buckets.iter().flat_map(|(bucket, objects)| objects.keys().map(move |key| format!("{bucket}/{key}"))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, Arc<Object>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn perform(
        &self,
        method: &Method,
        bucket: &str,
        key: &str,
        headers: &HeaderMap,
        body: Bytes,
        region: &str,
    ) -> Result<Response, Refusal> {
        let mut buckets = self.lock();
        if key.is_empty() {
            return match *method {
                Method::PUT => {
                    check_bucket(bucket, &body, region)?;
                    buckets.entry(bucket.to_owned()).or_default();
                    Ok([(header::LOCATION, format!("/{bucket}"))].into_response())
                }
                Method::HEAD if buckets.contains_key(bucket) => {
                    Ok([("x-amz-bucket-region", region.to_owned())].into_response())
                }
                Method::HEAD => Err(Refusal::new(StatusCode::NOT_FOUND, "NoSuchBucket")),
                _ => Err(not_emulated(method)),
            };
        }
        let held: usize = buckets.values().flat_map(BTreeMap::values).map(|object| object.bytes.len()).sum();
        if held + body.len() > TOTAL {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"));
        }
        let no_bucket = || Refusal::new(StatusCode::NOT_FOUND, "NoSuchBucket");
        let objects = buckets.get_mut(bucket).ok_or_else(no_bucket)?;
        match *method {
            Method::PUT => {
                if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == "*") && objects.contains_key(key) {
                    return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed"));
                }
                let object = Object::new(body, headers)?;
                let answer = object.facts();
                objects.insert(key.to_owned(), Arc::new(object));
                Ok(answer.into_response())
            }
            Method::GET | Method::HEAD => {
                if headers.contains_key(header::RANGE) {
                    return Err(not_emulated("a range"));
                }
                let object = objects.get(key).ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "NoSuchKey"))?;
                let mut facts = object.facts();
                facts.extend(object.headers.clone());
                Ok((facts, object.bytes.clone()).into_response())
            }
            Method::DELETE => {
                objects.remove(key);
                Ok(StatusCode::NO_CONTENT.into_response())
            }
            _ => Err(not_emulated(method)),
        }
    }
}

impl Object {
    /// # Errors
    /// The checksum is another than the bytes have.
    fn new(bytes: Bytes, headers: &HeaderMap) -> Result<Object, Refusal> {
        if let Some(claimed) = headers.get(CHECKSUM) {
            let mut crc = flate2::Crc::new();
            crc.update(&bytes);
            if claimed.as_bytes() != STANDARD.encode(crc.sum().to_be_bytes()).as_bytes() {
                return Err(Refusal::violation(StatusCode::BAD_REQUEST, "BadDigest", "the checksum is not the body's"));
            }
        }
        let kept = headers.iter().filter(|(name, _)| {
            **name == header::CONTENT_TYPE || **name == CHECKSUM || name.as_str().starts_with(METADATA)
        });
        let headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(Object { bytes, modified: Timestamp::now(), headers })
    }

    fn facts(&self) -> HeaderMap {
        let digest = signature::digest(&self.bytes);
        let etag = format!("\"{}\"", digest.get(..32).unwrap_or_default());
        let modified = self.modified.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let facts = [(header::ETAG, etag), (header::LAST_MODIFIED, modified)];
        facts.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::try_from(value).ok()?))).collect()
    }
}

fn check_bucket(name: &str, body: &[u8], region: &str) -> Result<(), Refusal> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    if !(3..=63).contains(&name.len()) || !name.bytes().all(fine) {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "InvalidBucketName"));
    }
    let body = String::from_utf8_lossy(body);
    let location = body.split_once("<LocationConstraint>").and_then(|(_, rest)| rest.split_once('<'));
    match location.map(|(location, _)| location) {
        None if region == FIRST_REGION => Ok(()),
        Some(location) if location == region && region != FIRST_REGION => Ok(()),
        _ => Err(Refusal::new(StatusCode::BAD_REQUEST, "IllegalLocationConstraintException")),
    }
}

fn not_emulated(what: impl std::fmt::Display) -> Refusal {
    Refusal::violation(StatusCode::NOT_IMPLEMENTED, "NotImplemented", format!("{what} is not emulated here"))
}

impl Aws {
    /// A request that is signed for S3.
    pub(super) async fn object(&self, request: Request<Body>) -> Response {
        let label = format!("{} {}", request.method(), request.uri().path());
        let bodiless = request.method() == Method::HEAD;
        let id = Uuid::new_v4().simple().to_string();
        let mut response = self.try_object(request).await.unwrap_or_else(|Refusal(status, code, what)| {
            if let Some(what) = what {
                self.emulation.violations.record(label, what);
            }
            if bodiless {
                return status.into_response();
            }
            let body =
                format!("<Error><Code>{code}</Code><Message>{code}</Message><RequestId>{id}</RequestId></Error>");
            (status, [(header::CONTENT_TYPE, "application/xml")], body).into_response()
        });
        if let Ok(id) = HeaderValue::try_from(id) {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        response
    }

    async fn try_object(&self, request: Request<Body>) -> Result<Response, Refusal> {
        let (head, body) = request.into_parts();
        let claimed = head.headers.get(CONTENT_DIGEST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        signature::verify(&self.options, Service::S3, &head.method, &head.uri, &head.headers, claimed).map_err(
            |distrust| match distrust {
                Distrust::Missing => Refusal::new(StatusCode::FORBIDDEN, "AccessDenied"),
                Distrust::Unrecognized => Refusal::new(StatusCode::FORBIDDEN, "InvalidAccessKeyId"),
                Distrust::Invalid(why) => Refusal::violation(StatusCode::FORBIDDEN, "SignatureDoesNotMatch", why),
            },
        )?;
        // Which operation it is, is said by the method; clients say it once more.
        if head.uri.query().is_some_and(|query| !query.is_empty() && !query.starts_with("x-id=")) {
            return Err(not_emulated(format!("?{}", head.uri.query().unwrap_or_default())));
        }
        let body = axum::body::to_bytes(body, LIMIT).await;
        let body = body.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, "EntityTooLarge"))?;
        let body = if claimed.starts_with(STREAMING) {
            chunked::decode(&body).ok_or_else(|| {
                Refusal::violation(StatusCode::BAD_REQUEST, "IncompleteBody", "a body that is not in chunks")
            })?
        } else if claimed == UNSIGNED || claimed == signature::digest(&body) {
            body
        } else {
            let what = "the digest in the headers is not the body's";
            return Err(Refusal::violation(StatusCode::BAD_REQUEST, "XAmzContentSHA256Mismatch", what));
        };
        let path = percent_decode_str(head.uri.path().trim_start_matches('/')).decode_utf8_lossy();
        let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
        self.storage.perform(&head.method, bucket, key, &head.headers, body, &self.options.region)
    }
}
