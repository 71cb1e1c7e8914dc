//! One sandbox of the platform as a [`Sandbox`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_bench_core::{
    Artifact, Call, Downloaded, Error, ErrorKind, ExecReport, ExecSpec, Input, Observation, OutputSink, Result,
    Sandbox, SandboxRef, SnapshotSpec, Uploaded,
};
use sandbox_bench_kit::guest::Usage;
use sandbox_bench_kit::wait::{bounded, winding_up};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::session::WIND_UP_LIMIT;
use crate::toolbox::Toolbox;
use crate::wire::SandboxObject;
use crate::{artifact, exec, labels, observe, transfer};

/// A sandbox may have started before the way into it is open; so long it is tried.
const WAY_IN_LIMIT: Duration = Duration::from_secs(30);
const WAY_IN_PAUSE: Duration = Duration::from_millis(200);

/// What all operations in a sandbox need.
pub(crate) struct Guest {
    pub(crate) client: Arc<Client>,
    pub(crate) toolbox: Toolbox,
    /// The sandbox's id.
    pub(crate) id: String,
    /// Environment variables of every command.
    pub(crate) variables: BTreeMap<String, String>,
    /// Working directory of commands that name none.
    pub(crate) workdir: Option<String>,
    /// A directory for what is on its way in or out, that only the sandbox's own user can enter. Made when first needed.
    scratch: OnceCell<String>,
    /// Small things that nobody has to wait for. They end with the handle.
    chores: Mutex<JoinSet<()>>,
}

impl Guest {
    /// The inside of `sandbox`, whose settings are in its labels.
    pub(crate) async fn of(client: &Arc<Client>, call: &Call, sandbox: &SandboxObject) -> Result<Self> {
        Ok(Self {
            client: client.clone(),
            toolbox: Toolbox::of(client, call, sandbox).await?,
            id: sandbox.id.clone(),
            variables: labels::variables(&sandbox.labels),
            workdir: labels::workdir(&sandbox.labels),
            scratch: OnceCell::new(),
            chores: Mutex::default(),
        })
    }

    /// How a message about `doing` something in this sandbox begins.
    pub(crate) fn what(&self, doing: &str) -> String {
        format!("sandbox {}: {doing}", self.id)
    }

    /// The directory for what is on its way in or out. Waits until the sandbox can be entered.
    pub(crate) async fn scratch(&self, call: &Call) -> Result<&str> {
        let make = || async {
            let what = self.what("first request into it");
            let path = format!("/tmp/.sandbox-bench-{}", uuid::Uuid::now_v7().simple());
            let give_up = tokio::time::Instant::now() + WAY_IN_LIMIT;
            loop {
                let Err(error) = self.toolbox.private_directory(call, &what, &path).await else { return Ok(path) };
                let error = self.explained(call, error).await;
                // The proxy does not know a new sandbox at once (400 "failed to get runner info").
                let early = *error.kind() == ErrorKind::Unavailable || error.to_string().contains("runner info");
                if !early || tokio::time::Instant::now() > give_up {
                    return Err(error);
                }
                bounded(call, &what, tokio::time::sleep(WAY_IN_PAUSE)).await?;
            }
        };
        self.scratch.get_or_try_init(make).await.map(String::as_str)
    }

    /// What an error of a request into the sandbox means: if the sandbox is not there any more, that it is lost.
    pub(crate) async fn explained(&self, call: &Call, error: Error) -> Error {
        use ErrorKind::{Cancelled, DeadlineExceeded, Denied, RateLimited, SandboxLost};
        if matches!(error.kind(), Cancelled | DeadlineExceeded | Denied | RateLimited { .. } | SandboxLost) {
            return error;
        }
        match self.client.sandbox(&winding_up(call, WIND_UP_LIMIT), &self.id).await {
            Err(gone) if *gone.kind() == ErrorKind::NotFound => observe::lost(&self.id).because(error),
            Ok(seen) if !observe::alive(&seen) => observe::ended(&seen).because(error),
            _ => error,
        }
    }

    /// Does something that nobody has to wait for.
    pub(crate) fn later(&self, chore: impl Future<Output = Result<()>> + Send + 'static) {
        let mut chores = self.chores.lock().unwrap_or_else(PoisonError::into_inner);
        while chores.try_join_next().is_some() {}
        chores.spawn(async move {
            if let Err(error) = chore.await {
                tracing::debug!(%error, "clearing up in a sandbox failed");
            }
        });
    }

    /// Ends a session of which nothing is needed any more.
    pub(crate) fn close_later(&self, call: &Call, session: &str) {
        let (toolbox, session, call) = (self.toolbox.clone(), session.to_owned(), winding_up(call, WIND_UP_LIMIT));
        self.later(async move { toolbox.close(&call, &session).await });
    }
}

/// A sandbox that runs.
pub(crate) struct DaytonaSandbox {
    guest: Guest,
    reference: SandboxRef,
    /// What it had used when its last command ended.
    usage: Mutex<Usage>,
}

impl DaytonaSandbox {
    pub(crate) fn new(guest: Guest, reference: SandboxRef) -> Self {
        Self { guest, reference, usage: Mutex::default() }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sandbox for DaytonaSandbox {
    fn reference(&self) -> &SandboxRef {
        &self.reference
    }

    async fn exec(&self, call: &Call, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport> {
        let (report, seen) = exec::run(&self.guest, call, spec, sink).await?;
        let mut usage = self.usage();
        usage.cpu_us = usage.cpu_us.max(seen.cpu_us);
        usage.peak_memory_bytes = usage.peak_memory_bytes.max(seen.peak_memory_bytes);
        drop(usage);
        Ok(report)
    }

    async fn upload(&self, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
        transfer::upload(&self.guest, call, inputs).await
    }

    async fn download(&self, call: &Call, from: &str, to: &Path, limit: u64) -> Result<Downloaded> {
        transfer::download(&self.guest, call, from, (to, limit)).await
    }

    async fn snapshot(&self, call: &Call, spec: &SnapshotSpec) -> Result<Artifact> {
        artifact::save(&self.guest, call, spec).await
    }

    async fn observe(&self, call: &Call) -> Result<Observation> {
        let seen = self.guest.client.sandbox(call, &self.guest.id).await.map_err(|e| match e.kind() {
            ErrorKind::NotFound => observe::lost(&self.guest.id),
            _ => e,
        })?;
        if !observe::alive(&seen) {
            return Err(observe::ended(&seen));
        }
        let Usage { cpu_us, peak_memory_bytes } = *self.usage();
        Ok(Observation {
            granted: observe::granted(&seen),
            cpu_us,
            peak_memory_bytes,
            provider_times: observe::times(&seen),
            cost_evidence: observe::cost_evidence(&seen),
        })
    }
}
