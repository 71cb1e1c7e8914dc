//! [`Machines`]: makes machines, saves them, and removes everything it made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_bench_local::engine::{Base, Engine, EngineOptions, Limits, Network, SandboxConfig};
use tempfile::TempDir;
use uuid::Uuid;

use super::{ImageFacts, ImageTable, Machine, MachineError, User};

/// Where `/tmp` is kept in a saved machine: the engine leaves it out of snapshots, a vendor does not.
const KEPT_TMP: &str = "/.emulator-tmp";

/// How the ids of machines begin.
const PREFIX: &str = "emulated-";

/// How machines are made.
#[derive(Clone, Debug, Default)]
pub struct MachineOptions {
    /// Where machines are kept; not an overlay. A temporary directory if absent. One that is kept saves unpacking
    /// images again.
    pub state_dir: Option<PathBuf>,
    /// The program to start the engine's helpers with; this one if absent, which then must call
    /// `engine::helper_main_if_requested` first.
    pub helper: Option<PathBuf>,
    /// What image references stand for.
    pub images: ImageTable,
    /// Machines reach the host's network; otherwise loopback alone.
    pub host_network: bool,
}

/// What a machine starts from.
#[derive(Clone, Debug)]
pub enum Source {
    /// An image reference.
    Image(String),
    /// What [`Machines::save`] made.
    Saved(Arc<Saved>),
}

/// A machine to be made.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// What it starts from.
    pub source: Source,
    /// Added to the environment of the source.
    pub env: BTreeMap<String, String>,
    /// Limits, as far as this host can set them.
    pub limits: Limits,
    /// No network but loopback, whatever the options say.
    pub offline: bool,
}

impl MachineSpec {
    /// No environment of its own and no limits.
    pub fn new(source: Source) -> MachineSpec {
        MachineSpec { source, env: BTreeMap::new(), limits: Limits::default(), offline: false }
    }
}

/// The files of a machine and what its commands start with, kept to make others from.
#[derive(Clone, Debug)]
pub struct Saved {
    id: String,
    facts: ImageFacts,
    /// Bytes on disk that it adds to what it stands on.
    pub size: u64,
}

impl Saved {
    /// Where commands of machines made from it run.
    pub fn workdir(&self) -> Option<String> {
        self.facts.workdir.clone()
    }
}

/// All machines of one emulator.
pub struct Machines {
    engine: Engine,
    images: ImageTable,
    host_network: bool,
    made: Mutex<Made>,
    /// Declared after the engine: removed when its processes have ended.
    _scratch: Option<TempDir>,
}

#[derive(Default)]
struct Made {
    machines: BTreeSet<String>,
    saved: BTreeSet<String>,
}

impl Machines {
    /// Opens the engine.
    ///
    /// # Errors
    /// This machine does not let us make sandboxes; the error names cause and remedy.
    pub async fn open(options: MachineOptions) -> Result<Machines, MachineError> {
        let scratch = options.state_dir.is_none().then(scratch).transpose()?;
        let state_dir = options.state_dir.or_else(|| scratch.as_ref().map(|dir| dir.path().to_owned()));
        let engine = Engine::open(state_dir.unwrap_or_default(), EngineOptions { helper: options.helper }).await?;
        // What an emulator left that was killed.
        for dead in engine.list()?.iter().filter(|listed| !listed.alive && listed.id.starts_with(PREFIX)) {
            engine.destroy(&dead.id).await?;
        }
        Ok(Machines {
            engine,
            images: options.images,
            host_network: options.host_network,
            made: Mutex::default(),
            _scratch: scratch,
        })
    }

    /// What image references stand for.
    pub fn images(&self) -> &ImageTable {
        &self.images
    }

