//! Creating a sandbox: one request, then the wait until the platform says that it has started.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::{
    CacheUse, Call, CreateFacts, Destruction, Error, ErrorKind, NetworkPolicy, OutputSink, Resources, Result,
    SandboxSpec, Source,
};
use sandbox_bench_kit::guest::{as_user, check_variables};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::{bounded, winding_up};
use tokio::time::{Instant, sleep, timeout};

use crate::build::{self, BuildLog};
use crate::client::{Answer, Client, checked};
use crate::destroy;
use crate::sandbox::Guest;
use crate::wire::{CreateSandbox, SandboxObject, State};
use crate::{artifact, labels, observe};

/// How long the answer is awaited after the caller has cancelled: only it tells what has to be taken back.
const CANCELLED_LIMIT: Duration = Duration::from_secs(10);
/// Time to take back what a failed or cancelled create has made.
const TAKE_BACK_LIMIT: Duration = Duration::from_secs(15);
/// Pause between two looks at a sandbox that starts: a twentieth of the time so far, within these bounds.
const LOOK: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// How long the rest of a build log is awaited when the build is over.
const LOG_REST: Duration = Duration::from_millis(250);
const LOG_REST_OF_A_FAILURE: Duration = Duration::from_secs(2);
/// Limit for making the working directory.
const WORKDIR_LIMIT: Duration = Duration::from_secs(30);
/// Most entries of each list of what may be reached.
const ALLOWED: usize = 10;

/// Creates a sandbox; returns its inside and what is known of it.
pub(crate) async fn create(
    client: &Arc<Client>,
    call: &Call,
    spec: &SandboxSpec,
    log: &dyn OutputSink,
) -> Result<(Guest, CreateFacts)> {
    check_variables(&spec.env)?;
    let body = body(client, call, spec).await?;
    let started = Instant::now();
    let made = submit(client, call, spec, &body).await?;
    client.journal().insert(made.id.clone());
    let up = async {
        let (seen, facts) = bring_up(client, call, spec, log, (&made, started)).await?;
        let guest = Guest::of(client, call, &seen).await?;
        if let Some(workdir) = &spec.workdir {
            make_directory(&guest, call, workdir).await?;
        }
        Ok((guest, facts))
    };
    match up.await {
        Ok(made) => Ok(made),
        Err(error) => Err(take_back(client, call, spec, &made.id, error).await),
    }
}

/// The request for `spec`.
async fn body(client: &Client, call: &Call, spec: &SandboxSpec) -> Result<CreateSandbox> {
    let snapshot = match &spec.source {
        Source::Artifact(id) => Some(checked("an artifact", id)?.to_owned()),
        Source::Base => client.config.base_snapshot.clone(),
        Source::Image(_) | Source::Dockerfile { .. } => None,
    };
    let build_info = build::request(client, call, &spec.source).await?;
    let mut body = CreateSandbox {
        name: spec.tag.to_string(),
        labels: labels::of(spec),
        snapshot,
        target: client.target.clone(),
        auto_stop_interval: client.config.auto_stop_minutes,
        auto_delete_interval: 0,
        ttl_minutes: minutes(spec.lifetime),
        queue_timeout: minutes(spec.environment_limit),
        ..CreateSandbox::default()
    };
    if build_info.is_some() {
        size(&mut body, &spec.resources);
    }
    body.build_info = build_info;
    network(&mut body, &spec.network)?;
    Ok(body)
}

/// Whole minutes, rounded up.
fn minutes(time: Duration) -> u64 {
    time.as_secs().div_ceil(60).max(1)
}

/// Resources in the platform's units: whole vCPUs and GiB, rounded up. Only builds have a size of their own.
fn size(body: &mut CreateSandbox, asked: &Resources) {
    let gib = |mib: u64| mib.div_ceil(1024).max(1);
    body.cpu = asked.cpus.map(|cpus| cpus.ceil().max(1.0) as u64);
    body.memory = asked.memory_mb.map(gib);
    body.disk = asked.disk_mb.map(gib);
    body.gpu = asked.gpus.filter(|n| *n > 0).map(u64::from);
}

