#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sandbox_bench_core::evidence::{Attempt, Event};
use sandbox_bench_core::{Condition, Digest, FailureClass};

use super::{DIRECTORY, LISTED, PAGE, write_report};
use crate::cost::RateCard;
use crate::derived::write_derived;
use crate::samples::{self, attempt, events, failed, finished, manifest, started};

const BOTH: [Condition; 2] = [Condition::Cold, Condition::Warm];

/// An attempt whose task is the same on every backend.
fn trial(backend: &str, condition: Condition, number: u64, replicate: u32) -> Attempt {
    let mut attempt = attempt(backend, condition, number);
    let unit = format!("{backend}-{condition}-{number}-{replicate}");
    (attempt.tag, attempt.sandbox) = (samples::tag(&unit), Some(samples::sandbox(backend, &unit)));
    attempt.task_digest = Digest::of(attempt.trial.task.as_bytes());
    attempt.trial.replicate = replicate;
    attempt.total_us += u64::from(replicate) * 20_000;
    if condition == Condition::Warm {
        attempt.total_us -= 60_000;
        attempt.phases[0].duration_us -= 60_000;
    }
    attempt
}

/// A small run in which something of everything happens.
fn mixed() -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for (backend, condition) in [("local", BOTH[0]), ("local", BOTH[1]), ("docker", BOTH[0]), ("docker", BOTH[1])] {
        attempts.extend((1..=3).flat_map(|n| (1..=2).map(move |replicate| trial(backend, condition, n, replicate))));
    }
    attempts[1] = failed(attempts[1].clone(), FailureClass::Rejected);
    attempts[13] = failed(attempts[13].clone(), FailureClass::Timeout);
    attempts[16] = failed(attempts[16].clone(), FailureClass::Unavailable);
    attempts[17] = failed(attempts[17].clone(), FailureClass::Unavailable);
    attempts
}

/// A run directory with the output that all samples name, and its derived files.
fn write_run(directory: &Path, attempts: impl IntoIterator<Item = Attempt>) {
    let journal: Vec<Event> =
        [started()].into_iter().chain(attempts.into_iter().flat_map(events)).chain([finished()]).collect();
    fs::create_dir_all(directory.join("outputs/ab")).unwrap();
    fs::write(directory.join("outputs/ab/cd"), "output").unwrap();
    samples::write_run(directory, &manifest(&BOTH, 6), &journal);
    write_derived(directory, &RateCard::named(None).unwrap()).unwrap();
}

fn reported(attempts: impl IntoIterator<Item = Attempt>) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    write_run(directory.path(), attempts);
    let page = write_report(&[directory.path().to_owned()], &directory.path().join(DIRECTORY)).unwrap();
    let text = fs::read_to_string(page).unwrap();
    (directory, text)
}

/// The values of an attribute.
fn values<'a>(page: &'a str, attribute: &str) -> BTreeSet<&'a str> {
    let start = format!(" {attribute}=\"");
    page.split(&start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Every link of the page leads to an anchor on it, or to a file within `root`.
fn assert_links_resolve(page: &str, report: &Path, root: &Path) {
    let anchors = values(page, "id");
    let links = values(page, "href");
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        match link.strip_prefix('#') {
            Some(anchor) => assert!(anchors.contains(anchor), "{link} leads nowhere"),
            None => {
                let path = percent_encoding::percent_decode_str(link).decode_utf8().unwrap();
                let target = report.join(path.as_ref()).canonicalize().unwrap_or_else(|e| panic!("{link}: {e}"));
                assert!(target.is_file() && target.starts_with(root.canonicalize().unwrap()), "{link} leads outside");
            }
        }
    }
}

#[test]
fn the_page_and_the_markdown_of_a_small_run() {
    let (directory, page) = reported(mixed());
    // What people read and click; styles and the script are files of their own.
    let body = page.split_once("<body>").unwrap().1.split_once("<script>").unwrap().0;
    insta::assert_snapshot!("page", body.replace("><", ">\n<"));
    let report = directory.path().join(DIRECTORY);
    let mut markdown: Vec<PathBuf> = fs::read_dir(&report).unwrap().map(|entry| entry.unwrap().path()).collect();
    markdown.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    markdown.sort();
    let text: Vec<String> = markdown.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    insta::assert_snapshot!("markdown", text.join("\n--------\n\n"));
}

#[test]
fn a_resumed_sandbox_is_beside_cold_and_warm_and_saves_nothing_of_theirs() {
    let of = |conditions: &[Condition]| {
        let conditions = conditions.to_vec();
        reported(conditions.into_iter().flat_map(|condition| (1..=3).map(move |n| trial("docker", condition, n, 1))))
    };
    let (_, warm) = of(&BOTH);
    assert!(warm.contains("Cold to warm: docker"));
    let (_, resumed) = of(&[Condition::Cold, Condition::Resumed]);
    assert!(resumed.contains("docker resumed"), "a row of its own");
    assert!(!resumed.contains("Cold to warm"), "no slope to what is not warm");
}

