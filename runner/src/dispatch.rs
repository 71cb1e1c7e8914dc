//! The dispatcher: it alone decides what runs when. Trials run as tasks of their own that share no state; they report back
//! one record each. It owns concurrency, the rhythm of launches, retries, stop rules, sessions and the end of the run.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Attempt, Cleanup, Event, Failure, Load, SCHEMA_VERSION, TrialKey, Variant};
use sandbox_bench_core::{
    Backend, Condition, Digest, FailureClass, MeterReading, NetworkPolicy, Phase, Resources, Tag,
};
use sandbox_bench_datasets::task::Task;
use sandbox_bench_reports::cost::{RateCard, price};
use sandbox_bench_reports::summary::Watched;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::environment::{Setup, condition_unavailable};
use crate::plan::TaskName;
use crate::planned::PlannedTask;
use crate::progress::Progress;
use crate::run::Shape;
use crate::trial::{self, Context, Session, Start, Trial};
use crate::warm::WarmSet;

/// What is to be run, and within which bounds.
pub struct Work {
    /// The tasks, by name.
    pub tasks: BTreeMap<TaskName, Arc<PlannedTask>>,
    /// The backends, by name.
    pub backends: BTreeMap<String, Arc<dyn Backend>>,
    /// The trials, in order.
    pub trials: Vec<TrialKey>,
    /// Warm artifacts.
    pub warm: WarmSet,
    /// Most trials at one time.
    pub concurrency: usize,
    /// Most trials at one time on a backend.
    pub backend_concurrency: BTreeMap<String, usize>,
    /// Most attempts of one trial.
    pub max_attempts: u32,
    /// Stop after this many accepted trials.
    pub stop_after_passes: Option<u64>,
    /// Stop once the models have cost so many US dollars.
    pub model_budget_usd: Option<f64>,
    /// Rhythm and bounds; the dimensions are in the trials.
    pub shape: Shape,
    /// What sandboxes cost.
    pub rates: RateCard,
}

/// A trial that waits for its turn.
struct Waiting {
    order: usize,
    /// Which stretch of one level of concurrency it belongs to.
    block: usize,
    key: TrialKey,
    attempt: u32,
}

/// Key of a cell.
type CellKey = (String, Condition, Option<String>, Variant);

/// Key of a session: trials of one backend and environment share it.
type SessionKey = (String, Digest);

struct Dispatcher<'a> {
    context: Arc<Context>,
    work: &'a Work,
    progress: &'a Progress,
    queues: BTreeMap<String, VecDeque<Waiting>>,
    running: BTreeMap<String, usize>,
    sessions: HashMap<SessionKey, Arc<Mutex<Session>>>,
    busy: HashSet<SessionKey>,
    /// Most trials at one time in each block.
    places: Vec<usize>,
    block: usize,
    /// Launched since nothing ran.
    wave: usize,
    first_launch: Option<Instant>,
    last_launch: Option<Instant>,
    passes: u64,
    /// Of models, and of all.
    models_usd: f64,
    spent_usd: f64,
    /// The times of each cell, where it is done once they are known well enough.
    watched: BTreeMap<CellKey, Watched>,
    jobs: JoinSet<io::Result<Finished>>,
}

struct Finished {
    waiting: Waiting,
    session: Option<SessionKey>,
    /// How its environment was to be made; none if it was not run at all.
    setup: Option<Arc<Setup>>,
    attempt: Attempt,
}

