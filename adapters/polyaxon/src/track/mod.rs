//! Evidence in a tracked run of the platform, by plain REST, as the official client's tracking module does it.
//!
//! A tracked run is one of `managed_by: user`: the platform keeps it and schedules nothing. It is found again by its
//! `meta_info.evaluation`, and the sandboxes of that evaluation have the same value in their `meta_info.correlation_run`. Files go to
//! `outputs/<run>/` of its artifacts.
//!
//! Inside a run of the platform, evidence goes to that run (`POLYAXON_RUN_INSTANCE`), whose status is the platform's to set.

mod config;
mod events;
mod store;
mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Body, Method};
use sandbox_bench_core::{
    Call, Description, Error, ErrorKind, Evaluation, Result, Series, TrackedFile, TrackedRun, TrackedStatus, Tracker,
};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::bounded;
use serde_json::{Map, Value, json};

use crate::api::{Api, accepted, ask, is_run};
use crate::backend::NAME;
use crate::config::PolyaxonConfig;
use crate::error::short;
use crate::find::{CREATED_BY, correlation};
use crate::settings::{Places, Settings};
use crate::wire::Namespace;

pub use config::TrackConfig;
use store::Store;
use wire::{Change, Lineage, NewTracked, Tracked, TrackedList};

/// Names our run in the meta information of a tracked one.
const EVALUATION: &str = "evaluation";
/// The run that this process is, to the platform: `<owner>.<project>.runs.<uuid>`.
const INSTANCE: &str = "POLYAXON_RUN_INSTANCE";
/// How often a run is looked for whose creation was not answered, and the pause in between: servers may commit late.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// Most characters of a name in the lineage.
const NAME_LIMIT: usize = 128;

/// The tracker of an installation. Reads the official client's files and variables; sends nothing.
///
/// # Errors
/// `InvalidRequest` if no project is configured or a value makes no sense, `Credentials` if the token cannot be sent.
pub fn tracker(config: &TrackConfig, sandboxes: &PolyaxonConfig) -> Result<Arc<dyn Tracker>> {
    let here = std::env::current_dir().unwrap_or_default();
    let places = Places { variable: &|name| std::env::var(name).ok(), here: &here };
    PolyaxonTracker::new(config, sandboxes, &places).map(|tracker| Arc::new(tracker) as Arc<dyn Tracker>)
}

struct PolyaxonTracker {
    api: Arc<Api>,
    place: String,
    /// The run that this process is, if evidence goes there.
    own: Option<String>,
}

impl PolyaxonTracker {
    fn new(config: &TrackConfig, sandboxes: &PolyaxonConfig, places: &Places<'_>) -> Result<Self> {
        let mut merged = config.over(sandboxes);
        let own = match (&config.project, instance(places)) {
            (None, Some((project, run))) => {
                merged.project = Some(project);
                Some(run)
            }
            _ => None,
        };
        let settings = Settings::find(&merged, places)?;
        let api = Api::new(&settings, &merged)?;
        let place = format!("{}/{}/{}", api.host(), api.owner, api.project);
        Ok(Self { api: Arc::new(api), place, own })
    }

    async fn find(&self, call: &Call, evaluation: &Evaluation) -> Result<Option<String>> {
        let query = format!("meta_info.{EVALUATION}:{}", correlation(&evaluation.run));
        let request = self.api.of_project(Method::GET, &["runs"]);
        // Should there be several, all publishers take the same one: the oldest.
        let request = request.query(&[("query", query.as_str()), ("sort", "created_at"), ("limit", "1")]);
        let found: TrackedList = ask(call, "search for the tracked run", Effect::Idempotent, request).await?;
        Ok(found.results.into_iter().next().map(|run| run.uuid))
    }

