//! Making sandboxes: new, forked, resumed.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;

use super::Vercel;
use super::error::{ApiError, Result};
use super::images::{DEFAULT_IMAGE, RUNTIMES, not_ready};
use super::policy::Policy;
use super::request::{DEFAULT_TIMEOUT, NOT_AT_CREATE, NOT_AT_FORK, Retention, Settings, Source};
use super::routes::{Answer, Ask};
use super::session::{Identity, Session, Status, new_id, now_ms};
use super::world::{Origin, Plan, Sandbox, Totals};
use crate::Flags;

/// Versions of the create route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Takes `runtime`.
    V2,
    /// From images.
    V3,
    /// As v3; keeps only the latest snapshot, for a week, unless the request says otherwise.
    V4,
}

const WEEK_MS: u64 = 7 * 86_400_000;
const DEFAULT_RUNTIME: &str = "node24";
const DEFAULT_REGION: &str = "iad1";
const DEFAULT_VCPUS: u32 = 2;

/// A name that nobody else can take while its sandbox is being made.
struct Reservation {
    vercel: Arc<Vercel>,
    name: String,
}

impl Reservation {
    fn take(vercel: &Arc<Vercel>, name: &str) -> Result<Reservation> {
        let most = vercel.options.limits.concurrent_sessions;
        let mut world = vercel.world();
        if world.busy() >= most {
            return Err(ApiError::rate_limited(format!("At most {most} sandboxes at one time."), 20));
        }
        if world.sandboxes.contains_key(name) || !world.reserved.insert(name.to_owned()) {
            return Err(ApiError::conflict(format!("Sandbox `{name}` already exists.")));
        }
        Ok(Reservation { vercel: Arc::clone(vercel), name: name.to_owned() })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.vercel.world().reserved.remove(&self.name);
    }
}

impl Vercel {
    pub(super) async fn create(self: &Arc<Self>, version: Version, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let (caller, flags) = (ask.caller, ask.flags.clone());
        let settings: Settings = ask.json(NOT_AT_CREATE).await?;
        self.options.check_project(caller, settings.project_id.as_deref())?;
        settings.check(&self.options.limits)?;
        let plan = self.plan(settings, version)?;
        if flags.has("image-not-ready") {
            return Err(not_ready(DEFAULT_IMAGE));
        }
        self.launch(plan, flags).await
    }