fn network(body: &mut CreateSandbox, policy: &NetworkPolicy) -> Result<()> {
    match policy {
        NetworkPolicy::Public => {}
        NetworkPolicy::NoNetwork => body.network_block_all = Some(true),
        NetworkPolicy::Allowlist(hosts) => {
            let (mut ranges, mut domains) = (Vec::new(), Vec::new());
            for host in hosts {
                match host.parse::<std::net::Ipv4Addr>() {
                    Ok(address) => ranges.push(format!("{address}/32")),
                    Err(_) if host.contains(':') || host.contains(',') || host.trim().is_empty() => {
                        return Err(Error::invalid(format!("the network cannot be opened for {host:?}"))
                            .hint("name IPv4 addresses and ranges, or domains"));
                    }
                    Err(_) if host.contains('/') => ranges.push(host.clone()),
                    Err(_) => domains.push(host.clone()),
                }
            }
            if ranges.len() > ALLOWED || domains.len() > ALLOWED {
                let message = format!("the network can be opened for {ALLOWED} ranges and {ALLOWED} domains at most");
                return Err(Error::invalid(message));
            }
            if ranges.is_empty() && domains.is_empty() {
                body.network_block_all = Some(true);
            }
            let list = |all: Vec<String>| (!all.is_empty()).then(|| all.join(","));
            (body.network_allow_list, body.domain_allow_list) = (list(ranges), list(domains));
        }
    }
    Ok(())
}

/// Asks for the sandbox. A snapshot that nobody used for long is made usable again first.
async fn submit(client: &Client, call: &Call, spec: &SandboxSpec, body: &CreateSandbox) -> Result<SandboxObject> {
    let what = format!("sandbox {}: create", spec.tag);
    let mut activated = false;
    loop {
        if call.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, format!("{what}: cancelled before it was asked for")));
        }
        if call.remaining().is_zero() {
            return Err(Error::new(ErrorKind::DeadlineExceeded, format!("{what}: no time left to ask for it")));
        }
        let no = match answered(client, call, &what, body).await {
            Ok(Ok(made)) => return Ok(made),
            Ok(Err(no)) => no,
            Err(error) => {
                return Err(match error.kind() {
                    ErrorKind::Unavailable => error,
                    _ => uncertain(spec, error),
                });
            }
        };
        if let Some(snapshot) = body.snapshot.as_deref().filter(|_| no.status() == 400 && !activated)
            && no.says(&["is inactive"])
        {
            activated = true;
            artifact::activate(client, call, snapshot).await?;
            continue;
        }
        let error = no.error(&what, Effect::Once);
        return Err(match error.kind() {
            // It was made, and failed: its remains have our name.
            ErrorKind::Environment => take_back(client, call, spec, spec.tag.as_str(), error).await,
            ErrorKind::Transport => uncertain(spec, error),
            _ => error,
        });
    }
}

/// Sends the request. Once it is sent, the answer is awaited for a while even if the caller cancels.
async fn answered(client: &Client, call: &Call, what: &str, body: &CreateSandbox) -> Result<Answer<SandboxObject>> {
    let patient = call.with_cancel(Default::default());
    let mut sent = pin!(client.create(&patient, what, body));
    tokio::select! {
        answer = &mut sent => answer,
        () = call.cancel.cancelled() => match timeout(CANCELLED_LIMIT, sent).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorKind::Transport, format!("{what}: cancelled before it was answered"))),
        },
    }
}

/// Waits until it has started.
async fn bring_up(
    client: &Client,
    call: &Call,
    spec: &SandboxSpec,
    log: &dyn OutputSink,
    (made, started): (&SandboxObject, Instant),
) -> Result<(SandboxObject, CreateFacts)> {
    let what = format!("sandbox {}: start", made.id);
    let mut watch = Watch { spec, started, cache: CacheUse::Hit, environment: None, building: false };
    let mut seen = made.clone();
    let build_log = BuildLog::new(client, ("sandbox", &made.id), log);
    let mut follow = pin!(build_log.follow(call));
    let mut followed = false;
    loop {
        let ended = watch.see(&seen)?;
        if ended {
            let rest = if seen.state == Some(State::Started) { LOG_REST } else { LOG_REST_OF_A_FAILURE };
            if watch.has_log() && !followed {
                // The stream need not end by itself.
                let _ = timeout(rest, &mut follow).await;
            }
            return match seen.state {
                Some(State::Started) => Ok(watch.facts(seen)),
                _ => Err(watch.failure(&seen, &build_log)),
            };
        }
        let pause = (started.elapsed() / 20).clamp(LOOK.0, LOOK.1);
        let mut pause = pin!(sleep(pause));
        bounded(call, &what, async {
            loop {
                tokio::select! {
                    () = &mut pause => return,
                    () = &mut follow, if watch.has_log() && !followed => followed = true,
                }
            }
        })
        .await?;
        match client.sandbox(call, &made.id).await {
            Ok(now) => seen = now,
            Err(error) if *error.kind() == ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::SandboxLost, format!("{what}: it is gone")).because(error));
            }
            Err(error) if *error.kind() == ErrorKind::Unavailable => {
                tracing::debug!(%error, "a look at a starting sandbox failed");
                call.meter.retried();
            }
            Err(error) => return Err(error),
        }
    }
}

