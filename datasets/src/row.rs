//! One row of a row file, whatever container it came from: which form it has, and the task in it.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandbox_bench_core::Digest;
use serde_json::{Map, Value};

use crate::archive;
use crate::cache::{Cache, Kind};
use crate::directory;
use crate::harbor::{DEFAULT_WORKDIR, Given};
use crate::limits::Limits;
use crate::problem::{Fault, excerpt};
use crate::swesmith;
use crate::task::Task;
use crate::write::BugRow;

/// The form of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `task_id`, `prompt`, `instruction`, `task_files` (an archive as base64 text).
    TaskFiles,
    /// `path`, `task_binary` (an archive).
    TaskBinary,
    /// `instance_id`, `patch`, and the lists of tests.
    SweSmith,
}

/// The form of rows that have these keys.
///
/// # Errors
/// Rows of no known form, and SWE-bench rows.
pub(crate) fn shape(has: impl Fn(&str) -> bool) -> Result<Shape, Fault> {
    if has("task_binary") {
        return Ok(Shape::TaskBinary);
    }
    if has("task_files") || (has("metadata") && has("prompt")) {
        return Ok(Shape::TaskFiles);
    }
    if has("instance_id") && has("patch") {
        if has("test_patch") && !has("image_name") {
            return Err(Fault::new(
                "this is a SWE-bench row, which is not supported yet",
                "use SWE-smith rows (with image_name); in SWE-bench the patch is the fix, not the bug",
            ));
        }
        return Ok(Shape::SweSmith);
    }
    Err(Fault::new(
        "the row has no known form",
        "it needs task_id and task_files, or path and task_binary, or instance_id and patch",
    ))
}

/// The columns of a Parquet file from which [`id`] can tell a row's id.
pub(crate) fn id_columns(shape: Shape) -> &'static [&'static str] {
    match shape {
        Shape::TaskFiles => &["task_id", "metadata.instance.task_id", "metadata.instance", "metadata"],
        Shape::TaskBinary => &["path"],
        Shape::SweSmith => &["instance_id"],
    }
}

/// The id in a row.
pub(crate) fn id(row: &Map<String, Value>, shape: Shape) -> Result<String, Fault> {
    let (key, value) = match shape {
        Shape::TaskFiles => match row.get("task_id") {
            Some(value) => ("task_id", Some(value.clone())),
            None => ("task_id", instance(row).and_then(|mut instance| instance.remove("task_id"))),
        },
        Shape::TaskBinary => ("path", row.get("path").cloned()),
        Shape::SweSmith => ("instance_id", row.get("instance_id").cloned()),
    };
    match value {
        Some(Value::String(id)) if !id.trim().is_empty() && !id.chars().any(char::is_control) => Ok(id),
        Some(Value::Number(id)) if shape == Shape::TaskFiles => Ok(id.to_string()),
        None | Some(Value::Null) => Err(Fault::new(format!("the row has no {key}"), format!("give every row a {key}"))),
        Some(_) => {
            Err(Fault::new(format!("{key} is no usable text"), "use a non-empty text without control characters"))
        }
    }
}

/// What loading a row needs besides the row.
pub(crate) struct Context<'a> {
    pub(crate) id: &'a str,
    pub(crate) cache: &'a Cache,
    pub(crate) limits: &'a Limits,
    /// Directories that may hold SWE-smith environments, best first.
    pub(crate) environments: &'a [&'a Path],
}

/// The task in a row.
pub(crate) fn load(row: Map<String, Value>, shape: Shape, context: &Context<'_>) -> Result<Task, Fault> {
    match shape {
        Shape::TaskFiles => task_files(flatten(row), context),
        Shape::TaskBinary => {
            // Some derived sets carry the instruction beside the archive.
            let instruction = text(&row, "instruction")?.filter(|text| !text.trim().is_empty());
            with_row_facts(row, instruction, context)
        }
        Shape::SweSmith => swesmith::load(&row, context),
    }
}

fn task_files(row: Map<String, Value>, context: &Context<'_>) -> Result<Task, Fault> {
    let said = |key: &str| text(&row, key).map(|text| text.filter(|text| !text.trim().is_empty()));
    let Some(instruction) = said("instruction")?.or(said("prompt")?) else {
        return Err(Fault::new("prompt and instruction are both empty", "say what the solver is to do"));
    };
    with_row_facts(row, Some(instruction), context)
}

