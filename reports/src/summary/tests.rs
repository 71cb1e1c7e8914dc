#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use sandbox_bench_core::evidence::{Event, Manifest};
use sandbox_bench_core::{CacheUse, Condition, ConditionProof, Destruction, FailureClass, Phase};

use super::{Outcome, Summary, SummaryBuilder, Trials};
use crate::cleanup::Ledger;
use crate::cost::RateCard;
use crate::percentile::Durations;
use crate::samples::{self, attempt, events, failed, finished, manifest, started};

pub(crate) fn summarize(manifest: Manifest, journal: &[Event]) -> Summary {
    let mut builder = SummaryBuilder::new(manifest, RateCard::named(None).unwrap(), &std::env::temp_dir());
    let mut ledger = Ledger::default();
    for event in journal {
        builder.record(event);
        ledger.record(event);
    }
    ledger.into_entries().iter().for_each(|entry| builder.object(entry));
    builder.finish().unwrap()
}

/// A whole run of these attempts.
fn run(attempts: impl IntoIterator<Item = sandbox_bench_core::evidence::Attempt>) -> Vec<Event> {
    let mut journal = vec![started()];
    journal.extend(attempts.into_iter().flat_map(events));
    journal.push(finished());
    journal
}

#[test]
fn an_accepted_run_is_counted_and_timed_by_cell() {
    let journal = run((0..11)
        .flat_map(|n| [attempt("local", Condition::Cold, n), attempt("docker", Condition::Cold, n)])
        .chain((0..11).map(|n| attempt("docker", Condition::Warm, n))));
    let summary = summarize(manifest(&[Condition::Cold, Condition::Warm], 11), &journal);
    assert_eq!(summary.outcome, Outcome::Accepted);
    assert_eq!((summary.totals.planned, summary.totals.attempted, summary.totals.accepted), (Some(44), 33, 33));
    let names: Vec<_> = summary.cells.iter().map(|cell| (cell.backend.as_str(), cell.condition)).collect();
    assert_eq!(
        names,
        [
            ("local", Condition::Cold),
            ("local", Condition::Warm),
            ("docker", Condition::Cold),
            ("docker", Condition::Warm)
        ],
        "in the order of the manifest"
    );
    let cell = &summary.cells[0];
    assert_eq!(cell.trials, Trials { planned: Some(11), attempted: 11, accepted: 11, ..Trials::default() });
    // create: 100, 110, … 200 ms
    let create = Durations { n: 11, p50_us: 150_000, p95_us: 195_000, max_us: 200_000 };
    assert_eq!(cell.completed(Phase::Create), Some(create));
    assert_eq!(cell.total.accepted.unwrap().p50_us, 150_000 + 1_005_000);
    assert_eq!(cell.completed(Phase::Verify), None, "what did not happen has no figure");
    assert_eq!((cell.proof.proven, cell.cleanup.confirmed, cell.cleanup.unconfirmed), (11, 11, 0));
    assert_eq!(summary.cells[1].trials.attempted, 0);
}

#[test]
fn classes_of_failure_are_kept_apart_and_their_times_too() {
    let cold = |n| attempt("docker", Condition::Cold, n);
    let journal = run([
        cold(0),
        failed(cold(1), FailureClass::Rejected),
        failed(cold(2), FailureClass::Timeout),
        failed(cold(3), FailureClass::Timeout),
        failed(cold(4), FailureClass::Startup),
        failed(cold(5), FailureClass::Unavailable),
    ]);
    let summary = summarize(manifest(&[Condition::Cold], 6), &journal);
    assert_eq!(summary.outcome, Outcome::Infrastructure);
    let cell = &summary.cells[1];
    assert_eq!(
        cell.trials,
        Trials {
            planned: Some(6),
            attempted: 6,
            accepted: 1,
            rejected: 1,
            failed: 3,
            failures: BTreeMap::from([("startup".to_owned(), 1), ("timeout".to_owned(), 2)]),
            unavailable: 1,
            retries: 0,
        }
    );
    let n = |durations: Option<Durations>| durations.map_or(0, |d| d.n);
    assert_eq!(
        (n(cell.total.accepted), n(cell.total.rejected), n(cell.total.failed)),
        (1, 1, 3),
        "the unavailable trial took no time"
    );
    assert_eq!(n(cell.completed(Phase::Create)), 5, "its sandbox started, whatever came later");
    let solve = cell.phases.iter().find(|times| times.phase == Phase::Solve).unwrap();
    assert_eq!((n(solve.completed), n(solve.failed)), (2, 3));
}

