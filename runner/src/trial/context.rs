//! What all trials of a run share, and what one trial is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::evidence::TrialKey;
use sandbox_bench_core::{Backend, Call, Grants, Input, InputEntry, MeterReading, NetworkPolicy, Phase, Stage, Tag};
use sandbox_bench_datasets::task::Task;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use crate::environment::Setup;
use crate::journal::Journal;
use crate::outputs::OutputStore;
use crate::pack::PackCache;
use crate::solver::Solver;
use crate::ways::Missing;

/// Limit of one small operation: the first command, an observation, an end.
pub const CONTROL_LIMIT: Duration = Duration::from_secs(60);
/// Limit of one transfer.
pub const TRANSFER_LIMIT: Duration = Duration::from_secs(300);
/// What a call may take longer than the command that it runs.
pub const MARGIN: Duration = Duration::from_secs(20);
/// Solver limit when neither task nor user sets one.
const DEFAULT_SOLVE: Duration = Duration::from_secs(900);
/// Verifier limit when neither task nor user sets one (Harbor's default).
const DEFAULT_VERIFY: Duration = Duration::from_secs(600);

/// Limits that the user set over those of the tasks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Solver limit.
    pub solve: Option<Duration>,
    /// Verifier limit.
    pub verify: Option<Duration>,
}

impl Limits {
    /// Time limit of the solver of `task`.
    #[must_use]
    pub fn solve_of(&self, task: &Task) -> Duration {
        self.solve.or(task.timeouts.solve).unwrap_or(DEFAULT_SOLVE)
    }

    /// Time limit of the verifier of `task`.
    #[must_use]
    pub fn verify_of(&self, task: &Task) -> Duration {
        self.verify.or(task.timeouts.verify).unwrap_or(DEFAULT_VERIFY)
    }
}

/// What all trials of a run share.
pub struct Context {
    /// The run's id.
    pub run: String,
    /// The run directory.
    pub directory: PathBuf,
    /// The journal.
    pub journal: Journal,
    /// The output store.
    pub outputs: OutputStore,
    /// Packed inputs.
    pub packs: PackCache,
    /// The solver.
    pub solver: Solver,
    /// Host variables forwarded to the solver, by name.
    pub forwarded: BTreeMap<String, SecretString>,
    /// Limits set by the user.
    pub limits: Limits,
    /// Images that turned out not to be at their backends.
    pub missing: Missing,
    /// Cancelled when the user interrupts the run.
    pub interrupt: CancellationToken,
    /// Told when a trial enters a phase.
    pub watch: Arc<dyn Watch>,
}

/// Is told what happens while it happens.
pub trait Watch: Send + Sync {
    /// A trial entered a phase.
    fn phase(&self, trial: &TrialKey, phase: Phase);
}

/// What a trial's sandbox comes from.
#[derive(Clone)]
pub enum Start {
    /// A new sandbox.
    Cold,
    /// A new sandbox from the warm artifact of this id.
    Warm(String),
    /// A new sandbox that is suspended and resumed first.
    Resumed,
    /// The sandbox that this session holds.
    Reuse(Arc<tokio::sync::Mutex<Session>>),
}

/// One attempt at one trial.
pub struct Trial {
    /// Which trial.
    pub key: TrialKey,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// Correlation tag, unique to the attempt.
    pub tag: Tag,
    /// The task.
    pub task: Arc<Task>,
    /// The backend, with the layers around it.
    pub backend: Arc<dyn Backend>,
    /// How the environment is made.
    pub setup: Arc<Setup>,
    /// Where the sandbox comes from.
    pub start: Start,
}

impl Trial {
    /// What the sandbox may reach.
    #[must_use]
    pub fn network(&self) -> NetworkPolicy {
        self.task.network.baseline.clone()
    }
}

impl Context {
    /// Time limit of the solver.
    #[must_use]
    pub fn solve_limit(&self, task: &Task) -> Duration {
        self.limits.solve_of(task)
    }

    /// Time limit of the verifier.
    #[must_use]
    pub fn verify_limit(&self, task: &Task) -> Duration {
        self.limits.verify_of(task)
    }

    /// How long a sandbox may live at its backend, whatever happens to us: longer than the sum of the phases.
    #[must_use]
    pub fn lifetime(&self, task: &Task) -> Duration {
        let phases = self.solve_limit(task) + self.verify_limit(task) + task.environment.build_timeout;
        phases + 4 * TRANSFER_LIMIT + Duration::from_secs(600)
    }
}

/// The call context of one attempt: the same tag, cancellation, meter and grants for all its operations.
#[derive(Clone)]
pub struct Calls {
    base: Call,
}

impl Calls {
    /// The calls of the unit of work `tag`, which may place the `manifest` and nothing else.
    #[must_use]
    pub fn new(tag: &Tag, context: &Context, network: NetworkPolicy, manifest: Vec<InputEntry>) -> Self {
        let secrets = context.forwarded.clone();
        let grants = Grants { inputs: manifest, secrets, network, max_input_bytes: None };
        let base = Call::new(tag.clone(), CONTROL_LIMIT, Arc::new(grants)).with_cancel(context.interrupt.child_token());
        Self { base }
    }

    /// A call in `stage` that must return within `limit`.
    #[must_use]
    pub fn call(&self, stage: Stage, limit: Duration) -> Call {
        self.base.with_limit(limit).in_stage(stage)
    }

    /// A call that goes on after an interruption: for taking things down.
    #[must_use]
    pub fn cleanup(&self, limit: Duration) -> Call {
        self.base.with_limit(limit).with_cancel(CancellationToken::new())
    }

    /// A call that may place inputs which the host derived from files of the sandbox itself: patched sources. They
    /// cannot be in the manifest, because their bytes are known only now.
    #[must_use]
    pub fn deriving(&self, stage: Stage, inputs: &[Input]) -> Call {
        let mut grants = Grants::clone(&self.base.grants);
        grants.inputs.extend(inputs.iter().map(|input| input.entry.clone()));
        Call { grants: Arc::new(grants), ..self.call(stage, TRANSFER_LIMIT) }
    }

    /// Facts that bear on cost and that the backend told by the way, such as at the end of a sandbox.
    #[must_use]
    pub fn cost_facts(&self) -> BTreeMap<String, String> {
        self.base.meter.cost_facts()
    }

    /// What all operations together cost so far.
    #[must_use]
    pub fn meter(&self) -> MeterReading {
        self.base.meter.read()
    }
}
