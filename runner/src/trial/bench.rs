//! One attempt's working set: the task, the sandbox it runs in, and the means to record what happens there.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandbox_bench_core::{ExecSpec, Phase, Sandbox};
use sandbox_bench_datasets::task::Task;

use super::context::{Calls, Context};
use super::materials::Materials;
use super::recorder::Recorder;
use super::stop::Stop;
use crate::environment::{ROOT, Setup, fill_templates};

/// A sandbox with a task on it.
pub struct Bench<'a> {
    /// What the run shares.
    pub context: &'a Context,
    /// The record.
    pub rec: &'a Recorder<'a>,
    /// The calls.
    pub calls: &'a Calls,
    /// The task.
    pub task: &'a Task,
    /// Its data set.
    pub dataset: &'a str,
    /// The model that does the task, where models are part of the plan.
    pub model: Option<&'a str>,
    /// How its environment is made.
    pub setup: &'a Setup,
    /// What may be placed.
    pub materials: &'a Materials,
    /// The sandbox.
    pub sandbox: Arc<dyn Sandbox>,
    /// Variables of every command, templates filled.
    pub env: BTreeMap<String, String>,
    /// True if commands can run as root.
    pub has_root: bool,
    /// True if the streams of commands arrive apart.
    pub separate_streams: bool,
}

impl Bench<'_> {
    /// The sandbox.
    #[must_use]
    pub fn sandbox(&self) -> &dyn Sandbox {
        self.sandbox.as_ref()
    }

    /// The user of the harness's own commands.
    #[must_use]
    pub fn root(&self) -> Option<String> {
        self.has_root.then(|| ROOT.to_owned())
    }

    /// `spec` as a command of the task: its variables, its working directory, its user.
    #[must_use]
    pub fn command(&self, mut spec: ExecSpec, user: Option<&String>) -> ExecSpec {
        let mut env = self.env.clone();
        env.append(&mut spec.env);
        spec.env = env;
        spec.cwd = spec.cwd.or_else(|| self.setup.workdir.clone());
        spec.user = user.or(self.setup.user.as_ref()).cloned();
        spec
    }

    /// Fills templates of a task's variables.
    ///
    /// # Errors
    /// A host variable is missing: the environment cannot be made as the task wants it.
    pub fn filled(&self, env: &BTreeMap<String, String>, phase: Phase) -> Result<BTreeMap<String, String>, Stop> {
        fill_templates(env).map_err(|why| Stop::new(sandbox_bench_core::FailureClass::Environment, phase, why))
    }
}
