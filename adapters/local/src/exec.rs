//! Commands: from the contract's words to the engine's and back.

use std::convert::Infallible;
use std::time::Duration;

use sandbox_bench_core::{
    Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, OutputSink, Result, Stream, StreamReport, TreeKill,
};

use crate::engine::{self, Command, End, EngineError, EngineSandbox, Event, NotStarted, Outcome, Running, Stop, User};
use crate::sandbox::Notes;

/// After the command's limit, the sandbox may take this long to kill the tree and to report.
const WIND_UP: Duration = Duration::from_secs(9);
/// The step of the sandbox's monotonic clock; the end of a process is an event, not a poll.
const RESOLUTION: Duration = Duration::from_nanos(1);

/// Runs one command, streams its output and says how it ended.
pub(crate) async fn run(
    sandbox: &EngineSandbox,
    notes: &Notes,
    call: &Call,
    spec: &ExecSpec,
    sink: &dyn OutputSink,
) -> Result<ExecReport> {
    let limit = spec.limit(call);
    let mut running = sandbox.exec(command(notes, call, spec, limit)?)?;
    let input = running.input();
    let feed = async {
        if let Some(bytes) = &spec.stdin {
            call.meter.sent(bytes.len() as u64);
            input.send(bytes).await;
            input.end();
        }
        std::future::pending::<Infallible>().await
    };
    let mut reports = [StreamReport::default(), StreamReport::default()];
    let pump = tokio::time::timeout(limit + WIND_UP, pump(&mut running, call, sink, &mut reports));
    let pumped = tokio::select! {
        pumped = pump => pumped,
        never = feed => match never {},
    };
    let end = match pumped {
        Ok(Ok(())) => running.outcome().await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(EngineError::Timeout { what: "the command's end".into(), limit: limit + WIND_UP }),
    };
    report(end, reports, sink)
}

fn command(notes: &Notes, call: &Call, spec: &ExecSpec, limit: Duration) -> Result<Command> {
    let env = spec.resolved_env(call)?;
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Err(Error::invalid(format!("local: {name:?} cannot be the name of an environment variable")));
    }
    let user = spec.user.clone().or_else(|| notes.image.user.clone());
    let workdir = Some(notes.workdir.clone()).filter(|workdir| !workdir.is_empty());
    Ok(Command {
        argv: spec.argv.clone(),
        env,
        cwd: spec.cwd.clone().or(workdir),
        user: user.map_or(User::Root, User::Name),
        stdin: spec.stdin.is_some(),
        timeout: Some(limit),
        output_cap: usize::try_from(spec.output_limit).unwrap_or(usize::MAX),
        keep_background: spec.keep_background,
    })
}

/// Delivers output until the last; kills the command when the call is cancelled.
async fn pump(
    running: &mut Running,
    call: &Call,
    sink: &dyn OutputSink,
    reports: &mut [StreamReport; 2],
) -> Result<(), EngineError> {
    let mut killed = false;
    loop {
        let event = tokio::select! {
            event = running.next() => event?,
            () = call.cancel.cancelled(), if !killed => {
                killed = true;
                running.kill();
                continue;
            }
        };
        let [stdout, stderr] = reports;
        match event {
            Some(Event::Output(stream, bytes)) => {
                let (stream, report) = match stream {
                    engine::Stream::Stdout => (Stream::Stdout, stdout),
                    engine::Stream::Stderr => (Stream::Stderr, stderr),
                };
                report.delivered_bytes += bytes.len() as u64;
                call.meter.received(bytes.len() as u64);
                sink.write(stream, &bytes);
            }
            Some(Event::Omitted(stream, _)) => {
                let report = if stream == engine::Stream::Stdout { stdout } else { stderr };
                report.gap_at = Some(report.delivered_bytes);
            }
            None => return Ok(()),
        }
    }
}

fn report(
    end: Result<Outcome, EngineError>,
    [mut stdout, mut stderr]: [StreamReport; 2],
    sink: &dyn OutputSink,
) -> Result<ExecReport> {
    let outcome = match end {
        Ok(outcome) => outcome,
        // It was started, so this is an end that it came to.
        Err(EngineError::Lost { .. }) => {
            return Ok(ExecReport { stdout, stderr, ..ExecReport::bare(Completion::SandboxLost) });
        }
        Err(EngineError::Timeout { .. }) => {
            return Ok(ExecReport { stdout, stderr, ..ExecReport::bare(Completion::TransportLost) });
        }
        Err(error) => return Err(error.into()),
    };
    stdout.total_bytes = Some(outcome.stdout.total);
    stderr.total_bytes = Some(outcome.stderr.total);
    let tree_killed = match outcome.tree_killed {
        Some(true) => TreeKill::Yes,
        Some(false) => TreeKill::No,
        None => TreeKill::Unknown,
    };
    let completion = match (outcome.stopped, outcome.end) {
        (Some(Stop::Deadline), _) => Completion::DeadlineExceeded { tree_killed },
        (Some(Stop::Cancelled), _) => Completion::Cancelled { tree_killed },
        (None, _) if outcome.out_of_memory => Completion::OutOfMemory,
        (None, End::Exited(code)) => Completion::Exited { code },
        (None, End::Signalled(signal)) => Completion::Signalled { signal },
        (None, End::NotStarted(why)) => {
            let code = shell_code(&why).ok_or(why.clone())?;
            let message = format!("{why}\n");
            sink.write(Stream::Stderr, message.as_bytes());
            stderr.delivered_bytes += message.len() as u64;
            stderr.total_bytes = Some(stderr.delivered_bytes);
            Completion::Exited { code }
        }
        (None, End::TransferFailed(fault)) => {
            return Err(Error::new(ErrorKind::Failed, format!("local: {fault}")));
        }
    };
    Ok(ExecReport { completion, stdout, stderr, guest_time: Some(outcome.wall), resolution: Some(RESOLUTION) })
}

/// What a shell would exit with.
fn shell_code(why: &NotStarted) -> Option<i32> {
    match why {
        NotStarted::NoProgram { .. } => Some(127),
        NotStarted::NotExecutable { .. } => Some(126),
        NotStarted::NoDirectory { .. } | NotStarted::NoUser { .. } | NotStarted::Other { .. } => None,
    }
}
