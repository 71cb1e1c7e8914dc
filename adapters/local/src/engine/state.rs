//! The state directory: what is on disk, under which names, and who holds it.
//!
//! ```text
//! sandboxes/ID/{record.json,lock,helper,helper.log,upper/,work/,merged/}
//! layers/ID/           upper directories that became snapshots
//! snapshots/ID.json    which layers a snapshot consists of
//! bases/KEY/{image.json,rootfs/}
//! host/FINGERPRINT/    the filtered host
//! scratch/             work in progress
//! ```
//! A sandbox appears and disappears under its name as a whole, by `rename`. Its owner holds an exclusive lock, which
//! the kernel drops when the owner dies: that is how the dead are told from the living.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::process::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cgroup::Cgroup;
use super::error::{EngineError, Obstacle, Result};
use super::ground::Ground;

/// `statfs` magic of overlayfs (include/uapi/linux/magic.h).
const OVERLAYFS: u64 = 0x794c_7630;

/// How the name of everything unfinished begins; the pid of its maker follows.
const DRAFT: &str = ".draft-";

/// What is remembered of a sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created: SystemTime,
    pub(crate) ground: Ground,
    /// Layers below its own, the newest first.
    pub(crate) layers: Vec<String>,
    pub(crate) cgroup: Cgroup,
}

/// The directory that holds everything.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Opens or creates it, and checks that overlays can be made there.
    pub(crate) fn open(path: &Path) -> Result<StateDir> {
        let shown = path.display();
        // The mount data of an overlay gives these characters a meaning.
        if path.as_os_str().as_encoded_bytes().iter().any(|byte| b",:\\\"".contains(byte)) || path.to_str().is_none() {
            return Err(EngineError::Invalid(format!(
                "the state directory {shown} must not contain commas, colons, backslashes or quotes"
            )));
        }
        fs::create_dir_all(path).map_err(EngineError::io(shown))?;
        let path = path.canonicalize().map_err(EngineError::io(path.display()))?;
        if on_overlayfs(&path) {
            return Err(Obstacle {
                symptom: format!("the state directory {} is on an overlay file system", path.display()),
                cause: "this is a container, and the directory is part of its image".into(),
                remedy: "set the state directory to a volume or a tmpfs".into(),
            }
            .into());
        }
        let state = StateDir { path };
        for directory in ["sandboxes", "layers", "snapshots", "bases", "host", "scratch"] {
            let directory = state.path.join(directory);
            fs::create_dir_all(&directory).map_err(EngineError::io(directory.display()))?;
        }
        Ok(state)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn sandbox(&self, id: &str) -> PathBuf {
        self.path.join("sandboxes").join(id)
    }

    pub(crate) fn layer(&self, id: &str) -> PathBuf {
        self.path.join("layers").join(id)
    }

    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.path.join("snapshots").join(format!("{id}.json"))
    }

    pub(crate) fn bases(&self) -> PathBuf {
        self.path.join("bases")
    }

    pub(crate) fn host(&self) -> PathBuf {
        self.path.join("host")
    }

    /// A name in `directory` for something that is being made, and will be renamed or removed.
    pub(crate) fn draft(&self, directory: &str) -> PathBuf {
        let name = format!("{DRAFT}{}-{}", std::process::id(), uuid::Uuid::now_v7().simple());
        self.path.join(directory).join(name)
    }

    /// Drafts of processes that died over them.
    pub(crate) fn abandoned_drafts(&self) -> Vec<PathBuf> {
        let entries = ["sandboxes", "bases", "host", "scratch"].map(|name| fs::read_dir(self.path.join(name)));
        let maker = |path: &Path| {
            let name = path.file_name()?.to_str()?.strip_prefix(DRAFT)?;
            name.split('-').next()?.parse().ok()
        };
        let dead = |path: &PathBuf| maker(path).is_some_and(|pid| start_time(pid).is_none());
        entries.into_iter().flatten().flatten().flatten().map(|entry| entry.path()).filter(dead).collect()
    }

    /// Names in one of the directories, without those that are being made.
    pub(crate) fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.path.join(directory))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }
}

/// Whether upper directories of overlays are refused there.
pub(crate) fn on_overlayfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|facts| facts.f_type as u64 == OVERLAYFS)
}

