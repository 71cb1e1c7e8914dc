//! Running one command in a sandbox.
//!
//! The command runs under the wrapper of [`sandbox_bench_kit::guest`], with its output in files; so its own end is
//! known even if a background process keeps its output open, every byte arrives as it was, and a lost connection loses
//! nothing.

use std::time::Duration;

use sandbox_bench_core::{Call, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};
use sandbox_bench_kit::guest::{Manner, Streams, Usage};
use sandbox_bench_kit::wait::bounded;

use crate::command::Prepared;
use crate::find::Start;
use crate::gateway::Gateway;
use crate::handle::Handle;
use crate::kill;
use crate::output::Output;
use crate::session::Session;

/// Commands with a longer limit run in the background: proxies close a stream that is quiet for a minute.
const STREAM_LIMIT: Duration = Duration::from_secs(60);

/// Runs `spec`; returns the report and what the sandbox has used so far, if it said so.
///
/// # Errors
/// As [`sandbox_bench_core::Sandbox::exec`].
pub(crate) async fn run(
    gateway: &Gateway,
    start: &Start,
    call: &Call,
    spec: &ExecSpec,
    sink: &dyn OutputSink,
) -> Result<(ExecReport, Usage)> {
    let Prepared { mut request, frame, mark, dir } = Prepared::new(call, spec, start)?;
    gateway.ready(call).await?;
    // What may not be sent any more has no effect.
    bounded(call, &gateway.what("command"), async {}).await?;
    call.meter.sent(spec.stdin.as_ref().map_or(0, |bytes| bytes.len() as u64));
    let started = if spec.limit(call) > STREAM_LIMIT {
        request.tag = Some(frame.clone());
        Handle::background(gateway, call, &request).await
    } else {
        Handle::stream(gateway, call, &request).await
    };
    let handle = match started {
        Ok(handle) => handle,
        Err(e) if matches!(e.kind(), ErrorKind::Cancelled | ErrorKind::DeadlineExceeded) => {
            // It may have been started, and nobody would ever stop it.
            kill::tree(gateway, call, mark, Manner::Forced).await;
            return Err(e);
        }
        Err(e) => return Err(gateway.meaning(call, e).await),
    };
    let streams = Streams::new(&frame, spec.output_limit, sink);
    let output = Output::new(gateway, dir);
    Session { gateway, call, mark, handle, output, streams, pause: Duration::ZERO }.complete(spec).await
}
