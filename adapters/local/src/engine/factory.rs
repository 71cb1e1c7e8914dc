//! [`Engine`]: makes sandboxes, finds them again, and removes them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::process::{Signal, kill_process_group};
use tokio::sync::OnceCell;

use super::boot::{CommandDefaults, Failure, Settings, Step, Task};
use super::cgroup::{Cgroup, Hierarchy};
use super::error::{EngineError, Result};
use super::ground::Ground;
use super::ids::IdMap;
use super::launch::{LaunchError, Launcher, own_program};
use super::obstacle::{Host, explain};
use super::sandbox::{EngineSandbox, Sandbox};
use super::spec::{Base, Enforcement, Facts, LimitReport, Limits, Listed, Network, SandboxConfig};
use super::state::{HelperId, Record, SandboxDir, StateDir, is_held, read_json, valid_id};
use super::{host, state};

/// A helper that only tries things out, or deletes, or boots a sandbox, needs milliseconds; this is for a machine in
/// trouble.
pub(super) const HELPER_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait for processes to be gone, after asking and again after killing.
pub(super) const END_LIMIT: Duration = Duration::from_secs(5);
/// Smallest `kernel.pid_max` that the kernel takes (kernel/pid.c, `RESERVED_PIDS`).
const MIN_PID_MAX: u64 = 301;

/// Settings of an engine.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// The program to start helpers with; it must call [`super::helper_main_if_requested`]. Default: our own.
    pub helper: Option<PathBuf>,
}

/// Makes and keeps sandboxes in one state directory. Cheap to clone; may be shared between tasks. When the last clone is
/// dropped, the processes of its sandboxes end.
///
/// Several engines, also of several processes, may use one state directory.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) shared: Arc<Shared>,
    /// Held here and not in `shared`, which sandboxes hold: they end with the last engine or handle.
    open: Arc<Mutex<HashMap<String, Arc<Sandbox>>>>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: StateDir,
    pub(super) launcher: Launcher,
    cgroups: Hierarchy,
    facts: Facts,
    host: OnceCell<Ground>,
    /// One at a time: the second importer of an image finds it done.
    pub(super) importing: tokio::sync::Mutex<()>,
}

impl Engine {
    /// Opens the state directory and finds out, by trying, what this machine allows.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] with cause and remedy if sandboxes cannot be built here.
    pub async fn open(state_dir: impl Into<PathBuf>, options: EngineOptions) -> Result<Engine> {
        let state = StateDir::open(&state_dir.into())?;
        let program = options.helper.unwrap_or_else(|| own_program().into());
        let mut launcher = Launcher { program, ids: IdMap::detect() };
        let mut ids_note = match launcher.ids {
            IdMap::Single { .. } => Some(
                "only root exists in sandboxes: install newuidmap and newgidmap (package uidmap or shadow-utils) and \
                 add a range for this user to /etc/subuid and /etc/subgid"
                    .to_owned(),
            ),
            _ => None,
        };
        match probe(&state, &launcher).await {
            Err(LaunchError::IdMap(error)) if matches!(launcher.ids, IdMap::SubIds { .. }) => {
                ids_note = Some(format!("only root exists in sandboxes: {error}"));
                launcher.ids = IdMap::single();
                probe(&state, &launcher).await.map_err(launch_failed)?;
            }
            result => result.map_err(launch_failed)?,
        }
        let cgroups = Hierarchy::detect();
        let facts = Facts {
            mapped_ids: launcher.ids.mapped_ids(),
            ids_note,
            limits: possible_limits(&cgroups),
            reports_oom: cgroups.offers()[0],
        };
        let shared =
            Shared { state, launcher, cgroups, facts, host: OnceCell::new(), importing: tokio::sync::Mutex::new(()) };
        for draft in shared.state.abandoned_drafts() {
            shared.remove_tree(draft).await?;
        }
        Ok(Engine { shared: Arc::new(shared), open: Arc::default() })
    }

    /// What was found out about this machine.
    pub fn facts(&self) -> &Facts {
        &self.shared.facts
    }

    /// Where everything is kept.
    pub fn state_dir(&self) -> &std::path::Path {
        self.shared.state.path()
    }

    /// Does what the first sandbox on [`Base::Host`] would have to wait for: the filtered copy of the host's `/etc`. True
    /// if it was there already.
    pub async fn prepare_host(&self) -> Result<bool> {
        let ready = self.shared.host.initialized();
        self.shared.host_ground().await?;
        Ok(ready)
    }