    /// Makes a machine; it is ready to run commands.
    ///
    /// # Errors
    /// The image does not exist or cannot be used; the engine cannot make it.
    pub async fn create(&self, spec: MachineSpec) -> Result<Machine, MachineError> {
        let (base, mut facts, tmp) = match &spec.source {
            Source::Image(reference) => self.image(reference).await?,
            Source::Saved(saved) => (Base::Snapshot(saved.id.clone()), saved.facts.clone(), true),
        };
        facts.env.extend(spec.env);
        let id = format!("{PREFIX}{}", Uuid::new_v4().simple());
        let network = if self.host_network && !spec.offline { Network::Host } else { Network::Off };
        let mut config = SandboxConfig::new(&id, base);
        config.limits = spec.limits;
        config.network = network;
        // Known before it exists, so that an interrupted creation is removed with the others.
        self.lock().machines.insert(id.clone());
        let sandbox = match self.engine.create(config).await {
            Ok(sandbox) => sandbox,
            Err(error) => {
                self.destroy_id(&id).await?;
                return Err(error.into());
            }
        };
        let machine = Machine { sandbox, facts: Mutex::new(facts), tool_user: Mutex::default() };
        if tmp {
            let restore = format!("if [ -d {KEPT_TMP} ]; then cp -a {KEPT_TMP}/. /tmp && rm -rf {KEPT_TMP}; fi");
            machine.tool(&restore, &[]).await?;
        }
        Ok(machine)
    }

    async fn image(&self, reference: &str) -> Result<(Base, ImageFacts, bool), MachineError> {
        if !self.images.exists(reference) {
            return Err(MachineError::NoImage(reference.to_owned()));
        }
        let Some(source) = self.images.source(reference) else {
            return Ok((Base::Host, ImageFacts::default(), false));
        };
        let imported = self.engine.import(source).await?;
        let config = imported.config;
        let facts = ImageFacts { env: config.env, workdir: config.workdir, user: config.user, ..ImageFacts::default() };
        Ok((Base::Rootfs(imported.rootfs), facts, false))
    }

    /// Saves the files of a machine, `/tmp` included. Its processes end; it stays usable.
    ///
    /// # Errors
    /// The engine's.
    pub async fn save(&self, machine: &Machine) -> Result<Arc<Saved>, MachineError> {
        let keep = format!("rm -rf {KEPT_TMP} && mkdir -m 1777 {KEPT_TMP} && cp -a /tmp/. {KEPT_TMP}");
        machine.tool_as(User::Root, &keep, &[], None).await?;
        let id = format!("saved-{}", Uuid::new_v4().simple());
        self.lock().saved.insert(id.clone());
        let snapshot = machine.sandbox.snapshot(&id, BTreeMap::new()).await?;
        machine.tool_as(User::Root, &format!("rm -rf {KEPT_TMP}"), &[], None).await?;
        Ok(Arc::new(Saved { id, facts: machine.facts(), size: snapshot.size }))
    }

    /// Removes what was saved. Machines made from it stay.
    ///
    /// # Errors
    /// The engine's.
    pub async fn delete_saved(&self, saved: &Saved) -> Result<(), MachineError> {
        self.engine.delete_snapshot(&saved.id).await?;
        self.lock().saved.remove(&saved.id);
        Ok(())
    }

    /// Ends a machine and removes its files. One that is gone is fine.
    ///
    /// # Errors
    /// Its processes would not die; call again.
    pub async fn destroy(&self, machine: &Machine) -> Result<(), MachineError> {
        self.destroy_id(&machine.id()).await
    }

    async fn destroy_id(&self, id: &str) -> Result<(), MachineError> {
        self.engine.destroy(id).await?;
        self.lock().machines.remove(id);
        Ok(())
    }

    /// The ids of all machines that were made and not destroyed.
    pub fn alive(&self) -> Vec<String> {
        self.lock().machines.iter().cloned().collect()
    }

    /// Ends all machines and removes everything that was saved.
    ///
    /// # Errors
    /// The first that would not go; the others are gone.
    pub async fn destroy_all(&self) -> Result<(), MachineError> {
        let mut result = Ok(());
        for id in self.alive() {
            result = result.and(self.destroy_id(&id).await);
        }
        let saved: Vec<String> = self.lock().saved.iter().cloned().collect();
        for id in saved {
            result = result.and(self.engine.delete_snapshot(&id).await.map_err(MachineError::from));
        }
        self.lock().saved.clear();
        result
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somewhere that is not an overlay file system, also in a container. `TEST_STATE_DIR` wins.
fn scratch() -> std::io::Result<TempDir> {
    let usual = if Path::new("/.dockerenv").exists() { "/dev/shm" } else { "/var/tmp" };
    let parent = std::env::var_os("TEST_STATE_DIR").map_or_else(|| PathBuf::from(usual), PathBuf::from);
    tempfile::Builder::new().prefix("sandbox-emulator-").tempdir_in(parent)
}

/// How long a command of the emulator's own may take in a machine.
pub(super) const TOOL_LIMIT: Duration = Duration::from_secs(120);
