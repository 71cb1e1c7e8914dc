//! Named sandboxes: look up, resume, change, list, delete.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Vercel;
use super::error::{ApiError, Result};
use super::page::{Page, time_key};
use super::query::Query;
use super::request::{NOT_AT_UPDATE, Settings};
use super::routes::{Answer, Ask};
use super::session::{Status, now_ms};
use super::world::{Origin, Sandbox};
use crate::Flags;

impl Vercel {
    pub(super) async fn get_sandbox(self: &Arc<Self>, name: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&["projectId", "resume"])?;
        self.options.check_project(ask.caller, ask.query.get("projectId"))?;
        let resume = ask.query.flag("resume")?;
        self.world().sandbox(name)?;
        let resumed = resume && self.resume(name.to_owned(), ask.flags).await?;
        let world = self.world();
        let sandbox = world.sandbox(name)?;
        Answer::ok(json!({
            "sandbox": sandbox.view(),
            "session": sandbox.current.view(),
            "routes": sandbox.routes(),
            "resumed": resumed,
        }))
    }

    /// Gives the sandbox a new session if it has none that runs. True if it did.
    ///
    /// The files are those of the last snapshot; without one, those that it began with.
    async fn resume(self: &Arc<Self>, name: String, flags: Flags) -> Result<bool> {
        let vercel = Arc::clone(self);
        self.to_the_end(async move {
            let _one_at_a_time = vercel.resuming.lock().await;
            let sandbox = vercel.world().sandbox(&name)?.clone();
            if matches!(sandbox.current.status(), Status::Running | Status::Pending) {
                return Ok(false);
            }
            sandbox.current.stopped().await;
            // Stopping may have taken a snapshot.
            let sandbox = vercel.world().sandbox(&name)?.clone();
            let (origin, fetch) = match sandbox.current_snapshot {
                Some(snapshot) => (Origin::Snapshot(snapshot), None),
                None => (sandbox.plan.origin.clone(), sandbox.plan.fetch.clone()),
            };
            vercel.vcpus.take(sandbox.plan.vcpus)?;
            let session = vercel.open(&sandbox.plan, origin, fetch, &flags).await?;
            let mut world = vercel.world();
            let sandbox = world.sandbox_mut(&name)?;
            sandbox.current = session;
            sandbox.updated_at = now_ms();
            Ok(true)
        })
        .await
    }

    pub(super) async fn update_sandbox(&self, name: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&["projectId", "resume"])?;
        self.options.check_project(ask.caller, ask.query.get("projectId"))?;
        let settings: Settings = ask.json(NOT_AT_UPDATE).await?;
        settings.check(&self.options.limits)?;
        let mut world = self.world();
        if let Some(id) = &settings.current_snapshot_id {
            world.snapshot(id)?;
        }
        let sandbox = world.sandbox_mut(name)?;
        sandbox.current_snapshot = settings.current_snapshot_id.clone().or(sandbox.current_snapshot.take());
        sandbox.plan.apply(settings)?;
        sandbox.updated_at = now_ms();
        Answer::ok(json!({ "sandbox": sandbox.view(), "routes": sandbox.routes() }))
    }

    pub(super) async fn delete_sandbox(self: &Arc<Self>, name: &str, ask: Ask) -> Result<Answer> {
        ask.query.only(&["projectId", "deleteOrphanSnapshots"])?;
        self.options.check_project(ask.caller, ask.query.get("projectId"))?;
        let orphans = ask.query.flag("deleteOrphanSnapshots")?;
        self.deletions.take(1)?;
        let sandbox = self.world().sandbox(name)?.clone();
        if ask.flags.has("delete-ignored") {
            return Answer::ok(json!({ "sandbox": sandbox.view() }));
        }
        let (vercel, name) = (Arc::clone(self), name.to_owned());
        self.to_the_end(async move {
            vercel.end(&sandbox.current).await?;
            let sandbox = vercel.world().sandboxes.remove(&name).ok_or_else(|| ApiError::not_found("Sandbox"))?;
            if orphans {
                let ids = vercel.world().snapshots_of(&name);
                for id in ids {
                    vercel.forget_snapshot(&id).await?;
                }
            }
            Answer::ok(json!({ "sandbox": sandbox.view() }))
        })
        .await
    }

    pub(super) fn list_sandboxes(&self, ask: &Ask) -> Result<Answer> {
        let query = &ask.query;
        query.only(&["project", "limit", "cursor", "sortBy", "sortOrder", "namePrefix", "status", "tags"])?;
        self.options.check_project(ask.caller, query.get("project"))?;
        let key = sort_key(query)?;
        let tag =
            query.get("tags").map(|tag| tag.split_once(':').ok_or_else(|| refuse("`tags` should be `key:value`")));
        let tag = tag.transpose()?;
        let unseen = ask.flags.value("stale-list").map(|ms| now_ms().saturating_sub(ms));
        let world = self.world();
        let shown = world.sandboxes.values().filter(|sandbox| {
            let plan = &sandbox.plan;
            let status = json!(sandbox.current.status());
            query.get("namePrefix").is_none_or(|prefix| plan.name.starts_with(prefix))
                && query.get("status").is_none_or(|wanted| status == wanted)
                && tag.is_none_or(|(key, value)| plan.tags.get(key).is_some_and(|is| is == value))
                && unseen.is_none_or(|after| sandbox.created_at <= after)
        });
        let page = Page::of(shown.collect(), |sandbox| key(sandbox), query)?;
        let views: Vec<Value> = page.items.iter().map(|sandbox| sandbox.view()).collect();
        Answer::ok(json!({ "sandboxes": views, "pagination": page.pagination() }))
    }
}

/// What the list is sorted by; some filters go with some orders only.
fn sort_key(query: &Query) -> Result<fn(&Sandbox) -> String> {
    let by = query.get("sortBy").unwrap_or("createdAt");
    if query.get("namePrefix").is_some() && by != "name" {
        return Err(refuse("`namePrefix` goes with `sortBy=name` only"));
    }
    match query.get("status") {
        None | Some("running" | "stopping" | "stopped") if by == "createdAt" => {}
        None => {}
        Some(_) => {
            return Err(refuse("`status` should be `running`, `stopping` or `stopped`, with `sortBy=createdAt`"));
        }
    }
    match by {
        "createdAt" => Ok(|sandbox| time_key(sandbox.created_at, &sandbox.plan.name)),
        "name" => Ok(|sandbox| sandbox.plan.name.clone()),
        "statusUpdatedAt" => Ok(|sandbox| time_key(sandbox.current.updated_at(), &sandbox.plan.name)),
        "currentSnapshotId" => {
            Ok(|sandbox| format!("{} {}", sandbox.current_snapshot.as_deref().unwrap_or_default(), sandbox.plan.name))
        }
        _ => Err(refuse("`sortBy` is unknown")),
    }
}

fn refuse(why: &str) -> ApiError {
    ApiError::bad_request(format!("Invalid request: {why}."))
}
