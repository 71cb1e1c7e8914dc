//! Ending the whole process tree of one command, by a second command beside it.

use std::time::Duration;

use sandbox_bench_core::{Call, TreeKill};
use sandbox_bench_kit::guest::{Manner, Mark, kill_argv, kill_verdict};
use sandbox_bench_kit::wait::winding_up;

use crate::command::millis;
use crate::gateway::Gateway;
use crate::wire::ExecRequest;

/// Limit for the whole kill, seen from the host. It may end after the call's deadline: the contract grants a command
/// ten seconds for winding up.
const LIMIT: Duration = Duration::from_secs(9);

/// Ends every process that carries `mark`. Bounded, and not ended by the caller's cancellation.
pub(crate) async fn tree(gateway: &Gateway, call: &Call, mark: Mark, manner: Manner) -> TreeKill {
    let what = gateway.what("end of a command's processes");
    let workdir = Some("/".to_owned());
    let request =
        ExecRequest { command: kill_argv(mark, manner), workdir, timeout_ms: millis(LIMIT), ..ExecRequest::default() };
    match gateway.exec(&winding_up(call, LIMIT), &what, &request).await {
        Ok(result) => kill_verdict(&result.stdout.unwrap_or_default(), mark),
        Err(error) => {
            tracing::warn!(%error, "a command's processes could not be ended");
            TreeKill::Unknown
        }
    }
}
