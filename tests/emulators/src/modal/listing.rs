//! Finding sandboxes again: lists, names, tags, results.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::create::tag_map;
use super::ids::timestamp;
use super::proto::client::{
    SandboxGetFromNameRequest, SandboxGetFromNameResponse, SandboxInfo, SandboxListRequest, SandboxTagsSetRequest,
    SandboxWaitRequest, SandboxWaitResponse, TaskInfo,
};
use super::sandbox::Sandbox;
use super::status::{missing, violation};
use super::{Modal, Result};
use crate::Flags;

impl Modal {
    /// The newest first, a page at a time; the next page is what was made before the last of this one.
    pub(super) fn list(&self, asked: SandboxListRequest, flags: &Flags) -> Result<Vec<SandboxInfo>> {
        self.check_environment(&asked.environment_name)?;
        if asked.app_id.is_empty() {
            return Err(violation("app_id is missing: lists of a whole environment are deprecated"));
        }
        self.check_app(&asked.app_id)?;
        let wanted = tag_map(asked.tags)?;
        let youngest = flags.value("stale-list").map_or(f64::INFINITY, |ms| timestamp() - ms as f64 / 1000.0);
        let before = if asked.before_timestamp > 0.0 { asked.before_timestamp } else { f64::INFINITY };
        let matches = |sandbox: &&Arc<Sandbox>| {
            let tags = sandbox.tags.lock().unwrap_or_else(PoisonError::into_inner);
            sandbox.app_id == asked.app_id
                && sandbox.created_at < before
                && sandbox.created_at <= youngest
                && (asked.include_finished || sandbox.result().is_none())
                && wanted.iter().all(|(name, value)| tags.get(name) == Some(value))
        };
        let world = self.world();
        let page = world.sandboxes.iter().rev().filter(matches).take(self.options.page);
        Ok(page.map(|sandbox| info(sandbox)).collect())
    }

    pub(super) fn named(&self, asked: &SandboxGetFromNameRequest) -> Result<SandboxGetFromNameResponse> {
        self.check_environment(&asked.environment_name)?;
        let world = self.world();
        let app_id = world.apps.get(&asked.app_name).ok_or_else(|| missing("App", &asked.app_name))?;
        let matches = |sandbox: &&Arc<Sandbox>| {
            sandbox.app_id == *app_id
                && sandbox.definition.name.as_deref() == Some(&asked.sandbox_name)
                && (asked.include_terminated || sandbox.result().is_none())
        };
        let found =
            world.sandboxes.iter().rev().find(matches).ok_or_else(|| missing("Sandbox", &asked.sandbox_name))?;
        Ok(SandboxGetFromNameResponse { sandbox_id: found.id.clone(), metadata: Some(found.metadata()) })
    }

    pub(super) fn set_tags(&self, asked: SandboxTagsSetRequest) -> Result<()> {
        let tags = tag_map(asked.tags)?;
        let sandbox = self.sandbox(&asked.sandbox_id)?;
        *sandbox.tags.lock().unwrap_or_else(PoisonError::into_inner) = tags;
        Ok(())
    }

    /// The result, for which it waits as long as it is asked to.
    pub(super) async fn wait(&self, asked: &SandboxWaitRequest) -> Result<SandboxWaitResponse> {
        let sandbox = self.sandbox(&asked.sandbox_id)?;
        let limit = Duration::try_from_secs_f32(asked.timeout).map_err(|_| violation("timeout"))?;
        // No result is an answer too.
        let _ = tokio::time::timeout(limit, sandbox.buried.cancelled()).await;
        let result = sandbox.result().unwrap_or_default();
        Ok(SandboxWaitResponse { result: Some(result), metadata: Some(sandbox.metadata()) })
    }
}

fn info(sandbox: &Sandbox) -> SandboxInfo {
    let task = TaskInfo {
        id: sandbox.task_id.clone(),
        started_at: sandbox.created_at,
        finished_at: sandbox.finished_at(),
        result: sandbox.result(),
        enqueued_at: sandbox.created_at,
        sandbox_id: sandbox.id.clone(),
    };
    SandboxInfo {
        id: sandbox.id.clone(),
        created_at: sandbox.created_at,
        task_info: Some(task),
        app_id: sandbox.app_id.clone(),
        tags: sandbox.tags(),
        name: sandbox.definition.name.clone().unwrap_or_default(),
        image_id: sandbox.definition.image_id.clone(),
        regions: Vec::new(),
        timeout_secs: sandbox.definition.timeout_secs,
        idle_timeout_secs: sandbox.definition.idle_timeout_secs,
        ready_at: *sandbox.ready_at.borrow(),
        metadata: Some(sandbox.metadata()),
    }
}