/// Runs all trials, as far as nothing stops them.
///
/// # Errors
/// The evidence cannot be written. Sandboxes are destroyed all the same.
pub async fn run(context: Arc<Context>, work: &Work, progress: &Progress) -> io::Result<()> {
    let mut queues: BTreeMap<String, VecDeque<Waiting>> = BTreeMap::new();
    let mut levels: Vec<Option<u32>> = Vec::new();
    for (order, key) in work.trials.iter().enumerate() {
        if levels.last() != Some(&key.variant.concurrency) {
            levels.push(key.variant.concurrency);
        }
        let waiting = Waiting { order, block: levels.len() - 1, key: key.clone(), attempt: 1 };
        queues.entry(key.backend.clone()).or_default().push_back(waiting);
    }
    let places = levels.into_iter().map(|level| level.map_or(work.concurrency, |level| level as usize)).collect();
    let mut dispatcher = Dispatcher {
        context,
        work,
        progress,
        queues,
        running: BTreeMap::new(),
        sessions: HashMap::new(),
        busy: HashSet::new(),
        places,
        block: 0,
        wave: 0,
        first_launch: None,
        last_launch: None,
        passes: 0,
        models_usd: 0.0,
        spent_usd: 0.0,
        watched: BTreeMap::new(),
        jobs: JoinSet::new(),
    };
    let result = dispatcher.run_all().await;
    dispatcher.close_sessions().await;
    result
}