    /// Makes a sandbox; it is ready to run commands. On failure nothing of it is left.
    pub async fn create(&self, config: SandboxConfig) -> Result<EngineSandbox> {
        let shared = &self.shared;
        if !valid_id(&config.id) {
            return Err(EngineError::Invalid(format!("{:?} cannot be the id of a sandbox", config.id)));
        }
        let (ground, layers) = shared.resolve(&config.base).await?;
        let cgroup = shared
            .cgroups
            .create(&format!("sandbox-bench-{}", config.id), &config.limits)
            .map_err(EngineError::io("control group"))?;
        let record = Record {
            id: config.id.clone(),
            labels: config.labels.clone(),
            created: SystemTime::now(),
            ground,
            layers,
            cgroup: cgroup.clone(),
        };
        let settings = shared.settings(&config, &cgroup);
        let directory = match SandboxDir::create(&shared.state, &record) {
            Ok(directory) => directory,
            Err(error) => {
                let _ = cgroup.remove();
                return Err(EngineError::io(format!("directory of sandbox {}", config.id))(error));
            }
        };
        let report = shared.report(&config.limits);
        match Sandbox::start(Arc::clone(shared), directory, record, settings, report).await {
            Ok(sandbox) => {
                lock(&self.open).insert(config.id, Arc::clone(&sandbox));
                Ok(EngineSandbox::new(sandbox))
            }
            Err(error) => {
                self.destroy(&config.id).await?;
                Err(error)
            }
        }
    }

    /// A sandbox that this engine has made and that was not destroyed.
    ///
    /// # Errors
    /// [`EngineError::Foreign`] if another process made it: its pipes cannot be taken over.
    pub fn attach(&self, id: &str) -> Result<EngineSandbox> {
        let open = lock(&self.open).get(id).cloned();
        match open {
            Some(sandbox) => Ok(EngineSandbox::new(sandbox)),
            None if valid_id(id) && self.shared.state.sandbox(id).exists() => Err(EngineError::Foreign(id.into())),
            None => Err(EngineError::NoSandbox(id.into())),
        }
    }

    /// All sandboxes in the state directory, whoever made them.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let state = &self.shared.state;
        let names = state.names("sandboxes").map_err(EngineError::io("list of sandboxes"))?;
        let listed = names.into_iter().filter_map(|id| {
            let path = state.sandbox(&id);
            // One without a record is being removed by somebody else.
            let record: Record = read_json(&path.join("record.json")).ok()?;
            let alive = self.is_alive(&id);
            Some(Listed { id, labels: record.labels, created: record.created, alive })
        });
        Ok(listed.collect())
    }

    /// Whether the sandbox runs: the process that made it lives, and so does the sandbox itself.
    pub fn is_alive(&self, id: &str) -> bool {
        let path = self.shared.state.sandbox(id);
        // One that is being made has no helper yet.
        valid_id(id) && is_held(&path) && helper(&path).is_none_or(|helper| helper.running().is_some())
    }

    /// Ends a sandbox and removes everything of it: processes, control groups, files. One that is gone is fine, and so
    /// is one whose maker is dead or another process.
    ///
    /// # Errors
    /// [`EngineError::Timeout`] if its processes would not die; call again.
    pub async fn destroy(&self, id: &str) -> Result<()> {
        if !valid_id(id) {
            return Ok(());
        }
        let open = lock(&self.open).remove(id);
        if let Some(sandbox) = &open
            && let Err(error) = sandbox.end().await
        {
            lock(&self.open).insert(id.to_owned(), Arc::clone(sandbox));
            return Err(error);
        }
        let path = self.shared.state.sandbox(id);
        end_helper(&path, id).await?;
        let record: Option<Record> = read_json(&path.join("record.json")).ok();
        let mut layered = false;
        if let Some(record) = record {
            layered = !record.layers.is_empty();
            let removed = tokio::task::spawn_blocking(move || record.cgroup.remove());
            removed.await.map_err(std::io::Error::other).flatten().map_err(EngineError::io("control group"))?;
        }
        // The record goes last, so that what is left after an interruption is found and removed later.
        for part in ["upper", "work"] {
            self.shared.remove_tree(path.join(part)).await?;
        }
        self.shared.remove_tree(path).await?;
        // It may have been the last one on the layers of a snapshot that is deleted already.
        if layered { self.remove_unused_layers().await } else { Ok(()) }
    }
}

/// Tries everything that a sandbox needs.
async fn probe(state: &StateDir, launcher: &Launcher) -> Result<(), LaunchError> {
    let scratch = state.draft("scratch");
    std::fs::create_dir(&scratch).map_err(LaunchError::Io)?;
    let result = launcher.run(&Task::Probe { scratch: scratch.clone() }, HELPER_LIMIT).await;
    if std::fs::remove_dir_all(&scratch).is_err() {
        let _ = launcher.run(&Task::Remove { path: scratch }, HELPER_LIMIT).await;
    }
    result
}

pub(super) fn launch_failed(error: LaunchError) -> EngineError {
    match error {
        LaunchError::Failed(failure) => explain(&failure, &Host::read()).into(),
        LaunchError::IdMap(error) => {
            let failure = Failure::new(Step::UserNamespace, "id map", &error);
            explain(&failure, &Host::read()).into()
        }
        LaunchError::Io(error) => EngineError::io("helper process")(error),
        LaunchError::Timeout(limit) => EngineError::Timeout { what: "the helper process".into(), limit },
    }
}

