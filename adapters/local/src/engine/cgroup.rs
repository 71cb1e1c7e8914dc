//! Control groups: the limits that the kernel keeps for a whole sandbox.
//!
//! Version 1 (also in the hybrid layout, where `unified` is mounted beside the controllers) and version 2. Without a
//! writable hierarchy there are none, and the callers say so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spec::{Limits, Usage};

const MOUNT: &str = "/sys/fs/cgroup";
/// The kernel's default period, in which a CPU share is counted.
const PERIOD_US: u64 = 100_000;
/// How often a group that is still busy is tried again, every [`RETRY_PAUSE`].
const RETRIES: u32 = 100;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Where groups can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// One directory per controller; only those found are named.
    V1 { memory: Option<PathBuf>, pids: Option<PathBuf>, cpu: Option<PathBuf> },
    /// One directory in which groups with all controllers can be made.
    V2(PathBuf),
    /// Nowhere.
    None,
}

/// The groups of one sandbox. Serialisable, so that another process can remove them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
}

impl Hierarchy {
    /// Looks for a hierarchy in which this process may make groups.
    pub(crate) fn detect() -> Hierarchy {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Hierarchy::detect_in(Path::new(MOUNT), &own)
    }

    fn detect_in(mount: &Path, own: &str) -> Hierarchy {
        if mount.join("cgroup.controllers").exists() {
            return v2_parent(mount, own).map_or(Hierarchy::None, Hierarchy::V2);
        }
        let controller = |name: &str| {
            let path = own_v1_path(own, name)?;
            let root = mount.join(name);
            // In a container our path may be that of the host, while only our own part is mounted.
            [root.join(path.trim_start_matches('/')), root].into_iter().find(|dir| makes_groups(dir))
        };
        match (controller("memory"), controller("pids"), controller("cpu")) {
            (None, None, None) => Hierarchy::None,
            (memory, pids, cpu) => Hierarchy::V1 { memory, pids, cpu },
        }
    }

    /// Which limits groups of this hierarchy can keep: memory, processes, CPU.
    pub(crate) fn offers(&self) -> [bool; 3] {
        match self {
            Hierarchy::V1 { memory, pids, cpu } => [memory.is_some(), pids.is_some(), cpu.is_some()],
            Hierarchy::V2(_) => [true; 3],
            Hierarchy::None => [false; 3],
        }
    }

    /// Makes the groups that `limits` needs, and none that it does not.
    pub(crate) fn create(&self, name: &str, limits: &Limits) -> io::Result<Cgroup> {
        let mut made = Cgroup::default();
        let result = match self {
            Hierarchy::V1 { memory, pids, cpu } => create_v1([memory, pids, cpu], name, limits, &mut made),
            Hierarchy::V2(parent) => create_v2(parent, name, limits, &mut made),
            Hierarchy::None => Ok(()),
        };
        if result.is_err() {
            let _ = made.remove();
        }
        result.map(|()| made)
    }
}

fn own_v1_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let controllers = fields.nth(1)?;
        controllers.split(',').any(|name| name == controller).then(|| fields.next())?
    })
}

/// Whether we may make groups here, found out by making one.
fn makes_groups(directory: &Path) -> bool {
    let probe = directory.join(format!("sandbox-bench-probe-{}", std::process::id()));
    fs::create_dir(&probe).is_ok() && fs::remove_dir(&probe).is_ok()
}

/// A group of version 2 either has processes or hands out controllers, so ours go below a group without processes: one
/// at the top for root, or the group that was delegated to us, from which we step aside first.
fn v2_parent(mount: &Path, own: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let top = mount.join("sandbox-bench");
    if hand_out_controllers(mount).is_ok() && fs::create_dir_all(&top).is_ok() && hand_out_controllers(&top).is_ok() {
        return Some(top);
    }
    let delegated = mount.join(own);
    let aside = delegated.join("sandbox-bench-runner");
    fs::create_dir_all(&aside).ok()?;
    fs::write(aside.join("cgroup.procs"), "0").ok()?;
    hand_out_controllers(&delegated).ok()?;
    Some(delegated)
}

fn hand_out_controllers(group: &Path) -> io::Result<()> {
    let control = group.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control)?;
    if ["memory", "pids", "cpu"].iter().all(|name| enabled.split_whitespace().any(|enabled| enabled == *name)) {
        return Ok(());
    }
    fs::write(&control, "+memory +pids +cpu")
}

fn create_v1(
    [memory, pids, cpu]: [&Option<PathBuf>; 3],
    name: &str,
    limits: &Limits,
    made: &mut Cgroup,
) -> io::Result<()> {
    if let (Some(parent), Some(bytes)) = (memory, limits.memory) {
        let group = make(parent, name, &mut made.memory)?;
        set(&group, "memory.limit_in_bytes", bytes)?;
        // Only where the kernel accounts for swap.
        if group.join("memory.memsw.limit_in_bytes").exists() {
            set(&group, "memory.memsw.limit_in_bytes", bytes)?;
        }
    }
    if let (Some(parent), Some(count)) = (pids, limits.pids) {
        let group = make(parent, name, &mut made.pids)?;
        set(&group, "pids.max", count)?;
    }
    if let (Some(parent), Some(cpus)) = (cpu, limits.cpus) {
        let group = make(parent, name, &mut made.cpu)?;
        set(&group, "cpu.cfs_period_us", PERIOD_US)?;
        set(&group, "cpu.cfs_quota_us", quota(cpus))?;
    }
    Ok(())
}