    async fn create(&self, call: &Call, evaluation: &Evaluation) -> Result<String> {
        let meta = meta(evaluation);
        let body = NewTracked {
            name: &format!("{CREATED_BY}-{}", evaluation.run),
            tags: &evaluation.tags,
            meta_info: meta,
            managed_by: "user",
            is_managed: false,
        };
        let request = self.api.of_project(Method::POST, &["runs"]).json(&body);
        let what = format!("tracked run of {}: create", evaluation.run);
        // Time is left for a search.
        let asked = ask::<Tracked>(&call.within(call.remaining() / 2), &what, Effect::Once, request).await;
        let error = match asked.map_err(|error| (error.kind().clone(), error)) {
            Ok(run) => return Ok(run.uuid),
            Err((ErrorKind::Transport | ErrorKind::DeadlineExceeded, error)) => error,
            Err((ErrorKind::NotFound, error)) => {
                return Err(error.hint("does the project exist? make it with `polyaxon project create`"));
            }
            Err((_, error)) => return Err(error),
        };
        for _ in 0..LOOKS {
            bounded(call, &what, tokio::time::sleep(PAUSE)).await?;
            if let Ok(Some(run)) = self.find(call, evaluation).await {
                return Ok(run);
            }
        }
        Err(Error::new(ErrorKind::Transport, format!("{what}: it is unknown whether there is one")).because(error))
    }
}

/// What the tracked run of an evaluation is found by.
fn meta(evaluation: &Evaluation) -> Map<String, Value> {
    let all = [(EVALUATION, correlation(&evaluation.run)), ("evaluation_kind", evaluation.kind.clone())];
    all.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

/// The run that this process is: `owner/project` and uuid.
fn instance(places: &Places<'_>) -> Option<(String, String)> {
    let told = (places.variable)(INSTANCE)?;
    let parts: Vec<&str> = told.split('.').collect();
    match parts.as_slice() {
        [owner, project, _, run] if is_run(run) => Some((format!("{owner}/{project}"), (*run).to_owned())),
        _ => None,
    }
}

#[async_trait]
impl Tracker for PolyaxonTracker {
    fn name(&self) -> &str {
        NAME
    }

    fn place(&self) -> &str {
        &self.place
    }

    async fn open(&self, call: &Call, evaluation: &Evaluation) -> Result<Arc<dyn TrackedRun>> {
        let id = match &self.own {
            Some(run) => run.clone(),
            None => match self.find(call, evaluation).await? {
                Some(run) => run,
                None => self.create(call, evaluation).await?,
            },
        };
        self.attach(call, evaluation, &id).await
    }

    async fn attach(&self, call: &Call, evaluation: &Evaluation, id: &str) -> Result<Arc<dyn TrackedRun>> {
        let missing = |why: &str| Error::new(ErrorKind::NotFound, format!("tracked run {}: {why}", short(id)));
        if !is_run(id) {
            return Err(missing("no run has such an id"));
        }
        let what = format!("tracked run {}", short(id));
        let run: Tracked = ask(call, &what, Effect::Idempotent, self.api.of_run(Method::GET, id, &[])).await?;
        if run.live_state.is_some_and(|state| state != 1) {
            return Err(missing("it was archived or deleted"));
        }
        let named = run.settings.as_ref().and_then(|settings| settings.namespace.clone());
        let namespace = match named {
            Some(namespace) => namespace,
            None => {
                let request = self.api.of_run(Method::GET, id, &["namespace"]);
                ask::<Namespace>(call, &what, Effect::Idempotent, request).await?.namespace
            }
        };
        let by_platform = |by: &String| by != "user";
        Ok(Arc::new(PolyaxonRun {
            api: self.api.clone(),
            id: id.to_owned(),
            folder: format!("outputs/{}", evaluation.run),
            meta: meta(evaluation),
            managed: run.managed_by.as_ref().map_or(run.is_managed == Some(true), by_platform),
            store: Store::new(namespace, run.settings)?,
        }))
    }
}

struct PolyaxonRun {
    api: Arc<Api>,
    id: String,
    /// Where the evidence goes among its artifacts.
    folder: String,
    /// What it is found by. A run of the platform's own gets it with its description.
    meta: Map<String, Value>,
    /// The platform sets its status.
    managed: bool,
    store: Store,
}

impl PolyaxonRun {
    async fn change(&self, call: &Call, change: &Change<'_>) -> Result<()> {
        let request = self.api.of_run(Method::PATCH, &self.id, &[]).json(change);
        let what = format!("tracked run {}: change", short(&self.id));
        accepted(call, &what, Effect::Idempotent, request).await.map(drop)
    }

    async fn enter(&self, call: &Call, artifacts: &[Lineage]) -> Result<()> {
        let body = json!({ "artifacts": artifacts });
        let request = self.api.of_run(Method::POST, &self.id, &["lineage", "artifacts"]).json(&body);
        let what = format!("tracked run {}: lineage", short(&self.id));
        accepted(call, &what, Effect::Idempotent, request).await.map(drop)
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.folder)
    }
}

