//! The few system calls that helper and agent need and that no safe wrapper in the dependency tree offers.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::process::Pid;

/// `None` in the child. Helper and agent have one thread, so the child may allocate and use everything it inherits.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: callers have one thread; see the documentation of `helper` and `agent`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Ends the process without running destructors or exit handlers inherited from the parent.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Closes every descriptor above standard error but these.
pub(crate) fn close_all_but(keep: &[BorrowedFd<'_>]) {
    let mut keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    keep.sort_unstable();
    let mut from = libc::STDERR_FILENO + 1;
    for fd in keep {
        if fd > from {
            close_range(from as u32, fd as u32 - 1);
        }
        from = from.max(fd + 1);
    }
    close_range(from as u32, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: only called in a forked child, whose inherited descriptors are not used again.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn child_signal() -> libc::sigset_t {
    // SAFETY: the set is initialised by `sigemptyset` before use.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        set
    }
}

/// Blocks SIGCHLD and gives a descriptor that becomes readable when one is pending.
pub(crate) fn child_events() -> io::Result<OwnedFd> {
    let set = child_signal();
    // SAFETY: `set` is valid, and the new descriptor belongs to nobody else.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Undoes the blocking of [`child_events`] in a process that will execute a command.
pub(crate) fn unblock_child_signal() {
    let set = child_signal();
    // SAFETY: `set` is valid.
    unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// SIGKILL for every process of the pid namespace but the caller, which is its first. False if there was none.
pub(crate) fn kill_everything() -> bool {
    // SAFETY: `kill` has no memory effects; in the agent's pid namespace -1 reaches sandboxed processes only.
    unsafe { libc::kill(-1, libc::SIGKILL) == 0 }
}

/// SIGSTOP, or SIGCONT, for every process of the pid namespace but the caller, which is its first.
pub(crate) fn stop_everything(stop: bool) {
    let signal = if stop { libc::SIGSTOP } else { libc::SIGCONT };
    // SAFETY: as above. It fails only if there is nobody to signal.
    unsafe { libc::kill(-1, signal) };
}

/// CPU time and memory of all children that were waited for.
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// Bytes.
    pub(crate) max_rss: u64,
}

pub(crate) fn children_usage() -> Usage {
    // SAFETY: `getrusage` fills the structure that it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let duration =
        |time: libc::timeval| Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64);
    Usage { user: duration(usage.ru_utime), system: duration(usage.ru_stime), max_rss: usage.ru_maxrss as u64 * 1024 }
}

/// A new network namespace has its loopback interface down, and connecting to 127.0.0.1 says "network is unreachable".
pub(crate) fn bring_loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: both requests read and write one `ifreq`, which lives until they return. The type of a request's number differs from
    // C library to C library.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &mut request) == -1 {
            return Err(io::Error::last_os_error());
        }
        request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &mut request) == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Reads from a descriptor that somebody else owns.
pub(crate) struct FdReader<'a>(pub(crate) BorrowedFd<'a>);

impl Read for FdReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, buffer)?)
    }
}
