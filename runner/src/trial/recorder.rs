//! Times phases and writes a receipt for every operation on the sandbox of one attempt.

use std::future::Future;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox_bench_core::evidence::{Event, Receipt, TrialKey};
use sandbox_bench_core::{
    Call, Completion, Downloaded, Error, ExecReport, ExecSpec, Input, InputEntry, OutputRef, Phase, PhaseSpan, Sandbox,
    Tag,
};

use super::context::Context;
use super::stop::Stop;
use crate::outputs::CapturedStream;

/// Most bytes kept of one stream of one command.
pub const OUTPUT_LIMIT: u64 = 16 << 20;
/// Media type of command output.
pub const TEXT: &str = "text/plain";

/// The record of one attempt in the making. All methods take `&self`: phases nest around operations.
pub struct Recorder<'a> {
    origin: Instant,
    tag: Tag,
    context: &'a Context,
    trial: TrialKey,
    state: Mutex<State>,
}

/// What an attempt has gathered so far.
#[derive(Default)]
pub struct State {
    /// Finished phases.
    pub phases: Vec<PhaseSpan>,
    /// Kept outputs.
    pub outputs: Vec<OutputRef>,
    /// Placed inputs.
    pub inputs: Vec<InputEntry>,
    /// Conditions worth knowing.
    pub warnings: Vec<String>,
    /// Coarsest timing resolution seen.
    pub resolution: Option<Duration>,
    guest: Duration,
    guest_known: bool,
    step: u32,
}

/// A command that ran: how it ended, and what it wrote.
pub struct Ran {
    /// Number of its receipt.
    pub step: u32,
    /// How it ended.
    pub report: ExecReport,
    /// Its standard output.
    pub stdout: CapturedStream,
    /// Its standard error.
    pub stderr: CapturedStream,
}

impl Ran {
    /// True only for exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.report.completion.success()
    }

    /// The last words of the command, for a message: stderr, or stdout if that is empty.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = if self.stderr.tail.trim().is_empty() { &self.stdout.tail } else { &self.stderr.tail };
        let text = text.trim();
        let start = text.char_indices().rev().nth(399).map_or(0, |(at, _)| at);
        text[start..].to_owned()
    }
}