#[async_trait]
impl TrackedRun for PolyaxonRun {
    fn id(&self) -> &str {
        &self.id
    }

    async fn describe(&self, call: &Call, description: &Description) -> Result<()> {
        let Description { inputs, outputs, meta, tags } = description;
        let some = |map| Some(map).filter(|map: &&Map<String, Value>| !map.is_empty());
        let meta: Map<String, Value> = self.meta.clone().into_iter().chain(meta.clone()).collect();
        let change = Change {
            inputs: some(inputs),
            outputs: some(outputs),
            meta_info: Some(&meta),
            tags: Some(tags.as_slice()).filter(|tags| !tags.is_empty()),
            merge: true,
        };
        self.change(call, &change).await
    }

    async fn series(&self, call: &Call, series: &[Series]) -> Result<()> {
        let mut last = Map::new();
        let mut lineage = Vec::new();
        for one in series {
            let (text, name) = (events::text(one), format!("{}.plx", one.name));
            let size = text.len() as u64;
            self.store.keep(&self.api, call, (&self.id, events::DIRECTORY, &name), (Body::from(text), size)).await?;
            last.extend(one.points.last().map(|point| (one.name.clone(), json!(point.value))));
            lineage.push(Lineage {
                name: one.name.clone(),
                kind: "metric",
                path: format!("{}/{name}", events::DIRECTORY),
                summary: events::summary(one),
                is_input: false,
            });
        }
        self.enter(call, &lineage).await?;
        // The last value of each series is among the outputs, where lists show and sort it.
        let meta = Map::from_iter([("has_metrics".into(), json!(true)), ("has_events".into(), json!(true))]);
        let change = Change { outputs: Some(&last), meta_info: Some(&meta), merge: true, ..Change::default() };
        self.change(call, &change).await
    }

    async fn upload(&self, call: &Call, file: &TrackedFile, from: &Path) -> Result<()> {
        let path = self.path(&file.path);
        let (directory, name) = path.rsplit_once('/').unwrap_or((&self.folder, &path));
        self.store.keep(&self.api, call, (&self.id, directory, name), store::content(from).await?).await
    }

    async fn link(&self, call: &Call, files: &[TrackedFile]) -> Result<()> {
        let entries: Vec<Lineage> = files
            .iter()
            .map(|file| {
                let path = self.path(&file.path);
                let mut summary = json!({ "path": path, "size": file.size });
                if let Some(digest) = &file.digest {
                    summary["hash"] = json!(digest.to_string());
                }
                Lineage { name: entry_name(&file.path), kind: kind(file), path, summary, is_input: file.input }
            })
            .collect();
        self.enter(call, &entries).await
    }

