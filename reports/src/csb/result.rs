//! One result, and the phases of both harnesses.

use std::collections::BTreeMap;

use sandbox_bench_core::Phase;
use sandbox_bench_core::evidence::Attempt;
use serde::Deserialize;

/// The phases of that harness, in their order, and what each is here.
pub const PHASES: [(&str, Phase); 9] = [
    ("start", Phase::Create),
    ("upload", Phase::Inputs),
    ("prepare", Phase::Prepare),
    ("instruction_write", Phase::Inputs),
    ("solver_upload", Phase::Inputs),
    ("solve", Phase::Solve),
    ("verify", Phase::Verify),
    ("resource_probe", Phase::Collect),
    ("stop", Phase::Destroy),
];

/// What a phase of that name, with or without the suffix `_seconds`, is here.
#[must_use]
pub fn phase_of(name: &str) -> Option<Phase> {
    let name = name.strip_suffix("_seconds").unwrap_or(name);
    PHASES.iter().find(|(known, _)| *known == name).map(|(_, phase)| *phase)
}

/// The phases of an attempt under that harness's names, in its order, in microseconds.
///
/// There, `start` ends with a sandbox that takes commands; what is placed before the environment is prepared is
/// `upload`, and after it `instruction_write`. What it has no word for (bringing outputs home, making a snapshot) is in
/// the total alone.
#[must_use]
pub fn phases(attempt: &Attempt) -> Vec<(&'static str, u64)> {
    let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
    let mut prepared = false;
    for span in &attempt.phases {
        let name = match span.phase {
            Phase::Environment | Phase::Create | Phase::Ready => "start",
            Phase::Inputs if prepared => "instruction_write",
            Phase::Inputs => "upload",
            Phase::Prepare => "prepare",
            Phase::Solve => "solve",
            Phase::Verify => "verify",
            Phase::Destroy => "stop",
            Phase::Collect | Phase::Snapshot => continue,
        };
        prepared |= span.phase == Phase::Prepare;
        let sum = sums.entry(position(name)).or_default();
        *sum = sum.saturating_add(span.duration_us);
    }
    sums.into_iter().filter_map(|(at, us)| Some((PHASES.get(at)?.0, us))).collect()
}

fn position(name: &str) -> usize {
    PHASES.iter().position(|(known, _)| *known == name).unwrap_or(PHASES.len())
}

/// One result, with what is read of it. Older files lack what is optional here.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskResult {
    /// The task.
    pub task_id: String,
    /// The verdict.
    pub passed: bool,
    /// Exit code of the verifier, or of the preparation if that failed, or 1 after an exception.
    pub return_code: Option<i64>,
    /// The whole task, in seconds; over all attempts, without the waits between them.
    pub elapsed_seconds: f64,
    /// Seconds by phase, each under its name and `_seconds`. A phase that was not reached is not there.
    #[serde(default)]
    pub phases: BTreeMap<String, f64>,
    /// vCPUs asked for.
    pub task_cpu: Option<f64>,
    /// Memory asked for, in GiB.
    pub task_memory_gb: Option<f64>,
    /// Disk asked for, in GiB.
    pub task_disk_gb: Option<f64>,
    /// The task's own image.
    pub task_docker_image: Option<String>,
    /// The general image, if not that of the run.
    pub task_runtime: Option<String>,
    /// SHA-256 of the task's archive, in hexadecimal digits.
    pub archive_sha256: Option<String>,
    /// Last characters of what the deciding command put out.
    pub stdout_tail: Option<String>,
    /// … and of its errors.
    pub stderr_tail: Option<String>,
    /// Exit code of the solver.
    pub solve_return_code: Option<i64>,
    /// Last characters of what the solver put out.
    pub solve_stdout_tail: Option<String>,
    /// … and of its errors.
    pub solve_stderr_tail: Option<String>,
    /// How often the task was tried, if more than once.
    pub task_attempts: Option<u32>,
    /// The errors of the tries before the last one.
    #[serde(default)]
    pub transient_retry_errors: Vec<String>,
}

/// Seconds beyond which a time is none: ten years.
const LONGEST: f64 = 10.0 * 365.0 * 86_400.0;

impl TaskResult {
    /// What makes no sense in it, in words.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let time = |name: &str, seconds: f64| {
            (!(0.0..=LONGEST).contains(&seconds)).then(|| format!("{name} is {seconds}, which is no time"))
        };
        let amount = |name: &str, value: Option<f64>| {
            value.filter(|v| !(0.0..=1e9).contains(v)).map(|v| format!("{name} is {v}, which is no amount"))
        };
        if self.task_id.is_empty() {
            return Some("task_id is empty".to_owned());
        }
        time("elapsed_seconds", self.elapsed_seconds)
            .or_else(|| self.phases.iter().find_map(|(name, seconds)| time(name, *seconds)))
            .or_else(|| amount("task_cpu", self.task_cpu))
            .or_else(|| amount("task_memory_gb", self.task_memory_gb))
            .or_else(|| amount("task_disk_gb", self.task_disk_gb))
    }

    /// True if this phase was reached.
    #[must_use]
    pub fn reached(&self, phase: &str) -> bool {
        self.phases.contains_key(&format!("{phase}_seconds"))
    }
}
