//! What the reference backend keeps of a sandbox or an artifact: a directory with a few plain files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use sandbox_bench_core::{Artifact, Error, ErrorKind, Result, Tag};
use tokio::process::Command;

/// A directory of the state.
#[derive(Clone)]
pub struct Kept(pub PathBuf);

/// An id that nothing has.
pub fn new_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    format!("{nanos:x}n{}", COUNT.fetch_add(1, Relaxed))
}

/// True for what may be the name of a directory and nothing else.
pub fn id_is_usable(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

impl Kept {
    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(name)).ok()
    }

    pub fn write(&self, name: &str, content: &str) -> io::Result<()> {
        std::fs::write(self.0.join(name), content)
    }

    pub fn tag(&self) -> Option<Tag> {
        Tag::parse(&self.read("tag")?)
    }

    /// The host's pid of the sandbox's first process, if it lives.
    pub fn init(&self) -> Result<u32> {
        let alive = || {
            let pid = self.read("pid")?.trim().parse().ok()?;
            let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
            (namespace == Path::new(self.read("namespace")?.trim())).then_some(pid)
        };
        alive().ok_or_else(|| Error::new(ErrorKind::SandboxLost, "the sandbox is gone"))
    }

    /// As [`Kept::init`], and refuses what a suspended sandbox cannot do.
    pub fn awake(&self) -> Result<u32> {
        let pid = self.init()?;
        if self.read("suspended").is_some() {
            return Err(Error::invalid("the sandbox is suspended"));
        }
        Ok(pid)
    }

    /// Sends a signal to every process of the sandbox; twice, for what was being started meanwhile.
    pub async fn signal(&self, signal: &str) -> Result<()> {
        self.init()?;
        let namespace = self.read("namespace").unwrap_or_default();
        for _ in 0..2 {
            let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            let inside = |pid: &String| {
                std::fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|ns| ns == Path::new(namespace.trim()))
            };
            let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let pids: Vec<String> = pids.filter(|name| name.parse::<u32>().is_ok()).filter(inside).collect();
            drop(Command::new("kill").arg(signal).args(pids).output().await);
        }
        Ok(())
    }

    /// The sandbox's root directory as its processes see it.
    pub fn view(&self) -> Result<PathBuf> {
        self.awake().map(|pid| format!("/proc/{pid}/root").into())
    }

    pub fn artifact(&self) -> Option<Artifact> {
        Some(Artifact {
            backend: "reference".into(),
            id: self.0.file_name()?.to_str()?.to_owned(),
            tag: Some(self.tag()?),
            fingerprint: self.read("fingerprint")?.parse().ok(),
            created_at: None,
            expires_at: None,
            size_bytes: None,
            ready: true,
        })
    }

    /// Copies the files of another sandbox or artifact.
    pub async fn copy_root_from(&self, other: &Self) -> Result<()> {
        self.run("cp -a \"$1/root\" \"$1/upper\" .", &[&other.0]).await
    }

    /// Kills the sandbox's processes, then forgets it.
    pub async fn destroy(&self) -> Result<()> {
        while let Ok(pid) = self.init() {
            // The end of the first process is the end of its pid namespace.
            drop(Command::new("kill").arg("-9").arg(pid.to_string()).output().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.remove().await
    }

    pub async fn remove(&self) -> Result<()> {
        match tokio::fs::remove_dir_all(&self.0).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::new(ErrorKind::Failed, format!("cannot remove {}", self.0.display())).because(error))
            }
            _ => Ok(()),
        }
    }

    /// Runs a shell script in the directory.
    pub async fn run(&self, script: &str, arguments: &[&Path]) -> Result<()> {
        let failed = |why: String| Error::new(ErrorKind::Failed, format!("{}: {why}", self.0.display()));
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).args(arguments).current_dir(&self.0).kill_on_drop(true);
        let output = command.output().await.map_err(|e| failed(e.to_string()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }
}
