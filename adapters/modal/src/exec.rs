//! Running one command in a sandbox.
//!
//! It runs under the wrapper of [`sandbox_bench_kit::guest`]; so its own end is known even if a background process keeps its
//! output open, and its whole process tree can be ended although the service has no request for that.

use std::collections::BTreeMap;
use std::time::Duration;

use sandbox_bench_core::{Call, ExecReport, ExecSpec, OutputSink, Result};
use sandbox_bench_kit::guest::{self, Streams, Usage, Wrapped};
use sandbox_bench_kit::wait::winding_up;

use crate::guest::{Launch, script};
use crate::live::Live;
use crate::output::Output;
use crate::router::Router;
use crate::session::{Command, Session};
use crate::spool::{self, Spool};

/// Prepares directory and stdin.
const ENTER: &str = include_str!("guest/enter.sh");
/// How much longer than the call output may be asked for: for winding up.
const MARGIN: Duration = Duration::from_secs(30);

/// Runs `spec`. Returns the report and what the sandbox has used so far, if it said so.
///
/// # Errors
/// As [`sandbox_bench_core::Sandbox::exec`].
pub(crate) async fn run(
    router: &Router,
    call: &Call,
    spec: &ExecSpec,
    sink: &dyn OutputSink,
) -> Result<(ExecReport, Usage)> {
    let Wrapped { argv, frame, mark } = Wrapped::new(spec)?;
    // Those of the sandbox are in the sandbox.
    let variables = guest::variables(call, &BTreeMap::new(), spec)?;
    let argv = match &spec.user {
        None => argv,
        Some(user) => guest::as_user(user, &variables, argv),
    };
    let stdin = if spec.stdin.is_some() { "1" } else { "0" };
    let mut argv: Vec<_> =
        script(ENTER, &[spec.cwd.as_deref().unwrap_or_default(), stdin]).into_iter().chain(argv).collect();
    let limit = spec.limit(call);
    let spooled = router.client().config.spools(limit).then(spool::directory);
    if let Some(dir) = &spooled {
        argv = spool::spooled(dir, argv);
    }
    let launch = Launch { argv, variables: &variables, limit, piped: spooled.is_none() };
    let exec = router.launch(call, launch).await?;
    let reading = winding_up(call, call.remaining() + MARGIN);
    let output = match &spooled {
        None => Output::Live(Live::new(router, &reading, &exec)),
        Some(dir) => Output::Spool(Box::new(Spool::new(router, &reading, &exec, dir))),
    };
    let command = Command { router, call, exec: &exec, mark };
    let done = Session::new(command, Streams::new(&frame, spec.output_limit, sink), output).complete(spec).await;
    if let Some(dir) = &spooled {
        spool::tidy(router, call, dir).await;
    }
    done
}
