//! A backend as simple as the contract allows, to prove that the suite can pass: namespaces made by `unshare(1)`,
//! commands run by `nsenter(1)`, state in plain files. It needs root, is slow where that is simple, and guards against
//! nobody. Its capabilities are honest.

mod files;
mod process;
mod sandbox;
mod state;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_bench_core::*;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use sandbox::RefSandbox;
use state::{Kept, id_is_usable, new_id};

pub struct Reference {
    state: PathBuf,
    info: BackendInfo,
}

impl Reference {
    pub fn new(state: &Path) -> Self {
        let capabilities = Capabilities {
            isolation: "namespaces".into(),
            base: true,
            separate_streams: true,
            binary_output: true,
            exact_signals: true,
            tree_kill: true,
            non_root_user: true,
            root_user: true,
            stdin: true,
            network_public: true,
            network_off: true,
            snapshot: true,
            snapshot_keeps_sandbox: true,
            resume: true,
            attach: true,
            attach_across_processes: true,
            find_by_tag: true,
            lifetime: Enforcement::Enforced,
            ..Capabilities::default()
        };
        let info = BackendInfo {
            name: "reference".into(),
            adapter_version: "1".into(),
            backend_version: None,
            api_version: None,
            endpoint: "embedded".into(),
            region: None,
            architecture: std::env::consts::ARCH.into(),
            capabilities,
        };
        Self { state: state.to_owned(), info }
    }

    fn sandbox(&self, id: &str) -> Kept {
        Kept(self.state.join("sandboxes").join(id))
    }

    fn kept_artifact(&self, id: &str) -> Kept {
        Kept(self.state.join("artifacts").join(id))
    }

    fn kept(&self, kind: &str) -> Vec<(String, Kept)> {
        let entries = std::fs::read_dir(self.state.join(kind)).into_iter().flatten().flatten();
        entries.filter_map(|e| Some((e.file_name().into_string().ok()?, Kept(e.path())))).collect()
    }

    fn handle(&self, id: &str, tag: Tag) -> Arc<dyn Sandbox> {
        let reference = SandboxRef { backend: self.info.name.clone(), id: id.to_owned(), tag };
        Arc::new(RefSandbox { kept: self.sandbox(id), artifacts: self.state.join("artifacts"), reference })
    }

    async fn start(&self, kept: &Kept, spec: &SandboxSpec) -> Result<()> {
        let io = |e| Error::new(ErrorKind::Failed, "cannot write the sandbox's state").because(e);
        std::fs::create_dir_all(&kept.0).map_err(io)?;
        kept.write("tag", spec.tag.as_str()).map_err(io)?;
        kept.write("workdir", spec.workdir.as_deref().unwrap_or("/root")).map_err(io)?;
        let env: Vec<String> = spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        kept.write("env", &env.join("\0")).map_err(io)?;
        if spec.resumable {
            kept.write("resumable", "").map_err(io)?;
        }
        match &spec.source {
            Source::Artifact(id) => {
                let from = Some(self.kept_artifact(id)).filter(|kept| id_is_usable(id) && kept.0.is_dir());
                let from =
                    from.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("artifact {id:?}: not found")))?;
                kept.copy_root_from(&from).await?;
            }
            Source::Base => kept.run(include_str!("skeleton.sh"), &[]).await?,
            other => return Err(Error::new(ErrorKind::Environment, format!("cannot start from {other:?}"))),
        }
        self.boot(kept, spec).await
    }

    async fn boot(&self, kept: &Kept, spec: &SandboxSpec) -> Result<()> {
        let failed = |e| Error::new(ErrorKind::Failed, "cannot start the sandbox's first process").because(e);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]);
        if spec.network == NetworkPolicy::NoNetwork {
            command.arg("--net");
        }
        let lifetime = format!("{:.3}", spec.lifetime.as_secs_f64());
        command.args(["sh", "-c", include_str!("boot.sh"), "sh"]).arg(&kept.0).arg(lifetime);
        command.arg(spec.workdir.as_deref().unwrap_or("/root"));
        command
            .env_clear()
            .env("PATH", process::PATH)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let mut said = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            // Not to the end: `unshare` keeps it open as long as the sandbox lives.
            BufReader::new(&mut stdout).read_line(&mut said).await.map_err(failed)?;
        }
        // Its owner from here on: reaps it at its end, or ends it with this process.
        tokio::spawn(async move { child.wait().await });
        match said.trim() {
            "ready" => Ok(()),
            said => Err(Error::new(ErrorKind::Failed, format!("the sandbox did not start: {said:?}"))),
        }
    }
}

