//! The streams service in memory: the artifacts of runs, as the open-source server 2.18.0 keeps them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Multipart, State};
use axum::http::{Request, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::platform::parameters;
use super::reply::{self, Reply};
use super::routes::{authorized, rest};
use super::world::{Api, NAMESPACE, World};

/// Most bytes of one request, and of all artifacts together.
pub(super) const UPLOAD_LIMIT: usize = 64 << 20;
const LIMIT: usize = 256 << 20;
/// What may be asked of an upload.
const FIELDS: [&str; 4] = ["untar", "path", "overwrite", "connection"];

/// The artifacts of all runs, by run and path.
#[derive(Default)]
pub(super) struct Artifacts(Mutex<BTreeMap<(String, String), Bytes>>);

impl Artifacts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of files of each run, for the admin route.
    pub(super) fn view(&self) -> Value {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (run, _) in self.lock().keys() {
            *counts.entry(run.clone()).or_default() += 1;
        }
        json!(counts)
    }
}

/// Answers a request to `/streams/v1/{namespace}/{owner}/{project}/runs/{uuid}/{rest}`.
pub(super) async fn answer(State(world): State<Arc<World>>, request: Request<Body>) -> Reply {
    let Api::Memory(store) = &world.api else { return rest(State(world), request).await };
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    if !authorized(&world, &request) {
        return text(StatusCode::FORBIDDEN, "Forbidden");
    }
    let parts: Vec<&str> = path.trim_start_matches("/streams/v1/").split('/').collect();
    let [namespace, _owner, _project, "runs", run, rest @ ..] = parts.as_slice() else {
        world.violation(&line, "no path of the streams service");
        return text(StatusCode::NOT_FOUND, "Not Found");
    };
    // The server itself asks for neither.
    if *namespace != NAMESPACE || store.run(run).is_none() {
        world.violation(&line, "no such namespace or run");
    }
    let query = parameters(request.uri().query().unwrap_or_default());
    let asked = query.iter().find(|(name, _)| name == "path").map_or("", |(_, path)| path.as_str());
    match (request.method().as_str(), rest) {
        ("POST", ["artifact"]) => upload(&world, (&line, run), request).await,
        ("GET", ["artifact"]) => read(&world, run, asked),
        ("GET", ["artifacts", "tree"]) => tree(&world, run, asked),
        ("GET", ["events", kind]) => {
            let names = query.iter().find(|(name, _)| name == "names").map_or("", |(_, names)| names.as_str());
            events(&world, run, (kind, names))
        }
        _ => {
            world.violation(&line, "no such path");
            text(StatusCode::NOT_FOUND, "Not Found")
        }
    }
}

async fn upload(world: &World, (line, run): (&str, &str), request: Request<Body>) -> Reply {
    let mistake = |why: String| {
        world.violation(line, &why);
        text(StatusCode::BAD_REQUEST, why)
    };
    let mut form = match Multipart::from_request(request, &()).await {
        Ok(form) => form,
        Err(error) => return mistake(error.to_string()),
    };
    let (mut file, mut how) = (None, json!({}));
    loop {
        let field = match form.next_field().await {
            Ok(Some(field)) => field,
            Ok(None) => break,
            Err(error) => return mistake(error.to_string()),
        };
        let (name, file_name) = (field.name().map(str::to_owned), field.file_name().map(str::to_owned));
        let Ok(bytes) = field.bytes().await else { return text(StatusCode::PAYLOAD_TOO_LARGE, "too large") };
        match (name.as_deref(), file_name) {
            (Some("upload_file"), Some(name)) => file = Some((name, bytes)),
            (Some("json"), None) => match serde_json::from_slice(&bytes) {
                Ok(told) => how = told,
                Err(error) => return mistake(error.to_string()),
            },
            (name, _) => return mistake(format!("unknown part {name:?}")),
        }
    }
    let Some((name, bytes)) = file else { return mistake("A file is required to upload a file".into()) };
    if let Some(unknown) = how.as_object().and_then(|how| how.keys().find(|name| !FIELDS.contains(&name.as_str()))) {
        return mistake(format!("unknown field {unknown:?}"));
    }
    // An archive would be unpacked; nothing here needs that.
    if how["untar"] != false {
        return mistake("only single files are emulated: `untar` must be false".into());
    }
    let Some(directory) = clean(how["path"].as_str().unwrap_or_default()) else {
        return mistake("Invalid path: traversal detected".into());
    };
    let name = name.rsplit('/').next().unwrap_or_default();
    let path = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
    let mut all = world.artifacts.lock();
    if all.values().map(Bytes::len).sum::<usize>() + bytes.len() > LIMIT {
        return text(StatusCode::INSUFFICIENT_STORAGE, "the emulator keeps no more");
    }
    if how["overwrite"] != false || !all.contains_key(&(run.to_owned(), path.clone())) {
        all.insert((run.to_owned(), path), bytes);
    }
    text(StatusCode::OK, "")
}

