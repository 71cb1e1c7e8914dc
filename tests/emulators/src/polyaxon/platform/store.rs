//! Projects and runs in memory, and the rules by which statuses follow each other.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{Timestamp, Unit};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::polyaxon::agent::is_over;
use crate::polyaxon::pods::{cpus, quantity};
use crate::polyaxon::world::NAMESPACE;

/// All statuses that a run can have.
pub(super) const STATUSES: [&str; 19] = [
    "created",
    "resuming",
    "on_schedule",
    "compiled",
    "queued",
    "retrying",
    "scheduled",
    "starting",
    "processing",
    "running",
    "warning",
    "unschedulable",
    "unknown",
    "stopping",
    "succeeded",
    "failed",
    "upstream_failed",
    "stopped",
    "skipped",
];
/// Statuses from which a stop takes effect at once.
const NOT_STARTED: [&str; 5] = ["created", "on_schedule", "resuming", "compiled", ""];
/// The first of these sets the run's start.
const ON_CLUSTER: [&str; 4] = ["scheduled", "starting", "processing", "running"];

/// What one installation has.
pub(in crate::polyaxon) struct Store(Mutex<State>);

#[derive(Default)]
struct State {
    projects: BTreeMap<String, Value>,
    /// In the order of their creation.
    runs: Vec<Run>,
}

struct Run {
    project: String,
    /// As a GET shows it.
    shown: Value,
    conditions: Vec<Value>,
    /// Entries of the lineage.
    artifacts: Vec<Value>,
}