/// The task in the row's archive, with what the row itself says.
fn with_row_facts(
    mut row: Map<String, Value>,
    instruction: Option<String>,
    context: &Context<'_>,
) -> Result<Task, Fault> {
    let env_type = text(&row, "env_type")?;
    let default_workdir = match env_type.as_deref() {
        None | Some("" | "terminalbench" | "harbor_terminalbench" | "chip") => DEFAULT_WORKDIR,
        Some("harbor_swesmith") => swesmith::WORKDIR,
        Some(other) => {
            let remedy = "use terminalbench, harbor_terminalbench, harbor_swesmith or chip";
            return Err(Fault::new(format!("the env_type {} is not known", excerpt(other)), remedy));
        }
    };
    let bytes = archive(&mut row)?;
    if let Some(expected) = text(&row, "archive_sha256")?
        && !Digest::of(&bytes).hex().eq_ignore_ascii_case(expected.trim_start_matches("sha256:"))
    {
        return Err(Fault::new("the archive does not have the sha256 that the row says", "fetch the file again"));
    }
    let mut task = archived(&bytes, instruction, default_workdir, context)?;
    for key in ["env_type", "data_source", "discipline", "benchmark", "tools", "source", "family", "language", "tags"] {
        if let Some(value) = row.remove(key).filter(|value| value.as_str() != Some("")) {
            task.metadata.entry(key).or_insert(value);
        }
    }
    Ok(task)
}

/// The bytes of the row's archive.
pub(crate) fn archive_bytes(row: Map<String, Value>) -> Result<Vec<u8>, Fault> {
    archive(&mut flatten(row))
}

fn archive(row: &mut Map<String, Value>) -> Result<Vec<u8>, Fault> {
    if let Some(binary) = row.remove("task_binary") {
        return decode(binary.as_str().unwrap_or_default(), "task_binary");
    }
    let files = match row.remove("task_files") {
        Some(Value::String(json)) => serde_json::from_str(&json).ok(),
        other => other,
    };
    let Some(Value::Object(files)) = files else {
        return Err(Fault::new("task_files is no object", "it needs encoding and content"));
    };
    match files.get("encoding").and_then(Value::as_str) {
        Some("tar.gz+base64") => {
            decode(files.get("content").and_then(Value::as_str).unwrap_or_default(), "task_files.content")
        }
        other => {
            let found = excerpt(other.unwrap_or_default());
            let remedy = "the only known one is tar.gz+base64";
            Err(Fault::new(format!("the encoding {found} of task_files is not known"), remedy))
        }
    }
}

/// Unpacks the row's archive into the cache.
pub(crate) fn unpack(bytes: &[u8], cache: &Cache, limits: &Limits) -> Result<PathBuf, Fault> {
    let place = cache.directory(Kind::Archive, &Digest::of(bytes), |place| {
        archive::unpack(Cursor::new(bytes), bytes.len() as u64, place, limits)
    })?;
    Ok(directory::unwrapped(&place))
}

/// A SWE-smith row with the columns of the published sets.
pub(crate) fn bug(row: &Map<String, Value>) -> Result<BugRow, Fault> {
    let column = |key: &str| text(row, key).map(Option::unwrap_or_default);
    Ok(BugRow {
        instance_id: column("instance_id")?,
        patch: column("patch")?,
        fail_to_pass: swesmith::tests(row, "FAIL_TO_PASS")?,
        pass_to_pass: swesmith::tests(row, "PASS_TO_PASS")?,
        image_name: column("image_name")?,
        repo: column("repo")?,
        problem_statement: column("problem_statement")?,
    })
}

/// The task in an archive.
fn archived(
    bytes: &[u8],
    instruction: Option<String>,
    default_workdir: &str,
    context: &Context<'_>,
) -> Result<Task, Fault> {
    let place = unpack(bytes, context.cache, context.limits)?;
    let given = Given { id: context.id, instruction, default_workdir };
    directory::load(&place, given, context.cache, context.limits)
}

/// Base64 with padding; blanks and line breaks are tolerated.
fn decode(text: &str, key: &str) -> Result<Vec<u8>, Fault> {
    if text.is_empty() {
        return Err(Fault::new(format!("{key} is empty or no text"), "give every row its archive"));
    }
    let compact: String;
    let text = if text.contains(|c: char| c.is_ascii_whitespace()) {
        compact = text.split_ascii_whitespace().collect();
        &compact
    } else {
        text
    };
    STANDARD
        .decode(text)
        .map_err(|error| Fault::new(format!("{key} is not base64: {error}"), "use the standard alphabet with padding"))
}

fn text(row: &Map<String, Value>, key: &str) -> Result<Option<String>, Fault> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Fault::new(format!("{key} is no text"), format!("make {key} a string"))),
    }
}

/// Brings the fields of `metadata` and `metadata.instance` to the top level, where JSON rows have them.
fn flatten(mut row: Map<String, Value>) -> Map<String, Value> {
    let Some(mut metadata) = row.remove("metadata").and_then(as_object) else { return row };
    let instance = metadata.remove("instance").and_then(as_object).unwrap_or_default();
    for (key, value) in instance.into_iter().chain(metadata) {
        row.entry(key).or_insert(value);
    }
    row
}

fn instance(row: &Map<String, Value>) -> Option<Map<String, Value>> {
    as_object(row.get("metadata")?.clone())?.remove("instance").and_then(as_object)
}

/// An object, or JSON text of one.
fn as_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        Value::String(json) => serde_json::from_str(&json).ok(),
        _ => None,
    }
}
