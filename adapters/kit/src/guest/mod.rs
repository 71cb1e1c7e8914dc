//! Running one command in a sandbox so that everything about its end is known.
//!
//! A command runs under a small shell wrapper (`run.sh`) that frames what it writes and reports how it ended. So its end
//! is known even if a background process keeps its output open, a second witness tells the exit code, and the backend's
//! own words are never taken for output. The wrapper marks its processes, by which a second command (`kill.sh`) finds
//! and ends all of them. Both scripts need nothing in the sandbox but a POSIX shell and `/proc`. Where the backend itself
//! cannot run a command as another user, a third script does ([`as_user`]).

mod frames;
mod kill;
mod streams;
mod user;
mod wrap;

pub use kill::{Manner, Mark, kill_argv, kill_verdict, out_of_time};
pub use streams::{Closed, Opened, Streams, Usage};
pub use user::{as_user, not_become};
pub use wrap::{Wrapped, check, check_variables, variables};