#[test]
fn a_trial_counts_once_by_its_last_attempt() {
    let cold = attempt("local", Condition::Cold, 0);
    let mut first = failed(cold.clone(), FailureClass::Transport);
    first.last = false;
    first.tag = samples::tag("first-try");
    first.sandbox = Some(samples::sandbox("local", "first-try"));
    let mut second = cold;
    second.attempt = 2;
    let summary = summarize(manifest(&[Condition::Cold], 1), &run([first.clone(), second]));
    let cell = &summary.cells[0];
    assert_eq!((cell.trials.attempted, cell.trials.accepted, cell.trials.failed, cell.trials.retries), (1, 1, 0, 1));
    assert_eq!(cell.cleanup.confirmed, 2, "each attempt had a sandbox");
    assert_eq!(cell.completed(Phase::Create).unwrap().n, 2);
    assert_eq!(summary.outcome, Outcome::Accepted);

    let killed = summarize(manifest(&[Condition::Cold], 1), &run([first])[..6]);
    assert_eq!(killed.cells[0].trials.failures, BTreeMap::from([("transport".to_owned(), 1)]));
}

#[test]
fn what_may_leak_decides_first_and_a_later_reap_settles_it() {
    let mut journal = run([failed(attempt("local", Condition::Cold, 0), FailureClass::Rejected)]);
    let rejected = summarize(manifest(&[Condition::Cold], 1), &journal);
    assert_eq!(rejected.outcome, Outcome::Rejected);

    let leaked = samples::sandbox("local", "leaked");
    journal.push(Event::Created { sandbox: leaked.clone() });
    let summary = summarize(manifest(&[Condition::Cold], 1), &journal);
    assert_eq!((summary.outcome, summary.cleanup.unconfirmed), (Outcome::Cleanup, 1));
    assert_eq!(summary.cells[0].cleanup.unconfirmed, 0, "it belongs to no recorded attempt");

    journal.push(Event::Destroyed { sandbox: leaked, outcome: Destruction::Confirmed });
    let reaped = summarize(manifest(&[Condition::Cold], 1), &journal);
    assert_eq!((reaped.outcome, reaped.cleanup.confirmed), (Outcome::Rejected, 2));
}

#[test]
fn a_run_that_was_ended_early_says_so() {
    let journal = run([attempt("local", Condition::Cold, 0)]);
    let asked = || manifest(&[Condition::Cold], 1);
    let killed = summarize(asked(), &journal[..journal.len() - 1]);
    assert_eq!((killed.outcome, killed.finished, killed.interrupted), (Outcome::Interrupted, false, false));

    let stopped = [&journal[..journal.len() - 1], &[Event::RunFinished { interrupted: true }]].concat();
    let summary = summarize(asked(), &stopped);
    assert_eq!((summary.outcome, summary.finished, summary.interrupted), (Outcome::Interrupted, true, true));

    let resumed = [&stopped[..], &[started(), finished()]].concat();
    assert_eq!(summarize(asked(), &resumed).outcome, Outcome::Accepted);
    assert_eq!(summarize(asked(), &[started(), finished()]).outcome, Outcome::Infrastructure, "nothing ran");
}

#[test]
fn proofs_and_caches_are_counted_by_attempt() {
    let mut attempts: Vec<_> = (0..3).map(|n| attempt("docker", Condition::Warm, n)).collect();
    attempts[1].proof = Some(ConditionProof::Unproven { why: "no namespace ids".into() });
    attempts[2].proof = Some(ConditionProof::Violated { why: "another image".into() });
    attempts[2].environment.as_mut().unwrap().cache = Some(CacheUse::Miss);
    let summary = summarize(manifest(&[Condition::Warm], 3), &run(attempts));
    let cell = &summary.cells[1];
    assert_eq!((cell.proof.proven, cell.proof.unproven, cell.proof.violated), (1, 1, 1));
    assert_eq!((cell.environment.hits, cell.environment.misses), (2, 1));
}

#[test]
fn a_plan_that_is_no_full_matrix_claims_nothing_about_its_parts() {
    let mut asked = manifest(&[Condition::Cold], 4);
    asked.trials = 5;
    let summary = summarize(asked, &run([attempt("elsewhere", Condition::Cold, 0)]));
    assert_eq!((summary.totals.planned, summary.cells[0].trials.planned), (Some(5), None));
    assert_eq!(summary.cells[2].backend, "elsewhere", "nothing recorded is left out");
}