impl Dispatcher<'_> {
    async fn run_all(&mut self) -> io::Result<()> {
        let mut broken = None;
        loop {
            while broken.is_none() && !self.stopping() {
                let Some(next) = self.next() else { break };
                if let Err(error) = self.launch(next).await {
                    broken = Some(error);
                }
            }
            let pause = self.pause().filter(|_| broken.is_none() && !self.stopping() && self.waits());
            let interrupt = self.context.interrupt.clone();
            tokio::select! {
                Some(joined) = self.jobs.join_next() => {
                    let finished = joined.unwrap_or_else(|error| Err(io::Error::other(error)));
                    let result = match finished {
                        Ok(finished) => self.settle(finished).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = result {
                        // No more evidence can be written: end what runs, start nothing.
                        self.context.interrupt.cancel();
                        broken.get_or_insert(error);
                    }
                }
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
                () = interrupt.cancelled(), if pause.is_some() => {}
                else => return broken.map_or(Ok(()), Err),
            }
        }
    }

    /// True if there is a trial to start.
    fn waits(&self) -> bool {
        self.queues.values().any(|queue| !queue.is_empty())
    }

    /// When the next trial may be launched, if that is not now.
    fn pause(&self) -> Option<Instant> {
        let Load::Staggered { interval_ms } = self.work.shape.load else { return None };
        let next = self.last_launch? + Duration::from_millis(interval_ms);
        (next > Instant::now()).then_some(next)
    }

    fn stopping(&self) -> bool {
        let enough = self.work.stop_after_passes.is_some_and(|wanted| self.passes >= wanted);
        let bounds = &self.work.shape.bounds;
        let spent = self.work.model_budget_usd.is_some_and(|budget| self.models_usd >= budget)
            || bounds.usd.is_some_and(|budget| self.spent_usd >= budget);
        let limit = bounds.seconds.map(Duration::from_secs);
        let late = limit.is_some_and(|limit| self.first_launch.is_some_and(|first| first.elapsed() >= limit));
        enough || spent || late || self.context.interrupt.is_cancelled()
    }

    /// The earliest trial, in plan order, that may be launched now, has a free slot and whose session is not in use.
    fn next(&mut self) -> Option<Waiting> {
        let running: usize = self.running.values().sum();
        if running == 0 {
            // Levels of concurrency do not overlap, and neither do bursts.
            self.wave = 0;
            self.block = self.queues.values().flatten().map(|waiting| waiting.block).min()?;
        }
        let taken = if self.work.shape.load == Load::Burst { self.wave } else { running };
        if taken >= self.places.get(self.block).copied().unwrap_or(1) || self.pause().is_some() {
            return None;
        }
        let mut best: Option<(usize, &String, usize)> = None;
        for (backend, queue) in &self.queues {
            let limit = self.work.backend_concurrency.get(backend).copied().unwrap_or(usize::MAX);
            if self.running.get(backend).copied().unwrap_or(0) >= limit {
                continue;
            }
            let free = queue.iter().position(|waiting| {
                waiting.block == self.block
                    && self.session_key(&waiting.key).is_none_or(|key| !self.busy.contains(&key))
            });
            if let Some((position, waiting)) = free.and_then(|at| queue.get(at).map(|w| (at, w)))
                && best.is_none_or(|(order, ..)| waiting.order < order)
            {
                best = Some((waiting.order, backend, position));
            }
        }
        let (_, backend, position) = best?;
        let backend = backend.clone();
        self.queues.get_mut(&backend)?.remove(position)
    }

    fn session_key(&self, key: &TrialKey) -> Option<SessionKey> {
        if key.condition != Condition::Reuse {
            return None;
        }
        let setup = self.planned(key)?.setup(&key.backend, &self.context.missing).ok()?;
        Some((key.backend.clone(), setup.fingerprint.clone()))
    }

    fn planned(&self, key: &TrialKey) -> Option<&Arc<PlannedTask>> {
        self.work.tasks.get(&TaskName { dataset: key.dataset.clone(), task: key.task.clone() })
    }

    /// Starts an attempt, or records at once why there is none.
    async fn launch(&mut self, waiting: Waiting) -> io::Result<()> {
        let now = Instant::now();
        self.first_launch.get_or_insert(now);
        self.last_launch = Some(now);
        self.wave += 1;
        let tag = Tag::new(&self.context.run, &format!("{:05}-{}", waiting.order + 1, waiting.attempt));
        match self.prepare(&waiting, tag.clone()) {
            Err(failure) => {
                let digest = self.planned(&waiting.key).map_or_else(|| Digest::of(b""), |task| task.digest.clone());
                let attempt = not_run(&self.context.run, &waiting, tag, digest, failure);
                *self.running.entry(waiting.key.backend.clone()).or_default() += 1;
                self.settle(Finished { waiting, session: None, setup: None, attempt }).await
            }
            Ok(trial) => {
                let session = self.session_key(&waiting.key);
                self.busy.extend(session.clone());
                *self.running.entry(waiting.key.backend.clone()).or_default() += 1;
                self.progress.started(&waiting.key);
                let context = self.context.clone();
                self.jobs.spawn(async move {
                    let attempt = trial::attempt(&context, &trial).await?;
                    Ok(Finished { waiting, session, setup: Some(trial.setup), attempt })
                });
                Ok(())
            }
        }
    }

    fn prepare(&mut self, waiting: &Waiting, tag: Tag) -> Result<Trial, Failure> {
        let key = &waiting.key;
        let failed =
            |class, message| Failure { class, phase: Phase::Environment, message, error_kind: None, retryable: false };
        let unavailable = |message| failed(FailureClass::Unavailable, message);
        let planned = self.planned(key).ok_or_else(|| unavailable("the task is not part of the plan".into()))?.clone();
        let backend =
            self.work.backends.get(&key.backend).ok_or_else(|| unavailable("the backend is not connected".into()))?;
        if let Some(why) = condition_unavailable(key.condition, backend.info()) {
            return Err(unavailable(why));
        }
        let setup = planned.setup(&key.backend, &self.context.missing).map_err(|why| unavailable(why.into()))?.clone();
        let start = match key.condition {
            Condition::Cold => Start::Cold,
            Condition::Resumed => Start::Resumed,
            Condition::Warm => Start::Warm(self.work.warm.artifact(&key.backend, &setup.fingerprint)?),
            Condition::Reuse => {
                let slot = (key.backend.clone(), setup.fingerprint.clone());
                Start::Reuse(self.sessions.entry(slot).or_default().clone())
            }
        };
        let mut task = planned.load().map_err(|problem| failed(FailureClass::Environment, problem.to_string()))?;
        if let Some(profile) = key.variant.profile.as_ref().and_then(|name| self.work.shape.profiles.get(name)) {
            let resources = with_profile(&task.resources, profile);
            task = Arc::new(Task { resources, ..Task::clone(&task) });
        }
        Ok(Trial { key: key.clone(), attempt: waiting.attempt, tag, task, backend: backend.clone(), setup, start })
    }

    /// Takes a finished attempt: journals it, shows it, and queues a further one where that makes sense.
    async fn settle(&mut self, finished: Finished) -> io::Result<()> {
        let Finished { waiting, session, setup, mut attempt } = finished;
        if let Some(running) = self.running.get_mut(&waiting.key.backend) {
            *running = running.saturating_sub(1);
        }
        if let Some(session) = session {
            self.busy.remove(&session);
        }
        let other_way = self.other_way(&waiting.key, setup.as_deref(), attempt.failure.as_ref());
        let repeatable = attempt.failure.as_ref().is_some_and(|failure| failure.retryable)
            && waiting.attempt < self.work.max_attempts;
        let again = (other_way || repeatable) && !self.stopping();
        attempt.last = !again;
        self.context.journal.commit(Event::AttemptFinished { attempt: Box::new(attempt.clone()) }).await?;
        self.passes += u64::from(attempt.accepted() && !attempt.trial.is_warm_up());
        let of_model = attempt.agent.as_ref().and_then(|agent| agent.spend.usd()).unwrap_or(0.0);
        self.models_usd += of_model;
        self.spent_usd += of_model + price(&attempt, &self.work.rates).and_then(|cost| cost.usd()).unwrap_or(0.0);
        self.watch(&attempt);
        self.progress.finished(&attempt, other_way);
        if again {
            let queue = self.queues.entry(waiting.key.backend.clone()).or_default();
            queue.push_front(Waiting { attempt: waiting.attempt + 1, ..waiting });
        }
        Ok(())
    }

    /// Takes the attempt's time into account; where its cell is known well enough, the rest of it is not run.
    fn watch(&mut self, attempt: &Attempt) {
        let Some(wanted) = self.work.shape.bounds.interval else { return };
        if !attempt.accepted() || attempt.trial.is_warm_up() {
            return;
        }
        let cell = |key: &TrialKey| (key.backend.clone(), key.condition, key.model.clone(), key.variant.clone());
        let of = cell(&attempt.trial);
        let watched = self.watched.entry(of.clone()).or_default();
        watched.add(attempt);
        if watched.relative_width().is_some_and(|width| width <= wanted) {
            for queue in self.queues.values_mut() {
                queue.retain(|waiting| cell(&waiting.key) != of);
            }
        }
    }

    /// True if the attempt shows that its image cannot be had, and the task's environment can be made in another way. It
    /// is not a repetition of what failed, so the limit of attempts does not count.
    fn other_way(&self, key: &TrialKey, setup: Option<&Setup>, failure: Option<&Failure>) -> bool {
        let (Some(setup), Some(failure), Some(planned)) = (setup, failure, self.planned(key)) else { return false };
        planned.other_way(&key.backend, setup, failure, &self.context.missing)
    }

    async fn close_sessions(&mut self) {
        for ((backend, _), session) in self.sessions.drain() {
            if let Some(backend) = self.work.backends.get(&backend) {
                trial::close(&self.context, backend, &mut *session.lock().await).await;
            }
        }
    }
}

