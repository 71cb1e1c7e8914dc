//! One normalized task, whatever form it was written in.
//!
//! A [`Task`] promises that its files are safe to use: every path and link stays inside its directory, which is one of
//! our own or the user's own task directory, and each [`FileSet`] names the part that one stage of the trial may see.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sandbox_bench_core::{Digest, NetworkPolicy, Requirement, Resources};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form in which a task was written; it decides how the task runs and how it is graded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Harbor task directory (TerminalBench 2), also inside archives of task rows.
    Harbor,
    /// terminal-bench 1 task directory.
    TerminalBench1,
    /// SWE-smith row.
    SweSmith,
}

impl Family {
    /// The name in tables and evidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Harbor => "harbor",
            Self::TerminalBench1 => "terminal-bench-1",
            Self::SweSmith => "swe-smith",
        }
    }
}

/// Files on the host that enter a sandbox together: a directory and what of it to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSet {
    /// The directory.
    pub root: PathBuf,
    /// Files to leave out, relative to the root (matched by `.harborignore` or `.dockerignore`).
    pub exclude: Vec<String>,
}

/// One step of an environment recipe: a Dockerfile instruction that can be replayed in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecipeStep {
    /// Run an argument vector (a shell form is already wrapped in its shell).
    Run {
        /// Program and arguments.
        argv: Vec<String>,
        /// Line in the Dockerfile.
        line: u32,
    },
    /// Copy from the context.
    Copy {
        /// Sources relative to the context; globs allowed.
        sources: Vec<String>,
        /// Destination as written.
        destination: String,
        /// Line in the Dockerfile.
        line: u32,
    },
    /// Set an environment variable for the following steps and for the task.
    Env {
        /// Name.
        name: String,
        /// Value, with variables replaced.
        value: String,
    },
    /// Change (and make) the working directory; absolute.
    Workdir(String),
    /// Change the user.
    User(String),
}

/// A Dockerfile as a recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The image of the (single or final) stage's FROM.
    pub from: String,
    /// The steps, in order.
    pub steps: Vec<RecipeStep>,
    /// Working directory after the last step, if one was set.
    pub workdir: Option<String>,
    /// Why the Dockerfile cannot be replayed; none if it can.
    pub unsupported: Option<Unreplayable>,
}

/// Why a Dockerfile cannot be replayed in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Unreplayable {
    /// Line in the Dockerfile, from 1.
    pub line: u32,
    /// What of it cannot be replayed.
    pub why: String,
}

/// What a task's sandbox starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSpec {
    /// A ready image.
    Image(String),
    /// A Dockerfile with its context.
    Dockerfile {
        /// The repository whose manifest it was generated from; none for a Dockerfile of the task's own.
        manifest: Option<String>,
        /// The context directory.
        context: FileSet,
        /// The Dockerfile's path inside it.
        dockerfile: String,
        /// The same as a recipe.
        recipe: Recipe,
    },
    /// Any general base will do.
    Base,
}

/// A task's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// What to start from.
    pub image: ImageSpec,
    /// Other ways to the same environment, best first, for backends that cannot take `image` or cannot get it: the
    /// Dockerfile that a published image was built from, or the name under which an image was published earlier.
    pub alternatives: Vec<ImageSpec>,
    /// Fingerprint of `image`, `alternatives`, `files`, and the variables: equal fingerprints share one warm artifact.
    pub fingerprint: Digest,
    /// Limit for building and starting.
    pub build_timeout: Duration,
    /// Persistent environment variables; values of the form `${NAME}` or `${NAME:-default}` are templates that the
    /// runner fills from the host's environment.
    pub env: BTreeMap<String, String>,
    /// Working directory, overriding the image's.
    pub workdir: Option<String>,
    /// Files to upload into the working directory after the start (`docker_image` with a context but no Dockerfile).
    pub files: Option<FileSet>,
    /// Command that must succeed before the task begins.
    pub healthcheck: Option<Healthcheck>,
}

