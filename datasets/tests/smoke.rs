//! The bundled data set, as an installed program sees it.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use sandbox_bench_datasets::task::{Family, ImageSpec};
use sandbox_bench_datasets::{BUNDLED, Dataset, OpenOptions, validate};

#[allow(dead_code)]
#[path = "../examples/build-smoke.rs"]
mod build_smoke;

#[test]
fn the_built_row_files_come_from_their_sources() {
    let differing = build_smoke::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"), true).unwrap();
    assert_eq!(differing, 0, "run scripts/build-smoke-data");
}

#[test]
fn every_bundled_task_loads_and_has_a_gold_solution() {
    let cache = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(BUNDLED, OpenOptions::new(cache.path())).unwrap();
    assert_eq!(dataset.name(), "smoke");
    assert_eq!(validate(&dataset).collect::<Vec<_>>(), []);
    let tasks: Vec<_> = dataset.entries().map(|entry| dataset.load(&entry.unwrap()).unwrap()).collect();
    assert!(tasks.iter().any(|task| task.id == "build-order"), "ids of Parquet rows are as in the file");
    let count = |family| tasks.iter().filter(|task| task.family == family).count();
    assert!(count(Family::Harbor) >= 3);
    assert!(count(Family::TerminalBench1) >= 3);
    assert!(count(Family::SweSmith) >= 4);
    assert_eq!(tasks.len(), 17);
    for task in &tasks {
        assert!(task.solution.is_some(), "{}", task.id);
        assert_eq!(task.requires, [], "{}", task.id);
        assert_eq!(task.warnings, Vec::<String>::new(), "{}", task.id);
        let ImageSpec::Dockerfile { recipe, .. } = &task.environment.image else {
            panic!("{}: no Dockerfile", task.id)
        };
        assert_eq!(recipe.unsupported, None, "{}", task.id);
    }
}