fn read(world: &World, run: &str, path: &str) -> Reply {
    let Some(path) = clean(path) else { return text(StatusCode::BAD_REQUEST, "Invalid path: traversal detected") };
    match world.artifacts.lock().get(&(run.to_owned(), path.clone())) {
        Some(bytes) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes.clone()).into_response(),
        None => text(StatusCode::NOT_FOUND, format!("Artifact not found: filepath={run}/{path}")),
    }
}

/// One level of the tree.
fn tree(world: &World, run: &str, path: &str) -> Reply {
    let Some(path) = clean(path) else { return text(StatusCode::BAD_REQUEST, "Invalid path: traversal detected") };
    let below = if path.is_empty() { String::new() } else { format!("{path}/") };
    let (mut files, mut directories) = (json!({}), std::collections::BTreeSet::new());
    for ((_, held), bytes) in world.artifacts.lock().iter().filter(|((of, _), _)| of == run) {
        match held.strip_prefix(&below).map(|rest| rest.split_once('/').ok_or(rest)) {
            Some(Ok((directory, _))) => drop(directories.insert(directory.to_owned())),
            Some(Err(file)) => files[file] = json!(bytes.len()),
            None => {}
        }
    }
    reply::api(StatusCode::OK, &json!({ "files": files, "dirs": directories }))
}

/// The values of series, from their files: `step|timestamp|kind`, a line for each.
fn events(world: &World, run: &str, (kind, names): (&str, &str)) -> Reply {
    let all = world.artifacts.lock();
    let mut data = Vec::new();
    for name in names.split(',') {
        let Some(bytes) = all.get(&(run.to_owned(), format!("events/{kind}/{name}.plx"))) else { continue };
        let content = String::from_utf8_lossy(bytes);
        let mut lines = content.lines().map(|line| line.split('|').collect::<Vec<_>>());
        if lines.next() != Some(vec!["step", "timestamp", kind]) {
            world.violation(&format!("events of {name}"), "its file has another header");
        }
        let (mut steps, mut times, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for line in lines {
            let [step, time, value] = line.as_slice() else {
                world.violation(&format!("events of {name}"), "its file has a line of another form");
                continue;
            };
            steps.push(step.parse::<u64>().ok());
            times.push((*time).to_owned());
            values.push(value.parse::<f64>().ok());
        }
        data.push(json!({ "name": name, "kind": kind, "data": { "step": steps, "timestamp": times, kind: values } }));
    }
    reply::api(StatusCode::OK, &json!({ "data": data }))
}

/// A path without its outer slashes; none if it leads out.
fn clean(path: &str) -> Option<String> {
    let path = path.trim_matches('/');
    (!path.split('/').any(|part| part == "..")).then(|| path.to_owned())
}

fn text(status: StatusCode, words: impl Into<String>) -> Reply {
    (status, words.into()).into_response()
}
