//! Real rows, when they are at hand: a directory named by `SANDBOX_BENCH_SHARED_DATASETS`, or `../shared/datasets`
//! beside the workspace. Without it these tests have nothing to read and say so.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
