//! Snapshots: take, list, look up, delete.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Vercel;
use super::error::{ApiError, Result};
use super::page::{Page, time_key};
use super::request::{TakeSnapshot, check_expiration};
use super::routes::{Answer, Ask};
use super::session::{Session, Status, new_id, now_ms};
use super::world::Snapshot;

const DAY_MS: u64 = 86_400_000;

impl Vercel {
    /// A snapshot ends its session.
    pub(super) async fn take_snapshot(self: &Arc<Self>, version: &str, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        let failed = ask.flags.has("snapshot-failed");
        let TakeSnapshot { expiration } = ask.json(&[]).await?;
        if let Some(expiration) = expiration {
            check_expiration("expiration", expiration)?;
        }
        // Where neither request nor sandbox says it.
        let otherwise = if version == "v3" { 7 * DAY_MS } else { 30 * DAY_MS };
        let session = self.world().session(id)?;
        session.need_running()?;
        if !session.shift(Status::Running, Status::Snapshotting) {
            session.need_running()?;
        }
        let (vercel, taken) = (Arc::clone(self), Arc::clone(&session));
        let snapshot = self
            .to_the_end(async move {
                tokio::time::sleep(vercel.emulation.timing.transition).await;
                let expiration = expiration.or(vercel.expiration_of(&taken)).unwrap_or(otherwise);
                let snapshot = vercel.save(&taken, Some(expiration), false).await;
                vercel.retire(&taken).await?;
                snapshot
            })
            .await?;
        if failed {
            self.forget_snapshot(&snapshot.id).await?;
        }
        let status = if failed { "failed" } else { "created" };
        Ok(Answer::Json(StatusCode::CREATED, json!({ "snapshot": snapshot.view(status), "session": session.view() })))
    }

    fn expiration_of(&self, session: &Session) -> Option<u64> {
        self.world().sandboxes.get(&session.identity.sandbox)?.plan.snapshot_expiration
    }

    /// Saves the files of a session, and evicts what its sandbox does not keep.
    pub(super) async fn save(&self, session: &Session, expiration: Option<u64>, automatic: bool) -> Result<Snapshot> {
        let saved = self.emulation.machines.save(&session.host.machine).await.map_err(ApiError::internal)?;
        let expiration = expiration.or(self.expiration_of(session)).unwrap_or(30 * DAY_MS);
        let now = now_ms();
        let snapshot = Snapshot {
            id: new_id("snap"),
            saved,
            session: session.identity.id.clone(),
            sandbox: session.identity.sandbox.clone(),
            region: session.identity.region.clone(),
            automatic,
            parent: session.identity.source_snapshot.clone(),
            created_at: now,
            last_used_at: now,
            expires_at: (expiration > 0).then(|| now + expiration),
        };
        let evicted = {
            let mut world = self.world();
            world.snapshots.insert(snapshot.id.clone(), snapshot.clone());
            let mut keep = usize::MAX;
            if let Some(sandbox) = world.sandboxes.get_mut(&snapshot.sandbox) {
                sandbox.current_snapshot = Some(snapshot.id.clone());
                let retention = sandbox.plan.retention.filter(|retention| retention.delete_evicted != Some(false));
                keep = retention.map_or(usize::MAX, |retention| retention.count);
            }
            let older = world.snapshots_of(&snapshot.sandbox).into_iter().filter(|id| *id != snapshot.id);
            older.skip(keep.saturating_sub(1)).collect::<Vec<_>>()
        };
        for id in evicted {
            self.forget_snapshot(&id).await?;
        }
        Ok(snapshot)
    }

    pub(super) async fn forget_snapshot(&self, id: &str) -> Result<()> {
        let removed = self.world().snapshots.remove(id);
        match removed {
            Some(snapshot) => self.emulation.machines.delete_saved(&snapshot.saved).await.map_err(ApiError::internal),
            None => Ok(()),
        }
    }

    pub(super) fn get_snapshot(&self, id: &str, ask: &Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        Answer::ok(json!({ "snapshot": self.world().snapshot(id)?.view("created") }))
    }

    pub(super) async fn delete_snapshot(&self, id: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&[])?;
        self.deletions.take(1)?;
        let snapshot = self.world().snapshot(id)?.clone();
        if !ask.flags.has("delete-ignored") {
            self.forget_snapshot(id).await?;
        }
        Answer::ok(json!({ "snapshot": snapshot.view("deleted") }))
    }

    pub(super) fn list_snapshots(&self, ask: &Ask) -> Result<Answer> {
        ask.query.only(&["project", "name", "limit", "cursor", "sortOrder"])?;
        self.options.check_project(ask.caller, ask.query.get("project"))?;
        let name = ask.query.get("name");
        let world = self.world();
        let all = world.snapshots.values().filter(|snapshot| !snapshot.expired());
        let shown = all.filter(|snapshot| name.is_none_or(|name| snapshot.sandbox == name));
        let page = Page::of(shown.collect(), |snapshot| time_key(snapshot.created_at, &snapshot.id), &ask.query)?;
        let views: Vec<Value> = page.items.iter().map(|snapshot| snapshot.view("created")).collect();
        Answer::ok(json!({ "snapshots": views, "pagination": page.pagination() }))
    }

    /// A snapshot and those it stands on, each with those that stand on the same one.
    pub(super) fn snapshot_tree(&self, ask: &Ask) -> Result<Answer> {
        ask.query.only(&["project", "snapshotId", "limit", "cursor", "sortOrder"])?;
        self.options.check_project(ask.caller, ask.query.get("project"))?;
        let id = ask.query.get("snapshotId");
        let id = id.ok_or_else(|| ApiError::bad_request("Invalid request: `snapshotId` is required."))?;
        let world = self.world();
        let first = world.snapshot(id)?;
        let line = std::iter::successors(Some(first), |snapshot| world.snapshots.get(snapshot.parent.as_ref()?));
        let page = Page::of(line.collect(), |snapshot| time_key(snapshot.created_at, &snapshot.id), &ask.query)?;
        let node = |snapshot: &&Snapshot| {
            let siblings = world
                .snapshots
                .values()
                .filter(|other| other.id != snapshot.id && other.parent.is_some() && other.parent == snapshot.parent);
            let siblings: Vec<Value> = siblings.map(|sibling| sibling.view("created")).collect();
            let count = siblings.len().to_string();
            json!({ "snapshot": snapshot.view("created"), "siblings": siblings, "count": count })
        };
        let nodes: Vec<Value> = page.items.iter().map(node).collect();
        Answer::ok(json!({ "snapshots": nodes, "pagination": page.pagination() }))
    }
}