impl<'a> Recorder<'a> {
    /// Starts the clock of an attempt.
    #[must_use]
    pub fn new(tag: Tag, context: &'a Context, trial: TrialKey) -> Self {
        Self { origin: Instant::now(), tag, context, trial, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> u64 {
        micros(self.origin.elapsed())
    }

    /// The attempt's tag.
    #[must_use]
    pub fn tag(&self) -> String {
        self.tag.to_string()
    }

    /// Times `work` as a phase.
    pub async fn phase<T>(&self, phase: Phase, work: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
        let start_us = self.now_us();
        self.context.watch.phase(&self.trial, phase);
        {
            let mut state = self.state();
            state.guest = Duration::ZERO;
            state.guest_known = false;
        }
        let result = work.await;
        let duration_us = self.now_us() - start_us;
        let mut state = self.state();
        let guest_us = state.guest_known.then(|| micros(state.guest));
        state.phases.push(PhaseSpan { phase, start_us, duration_us, guest_us, ok: result.is_ok() });
        result
    }

    /// Splits `us` microseconds off the beginning of the last phase as a phase of their own.
    pub fn split_last(&self, phase: Phase, us: u64) {
        let mut state = self.state();
        if let Some(last) = state.phases.pop() {
            let us = us.min(last.duration_us);
            state.phases.push(PhaseSpan {
                phase,
                start_us: last.start_us,
                duration_us: us,
                guest_us: None,
                ok: last.ok,
            });
            let rest = PhaseSpan { start_us: last.start_us + us, duration_us: last.duration_us - us, ..last };
            state.phases.push(rest);
        }
    }

    /// Says what the last phase turned out to be.
    pub fn rename_last(&self, phase: Phase) {
        if let Some(last) = self.state().phases.last_mut() {
            last.phase = phase;
        }
    }

    /// Runs a command, keeps its output as `label`, and writes its receipt. Ends the attempt only for contract errors:
    /// how the command ended is the caller's to judge.
    pub async fn exec(
        &self,
        phase: Phase,
        label: &str,
        sandbox: &dyn Sandbox,
        call: &Call,
        spec: &ExecSpec,
    ) -> Result<Ran, Stop> {
        let capture = self.context.outputs.stream(label, TEXT, OUTPUT_LIMIT);
        let spec = ExecSpec { output_limit: OUTPUT_LIMIT, ..spec.clone() };
        let start = self.now_us();
        let result = sandbox.exec(call, &spec, &capture).await;
        let (stdout, stderr) = capture.finish(result.as_ref().ok()).map_err(Stop::evidence)?;
        let mut receipt = self.receipt(phase, "exec", label, start);
        if let Ok(report) = &result {
            receipt.guest_us = report.guest_time.map(micros);
            receipt.completion = Some(report.completion.clone());
            receipt.stdout = Some(report.stdout.clone());
            receipt.stderr = Some(report.stderr.clone());
            let mut state = self.state();
            state.resolution = state.resolution.max(report.resolution);
            if let Some(guest) = report.guest_time {
                state.guest += guest;
                state.guest_known = true;
            }
            state.outputs.extend(stdout.output.iter().chain(&stderr.output).cloned());
        }
        let step = receipt.step;
        self.write(receipt, result.as_ref().err()).await?;
        match result {
            Ok(report) => match report.completion {
                Completion::SandboxLost | Completion::TransportLost => {
                    Err(Stop::lost(phase, format!("{label}: {}", report.completion)))
                }
                Completion::Cancelled { .. } => Err(Stop::interrupted(phase)),
                _ => Ok(Ran { step, report, stdout, stderr }),
            },
            Err(error) => Err(Stop::from_error(phase, label, &error)),
        }
    }

    /// Places inputs and writes the receipt.
    pub async fn upload(
        &self,
        phase: Phase,
        label: &str,
        sandbox: &dyn Sandbox,
        call: &Call,
        inputs: &[Input],
    ) -> Result<(), Stop> {
        let start = self.now_us();
        let result = sandbox.upload(call, inputs).await;
        let mut receipt = self.receipt(phase, "upload", label, start);
        receipt.bytes = result.as_ref().ok().map(|uploaded| uploaded.bytes);
        self.state().inputs.extend(inputs.iter().map(|input| input.entry.clone()));
        self.write(receipt, result.as_ref().err()).await?;
        result.map(drop).map_err(|error| Stop::from_error(phase, label, &error))
    }

    /// Brings a path home as a tar file. A path that is not there is `None`.
    pub async fn download(
        &self,
        phase: Phase,
        label: &str,
        sandbox: &dyn Sandbox,
        call: &Call,
        (from, to, limit): (&str, &Path, u64),
    ) -> Result<Option<Downloaded>, Stop> {
        let start = self.now_us();
        let result = sandbox.download(call, from, to, limit).await;
        let mut receipt = self.receipt(phase, "download", label, start);
        receipt.bytes = result.as_ref().ok().map(|downloaded| downloaded.bytes);
        self.write(receipt, result.as_ref().err()).await?;
        match result {
            Ok(downloaded) => Ok(Some(downloaded)),
            Err(error) if *error.kind() == sandbox_bench_core::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Stop::from_error(phase, label, &error)),
        }
    }

    /// Awaits an operation that tells nothing but its success, and writes its receipt.
    pub async fn operation(
        &self,
        phase: Phase,
        operation: &str,
        work: impl Future<Output = sandbox_bench_core::Result<()>>,
    ) -> Result<(), Stop> {
        let start = self.now_us();
        let result = work.await;
        self.write(self.receipt(phase, operation, operation, start), result.as_ref().err()).await?;
        result.map_err(|error| Stop::from_error(phase, operation, &error))
    }

    /// Notes something that a reader should know.
    pub fn warn(&self, warning: impl Into<String>) {
        self.state().warnings.push(warning.into());
    }

    /// Adds a kept output.
    pub fn keep(&self, output: OutputRef) {
        self.state().outputs.push(output);
    }

    /// Ends the record: its content, and the microseconds since the attempt was submitted.
    #[must_use]
    pub fn finish(self) -> (State, u64) {
        let total = self.now_us();
        (self.state.into_inner().unwrap_or_else(PoisonError::into_inner), total)
    }

    fn receipt(&self, phase: Phase, operation: &str, label: &str, start_us: u64) -> Receipt {
        let mut state = self.state();
        state.step += 1;
        Receipt {
            step: state.step,
            phase,
            operation: operation.to_owned(),
            label: label.to_owned(),
            start_us,
            duration_us: self.now_us() - start_us,
            guest_us: None,
            completion: None,
            stdout: None,
            stderr: None,
            bytes: None,
            error: None,
        }
    }

    async fn write(&self, mut receipt: Receipt, error: Option<&Error>) -> Result<(), Stop> {
        receipt.error = error.map(ToString::to_string);
        let event = Event::Receipt { tag: self.tag.clone(), receipt };
        self.context.journal.append(event).await.map_err(Stop::evidence)
    }
}

/// Whole microseconds.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
