//! Real rows, when they are at hand: a directory named by `SANDBOX_BENCH_SHARED_DATASETS`, or `../shared/datasets`
//! beside the workspace. Without it these tests have nothing to read and say so.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use diffy::Line;
use diffy::patch_set::{ParseOptions, PatchSet};
use sandbox_bench_datasets::patch::{self, Direction};

use sandbox_bench_datasets::task::{Task, Verifier};
use sandbox_bench_datasets::{Dataset, OpenOptions};

fn shared() -> Option<PathBuf> {
    let place = match std::env::var_os("SANDBOX_BENCH_SHARED_DATASETS") {
        Some(place) => PathBuf::from(place),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/datasets"),
    };
    let found = place.is_dir();
    if !found {
        eprintln!("no real data in {}: nothing checked", place.display());
    }
    found.then_some(place)
}

fn load_all(path: &Path, cache: &Path) -> BTreeMap<String, Task> {
    let dataset = Dataset::open(path.to_str().unwrap(), OpenOptions::new(cache)).unwrap();
    dataset
        .entries()
        .map(|entry| {
            let entry = entry.unwrap();
            let task = dataset.load(&entry).unwrap();
            (entry.id, task)
        })
        .collect()
}

#[test]
fn both_containers_give_the_same_tasks() {
    let Some(shared) = shared() else { return };
    let cache = tempfile::tempdir().unwrap();
    for (name, count) in [
        ("terminalbench_smoke16", 16),
        ("terminalbench2_gold", 14),
        ("terminalbench2_negative", 2),
        ("swesmith_rows", 23),
    ] {
        let json = load_all(&shared.join(format!("{name}.jsonl")), cache.path());
        let parquet = load_all(&shared.join(format!("{name}.parquet")), cache.path());
        assert_eq!(json.len(), count, "{name}");
        assert_eq!(parquet.len(), count, "{name}");
        for (id, task) in &json {
            let other = &parquet[id];
            assert_eq!(task.digest, other.digest, "{id}");
            assert_eq!(task.environment, other.environment, "{id}");
            assert_eq!(task.instruction, other.instruction, "{id}");
            assert_eq!(task.requires, [], "{id}");
            let gold = !name.ends_with("smoke16");
            assert_eq!(task.solution.is_some(), gold, "{id}");
            if let Verifier::SweSmith(row) = &task.verifier {
                assert!(!row.fail_to_pass.is_empty() && !row.pass_to_pass.is_empty(), "{id}");
            }
        }
    }
}

/// Files to which the patch applies: its own old lines at their places, and other lines around them.
fn originals(patch: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for file in PatchSet::parse(patch, ParseOptions::gitdiff()) {
        let file = file.unwrap();
        let text = file.patch().as_text().unwrap();
        let Some(path) = text.original().and_then(|path| path.strip_prefix("a/")) else { continue };
        let mut content = String::new();
        let mut number = 1;
        let mut ends_here = false;
        for hunk in text.hunks() {
            for filler in number..hunk.old_range().start() {
                content.push_str(&format!("filler {filler}\n"));
            }
            for line in hunk.lines() {
                if let Line::Context(line) | Line::Delete(line) = line {
                    content.push_str(line);
                }
            }
            number = hunk.old_range().start() + hunk.old_range().len();
            ends_here = !matches!(hunk.lines().last(), Some(Line::Context(_)));
        }
        if !ends_here && content.ends_with('\n') {
            content.push_str("the end\n");
        }
        files.insert(path.to_owned(), content);
    }
    files
}

fn write(root: &Path, files: &BTreeMap<String, String>) {
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

#[test]
fn git_and_patch_and_we_apply_real_patches_alike() {
    let Some(shared) = shared() else { return };
    let cache = tempfile::tempdir().unwrap();
    for (id, task) in load_all(&shared.join("swesmith_rows.jsonl"), cache.path()) {
        let Verifier::SweSmith(row) = &task.verifier else { panic!("{id}") };
        let files = originals(&row.bug_patch);
        let mut state = files.clone();
        for (direction, reverse) in [(Direction::Forward, false), (Direction::Reverse, true)] {
            let read = |path: &str| state.get(path).map(|content| content.clone().into_bytes());
            let changes = patch::apply(&row.bug_patch, direction, read).unwrap();
            for (program, arguments) in [("git", &["apply", "p"][..]), ("patch", &["-p1", "-s", "-F0", "-i", "p"][..])]
            {
                let place = tempfile::tempdir().unwrap();
                write(place.path(), &state);
                fs::write(place.path().join("p"), &row.bug_patch).unwrap();
                let flags: &[&str] = if reverse { &["-R"] } else { &[] };
                let mut command = Command::new(program);
                let output = command.args(arguments).args(flags).current_dir(place.path()).output().unwrap();
                assert!(output.status.success(), "{program} {id}: {}", String::from_utf8_lossy(&output.stderr));
                for change in &changes {
                    assert_eq!(fs::read(place.path().join(&change.path)).ok(), change.content, "{program} {id}");
                }
            }
            for change in changes {
                let content = String::from_utf8(change.content.unwrap()).unwrap();
                state.insert(change.path, content);
            }
            let read = |path: &str| state.get(path).map(|content| content.clone().into_bytes());
            assert_eq!(patch::apply(&row.bug_patch, direction, read), Err(patch::PatchError::AlreadyApplied), "{id}");
        }
        assert_eq!(state, files, "{id}: there and back again");
    }
}
