//! [`EngineSandbox`]: one running sandbox.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::boot::{Boot, Settings, Task};
use super::connection::{Channel, Connection};
use super::error::{EngineError, Result};
use super::factory::{END_LIMIT, HELPER_LIMIT, Shared, launch_failed};
use super::job::{Command, Request, User};
use super::running::Running;
use super::spec::{LimitReport, Usage};
use super::state::{HelperId, Record, SandboxDir, write_json};

/// The last part of a helper's log that goes into an error.
const LOG_TAIL: usize = 500;

/// A running sandbox. Clones are the same sandbox. Jobs run in parallel.
///
/// Dropping it ends nothing: the sandbox lives until [`super::Engine::destroy`], or until its engine is dropped, and its
/// files stay even then.
#[derive(Clone, Debug)]
pub struct EngineSandbox {
    pub(super) inner: Arc<Sandbox>,
}

pub(super) struct Sandbox {
    pub(super) shared: Arc<Shared>,
    pub(super) directory: SandboxDir,
    pub(super) record: Mutex<Record>,
    pub(super) settings: Settings,
    limits: LimitReport,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Held while the sandbox is stopped and started again.
    pub(super) restarting: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").field("path", &self.directory.path).finish_non_exhaustive()
    }
}

impl Sandbox {
    pub(super) async fn start(
        shared: Arc<Shared>,
        directory: SandboxDir,
        record: Record,
        settings: Settings,
        limits: LimitReport,
    ) -> Result<Arc<Sandbox>> {
        let sandbox = Sandbox {
            shared,
            directory,
            record: Mutex::new(record),
            settings,
            limits,
            connection: Mutex::new(None),
            restarting: tokio::sync::Mutex::new(()),
        };
        sandbox.run().await?;
        Ok(Arc::new(sandbox))
    }

    /// Starts the processes on fresh upper directories.
    pub(super) async fn run(&self) -> Result<()> {
        let path = &self.directory.path;
        let named = |error| EngineError::io(path.display())(error);
        let record = lock(&self.record).clone();
        let mut mounts = record.ground.mounts(path, &record.layers, &self.shared.state);
        for mount in &mounts {
            make_upper(&mount.upper, mount.lower.first().map_or(Path::new("/"), |lower| lower)).map_err(named)?;
            DirBuilder::new().recursive(true).create(&mount.work).map_err(named)?;
        }
        self.write_network_files(&path.join("upper").join(record.ground.etc())).map_err(named)?;
        let root = mounts.remove(0);
        let boot = Boot { root, mounts, settings: self.settings.clone() };
        let log = File::create(path.join("helper.log")).map_err(named)?;
        let process = self
            .shared
            .launcher
            .start(&Task::Sandbox(Box::new(boot)), Some(log), HELPER_LIMIT)
            .await
            .map_err(launch_failed)?;
        if let Some(helper) = process.child.id().and_then(HelperId::of) {
            write_json(&path.join("helper"), &helper).map_err(named)?;
        }
        *lock(&self.connection) = Some(Arc::new(Connection::new(process)));
        Ok(())
    }

    /// The files of `/etc` that depend on the sandbox. They go into its upper layer, over whatever the base has.
    fn write_network_files(&self, etc: &Path) -> io::Result<()> {
        let name = &self.settings.hostname;
        DirBuilder::new().recursive(true).mode(0o755).create(etc)?;
        fs::write(etc.join("hostname"), format!("{name}\n"))?;
        fs::write(etc.join("hosts"), format!("127.0.0.1\tlocalhost {name}\n::1\tlocalhost ip6-localhost\n"))?;
        let resolver =
            if self.settings.host_network { fs::read("/etc/resolv.conf").unwrap_or_default() } else { Vec::new() };
        fs::write(etc.join("resolv.conf"), resolver)
    }

    /// Ends all processes and waits until they are gone.
    pub(super) async fn end(&self) -> Result<()> {
        let connection = lock(&self.connection).clone();
        let Some(connection) = connection else {
            return Ok(());
        };
        if !connection.close(END_LIMIT).await {
            let what = format!("the end of sandbox {}", self.id());
            return Err(EngineError::Timeout { what, limit: END_LIMIT });
        }
        *lock(&self.connection) = None;
        Ok(())
    }

    pub(super) fn id(&self) -> String {
        lock(&self.record).id.clone()
    }

    pub(super) fn open(&self, request: &Request) -> Result<Channel> {
        let connection = lock(&self.connection).clone();
        let channel = match connection {
            Some(connection) => connection.open(request).map_err(|error| EngineError::Invalid(error.to_string()))?,
            None => None,
        };
        channel.ok_or_else(|| self.lost())
    }