/// The directory for state that nobody configured: the first of the usual places that can hold overlays.
pub fn default_state_dir() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let uid = rustix::process::geteuid().as_raw();
    let shared = |directory: &str| Some(PathBuf::from(format!("{directory}/sandbox-bench-{uid}/local")));
    let candidates = [
        variable("XDG_STATE_HOME").map(|dir| dir.join("sandbox-bench/local")),
        variable("HOME").map(|dir| dir.join(".local/state/sandbox-bench/local")),
        shared("/var/tmp"),
        shared("/dev/shm"),
    ];
    let usable = |path: &PathBuf| fs::create_dir_all(path).is_ok() && !on_overlayfs(path);
    let fallback = || PathBuf::from("/var/tmp/sandbox-bench/local");
    candidates.into_iter().flatten().find(usable).unwrap_or_else(fallback)
}

/// Whether `id` is safe as a file name.
pub(crate) fn valid_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && !id.starts_with('.')
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// A sandbox's directory, held by us.
#[derive(Debug)]
pub(crate) struct SandboxDir {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl SandboxDir {
    /// Makes the directory of a new sandbox. It shows up under its name complete and locked, or not at all.
    pub(crate) fn create(state: &StateDir, record: &Record) -> io::Result<SandboxDir> {
        let path = state.sandbox(&record.id);
        let draft = state.draft("sandboxes");
        fs::create_dir(&draft)?;
        let made = SandboxDir::fill(&draft, record).and_then(|lock| {
            // `rename` would replace an empty directory only, and ours are never empty.
            fs::rename(&draft, &path)?;
            Ok(lock)
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&draft);
        }
        Ok(SandboxDir { path, _lock: made? })
    }

    fn fill(draft: &Path, record: &Record) -> io::Result<File> {
        let lock = File::create(draft.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        write_json(&draft.join("record.json"), record)?;
        fs::create_dir(draft.join("merged"))?;
        Ok(lock)
    }
}

/// Whether the owner of the sandbox in `path` is alive: nobody else holds its lock.
pub(crate) fn is_held(path: &Path) -> bool {
    File::open(path.join("lock"))
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK))
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    fs::write(path, serde_json::to_vec(value)?)
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// A helper process, named so that a reused pid is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HelperId {
    pid: i32,
    /// Clock ticks after boot.
    start: u64,
}

impl HelperId {
    pub(crate) fn of(pid: u32) -> Option<HelperId> {
        let pid = pid as i32;
        Some(HelperId { pid, start: start_time(pid)? })
    }

    /// The process, if it still runs.
    pub(crate) fn running(&self) -> Option<Pid> {
        (start_time(self.pid)? == self.start).then(|| Pid::from_raw(self.pid)).flatten()
    }
}

/// Field 22 of `/proc/PID/stat`, counted after the command name, which may contain anything. `None` for the dead.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(id: &str) -> Record {
        Record {
            id: id.into(),
            labels: BTreeMap::new(),
            created: SystemTime::now(),
            ground: Ground::rootfs("/nowhere".into()),
            layers: Vec::new(),
            cgroup: Cgroup::default(),
        }
    }

    #[test]
    fn a_sandbox_is_held_exactly_as_long_as_its_owner_lives() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let held = SandboxDir::create(&state, &record("one")).unwrap();
        assert!(is_held(&held.path));
        let path = held.path.clone();
        drop(held);
        assert!(!is_held(&path));
        assert_eq!(read_json::<Record>(&path.join("record.json")).unwrap().id, "one");
    }

    #[test]
    fn an_id_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let _held = SandboxDir::create(&state, &record("one")).unwrap();
        assert!(SandboxDir::create(&state, &record("one")).is_err());
        assert_eq!(state.names("sandboxes").unwrap(), ["one"]);
    }

    #[test]
    fn drafts_of_the_dead_are_abandoned_and_those_of_the_living_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = state.path().join("bases").join(format!("{DRAFT}{}-x", child.id()));
        for path in [state.draft("bases"), state.draft("scratch"), dead.clone()] {
            fs::create_dir(path).unwrap();
        }
        assert_eq!(state.abandoned_drafts(), [dead]);
    }

    #[test]
    fn ids_cannot_leave_the_directory() {
        for id in ["", ".", "..", "a/b", ".hidden", "a b", &"x".repeat(65)] {
            assert!(!valid_id(id), "{id:?}");
        }
        assert!(valid_id("sbx-Run_1.2-a"));
    }

    #[test]
    fn paths_that_break_mount_options_are_refused() {
        assert!(matches!(StateDir::open(Path::new("/tmp/a,b")), Err(EngineError::Invalid(_))));
    }

    #[test]
    fn a_process_is_itself_and_no_other() {
        let own = HelperId::of(std::process::id()).unwrap();
        assert!(own.running().is_some());
        assert!(HelperId { start: own.start + 1, ..own }.running().is_none());
    }
}
