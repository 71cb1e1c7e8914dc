//! What the vendor calls around a MicroVM's life: `POST /aws/lambda-microvms/runtime/v1/<hook>`, on a port of its own that no
//! token of the proxy covers. <https://docs.aws.amazon.com/lambda/latest/dg/lambda-microvms.html> describes the hooks.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;

use crate::api;
use crate::boot::Boot;
use crate::receive;
use crate::refusal::{Answer, Refusal};

/// Most bytes of a hook's body: the payload has at most 16 KiB.
const BODY_LIMIT: u64 = 64 << 10;
const HOOKS: [&str; 6] = ["ready", "validate", "run", "suspend", "resume", "terminate"];

/// The body of the hook `run`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Run {
    microvm_id: Option<String>,
    run_hook_payload: Option<String>,
}

pub(crate) fn router(boot: Arc<Boot>) -> Router {
    let router = Router::new().route("/aws/lambda-microvms/runtime/v1/{hook}", post(hook)).with_state(boot);
    api::common(router)
}

async fn hook(State(boot): State<Arc<Boot>>, Path(name): Path<String>, body: Body) -> Answer {
    let Some(hook) = HOOKS.into_iter().find(|hook| *hook == name) else {
        return Err(Refusal::not_found(format!("no hook {name:?}")));
    };
    boot.called(hook);
    match hook {
        "run" => {
            let body = receive::small(body, BODY_LIMIT).await?;
            let run: Run = match body.as_ref() {
                b"" => Run::default(),
                body => serde_json::from_slice(body).map_err(|e| Refusal::bad(e.to_string()))?,
            };
            boot.run(run.microvm_id, run.run_hook_payload)?;
        }
        "validate" => {
            let exercised = tokio::task::spawn_blocking(exercise).await;
            if !matches!(exercised, Ok(Ok(()))) {
                return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response());
            }
        }
        // Both listeners are there before either serves: whoever is answered may take the snapshot. The rest need nothing.
        _ => {}
    }
    Ok(Response::default())
}

/// What commands will need is touched once on a MicroVM of the new snapshot, so that the vendor fetches it ahead later.
fn exercise() -> std::io::Result<()> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), b"sandbox-runner")?;
    fs::read(file.path()).map(drop)
}
