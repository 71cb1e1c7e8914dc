//! In the place of a cluster: takes queued runs, starts their containers, and ends them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::pods::{Pod, PodSpec};
use super::world::{Api, RunKey, World};
use crate::faults::Flags;
use crate::machine::{Machine, MachineError, MachineSpec, Source};

/// Between two looks at a run: in memory, and at a real server.
const LOOK: Duration = Duration::from_millis(10);
const REAL_LOOK: Duration = Duration::from_millis(150);
/// A run that nobody ends is given up by its agent after this.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// The owner of every project at an open-source server.
const OWNER: &str = "default";
/// Attempts to destroy a machine.
const ATTEMPTS: usize = 5;

/// Takes care of a new run until its end.
pub(super) fn take(world: &Arc<World>, key: RunKey, flags: Flags) {
    let agent = Agent { world: Arc::clone(world), key, flags };
    world.emulation.tasks.spawn(agent.walk());
}

/// Takes up what the agent before us left at the real server: starts what is queued, and ends what is stopped.
pub(super) async fn resume(world: Arc<World>) {
    let Api::Real(upstream) = &world.api else { return };
    let begun = Timestamp::now();
    let project = &world.options.project;
    for run in upstream.unfinished(OWNER, project).await {
        let older = run["created_at"].as_str().and_then(|at| at.parse().ok()).is_some_and(|at: Timestamp| at < begun);
        let Some(uuid) = run["uuid"].as_str().filter(|_| older && run["kind"] == "service") else { continue };
        let key = RunKey { owner: OWNER.to_owned(), project: project.clone(), uuid: uuid.to_owned() };
        let agent = Agent { world: Arc::clone(&world), key, flags: Flags::default() };
        match run["status"].as_str() {
            Some("queued") => world.emulation.tasks.spawn(agent.walk()),
            // Its container went with the emulator that had started it.
            _ => world.emulation.tasks.spawn(async move { agent.stop_when_asked(None, None).await }),
        }
    }
}

struct Agent {
    world: Arc<World>,
    key: RunKey,
    flags: Flags,
}

impl Agent {
    async fn walk(self) {
        let queued = |status: &str| status == "queued" || status == "stopping";
        let Some(run) = self.until(queued, PATIENCE).await else { return };
        if run["status"] == "stopping" {
            return self.stop_when_asked(None, None).await;
        }
        let compiled = run["content"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some(spec) = compiled.as_ref().and_then(PodSpec::of) else { return };
        if self.flags.has("stay-queued") {
            return self.stop_when_asked(None, None).await;
        }
        self.report("scheduled", "ServiceScheduled", "Service is scheduled").await;
        if self.flags.has("unschedulable") {
            self.report("unschedulable", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.").await;
            return self.stop_when_asked(None, None).await;
        }
        self.report("starting", "ServiceStarting", "Service is starting").await;
        if self.flags.has("start-fails") {
            return self.report("failed", "StartError", "failed to create containerd task").await;
        }
        match self.start(&spec).await {
            Ok(machine) => {
                let pod = Arc::new(Pod::new(machine, &spec));
                self.report("running", "ServiceRunning", "Service is running").await;
                if let Some(late) = self.flags.value("late-gateway") {
                    tokio::time::sleep(Duration::from_millis(late)).await;
                }
                self.world.pods.put(&self.key.uuid, Arc::clone(&pod));
                self.stop_when_asked(Some(pod), spec.timeout).await;
            }
            Err(MachineError::NoImage(image)) => {
                self.report("warning", "ErrImagePull", &format!("failed to pull image \"{image}\": not found")).await;
                let message = format!("Back-off pulling image \"{image}\"");
                self.report("warning", "ImagePullBackOff", &message).await;
                self.stop_when_asked(None, None).await;
            }
            Err(error) => self.report("failed", "CreateContainerError", &error.to_string()).await,
        }
    }

    async fn start(&self, spec: &PodSpec) -> Result<Machine, MachineError> {
        let mut wanted = MachineSpec::new(Source::Image(spec.image.clone()));
        wanted.env = spec.env.clone();
        wanted.env.entry("POLYAXON_RUN_INSTANCE".into()).or_insert_with(|| self.instance());
        wanted.limits = spec.limits.clone();
        let machine = self.world.emulation.machines.create(wanted).await?;
        if let Some(workdir) = &spec.workdir {
            machine.tool(r#"mkdir -p -- "$1""#, &[workdir]).await?;
        }
        Ok(machine)
    }

    fn instance(&self) -> String {
        let RunKey { owner, project, uuid } = &self.key;
        format!("{owner}.{project}.runs.{uuid}")
    }

    /// Waits until the run is to end, ends its container, and says so.
    async fn stop_when_asked(&self, pod: Option<Arc<Pod>>, timeout: Option<u64>) {
        let limit = timeout.map_or(PATIENCE, Duration::from_secs);
        let asked = self.until(|status| status == "stopping" || is_over(status), limit).await;
        if let Some(pod) = pod {
            self.world.pods.remove(&self.key.uuid);
            for _ in 0..ATTEMPTS {
                if self.world.emulation.machines.destroy(&pod.machine).await.is_ok() {
                    break;
                }
            }
        }
        if asked.is_some() && self.flags.has("never-stops") {
            return;
        }
        let (reason, message) = match asked {
            Some(_) => ("ServiceStopped", "Service was stopped"),
            None => ("DeadlineExceeded", "Service was active longer than its timeout"),
        };
        self.report("stopped", reason, message).await;
    }

    /// Waits for a status; none after `limit`, or when the run is over or gone otherwise.
    async fn until(&self, wanted: impl Fn(&str) -> bool, limit: Duration) -> Option<Value> {
        let look = if matches!(self.world.api, Api::Memory(_)) { LOOK } else { REAL_LOOK };
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(run) = self.world.run(&self.key).await {
                let status = run["status"].as_str().unwrap_or_default();
                if wanted(status) {
                    return Some(run);
                }
                if is_over(status) {
                    return None;
                }
            }
            tokio::time::sleep(look).await;
        }
        None
    }

    async fn report(&self, status: &str, reason: &str, message: &str) {
        tokio::time::sleep(self.world.emulation.timing.transition).await;
        self.world.report(&self.key, (status, reason, message)).await;
    }
}

/// Exactly these are final.
pub(super) fn is_over(status: &str) -> bool {
    ["succeeded", "failed", "upstream_failed", "stopped", "skipped"].contains(&status)
}