/// What was seen of a sandbox on its way up.
struct Watch<'a> {
    spec: &'a SandboxSpec,
    started: Instant,
    cache: CacheUse,
    /// When the source was ready, counted from the request.
    environment: Option<Duration>,
    building: bool,
}

impl Watch<'_> {
    /// Takes note of a state. True if it is the last one.
    fn see(&mut self, seen: &SandboxObject) -> Result<bool> {
        let elapsed = self.started.elapsed();
        match seen.state {
            Some(State::BuildingSnapshot | State::PullingSnapshot) => self.cache = CacheUse::Miss,
            Some(State::PendingBuild) => {}
            _ => {
                self.environment.get_or_insert(elapsed);
            }
        }
        self.building |= matches!(seen.state, Some(State::BuildingSnapshot | State::BuildFailed));
        if self.environment.is_none() && elapsed > self.spec.environment_limit {
            let message =
                format!("{} was not ready within {:?}", build::named(&self.spec.source), self.spec.environment_limit);
            return Err(Error::new(ErrorKind::Environment, message));
        }
        Ok(seen.state.is_some_and(State::is_last))
    }

    fn has_log(&self) -> bool {
        self.building
    }

    fn facts(self, seen: SandboxObject) -> (SandboxObject, CreateFacts) {
        let built = seen.build_info.as_ref().and_then(|build| build.snapshot_ref.clone());
        let resolved_source = match &self.spec.source {
            Source::Artifact(id) => seen.snapshot.clone().unwrap_or_else(|| id.clone()),
            source => built.or(seen.snapshot.clone()).unwrap_or_else(|| build::named(source)),
        };
        let environment = match self.cache {
            CacheUse::Miss => self.environment.unwrap_or_default(),
            CacheUse::Hit => Duration::ZERO,
        };
        let facts = CreateFacts {
            resolved_source,
            environment_cache: Some(self.cache),
            environment_us: u64::try_from(environment.as_micros()).unwrap_or(u64::MAX),
            workdir: self.spec.workdir.clone(),
            granted: observe::granted(&seen),
            provider_times: observe::times(&seen),
        };
        (seen, facts)
    }

    fn failure(&self, seen: &SandboxObject, log: &BuildLog<'_>) -> Error {
        let what = build::named(&self.spec.source);
        let reason = seen.error_reason.as_deref();
        match seen.state {
            Some(State::BuildFailed) => log.failure(&format!("build of {what}"), reason),
            Some(State::Destroyed) if seen.queue_timed_out_at.is_some() => {
                Error::new(ErrorKind::Capacity, format!("sandbox {}: no place was found for it", seen.id))
            }
            Some(State::Error) => log.failure(&format!("start from {what}"), reason),
            _ => observe::ended(seen),
        }
    }
}

async fn make_directory(guest: &Guest, call: &Call, path: &str) -> Result<()> {
    let what = guest.what("working directory");
    guest.scratch(call).await?;
    let argv = ["mkdir", "-p", "--", path].into_iter().map(str::to_owned).collect();
    let argv = as_user("0", &Default::default(), argv);
    let done = guest.toolbox.execute(call, &what, &argv, WORKDIR_LIMIT.min(call.remaining())).await?;
    match done.exit_code {
        0 => Ok(()),
        _ => Err(Error::invalid(format!("{what}: {path:?} cannot be made: {}", done.result.trim()))),
    }
}

fn uncertain(spec: &SandboxSpec, cause: Error) -> Error {
    let kind = ErrorKind::UncertainSubmission { tag: spec.tag.clone() };
    Error::new(kind, format!("sandbox {}: it is unknown whether it was created", spec.tag)).because(cause)
}

/// Removes what a failed create has made, so that the error can promise that nothing is left. `id` may be the name.
async fn take_back(client: &Client, call: &Call, spec: &SandboxSpec, id: &str, error: Error) -> Error {
    match destroy::remove(client, &winding_up(call, TAKE_BACK_LIMIT), id).await {
        Ok(Destruction::Confirmed) => error,
        Ok(Destruction::Unconfirmed { why }) => {
            uncertain(spec, error).hint(format!("sandbox {id} may still be there: {why}"))
        }
        Err(failed) => uncertain(spec, error).hint(format!("sandbox {id} may still be there: {failed}")),
    }
}
