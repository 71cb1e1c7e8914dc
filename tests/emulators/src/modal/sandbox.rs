//! Sandboxes: what was asked for, where they are in their life, and their processes.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{RwLock, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::account::Variables;
use super::output::Output;
use super::process::Process;
use super::proto::client::generic_result::GenericStatus;
use super::proto::client::{GenericResult, Sandbox as Definition, SandboxHandleMetadata, SandboxTag};
use super::status::missing;
use super::stdin::Stdin;
use super::{Modal, Result};
use crate::machine::{Command, Machine};

/// A sandbox, also one that has ended.
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) task_id: String,
    pub(super) app_id: String,
    pub(super) definition: Definition,
    /// Environment of all commands.
    pub(super) variables: Variables,
    /// Seconds since the epoch; no two sandboxes have the same.
    pub(super) created_at: f64,
    pub(super) tags: Mutex<BTreeMap<String, String>>,
    pub(super) machine: watch::Sender<Stage>,
    /// Its end was asked for.
    pub(super) terminate: CancellationToken,
    /// Cancelled at its end.
    pub(super) over: CancellationToken,
    /// Cancelled when nothing is left of it.
    pub(super) buried: CancellationToken,
    end: Mutex<End>,
    processes: Mutex<BTreeMap<String, Arc<Process>>>,
    /// Of the main process, as is the input, once it is started.
    pub(super) output: Output,
    pub(super) input: watch::Sender<Option<Arc<Stdin>>>,
    /// Held to start commands; held alone to save files, which ends all processes.
    pub(super) saving: RwLock<()>,
    /// How often files were saved.
    pub(super) saves: AtomicU64,
    activity: watch::Sender<Activity>,
    /// Seconds since the epoch.
    pub(super) ready_at: watch::Sender<Option<f64>>,
}

/// Where its machine is.
#[derive(Clone)]
pub(super) enum Stage {
    Starting,
    Running(Arc<Machine>),
    Gone,
}

#[derive(Default)]
struct End {
    result: Option<GenericResult>,
    /// Seconds since the epoch.
    finished_at: f64,
}

#[derive(Clone, Copy)]
struct Activity {
    running: usize,
    since: Instant,
}

/// What a sandbox is made with.
pub(super) struct Made {
    pub(super) id: String,
    pub(super) task_id: String,
    pub(super) app_id: String,
    pub(super) definition: Definition,
    pub(super) variables: Variables,
    pub(super) created_at: f64,
    pub(super) tags: BTreeMap<String, String>,
}

impl Sandbox {
    pub(super) fn new(made: Made) -> Sandbox {
        let Made { id, task_id, app_id, definition, variables, created_at, tags } = made;
        Sandbox {
            id,
            task_id,
            app_id,
            definition,
            variables,
            created_at,
            tags: Mutex::new(tags),
            machine: watch::Sender::new(Stage::Starting),
            terminate: CancellationToken::new(),
            over: CancellationToken::new(),
            buried: CancellationToken::new(),
            end: Mutex::default(),
            processes: Mutex::default(),
            output: Output::default(),
            input: watch::Sender::new(None),
            saving: RwLock::default(),
            saves: AtomicU64::new(0),
            activity: watch::Sender::new(Activity { running: 0, since: Instant::now() }),
            ready_at: watch::Sender::new(None),
        }
    }

    /// Its result, if it has ended.
    pub(super) fn result(&self) -> Option<GenericResult> {
        self.end().result.clone()
    }

    /// When it ended, in seconds since the epoch; 0 if it has not.
    pub(super) fn finished_at(&self) -> f64 {
        self.end().finished_at
    }

    /// Ends it, unless it has ended before.
    pub(super) fn finish(&self, result: GenericResult) {
        {
            let mut end = self.end();
            if end.result.is_none() {
                *end = End { result: Some(result), finished_at: super::ids::timestamp() };
            }
        }
        self.over.cancel();
    }

    pub(super) fn metadata(&self) -> SandboxHandleMetadata {
        SandboxHandleMetadata { result: self.result(), app_id: self.app_id.clone() }
    }

    pub(super) fn tags(&self) -> Vec<SandboxTag> {
        let tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        let tag = |(name, value): (&String, &String)| SandboxTag { tag_name: name.clone(), tag_value: value.clone() };
        tags.iter().map(tag).collect()
    }

    /// Its machine, as soon as it runs.
    ///
    /// # Errors
    /// It has ended.
    pub(super) async fn machine(&self) -> Result<Arc<Machine>> {
        let mut stage = self.machine.subscribe();
        // The sender lives as long as we do.
        let _ = stage.wait_for(|stage| !matches!(stage, Stage::Starting)).await;
        let stage = self.machine.borrow().clone();
        match stage {
            Stage::Running(machine) if self.result().is_none() => Ok(machine),
            _ => Err(self.gone()),
        }
    }

    /// What the router answers when it has ended.
    pub(super) fn gone(&self) -> Status {
        Status::not_found(format!("Task {} is not running", self.task_id))
    }

    /// Its environment and directory for a command.
    pub(super) fn command(&self, machine: &Machine, argv: &[String], workdir: Option<&str>) -> Command {
        let mut command = machine.command(argv.iter().map(String::as_str));
        command.env.extend(self.variables.clone());
        command.env.insert("MODAL_SANDBOX_ID".to_owned(), self.id.clone());
        command.env.insert("MODAL_TASK_ID".to_owned(), self.task_id.clone());
        if let Some(workdir) = workdir.or(self.definition.workdir.as_deref()) {
            command.cwd = Some(workdir.to_owned());
        }
        command
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Process>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn process(&self, exec_id: &str) -> Result<Arc<Process>> {
        self.processes().get(exec_id).cloned().ok_or_else(|| missing("Exec", exec_id))
    }

    /// While this is held, it is not idle.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.activity.send_modify(|activity| activity.running += 1);
        Busy(Arc::clone(self))
    }

    /// Returns when it was idle for so long, from now on.
    pub(super) async fn idle(&self, limit: Duration) {
        self.activity.send_modify(|activity| activity.since = Instant::now());
        let mut activity = self.activity.subscribe();
        loop {
            let Activity { running, since } = *activity.borrow_and_update();
            let changed = activity.changed();
            if running > 0 {
                // The sender lives as long as we do.
                let _ = changed.await;
            } else if tokio::time::timeout_at(since + limit, changed).await.is_err() {
                return;
            }
        }
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the admin route.
    pub(super) fn view(&self) -> Value {
        let status = self.result().map_or(GenericStatus::Unspecified, |result| result.status());
        json!({
            "id": self.id, "name": self.definition.name, "app": self.app_id, "image": self.definition.image_id,
            "tags": *self.tags.lock().unwrap_or_else(PoisonError::into_inner), "status": status.as_str_name(),
        })
    }
}

/// Something that runs in a sandbox.
pub(super) struct Busy(Arc<Sandbox>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.activity.send_modify(|activity| {
            activity.running -= 1;
            activity.since = Instant::now();
        });
    }
}

impl Modal {
    pub(super) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        let found = self.world().sandboxes.iter().find(|sandbox| sandbox.id == id).cloned();
        found.ok_or_else(|| missing("Sandbox", id))
    }

    pub(super) fn sandbox_of_task(&self, task_id: &str) -> Result<Arc<Sandbox>> {
        let found = self.world().sandboxes.iter().find(|sandbox| sandbox.task_id == task_id).cloned();
        found.ok_or_else(|| missing("Task", task_id))
    }
}
