//! The solver's commands: run as the task's user, recorded, and compared where there is a recording.

use std::time::Duration;

use sandbox_bench_core::{Digest, ExecSpec, Input, Phase, ReplayRecord, Stage};

use super::bench::Bench;
use super::context::{MARGIN, TRANSFER_LIMIT};
use super::recorder::Ran;
use super::stop::Stop;
use crate::outputs::CapturedStream;
use crate::recording::{OUTPUT, Run, StepLog};

/// Media type of the kept steps.
const JSON: &str = "application/json";

/// Runs the solver's steps on a bench and keeps them.
pub struct Steps<'a, 'b> {
    /// Where they run.
    pub bench: &'b Bench<'a>,
    log: StepLog,
}

impl<'a, 'b> Steps<'a, 'b> {
    /// None so far.
    #[must_use]
    pub fn new(bench: &'b Bench<'a>) -> Self {
        Self { bench, log: StepLog::default() }
    }

    /// Places files of the solver's.
    pub async fn place(&mut self, label: &str, inputs: &[Input]) -> Result<(), Stop> {
        if inputs.is_empty() {
            return Ok(());
        }
        let call = self.bench.calls.call(Stage::Solve, TRANSFER_LIMIT);
        self.bench.rec.upload(Phase::Solve, label, self.bench.sandbox(), &call, inputs).await?;
        self.log.placed(inputs);
        Ok(())
    }

    /// Runs a command, which may take `left` at most. `more` is added to it and is no part of a recording: variables of the
    /// trial, and secrets.
    pub async fn run(&mut self, label: &str, run: &Run, left: Duration, more: &ExecSpec) -> Result<Ran, Stop> {
        let mut spec = run.spec(left);
        for (name, value) in &more.env {
            spec.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        spec.secret_env.clone_from(&more.secret_env);
        let bench = self.bench;
        let spec = bench.command(spec, bench.task.users.solver.as_ref());
        let call = bench.calls.call(Stage::Solve, spec.timeout + MARGIN);
        let ran = bench.rec.exec(Phase::Solve, label, bench.sandbox(), &call, &spec).await?;
        self.log.ran(Run {
            exit_code: ran.report.completion.exit_code(),
            stdout: digest(&ran.stdout, ran.report.stdout.truncated()),
            stderr: digest(&ran.stderr, ran.report.stderr.truncated()),
            ..run.clone()
        });
        Ok(ran)
    }

    /// Something was done that no recording can hold.
    pub fn gap(&mut self, why: &str) {
        self.log.gap(why);
    }

    /// Keeps the steps with the attempt, also of one that is about to fail.
    pub fn keep(&self) -> Result<(), Stop> {
        let Some(json) = self.log.json() else { return Ok(()) };
        let outputs = &self.bench.context.outputs;
        let json = outputs.secrets().hidden(&json);
        self.bench.rec.keep(outputs.bytes(OUTPUT, None, json.as_bytes(), JSON).map_err(Stop::evidence)?);
        Ok(())
    }
}

/// Digest of a stream; none if it was cut short.
#[must_use]
pub fn digest(stream: &CapturedStream, truncated: bool) -> Option<Digest> {
    match &stream.output {
        _ if truncated => None,
        None => Some(Digest::of(b"")),
        Some(output) => (!output.truncated).then(|| output.digest.clone()),
    }
}

/// Compares a repeated command with its recording.
pub struct Comparison {
    /// The record in the making.
    pub record: ReplayRecord,
    /// True if both, then and now, streams are apart.
    pub streams_apart: bool,
}

/// Most divergences that are kept.
const MAX_DIVERGENCES: usize = 100;

impl Comparison {
    /// Compares what came of step `number`.
    pub fn compare(&mut self, number: u32, recorded: &Run, ran: &Ran) {
        let mut pairs = Vec::new();
        if let Some(code) = recorded.exit_code {
            pairs.push((
                "exit_code",
                code.to_string(),
                Some(
                    ran.report
                        .completion
                        .exit_code()
                        .map_or_else(|| ran.report.completion.to_string(), |code| code.to_string()),
                ),
            ));
        }
        let now = [
            ("stdout", &recorded.stdout, digest(&ran.stdout, ran.report.stdout.truncated())),
            ("stderr", &recorded.stderr, digest(&ran.stderr, ran.report.stderr.truncated())),
        ];
        // Streams that were mixed compare only where one of them was silent on both sides.
        let comparable = self.streams_apart || recorded.stderr.as_ref() == Some(&Digest::of(b""));
        for (of, then, now) in now {
            match then {
                Some(_) if !comparable => self.record.not_compared += 1,
                Some(then) => pairs.push((of, then.to_string(), now.map(|now| now.to_string()))),
                None => {}
            }
        }
        let mut differs = false;
        for (of, then, now) in pairs {
            match now {
                None => self.record.not_compared += 1,
                Some(now) if now == then => {}
                Some(now) => {
                    differs = true;
                    if self.record.divergences.len() < MAX_DIVERGENCES {
                        let of = of.to_owned();
                        let divergence = sandbox_bench_core::Divergence {
                            step: number,
                            receipt: ran.step,
                            of,
                            recorded: then,
                            seen: now,
                        };
                        self.record.divergences.push(divergence);
                    }
                }
            }
        }
        self.record.diverged += u32::from(differs);
    }
}
