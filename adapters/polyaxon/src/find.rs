//! How a sandbox of ours is known among all runs of the project.
//!
//! The correlation tag is in the run's name, its tags and its meta information. Only the last is asked for: the
//! open-source server's tag filter finds nothing on SQLite, and names are not unique.

use std::collections::BTreeMap;

use reqwest::Method;
use sandbox_bench_core::{Call, Found, Result, SandboxRef, SandboxSpec, Tag, TagQuery};
use sandbox_bench_kit::http::Effect;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::{Api, ask};
use crate::backend::NAME;
use crate::status;
use crate::wire::{Run, Runs};

/// Runs that one page holds.
const PAGE: usize = 100;
/// Most pages that a search reads.
const PAGES: usize = 200;
/// Who made a run, in its tags and its meta information.
pub(crate) const CREATED_BY: &str = "sandbox-bench";
/// Where commands start, in the meta information.
const START: &str = "sandbox_start";

/// What the commands of a sandbox start with, kept at its run for whoever attaches to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Start {
    /// Environment variables of every command.
    pub(crate) env: BTreeMap<String, String>,
    /// Directory of commands that name none; it is made if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workdir: Option<String>,
}

impl Start {
    /// What a request says.
    pub(crate) fn of(spec: &SandboxSpec) -> Self {
        Self { env: spec.env.clone(), workdir: spec.workdir.clone() }
    }

    /// What the run says.
    pub(crate) fn at(run: &Run) -> Self {
        run.meta(START).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// The meta information of a sandbox. What commands start with is text, so that the server keeps it as it is.
pub(crate) fn meta(spec: &SandboxSpec) -> BTreeMap<&'static str, String> {
    let start = Start::of(spec);
    let ours = [
        ("correlation", spec.tag.to_string()),
        ("correlation_run", run_part(&spec.tag).to_owned()),
        ("created_by", CREATED_BY.to_owned()),
    ];
    let start = (start != Start::default()).then(|| (START, json!(start).to_string()));
    ours.into_iter().chain(start).collect()
}

/// The part of a tag that all sandboxes of a run of the benchmark share.
fn run_part(tag: &Tag) -> &str {
    tag.as_str().split_once("--").map_or(tag.as_str(), |(run, _)| run)
}

/// What names a run of the benchmark in the meta information of all that belongs to it.
pub(crate) fn correlation(run: &str) -> String {
    run_part(&Tag::new(run, "any")).to_owned()
}

/// The tag of a run, if it is a sandbox of ours.
pub(crate) fn tag(run: &Run) -> Option<Tag> {
    Tag::parse(run.meta("correlation")?).filter(|_| run.meta("created_by") == Some(CREATED_BY))
}

/// Every sandbox that matches and was not destroyed: destroyed ones are in the project's archive.
///
/// # Errors
/// What a page fails with.
pub(crate) async fn find(api: &Api, call: &Call, query: &TagQuery) -> Result<Vec<Found>> {
    let filter = match query {
        TagQuery::Exact(tag) => format!("meta_info.correlation:{tag}"),
        TagQuery::Run(run) => format!("meta_info.correlation_run:{}", correlation(run)),
        TagQuery::All => format!("meta_info.created_by:{CREATED_BY}"),
    };
    let mut all = BTreeMap::new();
    for page in 0..PAGES {
        let (limit, offset) = (PAGE.to_string(), (page * PAGE).to_string());
        let request = api.of_project(Method::GET, &["runs"]).query(&[
            ("query", filter.as_str()),
            ("sort", "created_at"),
            ("limit", &limit),
            ("offset", &offset),
        ]);
        let runs: Runs = ask(call, "list of sandboxes", Effect::Idempotent, request).await?;
        let last = runs.results.len() < PAGE;
        all.extend(runs.results.iter().filter_map(|run| Some((run.uuid.clone(), found(run, query)?))));
        if last {
            break;
        }
    }
    Ok(all.into_values().collect())
}

fn found(run: &Run, query: &TagQuery) -> Option<Found> {
    let tag = tag(run).filter(|tag| query.matches(tag.as_str()))?;
    Some(Found {
        reference: SandboxRef { backend: NAME.to_owned(), id: run.uuid.clone(), tag },
        state: status::state(run.status),
        created_at: run.created_at,
    })
}
