//! A model at work in the sandbox: its tools as commands of the task's user.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::time::{Duration, Instant};

use sandbox_bench_core::evidence::Failure;
use sandbox_bench_core::{AgentEnd, Completion, ExecSpec, FailureClass, Phase, TreeKill};

use super::bench::Bench;
use super::recorder::Ran;
use super::steps::Steps;
use super::stop::Stop;
use super::work::Findings;
use crate::agent::tools::Tool;
use crate::agent::turns::{Conversation, Ended, Stopped, Used, Workbench};
use crate::agent::{Agent, GatewayError};
use crate::outputs::CapturedStream;
use crate::recording::Run;

/// Name of the output that holds an attempt's transcript.
pub const TRAJECTORY: &str = "solver.trajectory";
/// Media type of it.
const JSON: &str = "application/json";
/// Time limit of reading or writing a file.
const FILE_LIMIT: Duration = Duration::from_secs(60);
/// Most bytes of a stream that the model is shown: half from its beginning, half from its end.
const SHOWN: u64 = 16 << 10;
/// Largest file that can be patched, in bytes.
const MAX_PATCHED: u64 = 1 << 20;

/// `$0` from line `$1` to line `$2`.
const READ: &str = r#"exec sed -n "$1,$2p" <"$0""#;
/// All of `$0`, if it is not too large.
const SLURP: &str = r#"exec head -c "$1" <"$0""#;
/// stdin to `$0`, with its directories.
const WRITE: &str = r#"case $0 in */*) mkdir -p -- "${0%/*}/" ;; esac && exec cat >"$0""#;

/// Lets the model work on the bench's task.
pub async fn agent(
    bench: &Bench<'_>,
    agent: &Agent,
    more: &ExecSpec,
    found: &mut Findings,
) -> Result<Option<Completion>, Stop> {
    let deadline = Instant::now() + bench.context.solve_limit(bench.task);
    let mut steps = Steps::new(bench);
    let workdir = workdir(&mut steps, more).await?;
    let (model, tag) = (bench.model.unwrap_or_default(), bench.rec.tag());
    let task = (bench.task.instruction.as_str(), workdir.as_str());
    let until = (deadline, bench.context.interrupt.clone());
    let talk = Conversation::new(agent, model, task, until, (&bench.context.run, &tag));
    let mut hands = Hands { steps, more };
    let Ended { record, trajectory, stopped } = talk.run(&mut hands).await;
    let end = record.end;
    found.agent = Some(record);
    hands.steps.keep()?;
    let outputs = &bench.context.outputs;
    let json = serde_json::to_string(&trajectory).map_err(|error| Stop::evidence(error.into()))?;
    let json = outputs.secrets().hidden(&json);
    bench.rec.keep(outputs.bytes(TRAJECTORY, None, json.as_bytes(), JSON).map_err(Stop::evidence)?);
    match stopped {
        None => Ok((end == AgentEnd::TimeLimit).then_some(Completion::DeadlineExceeded { tree_killed: TreeKill::Yes })),
        Some(Stopped::Bench(stop)) => Err(stop),
        Some(Stopped::Gateway(GatewayError::Cancelled)) => Err(Stop::interrupted(Phase::Solve)),
        Some(Stopped::Gateway(error)) => Err(Stop::Failed(Failure {
            class: FailureClass::Solver,
            phase: Phase::Solve,
            message: format!("gateway {}: {error}{}", agent.gateway.shown(), hint(&error)),
            error_kind: Some(error.name().to_owned()),
            retryable: error.passes(),
        })),
        Some(Stopped::Unpriced(why)) => Err(Stop::new(
            FailureClass::Solver,
            Phase::Solve,
            format!("the limit of money cannot be kept: {why} (give --model-prices FILE, or leave the limit out)"),
        )),
    }
}

fn hint(error: &GatewayError) -> &'static str {
    match error {
        GatewayError::Credentials { .. } => " (renew the key, or name its variable with --model-key-env)",
        GatewayError::Refused { status: 404, .. } => " (is the model's name right, and the base URL?)",
        GatewayError::Refused { .. } => " (the model must support tools and streaming)",
        GatewayError::RateLimited { .. } => " (lower -j, or ask for a higher limit)",
        _ => "",
    }
}

/// The working directory, which only the image may know.
async fn workdir(steps: &mut Steps<'_, '_>, more: &ExecSpec) -> Result<String, Stop> {
    if let Some(workdir) = &steps.bench.setup.workdir {
        return Ok(workdir.clone());
    }
    let ran = steps.run("working directory", &Run::argv(["pwd"]), FILE_LIMIT, more).await?;
    Ok(ran.stdout.tail.trim().to_owned())
}

struct Hands<'a, 'b> {
    steps: Steps<'a, 'b>,
    more: &'b ExecSpec,
}

impl Workbench for Hands<'_, '_> {
    type Stop = Stop;

