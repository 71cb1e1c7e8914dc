//! One sandbox, another, and the host: apart.

use std::path::Path;

use sandbox_bench_core::ExecSpec;

use super::beats;
use crate::check::{Check, same};
use crate::ensure;
use crate::harness::{Handle, Harness};

/// Leaves a file of this name wherever a command can write. Prints where.
fn litter(name: &str) -> String {
    format!(
        "for d in / /bin /dev/shm /etc /home /mnt /opt /root /run /srv /tmp /usr /usr/local/bin /var /var/tmp /workspace; do
            ( : > $d/{name} ) 2>/dev/null && echo $d/{name}
         done; true"
    )
}

async fn sees(h: &Harness, s: &Handle, paths: &str) -> Check<String> {
    h.sh(s, &format!("for f in {}; do test -e $f && echo $f; done; true", paths.replace('\n', " "))).await
}

pub async fn files_stay_in_their_sandbox(h: &Harness) -> Check {
    let (a, b) = (h.sandbox().await?, h.sandbox().await?);
    let written = h.sh(&a, &litter(&h.run)).await?;
    ensure!(written.lines().count() > 1, "nothing could be written: {written:?}");
    same("files of one sandbox, seen by itself", sees(h, &a, &written).await?, written.clone())?;
    same("files of one sandbox, seen in another", sees(h, &b, &written).await?, String::new())?;
    let on_host: Vec<&str> = written.lines().filter(|path| Path::new(path).exists()).collect();
    ensure!(on_host.is_empty(), "files of a sandbox appeared on the host: {on_host:?}");
    Ok(())
}

pub async fn a_new_sandbox_sees_nothing_of_an_earlier_one(h: &Harness) -> Check {
    let a = h.sandbox().await?;
    let written = h.sh(&a, &format!("{}; rm -f /etc/group", litter(&h.run))).await?;
    h.destroy(&a).await?;
    let b = h.sandbox().await?;
    same("files of a destroyed sandbox", sees(h, &b, &written).await?, String::new())?;
    same("a file that it deleted", sees(h, &b, "/etc/group").await?, "/etc/group".into())
}

pub async fn processes_see_only_their_own_sandbox(h: &Harness) -> Check {
    let (a, b) = (h.sandbox().await?, h.sandbox().await?);
    h.exec(&a, &ExecSpec::sh(&beats::starting(&[&h.run], "true"))).await?.text()?;
    let list = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline && echo; done 2>/dev/null; true";
    let own = h.sh(&a, list).await?;
    ensure!(own.contains(&format!("done {}", h.run)), "a sandbox does not see its own process: {own:?}");
    let others = h.sh(&b, list).await?;
    ensure!(!others.contains(&format!("done {}", h.run)), "a sandbox sees a process of another one: {others:?}");
    let host = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let host = String::from_utf8_lossy(&host).replace('\0', " ");
    ensure!(
        host.is_empty() || !others.lines().any(|line| line == host),
        "a sandbox sees the process that runs this suite"
    );
    Ok(())
}

pub async fn the_hosts_files_are_out_of_reach(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let secret = h.host_path();
    std::fs::write(&secret, "of the host")?;
    let here = std::env::current_dir()?;
    for path in [secret.as_path(), here.as_path()] {
        let seen = h.sh(&s, &format!("ls -d '{}' 2>/dev/null; true", path.display())).await?;
        same("a path of the host", seen, String::new())?;
    }
    Ok(())
}

pub async fn sandboxes_tell_themselves_apart(h: &Harness) -> Check {
    let facts =
        "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/pid /proc/self/ns/mnt; cut -d' ' -f1 /proc/uptime";
    let (a, b) = (h.sandbox().await?, h.sandbox().await?);
    let (first, again, other) = (h.sh(&a, facts).await?, h.sh(&a, facts).await?, h.sh(&b, facts).await?);
    let [boot, pid, mnt, uptime] = first.lines().collect::<Vec<_>>()[..] else {
        return same("number of facts", first.lines().count(), 4);
    };
    ensure!(boot.len() == 36 && pid.starts_with("pid:[") && mnt.starts_with("mnt:["), "unreadable facts: {first:?}");
    ensure!(uptime.parse::<f64>().is_ok(), "unreadable uptime: {uptime:?}");
    // Uptime is the last line, and it changes.
    let identity = |facts: &str| facts.lines().take(3).map(str::to_owned).collect::<Vec<_>>();
    same("the facts of one sandbox, asked twice", identity(&again), identity(&first))?;
    ensure!(identity(&first) != identity(&other), "two sandboxes have the same boot id and namespaces: {first:?}");
    Ok(())
}
