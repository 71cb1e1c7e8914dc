//! Tries everything that a sandbox needs of the kernel, step by step, so that a refusal can be named.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::UnshareFlags;

use super::container::mount_overlay;
use super::unshare;
use crate::engine::boot::{Failure, Overlay, Step};
use crate::engine::sys::fork;

/// Runs in the user namespace. `scratch` is an empty directory on the file system that holds sandboxes.
pub(super) fn run(scratch: &Path) -> Result<(), Failure> {
    let namespaces = UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWCGROUP;
    unshare(namespaces, Step::Namespaces)?;
    let [lower, upper, work, merged, tmp, proc] =
        ["lower", "upper", "work", "merged", "tmp", "proc"].map(|name| scratch.join(name));
    for directory in [&lower.join("directory"), &upper, &work, &merged, &tmp, &proc] {
        fs::create_dir_all(directory).map_err(|error| Failure::new(Step::Work, directory.display(), &error))?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(failure(Step::Mount, "/"))?;
    mount("tmpfs", &tmp, "tmpfs", MountFlags::empty(), None).map_err(failure(Step::Mount, "tmpfs"))?;
    mount_overlay(&Overlay { target: merged.clone(), lower: vec![lower], upper, work })?;
    // The operation that fails with EIO when the overlay does not honour `userxattr`.
    fs::remove_dir(merged.join("directory"))
        .map_err(|error| Failure::new(Step::Overlay, "removing a lower directory", &error))?;
    match proc_mount_in_new_namespace(&proc) {
        Ok(()) => Ok(()),
        Err(error) => Err(Failure::new(Step::Proc, "/proc", &error)),
    }
}

fn failure(step: Step, what: &str) -> impl Fn(rustix::io::Errno) -> Failure {
    move |error| Failure::new(step, what, &error.into())
}

/// Only a process inside the new pid namespace may mount its `/proc`; it answers with its exit code.
fn proc_mount_in_new_namespace(target: &Path) -> io::Result<()> {
    let Some(child) = fork()? else {
        let result = mount("proc", target, "proc", MountFlags::empty(), None);
        std::process::exit(result.err().map_or(0, rustix::io::Errno::raw_os_error));
    };
    match exit_code(child)? {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn exit_code(child: Pid) -> io::Result<i32> {
    let status = waitpid(Some(child), WaitOptions::empty())?;
    status
        .and_then(|(_, status)| status.exit_status())
        .ok_or_else(|| io::Error::other("the probing process was killed"))
}