/// The task's own resources, with what the profile says in their place.
fn with_profile(own: &Resources, profile: &Resources) -> Resources {
    Resources {
        cpus: profile.cpus.or(own.cpus),
        memory_mb: profile.memory_mb.or(own.memory_mb),
        disk_mb: profile.disk_mb.or(own.disk_mb),
        pids: profile.pids.or(own.pids),
        gpus: own.gpus,
    }
}

/// The record of a trial that was not run at all.
fn not_run(run: &str, waiting: &Waiting, tag: Tag, task_digest: Digest, failure: Failure) -> Attempt {
    Attempt {
        schema_version: SCHEMA_VERSION.into(),
        run: run.to_owned(),
        trial: waiting.key.clone(),
        attempt: waiting.attempt,
        last: true,
        tag,
        adapter_version: env!("CARGO_PKG_VERSION").into(),
        task_digest,
        started_at: Timestamp::now(),
        total_us: 0,
        sandbox: None,
        environment: None,
        proof: None,
        freshness: None,
        phases: Vec::new(),
        meter: MeterReading::default(),
        resolution_us: None,
        requested: Resources::default(),
        network: NetworkPolicy::NoNetwork,
        observation: None,
        solver: None,
        agent: None,
        replay: None,
        verifier: None,
        verdict: None,
        failure: Some(failure),
        cleanup: Cleanup::Nothing,
        inputs: Vec::new(),
        outputs: Vec::new(),
        warnings: Vec::new(),
    }
}