    async fn status(&self, call: &Call, status: TrackedStatus, why: &str) -> Result<()> {
        if self.managed {
            return Ok(());
        }
        let kind = match status {
            TrackedStatus::Running => "running",
            TrackedStatus::Succeeded => "succeeded",
            TrackedStatus::Failed => "failed",
            TrackedStatus::Stopped => "stopped",
        };
        let condition = json!({ "type": kind, "status": true, "reason": "SandboxBench", "message": why });
        let request = self.api.of_run(Method::POST, &self.id, &["statuses"]).json(&json!({ "condition": condition }));
        let what = format!("tracked run {}: status", short(&self.id));
        accepted(call, &what, Effect::Idempotent, request).await.map(drop)
    }
}

/// The name of a file in the lineage, where only letters, digits, `_` and `-` may be.
fn entry_name(path: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = path.chars().map(word).collect();
    if name.len() <= NAME_LIMIT {
        return name;
    }
    // Long names differ at their ends too.
    let digest = sandbox_bench_core::Digest::of(path.as_bytes()).short(16);
    let kept: String = name.chars().take(NAME_LIMIT - 1 - digest.len()).collect();
    format!("{kept}-{digest}")
}

/// What the platform shows a file as.
fn kind(file: &TrackedFile) -> &'static str {
    match file.path.rsplit_once('.').map(|(_, extension)| extension) {
        _ if file.digest.is_none() => "dir",
        Some("html") => "html",
        Some("md") => "markdown",
        _ => "file",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use super::*;

    const RUN: &str = "cf3ef5624eb1458fafc1f869f4441c6c";

    fn made(config: &TrackConfig, variables: &[(&str, &str)]) -> Result<PolyaxonTracker> {
        let all: HashMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| all.get(name).map(|value| (*value).to_owned());
        let sandboxes = PolyaxonConfig {
            host: Some("https://platform".into()),
            project: Some("acme/sandboxes".into()),
            ..PolyaxonConfig::default()
        };
        PolyaxonTracker::new(config, &sandboxes, &Places { variable: &variable, here: Path::new("/nowhere") })
    }

    #[test]
    fn evidence_goes_to_the_run_that_we_are_unless_another_project_is_named() {
        let instance = [(INSTANCE, &*format!("acme.control.runs.{RUN}"))];
        let unset = TrackConfig::default();
        let outside = made(&unset, &[]).unwrap();
        assert_eq!((outside.place.as_str(), outside.own), ("https://platform/acme/sandboxes", None));
        let inside = made(&unset, &instance).unwrap();
        assert_eq!((inside.place.as_str(), inside.own.as_deref()), ("https://platform/acme/control", Some(RUN)));
        let named = TrackConfig { project: Some("acme/evidence".into()), ..unset.clone() };
        let named = made(&named, &instance).unwrap();
        assert_eq!((named.place.as_str(), named.own), ("https://platform/acme/evidence", None));
        for odd in ["acme.control.runs.x", "acme", ""] {
            assert_eq!(made(&unset, &[(INSTANCE, odd)]).unwrap().own, None, "{odd}");
        }
    }

    #[test]
    fn names_in_the_lineage_are_legal_and_long_ones_stay_apart() {
        assert_eq!(entry_name("report/index.html"), "report-index-html");
        let names: Vec<String> = ["a", "b"].map(|end| entry_name(&format!("{}{end}", "ü/".repeat(100)))).into();
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.len() == NAME_LIMIT && name.is_ascii()));
    }

    #[test]
    fn an_agent_elsewhere_gets_the_token_over_an_encrypted_connection_only() {
        let at = |url: &str| {
            let settings = serde_json::from_value(json!({ "agent": { "url": url } })).unwrap();
            Store::new("n".into(), settings).map(drop).map_err(|error| error.kind().clone())
        };
        assert_eq!((at("https://agent.example.com"), at("http://localhost:8000"), at("")), (Ok(()), Ok(()), Ok(())));
        assert_eq!(at("http://agent.example.com"), Err(ErrorKind::InvalidRequest));
        assert_eq!(at("file:///etc"), Err(ErrorKind::InvalidRequest));
    }
}
