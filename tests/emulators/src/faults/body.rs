//! Bodies that end early.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

use crate::wire::Breakage;

/// From the last byte to the break: a reset overtakes bytes that the client has not read yet.
const ARRIVAL: Duration = Duration::from_millis(50);

/// The first `after` bytes of a body; then its end, or the break of its connection.
pub(crate) fn cut(body: Body, after: u64, broken: Option<Breakage>) -> Body {
    let kept = head(body.into_data_stream().map(|part| part.map_err(io::Error::other)), after);
    let Some(breakage) = broken else { return Body::from_stream(kept) };
    let broken = stream::once(async move {
        tokio::time::sleep(ARRIVAL).await;
        breakage.close();
        Err(io::Error::from(io::ErrorKind::ConnectionAborted))
    });
    Body::from_stream(kept.chain(broken))
}

fn head(
    body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    after: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let state = (Box::pin(body), usize::try_from(after).unwrap_or(usize::MAX));
    stream::unfold(state, |(mut body, left)| async move {
        if left == 0 {
            return None;
        }
        let mut part = match body.next().await? {
            Ok(part) => part,
            Err(error) => return Some((Err(error), (body, 0))),
        };
        part.truncate(left);
        let left = left - part.len();
        Some((Ok(part), (body, left)))
    })
}
