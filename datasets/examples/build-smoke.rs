//! Builds the row files of the bundled data set from their readable form: `datasets/data/src` → `datasets/data/smoke`.
//!
//! The same sources give the same bytes. With `--check` nothing is written, and the exit code is 1 if a file differs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sandbox_bench_datasets::write::{ArchiveRow, BugRow, Container, RowWriter, Rows};
use serde::Deserialize;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let check = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--check") => true,
        Some(_) => {
            eprintln!("usage: build-smoke [--check]");
            return ExitCode::from(2);
        }
    };
    match run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), check) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(differing) => {
            eprintln!("{differing} files differ from their sources: run scripts/build-smoke-data");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("build-smoke: {error}");
            ExitCode::from(2)
        }
    }
}

/// Builds everything; returns how many files differ from what is there.
pub(crate) fn run(data: &Path, check: bool) -> Result<usize, Error> {
    let scratch = tempfile::tempdir()?;
    let built = [
        build(data, scratch.path(), "rows-jsonl", "rows", Container::Jsonl, task)?,
        build(data, scratch.path(), "rows-parquet", "rows", Container::Parquet, task)?,
        build_bugs(data, scratch.path(), "swesmith-jsonl", Container::Jsonl)?,
        build_bugs(data, scratch.path(), "swesmith-parquet", Container::Parquet)?,
    ];
    let mut differing = 0;
    for path in built {
        let name = path.file_name().ok_or("a file without a name")?;
        let place = data.join("smoke").join(name);
        let bytes = fs::read(&path)?;
        let same = fs::read(&place).is_ok_and(|there| there == bytes);
        if !same && !check {
            fs::write(&place, &bytes)?;
        }
        println!("{}: {} bytes, {}", place.display(), bytes.len(), if same { "unchanged" } else { "changed" });
        differing += usize::from(!same);
    }
    Ok(if check { differing } else { 0 })
}

fn build_bugs(data: &Path, out: &Path, from: &str, container: Container) -> Result<PathBuf, Error> {
    build(data, out, from, "swesmith", container, bug)
}

fn build<R: Rows>(
    data: &Path,
    out: &Path,
    from: &str,
    name: &str,
    container: Container,
    row: fn(&Path, &str) -> Result<R, Error>,
) -> Result<PathBuf, Error> {
    let mut tasks = Vec::new();
    for entry in fs::read_dir(data.join("src").join(from))? {
        tasks.push(entry?.path());
    }
    tasks.sort();
    let mut writer = RowWriter::create(&out.join(format!("{name}.{}", container.extension())), container)?;
    for task in tasks {
        let id = task.file_name().and_then(|name| name.to_str()).ok_or("a task without a plain name")?;
        writer.push(&row(&task, id)?)?;
    }
    Ok(writer.finish()?)
}

fn task(directory: &Path, id: &str) -> Result<ArchiveRow, Error> {
    let instruction = fs::read_to_string(directory.join("instruction.md"))?;
    Ok(ArchiveRow::pack(id, &instruction, directory)?)
}

fn bug(directory: &Path, id: &str) -> Result<BugRow, Error> {
    #[derive(Deserialize)]
    struct Tests {
        #[serde(rename = "FAIL_TO_PASS")]
        fail_to_pass: Vec<String>,
        #[serde(rename = "PASS_TO_PASS")]
        pass_to_pass: Vec<String>,
    }
    let tests: Tests = serde_json::from_slice(&fs::read(directory.join("tests.json"))?)?;
    let (key, _) = id.rsplit_once('.').ok_or("an id without a kind")?;
    Ok(BugRow {
        instance_id: id.to_owned(),
        patch: fs::read_to_string(directory.join("bug.patch"))?,
        fail_to_pass: tests.fail_to_pass,
        pass_to_pass: tests.pass_to_pass,
        image_name: format!("swebench/swesmith.x86_64.{}", key.replacen("__", "_1776_", 1)).to_lowercase(),
        repo: format!("swesmith/{key}"),
        problem_statement: fs::read_to_string(directory.join("problem_statement.md"))?,
    })
}