fn create_v2(parent: &Path, name: &str, limits: &Limits, made: &mut Cgroup) -> io::Result<()> {
    if limits.memory.is_none() && limits.pids.is_none() && limits.cpus.is_none() {
        return Ok(());
    }
    let group = make(parent, name, &mut made.memory)?;
    if let Some(bytes) = limits.memory {
        set(&group, "memory.max", bytes)?;
        if group.join("memory.swap.max").exists() {
            set(&group, "memory.swap.max", 0)?;
        }
    }
    if let Some(count) = limits.pids {
        set(&group, "pids.max", count)?;
    }
    if let Some(cpus) = limits.cpus {
        set(&group, "cpu.max", format!("{} {PERIOD_US}", quota(cpus)))?;
    }
    Ok(())
}

fn make(parent: &Path, name: &str, made: &mut Option<PathBuf>) -> io::Result<PathBuf> {
    let group = parent.join(name);
    fs::create_dir(&group)?;
    *made = Some(group.clone());
    Ok(group)
}

fn set(group: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let path = group.join(file);
    fs::write(&path, value.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Microseconds of CPU per period; the kernel takes no less than 1000.
fn quota(cpus: f64) -> u64 {
    ((cpus * PERIOD_US as f64) as u64).max(1000)
}

impl Cgroup {
    fn groups(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.memory, &self.pids, &self.cpu].into_iter().flatten()
    }

    /// The files that a process writes to in order to join.
    pub(crate) fn procs(&self) -> Vec<PathBuf> {
        self.groups().map(|group| group.join("cgroup.procs")).collect()
    }

    /// How many processes the memory limit has killed.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let group = self.memory.as_ref()?;
        field(&group.join("memory.events"), "oom_kill").or_else(|| field(&group.join("memory.oom_control"), "oom_kill"))
    }

    pub(crate) fn usage(&self) -> Usage {
        let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse().ok();
        let memory = self.memory.as_ref().and_then(|group| {
            number(group.join("memory.peak")).or_else(|| number(group.join("memory.max_usage_in_bytes")))
        });
        let cpu = self.memory.as_ref().and_then(|group| field(&group.join("cpu.stat"), "usage_usec"));
        Usage { cpu: cpu.map(Duration::from_micros), peak_memory: memory }
    }

    /// Kills what is left in the groups and removes them. A group that is gone already is fine.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.groups().try_for_each(|group| remove_group(group))
    }
}

fn field(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn remove_group(group: &Path) -> io::Result<()> {
    for attempt in 0..=RETRIES {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempt < RETRIES => {
                kill_members(group);
                std::thread::sleep(RETRY_PAUSE);
            }
            result => return result,
        }
    }
    Ok(())
}

fn kill_members(group: &Path) {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMITS: Limits =
        Limits { memory: Some(1 << 20), pids: Some(64), cpus: Some(1.5), file_size: None, open_files: None };

    fn read(path: PathBuf) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn version_1_is_found_below_our_own_group_and_limits_are_written() {
        let mount = tempfile::tempdir().unwrap();
        for group in ["memory/ours", "pids", "cpu"] {
            fs::create_dir_all(mount.path().join(group)).unwrap();
        }
        let own = "5:memory:/ours\n4:cpu,cpuacct:/elsewhere\n3:pids:/\n0::/\n";
        let hierarchy = Hierarchy::detect_in(mount.path(), own);
        assert_eq!(hierarchy.offers(), [true; 3]);
        let group = hierarchy.create("box", &LIMITS).unwrap();
        assert_eq!(read(mount.path().join("memory/ours/box/memory.limit_in_bytes")), "1048576");
        assert_eq!(read(mount.path().join("pids/box/pids.max")), "64");
        assert_eq!(read(mount.path().join("cpu/box/cpu.cfs_quota_us")), "150000");
        assert_eq!(group.procs().len(), 3);
        fs::write(mount.path().join("memory/ours/box/memory.oom_control"), "under_oom 0\noom_kill 3\n").unwrap();
        assert_eq!(group.oom_kills(), Some(3));
    }

    #[test]
    fn version_2_gets_one_group_with_all_limits() {
        let mount = tempfile::tempdir().unwrap();
        fs::write(mount.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        fs::write(mount.path().join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let top = mount.path().join("sandbox-bench");
        fs::create_dir(&top).unwrap();
        fs::write(top.join("cgroup.subtree_control"), "").unwrap();
        let hierarchy = Hierarchy::detect_in(mount.path(), "0::/user.slice/session\n");
        assert_eq!(hierarchy, Hierarchy::V2(top.clone()));
        assert_eq!(read(top.join("cgroup.subtree_control")), "+memory +pids +cpu");
        let group = hierarchy.create("box", &LIMITS).unwrap();
        assert_eq!(read(top.join("box/memory.max")), "1048576");
        assert_eq!(read(top.join("box/cpu.max")), "150000 100000");
        fs::write(top.join("box/memory.events"), "low 0\noom 2\noom_kill 1\n").unwrap();
        assert_eq!(group.oom_kills(), Some(1));
    }

    #[test]
    fn without_a_writable_hierarchy_there_is_none() {
        let mount = tempfile::tempdir().unwrap();
        assert_eq!(Hierarchy::detect_in(mount.path(), "5:memory:/\n"), Hierarchy::None);
    }

    #[test]
    fn nothing_is_made_for_limits_that_nobody_asked_for() {
        let mount = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::V2(mount.path().into());
        let group = hierarchy.create("box", &Limits::default()).unwrap();
        assert_eq!(group, Cgroup::default());
        assert!(fs::read_dir(mount.path()).unwrap().next().is_none());
    }
}