    async fn use_tool(&mut self, tool: &Tool, deadline: Instant) -> Result<Used, Stop> {
        match tool {
            Tool::Run { command, timeout } => {
                let run = Run { timeout_seconds: Some(timeout.as_secs()), ..Run::script(command) };
                let ran = self.run("run_command", &run, deadline).await?;
                let text = format!("{}\n{}", ran.report.completion, self.shown(&ran)?);
                Ok(Used { text, receipts: vec![ran.step] })
            }
            Tool::Read { path, first, last } => {
                let run = Run::argv(["sh", "-c", READ, path, &first.to_string(), &last.to_string()]);
                let ran = self.run("read_file", &run, deadline).await?;
                Ok(Used { text: self.content(&ran)?, receipts: vec![ran.step] })
            }
            Tool::Write { path, content } => {
                let ran = self.write("write_file", path, content, deadline).await?;
                Ok(Used { text: self.written(&ran, path)?, receipts: vec![ran.step] })
            }
            Tool::Patch { path, old, new } => self.patch(path, old, new, deadline).await,
            Tool::Finish => Ok(Used::default()),
        }
    }
}

impl Hands<'_, '_> {
    async fn run(&mut self, label: &str, run: &Run, deadline: Instant) -> Result<Ran, Stop> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        self.steps.run(label, run, left, self.more).await
    }

    async fn write(&mut self, label: &str, path: &str, content: &str, deadline: Instant) -> Result<Ran, Stop> {
        let run = Run { stdin: Some(content.to_owned()), ..Run::argv(["sh", "-c", WRITE, path]) };
        self.run(label, &Run { timeout_seconds: Some(FILE_LIMIT.as_secs()), ..run }, deadline).await
    }

    async fn patch(&mut self, path: &str, old: &str, new: &str, deadline: Instant) -> Result<Used, Stop> {
        let limit = (MAX_PATCHED + 1).to_string();
        let read = self.run("patch_file", &Run::argv(["sh", "-c", SLURP, path, &limit]), deadline).await?;
        let mut receipts = vec![read.step];
        let failed = |text: String, receipts| Ok(Used { text, receipts });
        if !read.success() {
            return failed(self.content(&read)?, receipts);
        }
        let bytes = self.all(&read.stdout)?;
        if bytes.len() as u64 > MAX_PATCHED {
            return failed(format!("{path} has more than {MAX_PATCHED} bytes: use run_command"), receipts);
        }
        let Ok(text) = String::from_utf8(bytes) else {
            return failed(format!("{path} is not UTF-8 text: use run_command"), receipts);
        };
        let text = match text.matches(old).count() {
            1 => text.replacen(old, new, 1),
            0 => return failed(format!("`old` does not occur in {path}; nothing was changed"), receipts),
            n => return failed(format!("`old` occurs {n} times in {path}; nothing was changed"), receipts),
        };
        let ran = self.write("patch_file", path, &text, deadline).await?;
        receipts.push(ran.step);
        Ok(Used { text: self.written(&ran, path)?, receipts })
    }

    fn written(&self, ran: &Ran, path: &str) -> Result<String, Stop> {
        if ran.success() { Ok(format!("wrote {path}")) } else { self.content(ran) }
    }

    /// A file's content, or why it is not to be had.
    fn content(&self, ran: &Ran) -> Result<String, Stop> {
        if ran.success() {
            return self.text(&ran.stdout);
        }
        Ok(format!("failed with {}\n{}", ran.report.completion, self.text(&ran.stderr)?))
    }

    fn shown(&self, ran: &Ran) -> Result<String, Stop> {
        let (stdout, stderr) = (self.text(&ran.stdout)?, self.text(&ran.stderr)?);
        Ok(match (stdout.is_empty(), stderr.is_empty()) {
            (true, true) => "(no output)".to_owned(),
            (false, true) => stdout,
            (true, false) => format!("stderr:\n{stderr}"),
            (false, false) => format!("{stdout}\nstderr:\n{stderr}"),
        })
    }

    /// What the model is shown of a stream.
    fn text(&self, stream: &CapturedStream) -> Result<String, Stop> {
        let Some(output) = &stream.output else { return Ok(String::new()) };
        let path = self.steps.bench.context.directory.join(&output.stored);
        let read = || -> io::Result<String> {
            let mut file = File::open(path)?;
            if output.size <= SHOWN {
                let mut all = Vec::new();
                file.read_to_end(&mut all)?;
                return Ok(String::from_utf8_lossy(&all).into_owned());
            }
            let (mut head, mut tail) = (Vec::new(), Vec::new());
            (&mut file).take(SHOWN / 2).read_to_end(&mut head)?;
            file.seek(SeekFrom::Start(output.size - SHOWN / 2))?;
            file.read_to_end(&mut tail)?;
            let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
            Ok(format!("{head}\n[… {} bytes left out …]\n{tail}", output.size - SHOWN))
        };
        read().map_err(Stop::evidence)
    }

    /// All of a stream that is known to be short.
    fn all(&self, stream: &CapturedStream) -> Result<Vec<u8>, Stop> {
        let Some(output) = &stream.output else { return Ok(Vec::new()) };
        std::fs::read(self.steps.bench.context.directory.join(&output.stored)).map_err(Stop::evidence)
    }
}
