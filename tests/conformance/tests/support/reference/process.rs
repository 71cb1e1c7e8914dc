//! Commands of the reference backend: started by `nsenter(1)`, known by a variable in their environment.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sandbox_bench_core::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::state::Kept;

pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A user of a sandbox.
pub struct User {
    uid: u32,
    gid: u32,
    home: String,
}

/// The user of this name or number; a number needs no entry.
pub fn user(view: &Path, name: &str) -> Result<User> {
    let passwd = std::fs::read_to_string(view.join("etc/passwd")).unwrap_or_default();
    let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find_map(|fields| match fields[..] {
        [entry, _, uid, gid, _, home, _] if entry == name || uid == name => {
            Some(User { uid: uid.parse().ok()?, gid: gid.parse().ok()?, home: home.to_owned() })
        }
        _ => None,
    });
    let number = || name.parse().ok().map(|id| User { uid: id, gid: id, home: "/".into() });
    entry.or_else(number).ok_or_else(|| Error::new(ErrorKind::NotFound, format!("user {name:?}: not found")))
}

/// Refuses what no process can be started with.
pub fn check(spec: &ExecSpec) -> Result<()> {
    let names = spec.env.keys().chain(spec.secret_env.keys());
    let texts = spec.argv.iter().chain(spec.env.values()).chain(spec.env.keys()).chain(&spec.cwd);
    if spec.argv.first().is_none_or(String::is_empty)
        || names.clone().any(|name| name.is_empty() || name.contains('='))
        || texts.clone().any(|text| text.contains('\0'))
        || spec.cwd.as_ref().is_some_and(|cwd| !cwd.starts_with('/'))
    {
        return Err(Error::invalid("a command needs a program, an absolute directory, and texts without NUL"));
    }
    Ok(())
}

/// The command line and environment of a command; `marker` is a variable that all its descendants inherit.
pub fn command(kept: &Kept, call: &Call, spec: &ExecSpec, marker: &str) -> Result<Command> {
    let view = kept.view()?;
    let user = user(&view, spec.user.as_deref().unwrap_or("root"))?;
    let cwd = spec.cwd.clone().or_else(|| kept.read("workdir")).unwrap_or_else(|| "/".into());
    if !view.join(cwd.trim_start_matches('/')).is_dir() {
        return Err(Error::new(ErrorKind::NotFound, format!("directory {cwd:?}: not found")));
    }
    let mut command = Command::new("/usr/bin/nsenter");
    command.args(["-m", "-p", "-n", "-i", "-u", "-r", "-t", &kept.init()?.to_string()]);
    command.args(["-S", &user.uid.to_string(), "-G", &user.gid.to_string()]);
    command.args(["--", "/usr/bin/env", "-C", &cwd]).args(&spec.argv);
    command.env_clear().env("PATH", PATH).env("HOME", user.home);
    for line in kept.read("env").unwrap_or_default().split('\0') {
        if let Some((name, value)) = line.split_once('=') {
            command.env(name, value);
        }
    }
    command.envs(spec.resolved_env(call)?).env(MARKER, marker);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

const MARKER: &str = "REFERENCE_COMMAND";

/// Kills every process that has inherited `marker`, until there is none.
pub async fn kill_tree(marker: &str) -> TreeKill {
    let wanted = format!("{MARKER}={marker}");
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(5) {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let has_it = |pid: &String| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|variable| variable == wanted.as_bytes())
        };
        let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let pids: Vec<String> = pids.filter(|name| name.parse::<u32>().is_ok()).filter(has_it).collect();
        if pids.is_empty() {
            return TreeKill::Yes;
        }
        drop(Command::new("kill").arg("-9").args(pids).output().await);
    }
    TreeKill::No
}

/// Passes a stream on until its end, or until `stop` when nothing more is there.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    stream: Stream,
    limit: u64,
    sink: &dyn OutputSink,
    stop: &CancellationToken,
) -> StreamReport {
    let mut bound = HeadTail::new(limit);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            biased;
            read = from.read(&mut buffer) => read,
            () = stop.cancelled() => break,
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(n) => bound.push(&buffer[..n], |chunk| sink.write(stream, chunk)),
        }
    }
    bound.finish(|chunk| sink.write(stream, chunk))
}

/// Runs a started command to its end, whatever that is.
pub async fn run(mut child: Child, call: &Call, spec: &ExecSpec, marker: &str, sink: &dyn OutputSink) -> ExecReport {
    let start = Instant::now();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let stop = CancellationToken::new();
    let feed = async {
        if let (Some(mut stdin), Some(bytes)) = (stdin, &spec.stdin) {
            // A command may leave its stdin unread.
            let feed = async { drop(stdin.write_all(bytes).await) };
            tokio::select! { () = feed => {}, () = stop.cancelled() => {} }
        }
    };
    let pipes = async {
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else { return Default::default() };
        tokio::join!(
            pump(stdout, Stream::Stdout, spec.output_limit, sink, &stop),
            pump(stderr, Stream::Stderr, spec.output_limit, sink, &stop)
        )
    };
    let end = async {
        let completion = tokio::select! {
            status = child.wait() => ended(status),
            () = tokio::time::sleep(spec.limit(call)) => Completion::DeadlineExceeded { tree_killed: kill_tree(marker).await },
            () = call.cancel.cancelled() => Completion::Cancelled { tree_killed: kill_tree(marker).await },
        };
        let guest_time = start.elapsed();
        if !spec.keep_background {
            kill_tree(marker).await;
        }
        // What is in the pipes already is read; what the background holds open is not waited for.
        tokio::time::timeout(Duration::from_millis(100), stop.cancelled()).await.ok();
        stop.cancel();
        (completion, guest_time)
    };
    let (end, (stdout, stderr), ()) = tokio::join!(end, pipes, feed);
    let resolution = Some(Duration::from_millis(10));
    ExecReport { completion: end.0, stdout, stderr, guest_time: Some(end.1), resolution }
}

fn ended(status: std::io::Result<std::process::ExitStatus>) -> Completion {
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Completion::Exited { code },
            (None, Some(signal)) => Completion::Signalled { signal },
            (None, None) => Completion::TransportLost,
        },
        Err(_) => Completion::TransportLost,
    }
}
