//! The user of a command, as the engine has to be told.

use sandbox_bench_core::{Call, Result};

use crate::client::Engine;
use crate::transfer;

/// Most bytes of a passwd file that are read.
const PASSWD_LIMIT: usize = 4 << 20;

/// A user id that the sandbox's passwd file does not list gets the group of the same number; the engine would give it
/// root's. Everything else is the engine's to understand.
///
/// # Errors
/// `SandboxLost`, `Transport`.
pub(crate) async fn resolve(
    engine: &Engine,
    call: &Call,
    container: &str,
    user: Option<&str>,
) -> Result<Option<String>> {
    let Some(user) = user.filter(|user| !user.is_empty()) else { return Ok(None) };
    let listed = match user.parse::<u32>() {
        Ok(0) | Err(_) => true,
        Ok(id) => {
            let passwd = transfer::read(engine, call, container, ("/etc/passwd", PASSWD_LIMIT)).await?;
            lists(&passwd.unwrap_or_default(), id)
        }
    };
    Ok(Some(if listed { user.to_owned() } else { format!("{user}:{user}") }))
}

/// True if a line `name:password:id:group:…` has this id.
fn lists(passwd: &[u8], id: u32) -> bool {
    let passwd = String::from_utf8_lossy(passwd);
    passwd.lines().any(|line| line.split(':').nth(2).and_then(|text| text.parse().ok()) == Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_in_their_place_count() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nagent:x:1000:100::/home/agent:/bin/sh\nbroken\n:::\n\xff:x:7:7\n";
        assert!(lists(passwd, 1000) && lists(passwd, 0) && lists(passwd, 7));
        assert!(!lists(passwd, 100) && !lists(b"", 0));
    }
}
