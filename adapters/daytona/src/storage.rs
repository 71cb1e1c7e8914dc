//! Build contexts in the platform's object storage, which speaks S3.

use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, HeaderMap};
use reqwest::{Body, Method, Url};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::http::{Effect, Service, send};
use sandbox_bench_kit::wait::bounded;
use tokio_util::io::ReaderStream;

use crate::client::{Client, accepted, acknowledged};
use crate::wire::PushAccess;

/// How long a signature is good. The credentials themselves are good for longer.
const SIGNATURE: Duration = Duration::from_secs(3600);

/// Makes sure that the build context `context` is in the storage under `key`, as one archive whose root is that of the
/// build. What is there already under this key is taken for the same.
///
/// # Errors
/// `InvalidRequest` for a context that cannot be read; else what the requests fail with.
pub(crate) async fn place(client: &Client, call: &Call, (context, dockerfile): (&Path, &str), key: &str) -> Result<()> {
    let what = "upload of a build context";
    let access: PushAccess = client.get(call, what, &["object-storage", "push-access"]).await?;
    let object = format!("{}/{key}/context.tar", access.organization_id);
    let storage = Storage::new(&access)?;
    if storage.has(call, what, &object).await? {
        return Ok(());
    }
    let (context, dockerfile) = (context.to_owned(), dockerfile.to_owned());
    let packed = tokio::task::spawn_blocking(move || pack(&context, &dockerfile));
    let (file, size) = bounded(call, what, packed)
        .await?
        .map_err(|e| Error::new(ErrorKind::Failed, format!("{what}: packing it failed")).because(e))??;
    storage.put(call, what, &object, (file, size)).await
}

/// The context as a file that goes when it is closed, and its size: storage wants to know that beforehand.
fn pack(context: &Path, dockerfile: &str) -> Result<(std::fs::File, u64)> {
    let failed = |e: std::io::Error| Error::new(ErrorKind::Failed, "cannot write a temporary file").because(e);
    let mut builder = tar::Builder::new(tempfile::tempfile().map_err(failed)?);
    archive::write_context(&mut builder, context, dockerfile)?;
    let mut file = builder.into_inner().map_err(failed)?;
    let size = file.stream_position().map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok((file, size))
}

struct Storage {
    /// Sends none of the platform's credentials.
    service: Service,
    bucket: Bucket,
    credentials: Credentials,
}

impl Storage {
    fn new(access: &PushAccess) -> Result<Self> {
        let odd = || Error::new(ErrorKind::Failed, "the platform named no usable object storage");
        let endpoint = Url::parse(&format!("{}/", access.storage_url.trim_end_matches('/'))).map_err(|_| odd())?;
        let bucket = Bucket::new(endpoint, UrlStyle::Path, access.bucket.clone(), access.region.clone());
        Ok(Self {
            service: Service::new(&access.storage_url, HeaderMap::new())?,
            bucket: bucket.map_err(|_| odd())?,
            credentials: Credentials::new_with_token(&access.access_key, &access.secret, &access.session_token),
        })
    }

    async fn has(&self, call: &Call, what: &str, object: &str) -> Result<bool> {
        let url = self.bucket.head_object(Some(&self.credentials), object).sign(SIGNATURE);
        let request = self.service.request_at(Method::HEAD, url);
        match accepted(call, what, send(call, what, Effect::Idempotent, request).await?).await? {
            Ok(_) => Ok(true),
            Err(no) if no.status() == 404 => Ok(false),
            Err(no) => Err(no.plain(what, Effect::Idempotent)),
        }
    }

    async fn put(&self, call: &Call, what: &str, object: &str, (file, size): (std::fs::File, u64)) -> Result<()> {
        let url = self.bucket.put_object(Some(&self.credentials), object).sign(SIGNATURE);
        let body = Body::wrap_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
        let request = self.service.request_at(Method::PUT, url).header(CONTENT_LENGTH, size).body(body);
        call.meter.sent(size);
        let answer = acknowledged(call, what, Effect::Idempotent, request).await?;
        answer.map_err(|no| no.plain(what, Effect::Idempotent))
    }
}
