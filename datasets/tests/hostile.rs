//! Damaged and hostile input: every answer is a task or a problem, quickly, and nothing is written outside the cache.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use sandbox_bench_datasets::write::{ArchiveRow, BugRow, Container, RowWriter, Rows};
use sandbox_bench_datasets::{Dataset, Limits, OpenOptions, Problem};

/// Small limits, so that a damaged length cannot make a case slow.
fn options(cache: &Path) -> OpenOptions {
    let limits = Limits { unpacked_bytes: 4 << 20, members: 1000, ..Limits::default() };
    OpenOptions { limits, ..OpenOptions::new(cache) }
}

/// Lists and loads everything there is.
fn read_all(path: &Path, cache: &Path) -> Vec<Result<String, Problem>> {
    let Ok(dataset) = Dataset::open(path.to_str().unwrap(), options(cache)) else { return Vec::new() };
    dataset.entries().map(|entry| entry.and_then(|entry| dataset.load(&entry).map(|task| task.id))).collect()
}

fn task_directory(root: &Path) {
    for (path, content) in [
        ("task.toml", "[environment]\nmemory_mb = 64\n[verifier]\ntimeout_sec = 10.0\n"),
        ("instruction.md", "Do it.\n"),
        ("environment/Dockerfile", "FROM debian\nWORKDIR /app\nCOPY data /app/data\n"),
        ("environment/data", "1 2 3\n"),
        ("tests/test.sh", "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"),
        ("solution/solve.sh", "#!/bin/sh\ntrue\n"),
    ] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn bug() -> BugRow {
    BugRow {
        instance_id: "o__r.12345678.func__1".into(),
        patch: "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n".into(),
        fail_to_pass: vec!["t.py::a".into()],
        pass_to_pass: vec!["t.py::b".into()],
        image_name: "some/image".into(),
        repo: "swesmith/o__r.12345678".into(),
        problem_statement: "It is broken.".into(),
    }
}

fn write(path: &Path, container: Container, rows: &[impl Rows]) -> Vec<u8> {
    let mut writer = RowWriter::create(path, container).unwrap();
    for row in rows {
        writer.push(row).unwrap();
    }
    fs::read(writer.finish().unwrap()).unwrap()
}

/// One good file of every form: name and content.
static GOOD_FILES: LazyLock<Vec<(&'static str, Vec<u8>)>> = LazyLock::new(|| {
    let scratch = tempfile::tempdir().unwrap();
    let place = scratch.path();
    task_directory(&place.join("task"));
    let row = |id: &str| ArchiveRow::pack(id, "Do it.", &place.join("task")).unwrap();
    let rows = [row("one"), row("two")];
    let array = format!("[{}]", serde_json::to_string(&bug()).unwrap()).into_bytes();
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(rows[0].archive.as_slice()), &mut plain).unwrap();
    vec![
        ("a.jsonl", write(&place.join("a.jsonl"), Container::Jsonl, &rows)),
        ("a.parquet", write(&place.join("a.parquet"), Container::Parquet, &rows)),
        ("b.jsonl", write(&place.join("b.jsonl"), Container::Jsonl, &[bug()])),
        ("b.parquet", write(&place.join("b.parquet"), Container::Parquet, &[bug()])),
        ("b.json", array),
        ("t.tar.gz", rows[0].archive.clone()),
        ("t.tar", plain),
    ]
});

/// Reads one file in an otherwise empty place, and checks that the place holds nothing else afterwards.
fn read_one(name: &str, content: &[u8]) -> Vec<Result<String, Problem>> {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join(name), content).unwrap();
    let found = read_all(&data.join(name), &place.path().join("cache"));
    let mut names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name != "cache");
    assert_eq!(names, ["data"]);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    found
}

#[test]
fn the_good_files_are_good() {
    for (name, content) in GOOD_FILES.iter() {
        let found = read_one(name, content);
        assert!(!found.is_empty() && found.iter().all(Result::is_ok), "{name}: {found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes(which in 0usize..7, flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)) {
        let (name, mut content) = GOOD_FILES[which].clone();
        for (at, mask) in flips {
            let at = at.index(content.len());
            content[at] ^= mask;
        }
        for problem in read_one(name, &content).into_iter().filter_map(Result::err) {
            prop_assert_eq!(problem.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn truncations(which in 0usize..7, at in any::<prop::sample::Index>()) {
        let (name, mut content) = GOOD_FILES[which].clone();
        content.truncate(at.index(content.len()));
        read_one(name, &content);
    }

    #[test]
    fn random_bytes(
        name in prop::sample::select(vec!["x.jsonl", "x.json", "x.parquet", "x.tar", "x.tar.gz", "x", "x.ndjson"]),
        content in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        read_one(name, &content);
    }

    #[test]
    fn damaged_task_files(
        file in prop::sample::select(vec!["task.toml", "instruction.md", "environment/Dockerfile", "tests/test.sh", ".gitignore", "tests/.harborignore"]),
        content in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let place = tempfile::tempdir().unwrap();
        let task = place.path().join("task");
        task_directory(&task);
        fs::write(task.join(file), content).unwrap();
        read_all(&task, &place.path().join("cache"));
    }

    #[test]
    fn any_text_as_terminal_bench_files(yaml in any::<String>(), compose in any::<String>()) {
        let place = tempfile::tempdir().unwrap();
        let task = place.path().join("task");
        fs::create_dir(&task).unwrap();
        for (name, content) in [("task.yaml", yaml.as_str()), ("docker-compose.yaml", &compose), ("run-tests.sh", "")] {
            fs::write(task.join(name), content).unwrap();
        }
        read_all(&task, &place.path().join("cache"));
    }
}