#[async_trait]
impl Backend for Reference {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    async fn preflight(&self, call: &Call) -> Result<Preflight> {
        call.meter.api_call();
        Ok(Preflight {
            identity: None,
            round_trip_us: 1,
            clock_offset: None,
            quota: Default::default(),
            warnings: Vec::new(),
        })
    }

    async fn create(&self, call: &Call, spec: &SandboxSpec, _: &dyn OutputSink) -> Result<Created> {
        call.meter.api_call();
        let id = new_id();
        let kept = self.sandbox(&id);
        let started = self.start(&kept, spec).await;
        let cancelled = || Err(Error::new(ErrorKind::Cancelled, "create: cancelled"));
        if let Err(error) = started.and_then(|()| if call.cancel.is_cancelled() { cancelled() } else { Ok(()) }) {
            kept.destroy().await?;
            return Err(error);
        }
        let resolved_source = match &spec.source {
            Source::Artifact(id) => id.clone(),
            _ => "base".into(),
        };
        let workdir = spec.workdir.clone().or(Some("/root".into()));
        let facts = CreateFacts { resolved_source, workdir, ..CreateFacts::default() };
        Ok(Created { sandbox: self.handle(&id, spec.tag.clone()), facts })
    }

    async fn attach(&self, call: &Call, reference: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        call.meter.api_call();
        let id = &reference.id;
        let kept = self.sandbox(id);
        if !id_is_usable(id) || !kept.0.is_dir() {
            return Err(Error::new(ErrorKind::NotFound, format!("sandbox {id:?}: not found")));
        }
        kept.init()?;
        Ok(self.handle(id, kept.tag().unwrap_or_else(|| reference.tag.clone())))
    }

    async fn find(&self, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
        call.meter.api_call();
        let found = |(id, kept): (String, Kept)| {
            let tag = kept.tag().filter(|tag| query.matches(tag.as_str()))?;
            let state = if kept.awake().is_ok() { SandboxState::Running } else { SandboxState::Stopped };
            let reference = SandboxRef { backend: self.info.name.clone(), id, tag };
            Some(Found { reference, state, created_at: None })
        };
        Ok(self.kept("sandboxes").into_iter().filter_map(found).collect())
    }

    async fn destroy(&self, call: &Call, reference: &SandboxRef) -> Result<Destruction> {
        call.meter.api_call();
        if !id_is_usable(&reference.id) {
            return Err(Error::invalid(format!("{:?} is no id of a sandbox", reference.id)));
        }
        self.sandbox(&reference.id).destroy().await.map(|()| Destruction::Confirmed)
    }

    async fn artifact(&self, call: &Call, id: &str) -> Result<Artifact> {
        call.meter.api_call();
        let kept = Some(self.kept_artifact(id)).filter(|kept| id_is_usable(id) && kept.0.is_dir());
        kept.and_then(|kept| kept.artifact())
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("artifact {id:?}: not found")))
    }

    async fn artifacts(&self, call: &Call, query: &TagQuery) -> Result<Vec<Artifact>> {
        call.meter.api_call();
        let artifacts = self.kept("artifacts").into_iter().filter_map(|(_, kept)| kept.artifact());
        Ok(artifacts.filter(|a| a.tag.as_ref().is_some_and(|tag| query.matches(tag.as_str()))).collect())
    }

    async fn delete_artifact(&self, call: &Call, id: &str) -> Result<Destruction> {
        call.meter.api_call();
        if id_is_usable(id) {
            self.kept_artifact(id).remove().await?;
        }
        Ok(Destruction::Confirmed)
    }
}