#[test]
fn every_link_leads_to_something_within_the_run() {
    let (directory, page) = reported(mixed());
    let report = directory.path().join(DIRECTORY);
    assert_links_resolve(&page, &report, directory.path());
    assert!(page.contains("../outputs/ab/cd"));
    for entry in fs::read_dir(&report).unwrap().map(|entry| entry.unwrap().path()) {
        let text = fs::read_to_string(&entry).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(entry.extension().unwrap() == "html" || report.join(target).is_file(), "{entry:?}: {target}");
        }
    }
}

#[test]
fn outputs_that_are_gone_or_lie_elsewhere_are_no_links() {
    let mut gone = trial("local", Condition::Cold, 1, 1);
    gone.outputs[0].stored = "outputs/gone".into();
    let mut elsewhere = trial("local", Condition::Cold, 2, 1);
    elsewhere.outputs[0].stored = "../../etc/passwd".into();
    let mut absolute = trial("local", Condition::Cold, 3, 1);
    absolute.outputs[0].stored = "/etc/passwd".into();
    let (_directory, page) = reported([gone, elsewhere, absolute]);
    assert!(!page.contains("passwd") && !page.contains("outputs/gone") && page.contains("verifier.stdout"));
}

#[test]
fn equal_evidence_gives_equal_bytes() {
    let ((one, _), (other, _)) = (reported(mixed()), reported(mixed()));
    let contents = |directory: &Path| {
        let entries = fs::read_dir(directory.join(DIRECTORY)).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
            .collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(contents(one.path()).len(), 9);
    assert!(contents(one.path()) == contents(other.path()));
}

#[test]
fn words_of_tasks_and_sandboxes_are_never_markup() {
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}\u{1b}[31m";
    let mut attempt = failed(trial("local", Condition::Cold, 1, 1), FailureClass::Timeout);
    (attempt.trial.task, attempt.trial.dataset) = (evil.into(), evil.into());
    attempt.trial.backend = evil.into();
    attempt.failure.as_mut().unwrap().message = format!("{evil} [x](javascript:alert) | `a` *b*");
    attempt.outputs[0].name = evil.into();
    attempt.sandbox.as_mut().unwrap().id = evil.into();
    let (directory, page) = reported([attempt, trial("local", Condition::Cold, 2, 1)]);
    assert_eq!(page.matches("<script").count(), 1, "only the page's own");
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<img"));
    assert!(!page.contains('\u{202e}') && !page.contains('\u{1b}'));
    for name in
        ["overview.md", "tasks.md", "failures.md", "cleanup.md", "comparison.md", "times.md", "backends.md", "gaps.md"]
    {
        let text = fs::read_to_string(directory.path().join(DIRECTORY).join(name)).unwrap();
        // What a backslash stands before is no markup.
        let text = text.replace("\\<", "").replace("\\[", "").replace("\\]", "");
        assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("[x]("), "{name}: {text}");
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'), "{name}");
    }
}

#[test]
fn the_page_asks_the_network_for_nothing() {
    let (_directory, page) = reported(mixed());
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("url("), "no address is in it");
    assert!(values(&page, "src").is_empty());
    assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
}

#[test]
fn several_runs_make_one_view_whose_links_lead_into_each() {
    let results = tempfile::tempdir().unwrap();
    let runs = ["a", "b #2: c"].map(|name| results.path().join(name));
    write_run(&runs[0], mixed());
    write_run(&runs[1], (1..=3).map(|n| trial("docker", Condition::Cold, n, 1)));
    let report = results.path().join(DIRECTORY);
    let page = fs::read_to_string(write_report(&runs, &report).unwrap()).unwrap();
    assert_links_resolve(&page, &report, results.path());
    for words in ["R1 docker cold", "R2 docker cold", "../b%20%232%3A%20c/trials.jsonl", "2 runs"] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn six_replicates_allow_an_order_and_fewer_do_not() {
    let of = |replicates: u32| {
        let one = move |backend: &'static str, slower: u64| {
            (1..=replicates).map(move |replicate| {
                let mut attempt = trial(backend, Condition::Cold, 1, replicate);
                attempt.total_us += slower;
                attempt
            })
        };
        reported(one("local", 0).chain(one("docker", 900_000))).1
    };
    let page = of(6);
    assert!(page.contains("Order by time to a verdict") && page.contains("slower than the one before"));
    assert!(of(5).contains("No order is claimed"));
}

#[test]
fn a_large_run_lists_what_failed_and_counts_the_rest() {
    let attempts = (1..=2 * LISTED as u64).map(|n| trial("local", Condition::Cold, n, 1));
    let rejected = failed(trial("docker", Condition::Cold, 1, 1), FailureClass::Rejected);
    let (directory, page) = reported(attempts.chain([rejected]));
    assert_links_resolve(&page, &directory.path().join(DIRECTORY), directory.path());
    assert!(page.contains(&format!("{LISTED} further attempts are in trials.jsonl only")));
    assert!(page.contains("it ended as rejected"));
    assert!(page.contains(&format!("{} more tasks are in the table of tasks", 2 * LISTED - 300)));
}

#[test]
fn an_empty_run_has_a_report_too() {
    let (directory, page) = reported([]);
    assert_links_resolve(&page, &directory.path().join(DIRECTORY), directory.path());
    assert!(page.contains("nothing was run") && page.contains("Nothing was created"));
    assert!(directory.path().join(DIRECTORY).join(PAGE).is_file());
}
