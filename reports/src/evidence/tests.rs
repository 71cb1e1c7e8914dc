#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use sandbox_bench_core::Condition;
use sandbox_bench_core::evidence::Event;

use super::{Entry, EvidenceError, JOURNAL, JournalReader, MANIFEST, Run};
use crate::samples;

fn journal_of(dir: &Path, content: &[u8]) -> JournalReader {
    fs::write(dir.join(JOURNAL), content).unwrap();
    JournalReader::open(&dir.join(JOURNAL)).unwrap()
}

fn sample() -> Vec<Event> {
    let mut events = vec![samples::started()];
    events.extend(samples::events(samples::attempt("local", Condition::Cold, 1)));
    events.push(samples::finished());
    events
}

#[test]
fn a_journal_torn_at_any_byte_gives_all_its_complete_lines() {
    let dir = tempfile::tempdir().unwrap();
    let events = sample();
    let whole = samples::lines(&events);
    for cut in 0..=whole.len() {
        let mut journal = journal_of(dir.path(), &whole[..cut]);
        let read: Vec<Event> = journal
            .by_ref()
            .map(|entry| match entry.unwrap() {
                Entry::Known(line) => line.event,
                Entry::Unknown { .. } => panic!("an unknown line"),
            })
            .collect();
        let complete = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(read, events[..complete], "cut at {cut}");
        let torn = whole[..cut].iter().rev().take_while(|&&byte| byte != b'\n').count();
        assert_eq!(journal.torn(), torn as u64);
    }
}

#[test]
fn damage_before_the_end_is_told_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let whole = String::from_utf8(samples::lines(&sample())).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let damaged = [
        (format!("{}\nnot json\n{}\n", lines[0], lines[1]), 2),
        (format!("{}\n{}\n", lines[0], lines[2]), 2),
        (format!("{}\n{}\n", lines[0], lines[1].replace("intent", "intend")), 2),
        (format!("\n{}\n", lines[0]), 1),
    ];
    for (content, at) in damaged {
        let mut journal = journal_of(dir.path(), content.as_bytes());
        let error = journal.by_ref().find_map(Result::err).unwrap();
        assert!(matches!(error, EvidenceError::Line { line, .. } if line == at), "{error}");
        assert!(journal.next().is_none(), "nothing is read behind the damage");
    }
}

#[test]
fn a_newer_minor_version_is_read_as_far_as_it_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let text = String::from_utf8(samples::lines(&sample())).unwrap();
    let newer = text.replace("\"schema_version\":\"1.0\"", "\"schema_version\":\"1.7\"");
    let newer = newer.replace("\"event\":\"created\"", "\"event\":\"hibernated\"");
    let entries: Vec<Entry> = journal_of(dir.path(), newer.as_bytes()).map(Result::unwrap).collect();
    assert_eq!(entries.len(), sample().len());
    let unknown: Vec<&Entry> = entries.iter().filter(|entry| matches!(entry, Entry::Unknown { .. })).collect();
    assert_eq!(unknown, [&Entry::Unknown { seq: 3, event: "hibernated".into() }]);
}

#[test]
fn a_higher_major_version_is_refused_whatever_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    for first in [
        r#"{"seq":1,"at":"2026-11-29T12:00:00Z","event":"run_started","run":"r","schema_version":"2.0"}"#,
        r#"{"seq":1,"event":"run_started","schema_version":"2.0","all":"is new"}"#,
        r#"{"seq":1,"at":"2026-11-29T12:00:00Z","event":"run_started","run":"r","schema_version":"later"}"#,
    ] {
        let error = journal_of(dir.path(), format!("{first}\n").as_bytes()).next().unwrap().unwrap_err();
        assert!(matches!(error, EvidenceError::TooNew { .. }), "{error}");
        assert!(error.to_string().contains("the sandbox-bench that wrote it"), "{error}");
    }
    fs::write(dir.path().join(MANIFEST), r#"{"schema_version":"2.0"}"#).unwrap();
    assert!(matches!(Run::open(dir.path()).unwrap_err(), EvidenceError::TooNew { .. }));
}

#[test]
fn a_directory_that_holds_no_run_is_told_from_a_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let error = Run::open(dir.path()).unwrap_err();
    assert!(matches!(error, EvidenceError::NoRun(_)), "{error}");
    fs::write(dir.path().join(MANIFEST), r#"{"schema_version":"1.0","run":"#).unwrap();
    assert!(matches!(Run::open(dir.path()).unwrap_err(), EvidenceError::Manifest { .. }));

    let manifest = samples::manifest(&[Condition::Cold], 1);
    samples::write_run(dir.path(), &manifest, &sample());
    let run = Run::open(dir.path()).unwrap();
    assert_eq!(run.manifest, manifest);
    assert_eq!(run.journal().unwrap().map(Result::unwrap).count(), sample().len());
}

proptest! {
    #[test]
    fn no_journal_makes_the_reader_panic_or_hang(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut content = samples::lines(&sample());
        for (at, value) in flips {
            let at = at.index(content.len());
            content[at] = value;
        }
        let read = journal_of(dir.path(), &content).count();
        prop_assert!(read <= content.len());
    }
}
