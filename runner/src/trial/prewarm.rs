//! Makes a warm artifact: a cold sandbox, prepared as a trial would prepare it, saved.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::evidence::{Cleanup, Creates, Event, Failure};
use sandbox_bench_core::{Artifact, Created, ErrorKind, FailureClass, Input, Phase, Sandbox, SnapshotSpec, Stage};

use super::context::{Calls, Context, Trial};
use super::freshness::ARTIFACT;
use super::materials::Materials;
use super::open::{self, NotOpened};
use super::prepare;
use super::recorder::Recorder;
use super::stop::Stop;
use super::work::{self, Work};

/// Limit for saving a sandbox.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(600);

/// How the making of an artifact ended.
pub struct Prewarmed {
    /// The artifact, or why there is none.
    pub artifact: Result<Artifact, Failure>,
    /// Host time of the whole, in microseconds.
    pub total_us: u64,
    /// How its sandbox ended.
    pub cleanup: Cleanup,
}

/// Makes the artifact of `trial`'s environment, under the trial's tag. Its fingerprint is baked in, so that a sandbox that
/// starts from it can prove that it did.
///
/// # Errors
/// The evidence cannot be written.
pub async fn prewarm(context: &Context, trial: &Trial) -> io::Result<Prewarmed> {
    let rec = Recorder::new(trial.tag.clone(), context, trial.key.clone());
    let (result, cleanup) = build(context, trial, &rec).await;
    let (_, total_us) = rec.finish();
    let artifact = match result {
        Ok(artifact) => {
            context.journal.commit(Event::ArtifactReady { artifact: artifact.clone() }).await?;
            Ok(artifact)
        }
        Err(Stop::Failed(failure)) => Err(failure),
        Err(Stop::Evidence(error)) => return Err(error),
    };
    Ok(Prewarmed { artifact, total_us, cleanup })
}

async fn build(context: &Context, trial: &Trial, rec: &Recorder<'_>) -> (Result<Artifact, Stop>, Cleanup) {
    let mut materials = match Materials::gather(context, trial, &trial.tag) {
        Ok(materials) => materials,
        Err(error) => {
            let stop = Stop::new(FailureClass::Environment, Phase::Inputs, error.to_string());
            return (Err(stop), Cleanup::Nothing);
        }
    };
    let fingerprint = format!("{}\n", trial.setup.fingerprint);
    materials.first = vec![Input::bytes("artifact", ARTIFACT, Stage::Setup, 0o644, fingerprint)];
    let calls = Calls::new(&trial.tag, context, trial.network(), materials.manifest());
    let spec = open::request(context, trial, None);
    let Created { sandbox, .. } = match open::open(context, rec, &calls, &trial.backend, &spec).await {
        Ok(created) => created,
        Err(NotOpened { stop, cleanup }) => return (Err(stop), cleanup),
    };
    let work = Work { context, trial, rec, calls: &calls, materials: &materials };
    let result = save(&work, &sandbox).await;
    let cleanup = open::end(context, &calls, &trial.backend, sandbox.reference()).await;
    (result, cleanup)
}

async fn save(work: &Work<'_>, sandbox: &Arc<dyn Sandbox>) -> Result<Artifact, Stop> {
    let Work { context, trial, rec, calls, .. } = *work;
    let bench = work.bench(sandbox.clone())?;
    rec.phase(Phase::Ready, work::ready(&bench)).await?;
    rec.phase(Phase::Inputs, work::inputs(&bench)).await?;
    rec.phase(Phase::Prepare, prepare::environment(&bench)).await?;
    let intent =
        Event::Intent { tag: trial.tag.clone(), backend: trial.key.backend.clone(), creates: Creates::Artifact };
    context.journal.commit(intent).await.map_err(Stop::evidence)?;
    let spec = SnapshotSpec { tag: trial.tag.clone(), fingerprint: trial.setup.fingerprint.clone(), keep_for: None };
    let call = calls.call(Stage::Setup, SNAPSHOT_LIMIT);
    let mut refused = None;
    let snapshot = async {
        let snapshot = sandbox.snapshot(&call, &spec).await;
        snapshot.map_err(|error| {
            refused = without_effect(error.kind()).then(|| error.to_string());
            Stop::from_error(Phase::Snapshot, "snapshot", &error)
        })
    };
    let saved = rec.phase(Phase::Snapshot, snapshot).await;
    if let Some(error) = refused {
        let nothing = Event::CreateFailed { tag: trial.tag.clone(), error, uncertain: false };
        context.journal.append(nothing).await.map_err(Stop::evidence)?;
    }
    saved
}

/// True if no artifact can have come of a request that ended so.
fn without_effect(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidRequest
            | ErrorKind::Credentials
            | ErrorKind::Denied
            | ErrorKind::RateLimited { .. }
            | ErrorKind::Capacity
            | ErrorKind::Unavailable
            | ErrorKind::Unsupported
    )
}
