//! How long warm artifacts took to make: by the times of the journal, from the first announcement under the artifact's tag
//! (that of the sandbox that it was made in) to the artifact.

use std::collections::HashMap;

use jiff::Timestamp;
use sandbox_bench_core::evidence::{Event, JournalLine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash;

/// A warm artifact that a run made or found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactBuild {
    /// The backend.
    pub backend: String,
    /// The artifact's id.
    pub id: String,
    /// How long the run took to make it, in microseconds by the host's clock; none if it was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_us: Option<u64>,
}

/// Reads them off a journal.
#[derive(Debug, Default)]
pub struct Builds {
    /// When each tag that is in use was announced first, by its hash.
    announced: HashMap<u64, Timestamp>,
    known: Vec<ArtifactBuild>,
}

impl Builds {
    /// Takes in a line.
    pub fn record(&mut self, line: &JournalLine) {
        match &line.event {
            Event::Intent { tag, .. } => {
                self.announced.entry(hash(tag)).or_insert(line.at);
            }
            Event::AttemptFinished { attempt } => {
                self.announced.remove(&hash(&attempt.tag));
            }
            Event::ArtifactReady { artifact } => {
                let since = artifact.tag.as_ref().and_then(|tag| self.announced.remove(&hash(tag)));
                let took = |since: Timestamp| u64::try_from(line.at.as_microsecond() - since.as_microsecond()).ok();
                let build_us = since.and_then(took);
                let same = |known: &&mut ArtifactBuild| known.backend == artifact.backend && known.id == artifact.id;
                match self.known.iter_mut().find(same) {
                    Some(known) => known.build_us = known.build_us.or(build_us),
                    None => {
                        let (backend, id) = (artifact.backend.clone(), artifact.id.clone());
                        self.known.push(ArtifactBuild { backend, id, build_us });
                    }
                }
            }
            _ => {}
        }
    }

    /// All artifacts, in the order of the journal.
    #[must_use]
    pub fn finish(self) -> Vec<ArtifactBuild> {
        self.known
    }
}
