//! Builds of image versions: the archive's Dockerfile is executed, the program started and asked whether it is ready.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Aws;
use super::artifact::Artifact;
use super::image::{BuildPlan, BuildState, ImageState};
use super::program;
use crate::dockerfile;
use crate::faults::Flags;
use crate::log::Log;
use crate::machine::{Machine, MachineSpec, Saved, Source};

/// Why builds fail, by the number that the fault script gives: the service's documented reasons.
const REASONS: [&str; 10] = [
    "S3_ACCESS_DENIED",
    "S3_NO_SUCH_KEY",
    "S3_NO_SUCH_BUCKET",
    "S3_INVALID_OBJECT",
    "S3_CROSS_REGION_ACCESS_DENIED",
    "ARCHIVE_DOCKERFILE_NOT_FOUND",
    "ARCHIVE_INVALID",
    "CONTAINER_BUILD_FAILED",
    "DISK_STORAGE_FULL",
    "INTERNAL_PLATFORM_ERROR",
];
/// The service's words where its documentation's reason was not seen.
const BUILD_FAILED: &str = "The container image build failed.";

/// The reason where the program ends in place of becoming ready.
const ENDED: &str = "The container exited before it was ready.";

/// What the fault script does to a build.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// It takes so much longer.
    slow: Duration,
    fails: Option<&'static str>,
    stuck: bool,
}

impl Trouble {
    pub(super) fn of(flags: &Flags) -> Trouble {
        let reason = |number: u64| REASONS.get(number as usize).copied().unwrap_or(BUILD_FAILED);
        Trouble {
            slow: flags.value("slow-build").map(Duration::from_millis).unwrap_or_default(),
            fails: flags.value("build-fails").map(reason),
            stuck: flags.has("build-stuck"),
        }
    }
}

impl Aws {
    /// Builds a version to its end.
    pub(super) async fn build(self: Arc<Self>, image: String, version: u32, trouble: Trouble) {
        let found = self.world().images.get(&image).and_then(|image| {
            let version = image.versions.get(&version)?;
            Some((Arc::clone(&version.plan), Arc::clone(&version.log)))
        });
        let Some((plan, log)) = found else { return };
        if trouble.stuck {
            return;
        }
        tokio::time::sleep(self.emulation.timing.transition).await;
        self.move_build(&image, version, BuildState::InProgress, None, None);
        tokio::time::sleep(self.emulation.timing.transition + trouble.slow).await;
        let built = match trouble.fails {
            Some(reason) => Err(Failure { reason: reason.to_owned(), snapshot: None }),
            None => self.make(&plan, &log).await,
        };
        log.close();
        match built {
            Ok((saved, snapshot)) => {
                if let Some(version) =
                    self.world().images.get_mut(&image).and_then(|image| image.versions.get_mut(&version))
                {
                    version.saved = Some(saved);
                }
                self.move_build(&image, version, BuildState::Successful, None, Some(&snapshot));
            }
            Err(failure) => {
                let snapshot = failure.snapshot.as_ref();
                self.move_build(&image, version, BuildState::Failed, Some(&failure.reason), snapshot);
            }
        }
    }

    fn move_build(&self, image: &str, version: u32, state: BuildState, reason: Option<&str>, snapshot: Option<&Value>) {
        let mut world = self.world();
        let Some(image) = world.images.get_mut(image) else { return };
        if let Some(version) = image.versions.get_mut(&version) {
            version.enter(state, reason, snapshot);
        }
        image.state = match (image.state, state) {
            (ImageState::Creating, BuildState::Successful) => ImageState::Created,
            (ImageState::Creating, BuildState::Failed) => ImageState::CreateFailed,
            (ImageState::Updating, BuildState::Successful) => ImageState::Updated,
            (ImageState::Updating, BuildState::Failed) => ImageState::UpdateFailed,
            (same, _) => same,
        };
        image.updated_at = jiff::Timestamp::now();
    }

    async fn make(&self, plan: &BuildPlan, log: &Arc<Log>) -> Result<(Arc<Saved>, Value), Failure> {
        let object = self.storage.read(&plan.bucket, &plan.key).map_err(Failure::plain)?;
        // A large archive is worth a thread of its own.
        let artifact = tokio::task::spawn_blocking(move || Artifact::read(&object)).await;
        let artifact = artifact.map_err(|_| Failure::plain("INTERNAL_PLATFORM_ERROR"))?;
        let artifact = artifact.map_err(|unfit| Failure::plain(unfit.reason()))?;
        // It is closed by the container build; what the program writes comes after it.
        let built = Log::default();
        let contexts = [artifact.context];
        let given = dockerfile::Build { contexts: &contexts, ..dockerfile::Build::default() };
        let saved = dockerfile::build(&self.emulation.machines, &artifact.dockerfile, given, &built).await;
        log.write(&built.text());
        let saved = saved.map_err(|_| Failure::plain(BUILD_FAILED))?;
        let checked = self.check(plan, &saved, log).await;
        match checked {
            Ok(memory) => {
                let snapshot = json!({
                    "codeInstallSizeInBytes": saved.size,
                    "diskSnapshotSizeInBytes": saved.size,
                    "memorySnapshotSizeInBytes": memory,
                });
                Ok((saved, snapshot))
            }
            Err(reason) => {
                // What would not go stays known to the machines, which remove it at the end.
                let _ = self.emulation.machines.delete_saved(&saved).await;
                Err(Failure { reason, snapshot: Some(json!({ "codeInstallSizeInBytes": saved.size })) })
            }
        }
    }

    /// Starts the program as the snapshot would hold it, waits until it is ready, and then tries it once more elsewhere.
    /// Returns the memory that it took, if that was counted.
    async fn check(&self, plan: &BuildPlan, saved: &Arc<Saved>, log: &Arc<Log>) -> Result<Option<u64>, String> {
        let (first, then) = (plan.hooks.ready, plan.hooks.validate);
        let machine = self.build_machine(plan, saved).await?;
        let ready = self.try_out(&machine, log, [first, None]).await;
        let memory = machine.peak_memory();
        self.emulation.machines.destroy(&machine).await.map_err(|error| error.to_string())?;
        ready?;
        if then.is_some() {
            let machine = self.build_machine(plan, saved).await?;
            let valid = self.try_out(&machine, log, [first, then]).await;
            self.emulation.machines.destroy(&machine).await.map_err(|error| error.to_string())?;
            valid?;
        }
        Ok(memory)
    }

    async fn build_machine(&self, plan: &BuildPlan, saved: &Arc<Saved>) -> Result<Machine, String> {
        let spec = MachineSpec {
            env: plan.env.clone(),
            limits: plan.size.limits(),
            offline: plan.offline,
            ..MachineSpec::new(Source::Saved(Arc::clone(saved)))
        };
        self.emulation.machines.create(spec).await.map_err(|error| error.to_string())
    }

    async fn try_out(
        &self,
        machine: &Machine,
        log: &Arc<Log>,
        hooks: [Option<super::hooks::Hook>; 2],
    ) -> Result<(), String> {
        let ended = program::start(machine, &self.emulation.tasks, log)?;
        let asked = async {
            for hook in hooks.into_iter().flatten() {
                hook.wait(machine, &self.emulation.tasks).await?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            answer = asked => answer,
            // Nobody is left who could say that it is ready.
            _ = ended => Err(ENDED.to_owned()),
        }
    }
}

/// A build that failed.
struct Failure {
    reason: String,
    /// What there was of a snapshot.
    snapshot: Option<Value>,
}

impl Failure {
    fn plain(reason: &str) -> Failure {
        Failure { reason: reason.to_owned(), snapshot: None }
    }
}
