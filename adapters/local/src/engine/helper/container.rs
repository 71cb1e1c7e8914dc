//! The only module that uses `hakoniwa`: it builds the namespaces and the root, and starts the agent inside.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hakoniwa::{Container, Namespace, Runctl, Stdio};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_setaffinity};

use super::unshare;
use crate::engine::agent;
use crate::engine::boot::{Boot, Failure, Overlay, Step};

/// hakoniwa's exit code for a container that could not be built.
const SETUP_FAILED: i32 = 125;
/// After the engine has hung up, the agent exits by itself; this long it may take before it is killed.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) fn join_cgroups(procs: &[PathBuf]) -> Result<(), Failure> {
    for file in procs {
        // "0" is the writing process.
        fs::write(file, "0").map_err(|error| Failure::new(Step::ControlGroup, file.display(), &error))?;
    }
    Ok(())
}

/// Keeps the first `count` of the processors we may use. A program can undo this, hence "advisory".
pub(super) fn choose_processors(count: Option<usize>) {
    let (Some(count), Ok(allowed)) = (count, sched_getaffinity(None)) else {
        return;
    };
    let mut chosen = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(count.max(1)).for_each(|cpu| chosen.set(cpu));
    let _ = sched_setaffinity(None, &chosen);
}

/// Builds the sandbox and waits until it ends.
pub(super) fn run(boot: Boot) -> Result<i32, Failure> {
    // hakoniwa cannot mount an overlay as the root, but it takes any directory: give it one that is already mounted.
    unshare(UnshareFlags::NEWNS, Step::Namespaces)?;
    mount_overlay(&boot.root)?;

    let container = container(&boot);
    let settings = boot.settings;
    let config =
        agent::Config { own_network: !settings.host_network, pid_max: settings.pid_max, commands: settings.commands };
    // SAFETY: the process has one thread, so the fork may allocate, lock and do whatever else it likes.
    let mut command = unsafe { container.command_from_closure(move || agent::run(&config)) };
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    if let Some(lifetime) = settings.lifetime {
        command.wait_timeout(lifetime.as_secs().max(1));
    }
    let failed = |error: hakoniwa::Error| Failure::new(Step::Container, "container", &io::Error::other(error));
    let mut child = command.spawn().map_err(failed)?;
    watch(child.id());
    let _ = child.kill();
    let status = child.wait().map_err(failed)?;
    if status.code == SETUP_FAILED {
        return Err(Failure { step: Step::Container, errno: None, message: status.reason });
    }
    Ok(status.code)
}

pub(super) fn mount_overlay(overlay: &Overlay) -> Result<(), Failure> {
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        overlay.lower_list(),
        overlay.upper.display(),
        overlay.work.display()
    );
    let options = std::ffi::CString::new(options).map_err(io::Error::from);
    options
        .and_then(|options| {
            mount("overlay", &overlay.target, "overlay", MountFlags::NOSUID, options.as_c_str())?;
            Ok(())
        })
        .map_err(|error| Failure::new(Step::Overlay, overlay.target.display(), &error))
}

fn container(boot: &Boot) -> Container {
    let mut container = Container::new();
    container.share(Namespace::User);
    container.unshare(Namespace::Ipc).unshare(Namespace::Uts).unshare(Namespace::Cgroup);
    if !boot.settings.host_network {
        container.unshare(Namespace::Network);
    }
    container.rootdir(&boot.root.target);
    container.runctl(Runctl::RootdirRW).runctl(Runctl::MountFallback);
    for overlay in &boot.mounts {
        // Without `userxattr`, removing a lower directory fails with EIO in a user namespace. There is no parameter
        // for it, but the work directory is pasted last into the mount data.
        let work = format!("{},userxattr", overlay.work.display());
        let (upper, target) = (overlay.upper.to_string_lossy(), overlay.target.to_string_lossy());
        container.overlaymount_rw(&overlay.lower_list(), &upper, &work, &target);
    }
    container.devfsmount("/dev");
    // hakoniwa's /dev/shm is writable for root only, which breaks e.g. Python's multiprocessing as another user.
    container.tmpfsmount("/dev/shm");
    container.hostname(&boot.settings.hostname);
    container
}

/// Returns when the sandbox has ended, or when the engine is gone and the agent has had time to notice.
fn watch(child: u32) {
    let Some(Ok(child)) = Pid::from_raw(child as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return;
    };
    let ended = PollFd::new(&child, PollFlags::IN);
    // No flags: the bytes are the agent's. A hang-up is reported all the same.
    let engine = rustix::stdio::stdin();
    let mut both = [ended.clone(), PollFd::from_borrowed_fd(engine, PollFlags::empty())];
    while matches!(poll(&mut both, None), Err(rustix::io::Errno::INTR)) {}
    let farewell = Timespec { tv_sec: FAREWELL.as_secs() as i64, tv_nsec: 0 };
    let _ = poll(&mut [ended], Some(&farewell));
}