/// What each limit would be if it were asked for.
fn possible_limits(cgroups: &Hierarchy) -> LimitReport {
    let [memory, pids, cpus] = cgroups.offers();
    let enforced_or = |offered: bool, otherwise: Enforcement| if offered { Enforcement::Enforced } else { otherwise };
    // Since Linux 6.14 each pid namespace has a `kernel.pid_max` of its own, which cannot be small; `RLIMIT_NPROC` can,
    // but counts each user by itself and the host's root not at all.
    let own_pid_max = Host::read().kernel.is_some_and(|version| version >= (6, 14));
    let ordinary_user = !rustix::process::geteuid().is_root();
    let without_pids = if own_pid_max || ordinary_user { Enforcement::Advisory } else { Enforcement::Absent };
    LimitReport {
        memory: enforced_or(memory, Enforcement::Absent),
        pids: enforced_or(pids, without_pids),
        cpus: enforced_or(cpus, Enforcement::Advisory),
        file_size: Enforcement::Enforced,
        open_files: Enforcement::Enforced,
    }
}

fn helper(sandbox: &std::path::Path) -> Option<HelperId> {
    read_json(&sandbox.join("helper")).ok()
}

/// Kills the helper of a sandbox that we have no connection to, and waits until it is gone.
async fn end_helper(sandbox: &std::path::Path, id: &str) -> Result<()> {
    let Some(helper) = helper(sandbox) else {
        return Ok(());
    };
    let started = tokio::time::Instant::now();
    while let Some(pid) = helper.running() {
        // The helper leads a process group with the container process and the agent in it; with the agent goes the
        // whole pid namespace.
        let _ = kill_process_group(pid, Signal::KILL);
        if started.elapsed() > END_LIMIT {
            return Err(EngineError::Timeout { what: format!("the end of sandbox {id}"), limit: END_LIMIT });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

impl Shared {
    async fn host_ground(&self) -> Result<&Ground> {
        let state = self.state.clone();
        let build = || async {
            let ground = tokio::task::spawn_blocking(move || host::ground(&state));
            ground.await.map_err(std::io::Error::other).flatten().map_err(EngineError::io("host base"))
        };
        self.host.get_or_try_init(build).await
    }

    async fn resolve(&self, base: &Base) -> Result<(Ground, Vec<String>)> {
        match base {
            Base::Host => Ok((self.host_ground().await?.clone(), Vec::new())),
            Base::Rootfs(directory) => {
                let root = directory.canonicalize().map_err(EngineError::io(directory.display()))?;
                if !root.join("etc").is_dir() && !root.join("bin").exists() {
                    let message = format!("{} is not a root directory: it has neither /etc nor /bin", root.display());
                    return Err(EngineError::Invalid(message));
                }
                Ok((Ground::rootfs(root), Vec::new()))
            }
            Base::Snapshot(id) => {
                let snapshot = self.snapshot(id)?;
                Ok((snapshot.ground, snapshot.layers))
            }
        }
    }

    fn settings(&self, config: &SandboxConfig, cgroup: &Cgroup) -> Settings {
        let [_, pids, cpus] = self.cgroups.offers();
        let limits = &config.limits;
        Settings {
            hostname: config.hostname.clone(),
            host_network: config.network == Network::Host,
            cgroups: cgroup.procs(),
            pid_max: limits.pids.filter(|_| !pids).map(|count| count.max(MIN_PID_MAX)),
            processors: limits.cpus.filter(|_| !cpus).map(|count| count.ceil() as usize),
            lifetime: config.lifetime,
            commands: CommandDefaults {
                env: config.env.clone(),
                file_size: limits.file_size,
                processes: limits.pids.filter(|_| !pids),
                open_files: limits.open_files,
                reset_oom_score: false,
            },
        }
    }

    fn report(&self, limits: &Limits) -> LimitReport {
        let possible = self.facts.limits;
        let asked = |asked: bool, possible| if asked { possible } else { Enforcement::Absent };
        LimitReport {
            memory: asked(limits.memory.is_some(), possible.memory),
            pids: asked(limits.pids.is_some(), possible.pids),
            cpus: asked(limits.cpus.is_some(), possible.cpus),
            file_size: asked(limits.file_size.is_some(), possible.file_size),
            open_files: asked(limits.open_files.is_some(), possible.open_files),
        }
    }

    /// Deletes a tree, with the helper's powers if ours do not suffice. One that is gone is fine.
    pub(super) async fn remove_tree(&self, path: PathBuf) -> Result<()> {
        let tree = path.clone();
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(tree)).await;
        match removed.map_err(std::io::Error::other).flatten() {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                self.launcher.run(&Task::Remove { path }, HELPER_LIMIT).await.map_err(launch_failed)
            }
            Err(error) => Err(EngineError::io(path.display())(error)),
        }
    }

    /// `record.json` of a sandbox of ours, replaced as a whole.
    pub(super) fn save(&self, record: &Record) -> Result<()> {
        let path = self.state.sandbox(&record.id).join("record.json");
        let draft = path.with_extension("new");
        state::write_json(&draft, record)
            .and_then(|()| std::fs::rename(&draft, &path))
            .map_err(EngineError::io(path.display()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
