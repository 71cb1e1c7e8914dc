#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sandbox_bench_core::evidence::{CleanupState, Event};
use sandbox_bench_core::{Condition, FailureClass};

use super::{CLEANUP, SUMMARY, TRIALS, TRIALS_PARQUET, TrialRow, write_derived};
use crate::cleanup::CleanupReport;
use crate::cost::{Cost, RateCard};
use crate::evidence::{EvidenceError, JOURNAL};
use crate::samples::{self, attempt, events, failed};
use crate::summary::Summary;

fn list_prices() -> RateCard {
    RateCard::named(None).unwrap()
}

fn journal(attempts: u64) -> Vec<Event> {
    let mut journal = vec![samples::started()];
    journal.extend((0..attempts).flat_map(|n| events(attempt("local", Condition::Cold, n))));
    journal.extend(events(failed(attempt("docker", Condition::Cold, 0), FailureClass::Unavailable)));
    journal.push(samples::finished());
    journal
}

fn read(dir: &Path) -> Vec<Vec<u8>> {
    [TRIALS, TRIALS_PARQUET, CLEANUP, SUMMARY].map(|name| fs::read(dir.join(name)).unwrap()).to_vec()
}

#[test]
fn every_derived_file_follows_from_the_journal_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    samples::write_run(dir.path(), &samples::manifest(&[Condition::Cold], 600), &journal(600));
    let summary = write_derived(dir.path(), &list_prices()).unwrap();
    let first = read(dir.path());

    write_derived(dir.path(), &list_prices()).unwrap();
    assert_eq!(read(dir.path()), first, "rebuilt in place");
    let elsewhere = tempfile::tempdir().unwrap();
    samples::write_run(elsewhere.path(), &samples::manifest(&[Condition::Cold], 600), &journal(600));
    write_derived(elsewhere.path(), &list_prices()).unwrap();
    assert_eq!(read(elsewhere.path()), first, "rebuilt elsewhere");

    let trials: Vec<TrialRow> = fs::read_to_string(dir.path().join(TRIALS))
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(trials.len(), 601);
    assert_eq!(trials[7].attempt, attempt("local", Condition::Cold, 7));
    assert!(matches!(trials[7].cost, Some(Cost::Unknown { .. })));
    let cleanup: CleanupReport = serde_json::from_slice(&first[2]).unwrap();
    assert_eq!(cleanup.entries.len(), 600);
    assert!(cleanup.entries.iter().all(|entry| entry.state == CleanupState::Confirmed));
    assert_eq!(serde_json::from_slice::<Summary>(&first[3]).unwrap(), summary);

    write_derived(dir.path(), &RateCard::named(Some("csb-compat")).unwrap()).unwrap();
    let again = read(dir.path());
    assert_ne!((&again[0], &again[3]), (&first[0], &first[3]), "another rate card gives other costs");
    assert_eq!(again[2], first[2]);
}

#[test]
fn the_columns_hold_what_the_lines_hold() {
    let dir = tempfile::tempdir().unwrap();
    samples::write_run(dir.path(), &samples::manifest(&[Condition::Cold], 600), &journal(600));
    write_derived(dir.path(), &list_prices()).unwrap();
    let file = fs::File::open(dir.path().join(TRIALS_PARQUET)).unwrap();
    let batches: Vec<_> =
        ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect();
    assert_eq!(batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), 601);
    let first = &batches[0];
    let text = |name: &str, row: usize| first.column_by_name(name).unwrap().as_string::<i32>().value(row).to_owned();
    let count = |name: &str, row: usize| first.column_by_name(name).unwrap().as_primitive::<UInt64Type>().value(row);
    assert_eq!(
        (text("backend", 3), text("condition", 3), text("task", 3)),
        ("local".into(), "cold".into(), "task-3".into())
    );
    assert_eq!(
        (text("decision", 3), text("cleanup", 3), text("proof", 3)),
        ("accepted".into(), "confirmed".into(), "proven".into())
    );
    assert_eq!((text("network", 3), text("environment_way", 3)), ("no-network".into(), "image".into()));
    assert_eq!((count("create_us", 3), count("api_calls", 3), count("total_us", 3)), (130_000, 7, 1_135_000));
    assert!(first.column_by_name("verify_us").unwrap().is_null(3), "what did not happen is null, not zero");
    assert!(first.column_by_name("accepted").unwrap().as_boolean().value(3));
    let started = first.column_by_name("started_at").unwrap().as_primitive::<TimestampMicrosecondType>().value(3);
    assert_eq!(started, samples::start().as_microsecond() + 3_000_000);

    assert_eq!(text("cost_basis", 3), "unknown");
    assert!(first.column_by_name("cost_usd").unwrap().is_null(3), "what is not known is null, not zero");

    let last = batches.last().unwrap();
    let row = last.num_rows() - 1;
    let failure = last.column_by_name("failure_class").unwrap().as_string::<i32>();
    assert_eq!(failure.value(row), "unavailable");
    assert!(last.column_by_name("sandbox_id").unwrap().is_null(row));
}

#[test]
fn a_killed_run_has_its_files_too_and_damage_leaves_the_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    samples::write_run(dir.path(), &samples::manifest(&[Condition::Cold], 2), &journal(2));
    let path = dir.path().join(JOURNAL);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let summary = write_derived(dir.path(), &list_prices()).unwrap();
    assert!(!summary.finished);
    assert_eq!(summary.totals.attempted, 3);

    let before = read(dir.path());
    fs::write(&path, [b"damage\n", whole.as_slice()].concat()).unwrap();
    assert!(matches!(write_derived(dir.path(), &list_prices()).unwrap_err(), EvidenceError::Line { line: 1, .. }));
    assert_eq!(read(dir.path()), before);
    let unfinished = fs::read_dir(dir.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".unfinished"));
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn a_run_that_was_killed_at_once_is_summed_up_as_empty() {
    let dir = tempfile::tempdir().unwrap();
    samples::write_run(dir.path(), &samples::manifest(&[Condition::Cold], 2), &[]);
    let summary = write_derived(dir.path(), &list_prices()).unwrap();
    assert_eq!(summary.totals.attempted, 0);
    assert!(!summary.finished);
}

#[test]
fn what_is_written_conforms_to_the_shipped_schemas() {
    let dir = tempfile::tempdir().unwrap();
    samples::write_run(dir.path(), &samples::manifest(&[Condition::Cold], 3), &journal(3));
    write_derived(dir.path(), &list_prices()).unwrap();
    let files = [
        ("manifest", "manifest.json"),
        ("journal-line", JOURNAL),
        ("trial", TRIALS),
        ("cleanup", CLEANUP),
        ("summary", SUMMARY),
    ];
    for (schema, file) in files {
        let path = format!("{}/../docs/schemas/{schema}.json", env!("CARGO_MANIFEST_DIR"));
        let schema = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let text = fs::read_to_string(dir.path().join(file)).unwrap();
        let documents: Vec<serde_json::Value> = match file.strip_suffix(".jsonl") {
            Some(_) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            None => vec![serde_json::from_str(&text).unwrap()],
        };
        assert!(!documents.is_empty());
        for mut document in documents {
            let problems: Vec<String> =
                validator.iter_errors(&document).map(|e| format!("{e} at {}", e.instance_path())).collect();
            assert_eq!(problems, [""; 0], "{file}: {document}");
            // The schema is not one that takes anything.
            document.as_object_mut().unwrap().retain(|key, _| key == "event");
            assert!(!validator.is_valid(&document), "{file}");
        }
    }
}
