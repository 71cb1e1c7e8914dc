//! System calls that the standard library does not have.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use crate::boot;
use crate::users::Account;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What this process is to the whole MicroVM: the parent of every process that lost its own, with a known file mode mask.
/// Where it cannot be that parent, such as under an emulator of its processor, the first process is.
pub(crate) fn prepare_process() {
    // SAFETY: neither call has a pointer or touches memory.
    unsafe {
        libc::umask(0o022);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
}

/// The user that this process runs as.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// 128 random bits, fresh from the kernel: a generator in this process would repeat itself in every MicroVM of a snapshot.
pub(crate) fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(boot::hex(&bytes))
}

/// Has the command's process become a session of its own, and `account` if there is one.
pub(crate) fn isolate(command: &mut Command, account: Option<&Account>) {
    let account = account.cloned();
    let enter = move || {
        // SAFETY: these calls are async-signal-safe; the groups live as long as the closure.
        unsafe {
            checked(libc::setsid())?;
            if let Some(Account { uid, gid, groups, .. }) = &account {
                checked(libc::setgroups(groups.len() as _, groups.as_ptr()))?;
                checked(libc::setgid(*gid))?;
                checked(libc::setuid(*uid))?;
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only and allocates nothing.
    unsafe { command.pre_exec(enter) };
}

/// Sends a signal to a process group. The caller knows that its leader has not been reaped.
pub(crate) fn signal_group(leader: i32, signal: i32) {
    // A group that has no process any more is as good as told.
    // SAFETY: it has no pointers.
    unsafe { libc::kill(-leader, signal) };
}

/// Waits until a child has ended, and leaves it to be reaped.
pub(crate) fn await_end(pid: i32) -> io::Result<()> {
    loop {
        // SAFETY: an all-zero siginfo_t is a value of its type, and the pointer is valid for the call.
        let waited = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            checked(libc::waitid(libc::P_PID, pid.unsigned_abs(), &raw mut info, libc::WEXITED | libc::WNOWAIT))
        };
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// A child that has ended and was not reaped, if there is one.
pub(crate) fn ended_child() -> Option<i32> {
    // SAFETY: as in `await_end`; the pid is set by a successful call, and 0 if nothing has ended.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        checked(libc::waitid(libc::P_ALL, 0, &raw mut info, flags)).ok()?;
        Some(info.si_pid()).filter(|pid| *pid != 0)
    }
}

/// How a process ended, and what it used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) user_ms: u64,
    pub(crate) sys_ms: u64,
    pub(crate) max_rss_kb: u64,
}

/// Reaps a child that has ended.
pub(crate) fn reap(pid: i32) -> io::Result<Exit> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a value of its type; both pointers are valid for the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        checked(libc::wait4(pid, &raw mut status, libc::WNOHANG, ptr::addr_of_mut!(usage)))?;
        usage
    };
    let ms = |time: libc::timeval| u64::try_from(time.tv_sec * 1000 + time.tv_usec / 1000).unwrap_or(0);
    Ok(Exit {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_ms: ms(usage.ru_utime),
        sys_ms: ms(usage.ru_stime),
        max_rss_kb: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    })
}