    pub(super) async fn fork(self: &Arc<Self>, name: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&["projectId"])?;
        self.options.check_project(ask.caller, ask.query.get("projectId"))?;
        let flags = ask.flags.clone();
        let settings: Settings = ask.json(NOT_AT_FORK).await?;
        settings.check(&self.options.limits)?;
        let (mut plan, snapshot) = {
            let world = self.world();
            let source = world.sandbox(name)?;
            (source.plan.clone(), source.current_snapshot.clone())
        };
        if let Some(snapshot) = snapshot {
            self.usable(&snapshot, &plan.region)?;
            (plan.origin, plan.fetch) = (Origin::Snapshot(snapshot), None);
        }
        if let Some(image) = &settings.image {
            (plan.origin, plan.fetch) = (Origin::Image(self.options.image(image)?), None);
        }
        plan.name = new_name(settings.name.clone());
        plan.apply(settings)?;
        self.launch(plan, flags).await
    }

    /// What a new sandbox is to be.
    fn plan(&self, mut settings: Settings, version: Version) -> Result<Plan> {
        if settings.runtime.is_some() && version != Version::V2 {
            return Err(ApiError::violation("Invalid request: should NOT have additional property `runtime`."));
        }
        let region = settings.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let (source, image, runtime) = (settings.source.take(), settings.image.take(), settings.runtime.take());
        let (origin, fetch) = match (source, image, runtime) {
            (_, Some(_), Some(_)) => return Err(alone("`image` and `runtime`")),
            (Some(Source::Snapshot { .. }), Some(_), _) => return Err(alone("a snapshot and `image`")),
            (Some(Source::Snapshot { .. }), _, Some(_)) => return Err(alone("a snapshot and `runtime`")),
            (Some(Source::Snapshot { snapshot_id }), None, None) => {
                self.usable(&snapshot_id, &region)?;
                (Origin::Snapshot(snapshot_id), None)
            }
            (fetch, Some(image), None) => (Origin::Image(self.options.image(&image)?), fetch),
            (fetch, None, Some(runtime)) if RUNTIMES.contains(&runtime.as_str()) => (Origin::Runtime(runtime), fetch),
            (_, None, Some(runtime)) => {
                return Err(ApiError::bad_request(format!("Invalid request: runtime `{runtime}` is unknown.")));
            }
            (fetch, None, None) if version == Version::V2 => (Origin::Runtime(DEFAULT_RUNTIME.to_owned()), fetch),
            (fetch, None, None) => (Origin::Image(DEFAULT_IMAGE.to_owned()), fetch),
        };
        let latest_only = version == Version::V4;
        let mut plan = Plan {
            name: new_name(settings.name.clone()),
            origin,
            fetch,
            vcpus: DEFAULT_VCPUS,
            timeout: DEFAULT_TIMEOUT,
            persistent: true,
            ports: Vec::new(),
            env: Default::default(),
            tags: Default::default(),
            policy: Policy::default(),
            network_id: None,
            snapshot_expiration: latest_only.then_some(WEEK_MS),
            retention: latest_only.then_some(Retention { count: 1, expiration: None, delete_evicted: None }),
            region,
            failover_regions: Vec::new(),
        };
        plan.apply(settings)?;
        Ok(plan)
    }

    /// Makes the sandbox and its first session.
    async fn launch(self: &Arc<Self>, plan: Plan, flags: Flags) -> Result<Answer> {
        self.vcpus.take(plan.vcpus)?;
        let vercel = Arc::clone(self);
        self.to_the_end(async move {
            let reservation = Reservation::take(&vercel, &plan.name)?;
            let (origin, fetch) = (plan.origin.clone(), plan.fetch.clone());
            let session = vercel.open(&plan, origin, fetch, &flags).await?;
            let now = now_ms();
            let sandbox = Sandbox {
                plan,
                current: session,
                current_snapshot: None,
                created_at: now,
                updated_at: now,
                totals: Totals::default(),
            };
            vercel.world().sandboxes.insert(reservation.name.clone(), sandbox.clone());
            drop(reservation);
            Answer::ok(json!({
                "sandbox": sandbox.view(), "session": sandbox.current.view(), "routes": sandbox.routes(),
            }))
        })
        .await
    }

    /// Makes a session, and sees to it that it ends in time.
    pub(super) async fn open(
        self: &Arc<Self>,
        plan: &Plan,
        origin: Origin,
        fetch: Option<Source>,
        flags: &Flags,
    ) -> Result<Arc<Session>> {
        let requested_at = now_ms();
        let host = self.boot(plan, &origin, fetch.as_ref()).await?;
        let source_snapshot = match &origin {
            Origin::Snapshot(id) => Some(id.clone()),
            Origin::Image(_) | Origin::Runtime(_) => None,
        };
        let identity = Identity {
            id: new_id("sbx"),
            sandbox: plan.name.clone(),
            project_id: self.options.project_id.clone(),
            region: plan.region.clone(),
            vcpus: plan.vcpus,
            runtime: match origin {
                Origin::Runtime(runtime) => Some(runtime),
                Origin::Image(_) | Origin::Snapshot(_) => None,
            },
            source_snapshot,
            requested_at,
        };
        let pending = flags.value("pending").filter(|ms| *ms > 0);
        let status = if pending.is_some() { Status::Pending } else { Status::Running };
        let session = Arc::new(Session::new(identity, host, status, plan.timeout, plan.policy.clone()));
        self.world().sessions.insert(session.identity.id.clone(), Arc::clone(&session));
        if let Some(ms) = pending {
            let session = Arc::clone(&session);
            self.emulation.tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                session.shift(Status::Pending, Status::Running);
            });
        }
        self.emulation.tasks.spawn(Arc::clone(self).keep_time(Arc::clone(&session)));
        Ok(session)
    }

    /// Stops a session when its time is over; it may be extended meanwhile.
    async fn keep_time(self: Arc<Self>, session: Arc<Session>) {
        loop {
            let deadline = session.deadline();
            tokio::select! {
                () = session.stopped() => return,
                () = tokio::time::sleep_until(deadline) => {}
            }
            if session.deadline() <= deadline {
                // Nobody waits for an answer, and a machine that would not end is seen in the emulator's state.
                let _ = self.stop(&session).await;
                return;
            }
        }
    }

    /// # Errors
    /// 410 for a snapshot that is gone, 422 for one of another region.
    fn usable(&self, id: &str, region: &str) -> Result<()> {
        let mut world = self.world();
        let snapshot = world.snapshots.get_mut(id).filter(|snapshot| !snapshot.expired());
        let Some(snapshot) = snapshot else {
            return Err(ApiError::new(StatusCode::GONE, "snapshot_not_found", format!("Snapshot `{id}` not found.")));
        };
        if snapshot.region != region {
            let message = format!("Snapshot `{id}` is in {}, not in {region}.", snapshot.region);
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "snapshot_region_mismatch", message));
        }
        snapshot.last_used_at = now_ms();
        Ok(())
    }
}

impl Plan {
    /// Takes over what the request says; the origin is the business of the operation.
    pub(super) fn apply(&mut self, settings: Settings) -> Result<()> {
        if let Some(policy) = &settings.network_policy {
            self.policy = Policy::parse(policy)?;
        }
        self.vcpus = settings.vcpus().unwrap_or(self.vcpus);
        replace(&mut self.timeout, settings.timeout);
        replace(&mut self.persistent, settings.persistent);
        replace(&mut self.ports, settings.ports);
        replace(&mut self.env, settings.env);
        replace(&mut self.tags, settings.tags);
        replace(&mut self.network_id, settings.network_id);
        replace(&mut self.retention, settings.keep_last_snapshots);
        replace(&mut self.region, settings.region);
        replace(&mut self.failover_regions, settings.failover_regions);
        self.snapshot_expiration = settings.snapshot_expiration.or(self.snapshot_expiration);
        Ok(())
    }
}

fn replace<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn new_name(name: Option<String>) -> String {
    name.unwrap_or_else(|| new_id("sandbox"))
}

fn alone(both: &str) -> ApiError {
    ApiError::bad_request(format!("Invalid request: {both} cannot be used together."))
}
