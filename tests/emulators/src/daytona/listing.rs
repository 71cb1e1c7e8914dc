//! `GET /api/sandbox`: filters, order, pages; eventually consistent.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Query, State};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::failure::{Answer, Failure};
use super::record::{Record, State as SandboxState};
use super::state::Daytona;
use crate::faults::Flags;

/// What the query asks for; parameters for lists repeat.
struct Filter {
    conditions: Vec<Condition>,
    states: Vec<SandboxState>,
    regions: Vec<String>,
    snapshots: Vec<String>,
    errored_deleted: bool,
    sort: String,
    ascending: bool,
    limit: usize,
    offset: usize,
}

type Condition = Box<dyn Fn(&Record) -> bool + Send>;

pub(super) async fn list(
    State(daytona): State<Arc<Daytona>>,
    Extension(flags): Extension<Flags>,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer<Json<Value>> {
    let filter = Filter::parse(query)?;
    let mut found = daytona.index.view(daytona.emulation.timing.list_lag, flags.has("stale-list"));
    found.retain(|record| filter.matches(record));
    found.sort_by(|a, b| if filter.ascending { filter.order(a, b) } else { filter.order(b, a) });
    let more = found.len() > filter.offset + filter.limit;
    let page = found.iter().skip(filter.offset).take(filter.limit);
    let proxy = daytona.proxy_url();
    let items: Vec<Value> = page.map(|record| record.list_item(daytona.organization_id(), &proxy)).collect();
    let next = more.then(|| (filter.offset + filter.limit).to_string());
    Ok(Json(json!({"items": items, "nextCursor": next})))
}

impl Filter {
    fn parse(query: Vec<(String, String)>) -> Answer<Filter> {
        let mut filter = Filter {
            conditions: Vec::new(),
            states: Vec::new(),
            regions: Vec::new(),
            snapshots: Vec::new(),
            errored_deleted: false,
            sort: "lastActivityAt".into(),
            ascending: false,
            limit: 100,
            offset: 0,
        };
        for (name, value) in query {
            filter.take(&name, &value)?;
        }
        Ok(filter)
    }

    fn take(&mut self, name: &str, value: &str) -> Answer<()> {
        let bad = || Failure::bad(format!("{name} has an invalid value: {value}")).violation();
        let number = || value.parse::<u64>().map_err(|_| bad());
        let flag = || value.parse::<bool>().map_err(|_| bad());
        let time = || value.parse::<Timestamp>().map_err(|_| bad());
        let prefix = value.to_lowercase();
        let condition: Condition = match name {
            "id" => Box::new(move |record| record.id.to_lowercase().starts_with(&prefix)),
            "name" => Box::new(move |record| record.name.to_lowercase().starts_with(&prefix)),
            "labels" => {
                let labels: BTreeMap<String, String> =
                    serde_json::from_str(value).map_err(|_| Failure::bad("Invalid labels JSON").violation())?;
                Box::new(move |record| labels.iter().all(|(name, value)| record.labels.get(name) == Some(value)))
            }
            "minCpu" => compare(number()?, |record| record.size.cpu, Ordering::is_ge),
            "maxCpu" => compare(number()?, |record| record.size.cpu, Ordering::is_le),
            "minMemoryGiB" => compare(number()?, |record| record.size.memory, Ordering::is_ge),
            "maxMemoryGiB" => compare(number()?, |record| record.size.memory, Ordering::is_le),
            "minDiskGiB" => compare(number()?, |record| record.size.disk, Ordering::is_ge),
            "maxDiskGiB" => compare(number()?, |record| record.size.disk, Ordering::is_le),
            "createdAtAfter" => compare(time()?, |record| record.created_at, Ordering::is_ge),
            "createdAtBefore" => compare(time()?, |record| record.created_at, Ordering::is_le),
            "lastEventAfter" => compare(time()?, |record| record.updated_at, Ordering::is_ge),
            "lastEventBefore" => compare(time()?, |record| record.updated_at, Ordering::is_le),
            "isPublic" => compare(flag()?, |record| record.public, Ordering::is_eq),
            "isRecoverable" => compare(flag()?, |record| record.recoverable, Ordering::is_eq),
            _ => return self.take_setting(name, value),
        };
        self.conditions.push(condition);
        Ok(())
    }

    fn take_setting(&mut self, name: &str, value: &str) -> Answer<()> {
        let bad = |what: &str| Failure::bad(format!("{name} {what}: {value}")).violation();
        match name {
            "states" => self.states.push(serde_json::from_value(json!(value)).map_err(|_| bad("is no state"))?),
            "regionIds" => self.regions.push(value.into()),
            "snapshots" => self.snapshots.push(value.into()),
            "sandboxClasses" if value == "container" => {}
            "includeErroredDeleted" => self.errored_deleted = value.parse().map_err(|_| bad("is no boolean"))?,
            // There are no warm pools.
            "includeWarm" => drop(value.parse::<bool>().map_err(|_| bad("is no boolean"))?),
            "sort" if ["name", "cpu", "memoryGib", "diskGib", "lastActivityAt", "createdAt"].contains(&value) => {
                self.sort = value.into();
            }
            "order" if ["asc", "desc"].contains(&value) => self.ascending = value == "asc",
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=200).contains(limit));
                self.limit = limit.ok_or_else(|| bad("must be from 1 to 200"))?;
            }
            "cursor" => self.offset = value.parse().map_err(|_| bad("is invalid"))?,
            _ => return Err(bad("is not a parameter")),
        }
        Ok(())
    }

    fn matches(&self, record: &Record) -> bool {
        let one_of = |list: &[String], value: &str| list.is_empty() || list.iter().any(|item| item == value);
        self.conditions.iter().all(|condition| condition(record))
            && (self.states.is_empty() || self.states.contains(&record.state))
            && one_of(&self.regions, &record.target)
            && one_of(&self.snapshots, record.snapshot.as_deref().unwrap_or_default())
            && (self.errored_deleted || record.desired != "destroyed" || record.state != SandboxState::Error)
    }

    fn order(&self, a: &Record, b: &Record) -> Ordering {
        match self.sort.as_str() {
            "name" => a.name.cmp(&b.name),
            "cpu" => a.size.cpu.cmp(&b.size.cpu),
            "memoryGib" => a.size.memory.cmp(&b.size.memory),
            "diskGib" => a.size.disk.cmp(&b.size.disk),
            "createdAt" => a.created_at.cmp(&b.created_at),
            _ => a.last_activity_at.cmp(&b.last_activity_at),
        }
        .then_with(|| a.id.cmp(&b.id))
    }
}

fn compare<T: Ord + Send + 'static>(
    limit: T,
    field: impl Fn(&Record) -> T + Send + 'static,
    wanted: impl Fn(Ordering) -> bool + Send + 'static,
) -> Condition {
    Box::new(move |record| wanted(field(record).cmp(&limit)))
}
