//! Which ids exist in a sandbox, and what they are outside.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// Ids of a sandbox when the caller can give it as many as it likes.
const FULL: u32 = 65_536;
/// A map tool that takes longer is stuck on a name service.
const TOOL_LIMIT: Duration = Duration::from_secs(10);

/// The id map of all sandboxes of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IdMap {
    /// We are root: ids are the same inside and outside, from 0 up to `count`.
    Identity { count: u32 },
    /// Root inside is us, the others come from our range in `/etc/subuid` and `/etc/subgid`.
    SubIds { uid: u32, gid: u32, sub_uids: Range, sub_gids: Range },
    /// Only root inside exists, and it is us.
    Single { uid: u32, gid: u32 },
}

/// A range of subordinate ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    start: u32,
    count: u32,
}

impl IdMap {
    /// The best map that this process may make.
    pub(crate) fn detect() -> IdMap {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        if uid == 0 {
            return match own_extent("/proc/self/uid_map").min(own_extent("/proc/self/gid_map")) {
                0 | 1 => IdMap::Single { uid, gid },
                count => IdMap::Identity { count: count.min(FULL) },
            };
        }
        let name = user_name(uid);
        let range = |file: &str| {
            let text = fs::read_to_string(file).ok()?;
            subordinate_range(&text, name.as_deref(), uid)
        };
        match (range("/etc/subuid"), range("/etc/subgid")) {
            (Some(sub_uids), Some(sub_gids)) if tool("newuidmap").is_some() && tool("newgidmap").is_some() => {
                IdMap::SubIds { uid, gid, sub_uids, sub_gids }
            }
            _ => IdMap::Single { uid, gid },
        }
    }

    /// The map with root alone, which needs no privilege.
    pub(crate) fn single() -> IdMap {
        IdMap::Single { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// Ids from 0 up to this one, exclusive, exist in sandboxes.
    pub(crate) fn mapped_ids(&self) -> u32 {
        match self {
            IdMap::Identity { count } => *count,
            IdMap::SubIds { sub_uids, sub_gids, .. } => 1 + sub_uids.count.min(sub_gids.count),
            IdMap::Single { .. } => 1,
        }
    }

    /// Writes the map of the user namespace that the process has just entered.
    pub(crate) async fn apply(&self, pid: u32) -> io::Result<()> {
        match self {
            IdMap::Identity { count } => {
                let map = format!("0 0 {count}");
                write_map(pid, "uid_map", &map)?;
                write_map(pid, "gid_map", &map)
            }
            IdMap::SubIds { uid, gid, sub_uids, sub_gids } => {
                run_tool("newuidmap", pid, *uid, *sub_uids).await?;
                run_tool("newgidmap", pid, *gid, *sub_gids).await
            }
            IdMap::Single { uid, gid } => {
                write_map(pid, "uid_map", &format!("0 {uid} 1"))?;
                // The kernel lets an ordinary user map a group only after giving up the right to drop groups.
                write_map(pid, "setgroups", "deny")?;
                write_map(pid, "gid_map", &format!("0 {gid} 1"))
            }
        }
    }
}

fn write_map(pid: u32, file: &str, text: &str) -> io::Result<()> {
    let path = format!("/proc/{pid}/{file}");
    fs::write(&path, text).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

async fn run_tool(name: &str, pid: u32, id: u32, range: Range) -> io::Result<()> {
    let program = tool(name).ok_or_else(|| io::Error::other(format!("{name} is not installed")))?;
    let arguments = [pid, 0, id, 1, 1, range.start, range.count].map(|number| number.to_string());
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(TOOL_LIMIT, command.output())
        .await
        .map_err(|_| io::Error::other(format!("{name} did not finish within {TOOL_LIMIT:?}")))??;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name} refused: {}", message.trim())))
}

fn tool(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/run/wrappers/bin"]
        .iter()
        .map(|directory| PathBuf::from(directory).join(name))
        .find(|path| path.is_file())
}

/// How many ids from 0 up are mapped in our own namespace: fewer than all when we are root of a container only.
fn own_extent(file: &str) -> u32 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let extent = text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        match (fields.next(), fields.next(), fields.next()) {
            (Some(Ok(0)), Some(Ok(_)), Some(Ok(count))) => Some(count),
            _ => None,
        }
    });
    extent.unwrap_or(1).min(u64::from(u32::MAX)) as u32
}

fn user_name(uid: u32) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse::<u32>().ok()? == uid).then(|| name.to_owned())
    })
}

/// The first usable line `user:start:count` for the user, by name or number.
fn subordinate_range(text: &str, name: Option<&str>, uid: u32) -> Option<Range> {
    let number = uid.to_string();
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let user = fields.next()?;
        let start = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let ours = user == number || name == Some(user);
        (ours && count > 0).then_some(Range { start, count: count.min(FULL - 1) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_found_by_name_or_number_and_nonsense_is_skipped() {
        let text = "other:1:2\nbroken\nme:x:y\nme:100000:65536\n1001:7:3\n";
        assert_eq!(subordinate_range(text, Some("me"), 1000), Some(Range { start: 100_000, count: 65_535 }));
        assert_eq!(subordinate_range(text, None, 1001), Some(Range { start: 7, count: 3 }));
        assert_eq!(subordinate_range(text, Some("you"), 5), None);
    }
}
