//! Processes that can be seen to live: each appends to a file of its own ten times a second.
//!
//! A pid would not do: a zombie has one, and it may be used again.

use std::time::Duration;

use sandbox_bench_core::ExecSpec;

use crate::check::{Check, same};
use crate::ensure;
use crate::harness::{Handle, Harness};

const BEAT: &str = "while :; do echo x >> /tmp/beat.$0; sleep 0.1; done";

/// A script that starts a process of each name in the background, sees them beat, then goes on with `then`.
#[must_use]
pub fn starting(names: &[&str], then: &str) -> String {
    let mut script = String::new();
    for name in names {
        script += &format!("sh -c '{BEAT}' {name} & {}", wait_for(name));
    }
    script + then
}

/// A script that starts a process which has done what it can to get away: a session of its own, no parent, deaf to
/// signals.
#[must_use]
pub fn starting_detached(name: &str) -> String {
    let deaf = format!("trap \"\" TERM INT HUP QUIT; {BEAT}");
    // `setsid` alone does not fork when it is not a group leader; the subshell's end makes an orphan of the process.
    format!(
        "(if command -v setsid >/dev/null; then setsid sh -c '{deaf}' {name} & else sh -c '{deaf}' {name} & fi); {}",
        wait_for(name)
    )
}

fn wait_for(name: &str) -> String {
    format!("until [ -s /tmp/beat.{name} ]; do sleep 0.05; done; ")
}

/// Fails unless all of them still beat.
///
/// # Errors
/// Which do not.
pub async fn alive(h: &Harness, sandbox: &Handle, names: &[&str]) -> Check {
    observe(h, sandbox, names, 100, "alive").await
}

/// Fails unless all of them have beaten, but do not any more.
///
/// # Errors
/// Which do.
pub async fn dead(h: &Harness, sandbox: &Handle, names: &[&str]) -> Check {
    observe(h, sandbox, names, 8, "dead").await
}

/// Watches for at most `tenths` of a second, or until every file has grown.
async fn observe(h: &Harness, sandbox: &Handle, names: &[&str], tenths: u32, expected: &str) -> Check {
    ensure!(!names.is_empty(), "the suite watches nothing");
    for name in names {
        let script = format!(
            "a=$(wc -c < /tmp/beat.{name}) || exit 3; b=$a; i=0
             while [ $i -lt {tenths} ] && [ $a = $b ]; do sleep 0.1; b=$(wc -c < /tmp/beat.{name}); i=$((i+1)); done
             if [ $a = $b ]; then echo dead; else echo alive; fi"
        );
        let ran = h.exec(sandbox, &ExecSpec::sh(&script).timeout(Duration::from_secs(30))).await?;
        same(&format!("process {name}"), ran.text()?, expected.to_owned())?;
    }
    Ok(())
}
