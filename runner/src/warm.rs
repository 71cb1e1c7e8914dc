//! Warm artifacts of a run: found at the backend by fingerprint, given by the user, or built before the first trial, so
//! that no trial's time contains the making of one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Cleanup, Event, Failure, TrialKey, Variant};
use sandbox_bench_core::{
    Artifact, Backend, Call, Condition, Digest, ErrorKind, FailureClass, Grants, Phase, Tag, TagQuery,
};
use tokio::task::JoinSet;

use crate::environment::Setup;
use crate::planned::PlannedTask;
use crate::progress::Progress;
use crate::trial::{self, Context, Start, Trial};
use crate::ways::Missing;

/// Limit for listing or looking up artifacts.
const LOOKUP_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// What is known of the artifacts that a run needs.
#[derive(Default)]
pub struct WarmSet {
    artifacts: HashMap<(String, Digest), Result<Ready, Failure>>,
}

/// An artifact that trials can start from.
#[derive(Debug, Clone)]
pub struct Ready {
    /// The artifact.
    pub artifact: Artifact,
    /// How long it took to make, in microseconds; none if it was there already.
    pub built_us: Option<u64>,
}

/// One environment that needs an artifact on one backend.
pub struct Need {
    /// Backend name.
    pub backend: String,
    /// A task with that environment.
    pub task: Arc<PlannedTask>,
}

impl WarmSet {
    /// Id of the artifact for an environment.
    ///
    /// # Errors
    /// Why there is none.
    pub fn artifact(&self, backend: &str, fingerprint: &Digest) -> Result<String, Failure> {
        match self.artifacts.get(&(backend.to_owned(), fingerprint.clone())) {
            Some(Ok(ready)) => Ok(ready.artifact.id.clone()),
            Some(Err(failure)) => Err(failure.clone()),
            None => Err(failure("no warm artifact was made for this environment".into())),
        }
    }

    /// All artifacts and failures, by backend.
    #[must_use]
    pub fn by_backend(&self, backend: &str) -> (Vec<&Ready>, Vec<&Failure>) {
        let mut ready = Vec::new();
        let mut failed = Vec::new();
        for ((name, _), result) in &self.artifacts {
            match result {
                Ok(one) if name == backend => ready.push(one),
                Err(one) if name == backend => failed.push(one),
                _ => {}
            }
        }
        ready.sort_by(|a, b| a.artifact.id.cmp(&b.artifact.id));
        (ready, failed)
    }
}

fn failure(message: String) -> Failure {
    Failure { class: FailureClass::Startup, phase: Phase::Environment, message, error_kind: None, retryable: false }
}

/// One need for each backend and environment that has a trial of the condition `warm`.
#[must_use]
pub fn needs<'a>(trials: impl Iterator<Item = (&'a TrialKey, Arc<PlannedTask>)>, missing: &Missing) -> Vec<Need> {
    let mut needs = BTreeMap::new();
    for (key, task) in trials.filter(|(key, _)| key.condition == Condition::Warm) {
        if let Ok(setup) = task.setup(&key.backend, missing) {
            let slot = (key.backend.clone(), setup.fingerprint.clone());
            needs.entry(slot).or_insert(Need { backend: key.backend.clone(), task });
        }
    }
    needs.into_values().collect()
}

/// Finds or makes an artifact for every need; backends work side by side, each one by one. `given` holds ids that the
/// user named, by backend. With `rebuild`, artifacts that are there already are not looked for.
///
/// # Errors
/// The evidence cannot be written.
pub async fn ensure(
    context: &Arc<Context>,
    backends: &BTreeMap<String, Arc<dyn Backend>>,
    needs: Vec<Need>,
    given: &BTreeMap<String, Vec<String>>,
    rebuild: bool,
    progress: &Progress,
) -> io::Result<WarmSet> {
    let mut by_backend: BTreeMap<String, Vec<Need>> = BTreeMap::new();
    for need in needs {
        by_backend.entry(need.backend.clone()).or_default().push(need);
    }
    let mut jobs = JoinSet::new();
    for (name, needs) in by_backend {
        let Some(backend) = backends.get(&name).cloned() else { continue };
        let (context, progress) = (context.clone(), progress.clone());
        let given = given.get(&name).cloned().unwrap_or_default();
        jobs.spawn(async move { on_backend(&context, &backend, needs, &given, rebuild, &progress).await });
    }
    let mut set = WarmSet::default();
    while let Some(joined) = jobs.join_next().await {
        set.artifacts.extend(joined.map_err(io::Error::other)??);
    }
    Ok(set)
}

type Results = Vec<((String, Digest), Result<Ready, Failure>)>;

