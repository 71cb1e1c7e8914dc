//! From a failed step to a cause and a remedy.
//!
//! The table is from measurements on Linux 6.18 (root, ordinary user, default and unconfined containers), and from the
//! kernel's documentation where a situation could not be produced.

use std::fs;

use super::boot::{Failure, Step};
use super::error::Obstacle;

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

/// Facts of the host that tell similar refusals apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Host {
    pub(crate) in_container: bool,
    /// `user.max_user_namespaces`.
    pub(crate) max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone` (Debian) is 0.
    pub(crate) clone_disabled: bool,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu) is 1.
    pub(crate) apparmor_restricts: bool,
    /// Major and minor version of the kernel.
    pub(crate) kernel: Option<(u32, u32)>,
}

impl Host {
    pub(crate) fn read() -> Host {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut version = release.split(['.', '-']).map_while(|part| part.parse().ok());
        Host {
            in_container: ["/.dockerenv", "/run/.containerenv"].iter().any(|path| fs::exists(path).unwrap_or(false)),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            clone_disabled: number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0),
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            kernel: version.next().zip(version.next()),
        }
    }
}

/// Names the likely cause of `failure` on this `host`.
pub(crate) fn explain(failure: &Failure, host: &Host) -> Obstacle {
    let (symptom, (cause, remedy)) = match failure.step {
        Step::UserNamespace => ("creating a user namespace failed", user_namespace(failure.errno, host)),
        Step::Namespaces | Step::Mount => ("mounting inside a user namespace failed", mounting(host)),
        Step::Proc => ("mounting /proc in a new pid namespace failed", proc_mount(host)),
        Step::Overlay => ("mounting an overlay failed", overlay(failure.errno, host)),
        Step::ControlGroup => ("joining a control group failed", control_group()),
        Step::Protocol | Step::Container | Step::Work => ("building the sandbox failed", other()),
    };
    Obstacle { symptom: format!("{symptom} ({})", failure.message), cause: cause.into(), remedy: remedy.into() }
}

type Advice = (&'static str, &'static str);

const UNCONFINED: &str = "start the container with `--security-opt seccomp=unconfined \
     --security-opt apparmor=unconfined --security-opt systempaths=unconfined`, or use the docker backend";

fn user_namespace(errno: Option<i32>, host: &Host) -> Advice {
    match errno {
        // The kernel says "no space left on device"; the disk has nothing to do with it.
        Some(ENOSPC) => (
            "the limit of user namespaces is 0 or used up (sysctl user.max_user_namespaces)",
            "raise it: `sysctl -w user.max_user_namespaces=15000`",
        ),
        Some(EPERM) if host.max_user_namespaces == Some(0) => (
            "user namespaces are switched off (sysctl user.max_user_namespaces is 0)",
            "switch them on: `sysctl -w user.max_user_namespaces=15000`",
        ),
        Some(EPERM) if host.clone_disabled => (
            "unprivileged user namespaces are switched off (sysctl kernel.unprivileged_userns_clone is 0)",
            "switch them on: `sysctl -w kernel.unprivileged_userns_clone=1`, or run as root",
        ),
        Some(EPERM | EACCES) if host.in_container => {
            ("this is a container whose seccomp profile forbids user namespaces", UNCONFINED)
        }
        Some(EINVAL) => (
            "the kernel has no user namespaces, or this process has several threads or a chroot",
            "use a kernel with CONFIG_USER_NS, outside a chroot, or use the docker backend",
        ),
        _ => (
            "a security policy of the host forbids user namespaces",
            "ask for user namespaces to be allowed, run as root, or use the docker backend",
        ),
    }
}

fn mounting(host: &Host) -> Advice {
    if host.apparmor_restricts {
        (
            "AppArmor gives user namespaces of ordinary users no capabilities \
             (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)",
            "install an AppArmor profile with the line `userns,` for this program, \
             set the sysctl to 0, or run as root",
        )
    } else if host.in_container {
        ("the container's security profile forbids mounts", UNCONFINED)
    } else {
        (
            "a security policy of the host takes the capabilities out of user namespaces",
            "run as root, or use the docker backend",
        )
    }
}

fn proc_mount(host: &Host) -> Advice {
    if host.in_container {
        (
            "the container masks parts of its own /proc, and the kernel then refuses a fresh one",
            "start the container with `--security-opt systempaths=unconfined`, or use the docker backend",
        )
    } else {
        (
            "something is mounted over parts of /proc, and the kernel then refuses a fresh one",
            "unmount what covers /proc (see /proc/self/mountinfo), or use the docker backend",
        )
    }
}

fn overlay(errno: Option<i32>, host: &Host) -> Advice {
    match errno {
        Some(EPERM) if host.kernel.is_some_and(|version| version < (5, 11)) => {
            ("overlays in user namespaces need Linux 5.11", "use a newer kernel, or use the docker backend")
        }
        Some(EINVAL) => (
            "the state directory is on an overlay file system, or the base has other file systems mounted in it",
            "put the state directory on ext4, xfs, btrfs or tmpfs (in a container: on a volume), \
             or use a root directory without mounts as the base",
        ),
        _ => (
            "the file system of the state directory cannot hold the upper layer of an overlay",
            "put the state directory on ext4, xfs, btrfs or tmpfs",
        ),
    }
}

fn control_group() -> Advice {
    ("the control group was removed or belongs to somebody else", "check /proc/self/cgroup and try again")
}

fn other() -> Advice {
    ("see the message", "if it is not clear, use the docker backend and report the message")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(step: Step, errno: i32, host: Host) -> Obstacle {
        explain(&Failure { step, errno: Some(errno), message: "test".into() }, &host)
    }

    #[test]
    fn every_blocked_situation_names_its_own_remedy() {
        let plain = Host { kernel: Some((6, 1)), max_user_namespaces: Some(1000), ..Host::default() };
        let container = Host { in_container: true, ..plain.clone() };
        let cases = [
            (Step::UserNamespace, EPERM, container.clone(), "seccomp=unconfined"),
            (Step::Proc, EPERM, container.clone(), "systempaths=unconfined"),
            (Step::Namespaces, EPERM, container, "seccomp=unconfined"),
            (Step::UserNamespace, ENOSPC, plain.clone(), "user.max_user_namespaces"),
            (Step::UserNamespace, EPERM, Host { clone_disabled: true, ..plain.clone() }, "unprivileged_userns_clone"),
            (Step::Mount, EACCES, Host { apparmor_restricts: true, ..plain.clone() }, "AppArmor"),
            (Step::Overlay, EPERM, Host { kernel: Some((5, 4)), ..plain.clone() }, "newer kernel"),
            (Step::Overlay, EINVAL, plain.clone(), "volume"),
            (Step::UserNamespace, EINVAL, plain, "CONFIG_USER_NS"),
        ];
        for (step, errno, host, expected) in cases {
            let obstacle = explained(step, errno, host);
            assert!(obstacle.remedy.contains(expected), "{step:?} {errno}: {obstacle}");
        }
    }

    #[test]
    fn a_full_namespace_quota_is_not_reported_as_a_full_disk() {
        let obstacle = explained(Step::UserNamespace, ENOSPC, Host::default());
        assert!(obstacle.cause.contains("user namespaces"));
    }
}