/// A health check.
#[derive(Debug, Clone, PartialEq)]
pub struct Healthcheck {
    /// Shell command; exit code 0 means healthy.
    pub command: String,
    /// Wait between tries.
    pub interval: Duration,
    /// Limit of one try.
    pub timeout: Duration,
    /// Time in which failures do not count.
    pub start_period: Duration,
    /// Wait between tries in the start period.
    pub start_interval: Duration,
    /// Failures in a row that end it.
    pub retries: u32,
}

impl Eq for Healthcheck {}

/// The reference solution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Solution {
    /// Files that go to `destination`, and the script in there to run with its own shebang (or bash).
    Script {
        /// The files.
        files: FileSet,
        /// Directory in the sandbox, such as `/solution`.
        destination: String,
        /// Script relative to the destination.
        entry: String,
        /// Variables for it (templates as in [`Environment::env`]).
        env: BTreeMap<String, String>,
    },
    /// Reverse the patch of [`SweSmith::bug_patch`].
    ReversePatch,
}

/// How a verifier's output is parsed into test results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TestParser {
    /// terminal-bench 1: the "short test summary info" section.
    Pytest,
    /// terminal-bench 1: SWE-bench markers.
    Swebench,
    /// terminal-bench 1: SWE-Lancer texts.
    Swelancer,
    /// terminal-bench 1: MLE-bench markers.
    Mlebench,
    /// terminal-bench 1: SWE-Perf markers.
    Sweperf,
}

/// What decides acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verifier {
    /// Harbor: the content of `tests` goes to `/tests`, `script` runs, the reward file decides.
    Harbor {
        /// The tests.
        tests: FileSet,
        /// Script relative to `/tests`. When it is `test_outputs.py`, it is run by pytest.
        script: String,
        /// Variables for it (templates).
        env: BTreeMap<String, String>,
    },
    /// terminal-bench 1: script and tests go to `/tests`, the output is parsed.
    TerminalBench1 {
        /// `run-tests.sh` and the content of `tests/`, as they lie in `/tests`.
        tests: FileSet,
        /// The host file of `run-tests.sh`.
        script: PathBuf,
        /// The parser.
        parser: TestParser,
    },
    /// SWE-smith: the test command runs in the working directory, its output is compared with the two lists.
    SweSmith(SweSmith),
}

/// The graded part of a SWE-smith row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweSmith {
    /// Unified diff that introduces the bug; the gold fix is its reverse.
    pub bug_patch: String,
    /// Tests that fail with the bug and must pass.
    pub fail_to_pass: Vec<String>,
    /// Tests that must go on passing.
    pub pass_to_pass: Vec<String>,
    /// Shell command that runs the tests, in the working directory.
    pub test_command: String,
}

/// Time limits of a task. None means that the task sets no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Solver.
    pub solve: Option<Duration>,
    /// Verifier, its transfers included.
    pub verify: Option<Duration>,
}

/// Users that a task asks for. None means the image's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// Solver.
    pub solver: Option<String>,
    /// Verifier.
    pub verifier: Option<String>,
}

/// Network policies by phase, each already resolved to what holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkPlan {
    /// From the start.
    pub baseline: NetworkPolicy,
    /// While the solver runs.
    pub solve: NetworkPolicy,
    /// While the verifier runs.
    pub verify: NetworkPolicy,
}

/// One normalized task.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id, unique in its data set.
    pub id: String,
    /// The form it was written in.
    pub family: Family,
    /// Stable digest of its content (Harbor's package content hash where it is a directory).
    pub digest: Digest,
    /// The instruction for the solver.
    pub instruction: String,
    /// Whatever else the author said of it.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// Its environment.
    pub environment: Environment,
    /// Default working directory when neither the task nor the image says.
    pub default_workdir: String,
    /// Resources asked for.
    pub resources: Resources,
    /// Network by phase.
    pub network: NetworkPlan,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Users.
    pub users: Users,
    /// The reference solution, if there is one.
    pub solution: Option<Solution>,
    /// What decides acceptance.
    pub verifier: Verifier,
    /// What it needs beyond what its fields say: compose, Windows, a GPU, several steps, a terminal.
    pub requires: Vec<Requirement>,
    /// What the loader put right or noticed (`normalized: crlf`, …).
    pub warnings: Vec<String>,
}