async fn on_backend(
    context: &Context,
    backend: &Arc<dyn Backend>,
    needs: Vec<Need>,
    given: &[String],
    rebuild: bool,
    progress: &Progress,
) -> io::Result<Results> {
    let name = backend.info().name.clone();
    let known = known_artifacts(context, backend, given, rebuild).await;
    let mut results = Vec::new();
    let mut needs: VecDeque<Need> = needs.into();
    // A quota that is used up is not asked for again with every further environment.
    let mut full: Option<Failure> = None;
    while let Some(need) = needs.pop_front() {
        let Ok(setup) = need.task.setup(&name, &context.missing) else { continue };
        let slot = (name.clone(), setup.fingerprint.clone());
        let result = match &known {
            _ if context.interrupt.is_cancelled() => Err(failure("the run was interrupted".into())),
            Err(failure) => Err(failure.clone()),
            Ok(known) => match known.get(&setup.fingerprint) {
                Some(artifact) => {
                    context.journal.append(Event::ArtifactReady { artifact: artifact.clone() }).await?;
                    Ok(Ready { artifact: artifact.clone(), built_us: None })
                }
                None if let Some(full) = &full => Err(Failure {
                    message: format!("not tried, as {name} had no room for the one before: {}", full.message),
                    ..full.clone()
                }),
                None if backend.info().capabilities.snapshot => {
                    progress.prewarming(&name, &need.task.name.task);
                    build(context, backend, &need, setup, results.len()).await?
                }
                None => Err(Failure {
                    class: FailureClass::Unavailable,
                    ..failure(format!("the {name} backend has no warm artifacts"))
                }),
            },
        };
        progress.prewarmed(&name, &need.task.name.task, result.as_ref());
        if full.is_none() {
            full = result.as_ref().err().filter(|failure| no_room(failure)).cloned();
        }
        let other_way =
            result.as_ref().is_err_and(|failure| need.task.other_way(&name, setup, failure, &context.missing));
        results.push((slot, result));
        if other_way {
            needs.push_front(need);
        }
    }
    // What the user named is not ignored in silence.
    let used = |id: &String| results.iter().flat_map(|(_, result)| result).any(|ready| ready.artifact.id == *id);
    for id in given.iter().filter(|id| known.is_ok() && !used(id)) {
        progress.say(&format!("{name}: the warm artifact {id} fits no environment of this run and is not used"));
    }
    Ok(results)
}

/// True if the backend said that a quota or its capacity is used up.
fn no_room(failure: &Failure) -> bool {
    failure.error_kind.as_deref() == Some(ErrorKind::Capacity.name())
}

fn unusable(id: &str, error: &sandbox_bench_core::Error) -> String {
    format!(
        "the warm artifact {id} cannot be used: {error} (`sandbox-bench artifacts list` shows those that are there)"
    )
}

/// Artifacts that are there already, by fingerprint. Those that the user named must exist; they win.
async fn known_artifacts(
    context: &Context,
    backend: &Arc<dyn Backend>,
    given: &[String],
    rebuild: bool,
) -> Result<HashMap<Digest, Artifact>, Failure> {
    let tag = Tag::new(&context.run, "artifacts");
    let call = Call::new(tag, LOOKUP_LIMIT, Arc::new(Grants::default())).with_cancel(context.interrupt.child_token());
    let mut known = HashMap::new();
    if !rebuild && backend.info().capabilities.snapshot {
        match backend.artifacts(&call, &TagQuery::All).await {
            Ok(listed) => known.extend(valid(listed, Timestamp::now())),
            Err(error) if *error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(failure(format!("cannot list warm artifacts: {error}"))),
        }
    }
    for id in given {
        let artifact = backend.artifact(&call, id).await;
        let artifact = artifact.map_err(|error| failure(unusable(id, &error)))?;
        let Some(fingerprint) = artifact.fingerprint.clone() else {
            return Err(failure(format!(
                "the warm artifact {id} does not say which environment it holds; make it with `sandbox-bench prewarm`"
            )));
        };
        known.insert(fingerprint, artifact);
    }
    Ok(known)
}

/// The artifacts that a trial can start from, by fingerprint: of several of one environment the newest.
fn valid(mut listed: Vec<Artifact>, now: Timestamp) -> HashMap<Digest, Artifact> {
    listed.retain(|artifact| artifact.ready && !artifact.expired(now));
    listed.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    listed.into_iter().filter_map(|artifact| Some((artifact.fingerprint.clone()?, artifact))).collect()
}

async fn build(
    context: &Context,
    backend: &Arc<dyn Backend>,
    need: &Need,
    setup: &Arc<Setup>,
    number: usize,
) -> io::Result<Result<Ready, Failure>> {
    let name = &backend.info().name;
    let task = match need.task.load() {
        Ok(task) => task,
        Err(problem) => return Ok(Err(failure(problem.to_string()))),
    };
    let trial = Trial {
        key: TrialKey {
            backend: name.clone(),
            condition: Condition::Cold,
            dataset: need.task.name.dataset.clone(),
            task: need.task.name.task.clone(),
            replicate: 0,
            model: None,
            variant: Variant::default(),
        },
        attempt: 1,
        tag: Tag::new(&context.run, &format!("warm-{name}-{number}")),
        task,
        backend: backend.clone(),
        setup: setup.clone(),
        start: Start::Cold,
    };
    let prewarmed = trial::prewarm(context, &trial).await?;
    if let Cleanup::Unconfirmed { why } = &prewarmed.cleanup {
        tracing::warn!(backend = name, why, "the sandbox that a warm artifact was made in may still exist");
    }
    Ok(prewarmed.artifact.map(|artifact| Ready { artifact, built_us: Some(prewarmed.total_us) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_artifact_that_is_whole_and_has_not_expired_is_taken() {
        let at = |hour: i64| Timestamp::from_second(hour * 3600).ok();
        let artifact = |id: &str, made, expires, ready| Artifact {
            backend: "b".into(),
            id: id.into(),
            tag: None,
            fingerprint: Some(Digest::of(b"environment")),
            created_at: at(made),
            expires_at: expires,
            size_bytes: None,
            ready,
        };
        let listed = vec![
            artifact("old", 1, None, true),
            artifact("taken", 3, at(9), true),
            artifact("older", 2, at(9), true),
            artifact("expired", 4, at(8), true),
            artifact("in-the-making", 5, None, false),
        ];
        let now = at(8).unwrap_or_default();
        let taken: Vec<String> = valid(listed, now).into_values().map(|artifact| artifact.id).collect();
        assert_eq!(taken, ["taken"]);
    }
}
