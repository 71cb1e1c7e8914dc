//! Sessions: look up, list, extend, restrict, stop.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Vercel;
use super::error::{ApiError, Result};
use super::page::{Page, time_key};
use super::policy::Policy;
use super::request::{Extend, Nothing};
use super::routes::{Answer, Ask};
use super::session::{Session, Status};
use super::world::Snapshot;

impl Vercel {
    pub(super) fn get_session(&self, id: &str, ask: &Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let world = self.world();
        let session = world.session(id)?;
        let sandbox = world.sandboxes.get(&session.identity.sandbox);
        let routes = sandbox.map_or_else(|| json!([]), |sandbox| sandbox.routes());
        Answer::ok(json!({ "session": session.view(), "routes": routes }))
    }

    pub(super) fn list_sessions(&self, ask: &Ask) -> Result<Answer> {
        ask.query.only(&["project", "name", "limit", "cursor", "sortOrder"])?;
        self.options.check_project(ask.caller, ask.query.get("project"))?;
        let name = ask.query.get("name");
        let world = self.world();
        let shown = world.sessions.values().filter(|session| name.is_none_or(|name| session.identity.sandbox == name));
        let key = |session: &&Arc<Session>| time_key(session.identity.requested_at, &session.identity.id);
        let page = Page::of(shown.collect(), key, &ask.query)?;
        let views: Vec<Value> = page.items.iter().map(|session| json!(session.view())).collect();
        Answer::ok(json!({ "sessions": views, "pagination": page.pagination() }))
    }

    pub(super) async fn extend_timeout(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let extend: Extend = ask.json(&[]).await?;
        extend.check()?;
        let session = self.world().session(id)?;
        session.need_running()?;
        let longest = self.options.limits.session_ms;
        if !session.extend(extend.duration, longest) {
            return Err(ApiError::bad_request(format!("Invalid request: a session should last <= {longest}.")));
        }
        Answer::ok(json!({ "session": session.view() }))
    }

    /// For this session only. A machine keeps the network it began with: only what is said of the session changes.
    pub(super) async fn change_policy(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let policy: Value = ask.json(&[]).await?;
        let policy = Policy::parse(&policy)?;
        let session = self.world().session(id)?;
        session.need_running()?;
        session.set_policy(policy);
        Answer::ok(json!({ "session": session.view() }))
    }

    pub(super) async fn stop_session(self: &Arc<Self>, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let lags = ask.flags.has("stop-lags");
        ask.json::<Nothing>(&[]).await?;
        let session = self.world().session(id)?;
        let snapshot = if lags {
            self.stop_later(&session);
            None
        } else {
            let (vercel, session) = (Arc::clone(self), Arc::clone(&session));
            self.to_the_end(async move { vercel.stop(&session).await }).await?
        };
        let mut answer = json!({ "session": session.view() });
        if let Some(sandbox) = self.world().sandboxes.get(&session.identity.sandbox) {
            answer["sandbox"] = sandbox.view();
        }
        if let Some(snapshot) = snapshot {
            answer["snapshot"] = snapshot.view("created");
        }
        Answer::ok(answer)
    }

    /// The session is stopping at once and has stopped after ten transitions.
    fn stop_later(self: &Arc<Self>, session: &Arc<Session>) {
        if session.shift(Status::Running, Status::Stopping) {
            let (vercel, session) = (Arc::clone(self), Arc::clone(session));
            self.emulation.tasks.spawn(async move {
                tokio::time::sleep(vercel.emulation.timing.transition * 10).await;
                // Nobody waits for an answer, and a machine that would not end is seen in the emulator's state.
                let _ = vercel.retire(&session).await;
            });
        }
    }

    /// Stops a session and waits until it has stopped; a persistent sandbox is saved first.
    pub(super) async fn stop(&self, session: &Arc<Session>) -> Result<Option<Snapshot>> {
        if !self.begin_stop(session).await {
            return Ok(None);
        }
        let persistent = self.world().sandboxes.get(&session.identity.sandbox).is_some_and(|s| s.plan.persistent);
        let saved = if persistent { Some(self.save(session, None, true).await) } else { None };
        self.retire(session).await?;
        saved.transpose()
    }

    /// Ends a session whose sandbox is deleted: nothing is saved.
    pub(super) async fn end(&self, session: &Arc<Session>) -> Result<()> {
        if self.begin_stop(session).await { self.retire(session).await } else { Ok(()) }
    }

    /// True if it is ours to end; otherwise somebody else did, and it has stopped.
    async fn begin_stop(&self, session: &Arc<Session>) -> bool {
        let ours = session.shift(Status::Running, Status::Stopping) || session.shift(Status::Pending, Status::Stopping);
        if ours {
            tokio::time::sleep(self.emulation.timing.transition).await;
        } else {
            session.stopped().await;
        }
        ours
    }

    /// Removes the machine and adds up what was used.
    pub(super) async fn retire(&self, session: &Arc<Session>) -> Result<()> {
        let machine = &session.host.machine;
        let of_commands: Duration = session.processes().iter().map(|process| process.cpu()).sum();
        let cpu = machine.cpu().unwrap_or(of_commands);
        let destroyed = self.emulation.machines.destroy(machine).await;
        let (transfer, cpu_ms) = session.settle(cpu);
        if !session.shift(Status::Stopping, Status::Stopped) {
            session.shift(Status::Snapshotting, Status::Stopped);
        }
        if let Some(sandbox) = self.world().sandboxes.get_mut(&session.identity.sandbox) {
            let totals = &mut sandbox.totals;
            totals.cpu_ms += cpu_ms;
            totals.duration_ms += session.duration().unwrap_or_default();
            totals.ingress += transfer.ingress;
            totals.egress += transfer.egress;
        }
        destroyed.map_err(ApiError::internal)
    }
}
