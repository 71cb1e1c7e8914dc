//! Declarative builds: cached by Dockerfile and context, as the vendor caches them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::model::CreateBuildInfo;
use super::record::BuildInfo;
use super::state::Daytona;
use crate::dockerfile;
use crate::log::Log;
use crate::machine::Saved;

type Cell = Arc<OnceCell<Arc<Saved>>>;

#[derive(Default)]
pub(super) struct Builds(Mutex<BTreeMap<String, Cell>>);

impl BuildInfo {
    pub(super) fn new(request: CreateBuildInfo) -> BuildInfo {
        let mut hash = Sha256::new();
        hash.update(&request.dockerfile_content);
        request.context_hashes.iter().for_each(|context| hash.update(context));
        let key: String = hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        let now = Timestamp::now();
        BuildInfo {
            dockerfile_content: request.dockerfile_content,
            context_hashes: request.context_hashes,
            created_at: now,
            updated_at: now,
            snapshot_ref: format!("daytona-{key}:daytona"),
        }
    }
}

impl Builds {
    /// Whether it was built before.
    pub(super) fn cached(&self, info: &BuildInfo) -> bool {
        self.cell(info).initialized()
    }

    fn cell(&self, info: &BuildInfo) -> Cell {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(cells.entry(info.snapshot_ref.clone()).or_default())
    }
}

impl Daytona {
    /// Builds, or takes what was built before. The log is closed at the end.
    pub(super) async fn build(&self, info: &BuildInfo, log: &Log) -> Result<Arc<Saved>, String> {
        let cell = self.builds.cell(info);
        if cell.initialized() {
            log.line("Using cached build");
        }
        let build = || async {
            let mut contexts = Vec::new();
            for hash in &info.context_hashes {
                let context = self.storage.context(self.organization_id(), hash);
                contexts.push(context.ok_or_else(|| format!("build context {hash} was not uploaded"))?);
            }
            let given = dockerfile::Build { contexts: &contexts, ..dockerfile::Build::default() };
            let built = dockerfile::build(&self.emulation.machines, &info.dockerfile_content, given, log).await;
            built.map_err(|error| error.to_string())
        };
        let result = cell.get_or_try_init(build).await.cloned();
        log.close();
        result
    }
}