impl Store {
    pub(in crate::polyaxon) fn new(project: &str) -> Store {
        let store = Store(Mutex::default());
        store.add_project("default", project);
        store
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_project(&self, name: &str) -> bool {
        self.lock().projects.contains_key(name)
    }

    pub(super) fn projects(&self) -> Vec<Value> {
        self.lock().projects.values().cloned().collect()
    }

    pub(super) fn add_project(&self, owner: &str, name: &str) -> Value {
        let project = json!({ "uuid": new_id(), "name": name, "owner": owner, "description": null, "tags": null,
            "created_at": now(Unit::Microsecond), "updated_at": now(Unit::Microsecond), "readme": null });
        self.lock().projects.insert(name.to_owned(), project.clone());
        project
    }

    /// Makes a run; returns the answer of its creation, which has neither status nor times.
    pub(super) fn create(&self, project: &str, asked: &Value, made: (Option<&Value>, bool, Value)) -> Value {
        let (compiled, managed, pending) = made;
        let uuid = new_id();
        let content = compiled.map(Value::to_string);
        let kind = compiled.and_then(|compiled| compiled["run"]["kind"].as_str()).unwrap_or("job");
        let name = asked["name"].as_str().or(compiled.and_then(|compiled| compiled["name"].as_str()));
        let asked_for = compiled.map(|compiled| compiled["run"]["container"]["resources"]["requests"].clone());
        let asked_for = asked_for.unwrap_or_default();
        let answer = json!({
            "uuid": uuid, "kind": kind, "name": name, "description": asked["description"], "content": content,
            "is_managed": managed, "managed_by": if managed { "agent" } else { "user" }, "pending": pending,
            "meta_info": asked["meta_info"], "tags": asked["tags"], "settings": {},
        });
        let mut shown = answer.clone();
        let more = json!({
            "created_at": now(Unit::Microsecond), "updated_at": now(Unit::Microsecond), "started_at": null,
            "finished_at": null, "schedule_at": null, "wait_time": null, "duration": null, "runtime": kind,
            "status": "created", "pipeline": null, "original": null, "inputs": {}, "outputs": null, "user": null,
            "owner": "default", "project": project, "readme": null, "raw_content": asked["content"], "live_state": 1,
            "bookmarked": false, "settings": { "namespace": NAMESPACE, "agent": null, "queue": null },
            "resources": { "cpu": cpus(&asked_for["cpu"]).unwrap_or(0.0), "custom": 0.0, "cost": 0.0, "gpu": 0.0,
                "memory": quantity(&asked_for["memory"]).unwrap_or(0) as f64 },
        });
        merge(&mut shown, &more);
        let held = !pending.is_null();
        self.lock().runs.push(Run {
            project: project.to_owned(),
            shown,
            conditions: Vec::new(),
            artifacts: Vec::new(),
        });
        self.condition(&uuid, ("created", "OperationServiceInit", "Run is created"));
        if managed && !held {
            self.condition(&uuid, ("compiled", "SchedulerPrepare", "Run is compiled"));
            self.condition(&uuid, ("queued", "SchedulerStart", "Run is queued"));
        }
        answer
    }

    /// The run as a GET shows it.
    pub(in crate::polyaxon) fn run(&self, uuid: &str) -> Option<Value> {
        self.lock().runs.iter().find(|run| run.shown["uuid"] == uuid).map(|run| run.shown.clone())
    }

    /// The runs of a project that lists show, as a list shows them.
    pub(super) fn all(&self, project: &str) -> Vec<Value> {
        let state = self.lock();
        let of_project = state.runs.iter().filter(|run| run.project == project);
        of_project.map(|run| run.shown.clone()).collect()
    }

    pub(super) fn statuses(&self, uuid: &str) -> Value {
        let state = self.lock();
        let Some(run) = state.runs.iter().find(|run| run.shown["uuid"] == uuid) else { return Value::Null };
        json!({ "uuid": uuid, "status": run.shown["status"], "status_conditions": run.conditions,
            "meta_info": run.shown["meta_info"] })
    }

    /// The entries of a run's lineage.
    pub(super) fn lineage(&self, uuid: &str) -> Vec<Value> {
        let state = self.lock();
        state.runs.iter().find(|run| run.shown["uuid"] == uuid).map(|run| run.artifacts.clone()).unwrap_or_default()
    }

    /// Adds an entry to a run's lineage, in place of the one of its name.
    pub(super) fn enter(&self, uuid: &str, artifact: Value) {
        self.change(uuid, |run| {
            run.artifacts.retain(|one| one["name"] != artifact["name"]);
            run.artifacts.push(artifact);
        });
    }

    pub(super) fn set_live(&self, uuid: &str, live: i64) {
        self.change(uuid, |run| run.shown["live_state"] = json!(live));
    }

    pub(super) fn stop(&self, uuid: &str) {
        let status = self.run(uuid).and_then(|run| run["status"].as_str().map(str::to_owned)).unwrap_or_default();
        let next = if NOT_STARTED.contains(&status.as_str()) { "stopped" } else { "stopping" };
        self.report(uuid, (next, "StateManager", &format!("Run is {next}; User requested to stop the run.")));
    }

    /// The first approval compiles, the second one queues, as the server does it.
    pub(super) fn approve(&self, uuid: &str) {
        let Some(run) = self.run(uuid) else { return };
        match run["status"].as_str() {
            Some("created") => self.condition(uuid, ("compiled", "SchedulerPrepare", "Run is compiled")),
            Some("compiled") if !run["pending"].is_null() => {
                self.change(uuid, |run| run.shown["pending"] = Value::Null);
                self.condition(uuid, ("queued", "SchedulerStart", "Run is queued"));
            }
            _ => {}
        }
    }

    /// A status as somebody reports it: final ones stay, and after `stopping` comes a final one only.
    pub(in crate::polyaxon) fn report(&self, uuid: &str, (status, reason, message): (&str, &str, &str)) {
        let Some(run) = self.run(uuid) else { return };
        let now = run["status"].as_str().unwrap_or_default();
        let refused = is_over(now) || (now == "stopping" && !is_over(status)) || status == "created";
        if !refused {
            self.condition(uuid, (status, reason, message));
        }
    }

    fn condition(&self, uuid: &str, (status, reason, message): (&str, &str, &str)) {
        let time = now(Unit::Millisecond);
        let condition = json!({ "type": status, "status": true, "reason": reason, "message": message,
            "last_update_time": time, "last_transition_time": time });
        self.change(uuid, |run| {
            match run.conditions.last_mut().filter(|last| last["type"] == status) {
                Some(last) => {
                    let first = last["last_transition_time"].clone();
                    *last = condition;
                    last["last_transition_time"] = first;
                }
                None => run.conditions.push(condition),
            }
            let shown = &mut run.shown;
            shown["status"] = json!(status);
            if ON_CLUSTER.contains(&status) && shown["started_at"].is_null() {
                shown["started_at"] = json!(now(Unit::Microsecond));
                shown["wait_time"] = json!(seconds(&shown["created_at"]));
            }
            if is_over(status) {
                shown["finished_at"] = json!(now(Unit::Microsecond));
                shown["duration"] = json!(seconds(&shown["started_at"]));
            }
        });
    }

    /// Changes fields; with `merge`, maps are merged and tags added.
    pub(super) fn patch(&self, uuid: &str, body: &Value) {
        let merging = body["merge"] == true;
        self.change(uuid, |run| {
            for (name, value) in body.as_object().into_iter().flatten().filter(|(name, _)| *name != "merge") {
                let held = &mut run.shown[name.as_str()];
                match (held, value) {
                    (held @ Value::Object(_), Value::Object(_)) if merging => merge(held, value),
                    (Value::Array(all), Value::Array(added)) if merging => {
                        let new: Vec<Value> = added.iter().filter(|one| !all.contains(one)).cloned().collect();
                        all.extend(new);
                    }
                    (held, value) => *held = value.clone(),
                }
            }
        });
    }

    fn change(&self, uuid: &str, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.lock().runs.iter_mut().find(|run| run.shown["uuid"] == uuid) {
            change(run);
            run.shown["updated_at"] = json!(now(Unit::Microsecond));
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Some(from)) = (into, from.as_object()) {
        into.extend(from.clone().into_iter().collect::<Map<_, _>>());
    }
}

fn new_id() -> String {
    Uuid::new_v4().simple().to_string()
}

fn now(unit: Unit) -> String {
    let now = Timestamp::now();
    now.round(unit).unwrap_or(now).to_string()
}

/// Seconds since a time, with two decimals.
fn seconds(since: &Value) -> f64 {
    let since = since.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let seconds = since.map_or(0.0, |since| Timestamp::now().duration_since(since).as_secs_f64());
    (seconds * 100.0).round() / 100.0
}
