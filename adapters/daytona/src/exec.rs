//! Running one command in a sandbox: its script is placed, a session of its own is opened, and the session is handed the
//! script to run.
//!
//! The command runs under the wrapper of [`sandbox_bench_kit::guest`]; so its own end is known even if a background
//! process keeps its output open, and there are two witnesses of the exit code.

use reqwest::multipart::{Form, Part};
use sandbox_bench_core::{Call, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result};
use sandbox_bench_kit::guest::{self, Streams, Usage, Wrapped};
use sandbox_bench_kit::wait::winding_up;

use crate::launch::{Files, Launch, session_command, take_odd};
use crate::sandbox::Guest;
use crate::session::{Command, Session, WIND_UP_LIMIT};

/// Runs `spec`; returns the report and what the sandbox has used so far, if it said so.
///
/// # Errors
/// As [`sandbox_bench_core::Sandbox::exec`].
pub(crate) async fn run(
    guest: &Guest,
    call: &Call,
    spec: &ExecSpec,
    sink: &dyn OutputSink,
) -> Result<(ExecReport, Usage)> {
    // Watched always: a session is ended only when nothing of its command is left, because that ends all of it.
    guest::check(spec)?;
    let mut variables = guest::variables(call, &guest.variables, spec)?;
    let argv = [take_odd(&mut variables), spec.argv.clone()].concat();
    let Wrapped { argv, frame, mark } = Wrapped::watching(&ExecSpec { argv, ..spec.clone() }, true)?;
    let argv = match spec.user.as_deref().filter(|user| !user.is_empty()) {
        Some(user) => guest::as_user(user, &variables, argv),
        None => argv,
    };
    let scratch = guest.scratch(call).await?;
    let id = uuid::Uuid::now_v7().simple().to_string();
    let (script, stdin) = (format!("{scratch}/{id}.sh"), format!("{scratch}/{id}.in"));
    let files = Files { script: &script, stdin: spec.stdin.as_ref().map(|_| stdin.as_str()) };
    let directory = spec.cwd.as_deref().or(guest.workdir.as_deref());
    let text = Launch { files, variables: &variables, directory, argv: &argv }.script();

    let mut form =
        Form::new().text("files[0].path", script.clone()).part("files[0].file", Part::bytes(text.into_bytes()));
    if let Some(bytes) = &spec.stdin {
        call.meter.sent(bytes.len() as u64);
        let content = Part::stream_with_length(bytes.clone(), bytes.len() as u64);
        form = form.text("files[1].path", stdin.clone()).part("files[1].file", content.file_name("stdin"));
    }
    let command = start(guest, call, (&id, &script), form).await?;
    let command = Command { guest, call, session: &id, id: &command, mark };
    Session::new(command, Streams::new(&frame, spec.output_limit, sink)).complete(spec).await
}

/// Places the script, opens the session, and has it run the script. Returns the command's id.
async fn start(guest: &Guest, call: &Call, (session, script): (&str, &str), form: Form) -> Result<String> {
    let what = guest.what("command");
    let (opened, placed) =
        tokio::join!(guest.toolbox.open(call, &what, session), guest.toolbox.upload(call, &what, form));
    if let Err(error) = opened.and(placed) {
        guest.close_later(call, session);
        return Err(guest.explained(call, error).await);
    }
    match guest.toolbox.submit(call, &what, session, &session_command(script)).await {
        Ok(command) => Ok(command),
        Err(error) => {
            // It may have been started all the same. Without its session it does not go on.
            let closed = guest.toolbox.close(&winding_up(call, WIND_UP_LIMIT), session).await;
            let error = guest.explained(call, error).await;
            match (error.kind(), closed) {
                (ErrorKind::Cancelled | ErrorKind::DeadlineExceeded, Err(failed)) => {
                    let message = format!("{what}: it is unknown whether it was started");
                    Err(Error::new(ErrorKind::Transport, message).because(failed))
                }
                _ => Err(error),
            }
        }
    }
}
