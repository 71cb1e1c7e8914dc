//! An answer that comes line by line.

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, stream};
use reqwest::Response;
use sandbox_bench_core::{Error, ErrorKind, Result};

use super::service::{Effect, failed};

/// The lines of an answer as they arrive, without their ends; the last one may have none. A line longer than `limit`
/// bytes is an error, as is a connection that breaks. The caller bounds the wait.
pub fn lines(answer: Response, what: String, limit: usize) -> impl Stream<Item = Result<Bytes>> + Send {
    let state = (answer, BytesMut::new(), false, what);
    stream::try_unfold(state, move |(mut answer, mut held, mut over, what)| async move {
        let mut searched = 0;
        loop {
            let end = held.iter().skip(searched).position(|b| *b == b'\n').map(|n| n + searched);
            if end.unwrap_or(held.len()) > limit {
                return Err(Error::new(ErrorKind::Failed, format!("{what}: a line is longer than {limit} bytes")));
            }
            if let Some(at) = end {
                let mut line = held.split_to(at);
                held.advance(1);
                if line.last() == Some(&b'\r') {
                    line.truncate(at - 1);
                }
                return Ok(Some((line.freeze(), (answer, held, over, what))));
            }
            searched = held.len();
            if over {
                let rest = held.split().freeze();
                return Ok((!rest.is_empty()).then_some((rest, (answer, held, over, what))));
            }
            match answer.chunk().await.map_err(|e| failed(&what, Effect::Once, e))? {
                Some(chunk) => held.extend_from_slice(&chunk),
                None => over = true,
            }
        }
    })
}