    /// The error of a sandbox that has ended, with what is known about why.
    pub(super) fn lost(&self) -> EngineError {
        let log = fs::read(self.directory.path.join("helper.log")).unwrap_or_default();
        let tail =
            String::from_utf8_lossy(log.get(log.len().saturating_sub(LOG_TAIL)..).unwrap_or_default()).into_owned();
        let why = match (self.oom_kills(), tail.trim()) {
            (Some(kills), _) if kills > 0 => "its memory limit was reached".to_owned(),
            (_, "") => "its processes are gone".to_owned(),
            (_, log) => log.to_owned(),
        };
        EngineError::Lost { id: self.id(), why }
    }

    pub(super) fn oom_kills(&self) -> Option<u64> {
        lock(&self.record).cgroup.oom_kills()
    }
}

/// The upper directory gives the mounted directory its mode, so it takes that of the directory below.
pub(super) fn make_upper(upper: &Path, lower: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(upper)?;
    let mode = fs::metadata(lower)?.permissions().mode() & 0o7777;
    fs::set_permissions(upper, Permissions::from_mode(mode))
}

impl EngineSandbox {
    pub(super) fn new(inner: Arc<Sandbox>) -> EngineSandbox {
        EngineSandbox { inner }
    }

    /// Its id.
    pub fn id(&self) -> String {
        self.inner.id()
    }

    /// Its labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        lock(&self.inner.record).labels.clone()
    }

    /// Which of the limits asked for hold.
    pub fn limits(&self) -> LimitReport {
        self.inner.limits
    }

    /// Whether its processes are gone, e.g. because its lifetime has passed.
    pub fn ended(&self) -> bool {
        lock(&self.inner.connection).as_ref().is_none_or(|connection| connection.ended())
    }

    /// Starts a command.
    ///
    /// A command that cannot be started is no error here but [`super::End::NotStarted`] in its outcome.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for a user that cannot exist here, [`EngineError::Lost`] if the sandbox has ended.
    pub fn exec(&self, command: Command) -> Result<Running> {
        if command.argv.iter().chain(command.env.keys()).chain(command.env.values()).any(|text| text.contains('\0')) {
            return Err(EngineError::Invalid("a command cannot hold NUL characters".into()));
        }
        if command.argv.first().is_none_or(String::is_empty) {
            return Err(EngineError::Invalid("the command is empty".into()));
        }
        let ids = self.inner.shared.launcher.ids.mapped_ids();
        if let User::Ids { uid, gid } = command.user
            && uid.max(gid) >= ids
        {
            return Err(EngineError::Invalid(format!(
                "user {uid}:{gid}: only ids below {ids} exist in sandboxes here"
            )));
        }
        let oom_kills = self.inner.oom_kills();
        let channel = self.inner.open(&Request::Command(command))?;
        Ok(Running::new(Arc::clone(&self.inner), channel, oom_kills))
    }

    /// Ends every process in the sandbox, background processes included, and keeps its files.
    pub async fn kill_all(&self) -> Result<()> {
        let channel = self.inner.open(&Request::KillAll)?;
        Running::new(Arc::clone(&self.inner), channel, None).outcome().await.map(drop)
    }

    /// Connects to a TCP port of the sandbox's loopback interface: [`Running::input`] goes there, and what comes back is
    /// standard output. Where the sandbox shares the host's network, that is the host's port.
    ///
    /// That nobody listens is no error here but [`super::End::TransferFailed`] in the outcome.
    ///
    /// # Errors
    /// [`EngineError::Lost`] if the sandbox has ended.
    pub fn connect(&self, port: u16) -> Result<Running> {
        let channel = self.inner.open(&Request::Connect { port })?;
        Ok(Running::new(Arc::clone(&self.inner), channel, None))
    }

    /// Stops every process with SIGSTOP, or lets all go on with SIGCONT. What is started meanwhile runs; connections of
    /// [`EngineSandbox::connect`] stand still with the rest.
    ///
    /// # Errors
    /// [`EngineError::Lost`] if the sandbox has ended.
    pub async fn stop_all(&self, stop: bool) -> Result<()> {
        let channel = self.inner.open(&Request::Stop(stop))?;
        Running::new(Arc::clone(&self.inner), channel, None).outcome().await.map(drop)
    }

    /// What it has used so far, where control groups count it.
    pub fn usage(&self) -> Usage {
        lock(&self.inner.record).cgroup.usage()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
