#![allow(clippy::unwrap_used)]

use sandbox_bench_core::evidence::{Attempt, Event};
use sandbox_bench_core::{Condition, ConditionProof, FailureClass, Phase};

use super::table;
use crate::cleanup::Ledger;
use crate::cost::RateCard;
use crate::samples::{self, attempt, events, failed, finished, manifest, started};
use crate::summary::SummaryBuilder;

fn shown(conditions: &[Condition], tasks: u64, journal: &[Event]) -> String {
    let rates = RateCard::named(None).unwrap();
    let mut builder = SummaryBuilder::new(manifest(conditions, tasks), rates, &std::env::temp_dir());
    let mut ledger = Ledger::default();
    for event in journal {
        builder.record(event);
        ledger.record(event);
    }
    ledger.into_entries().iter().for_each(|entry| builder.object(entry));
    table(&builder.finish().unwrap())
}

fn journal(attempts: impl IntoIterator<Item = Attempt>, end: Option<Event>) -> Vec<Event> {
    [started()].into_iter().chain(attempts.into_iter().flat_map(events)).chain(end).collect()
}

const BOTH: [Condition; 2] = [Condition::Cold, Condition::Warm];

#[test]
fn an_accepted_run() {
    let attempts = ["local", "docker"]
        .into_iter()
        .flat_map(|backend| BOTH.map(|condition| (backend, condition)))
        .flat_map(|(backend, condition)| (0..24).map(move |n| attempt(backend, condition, n)));
    insta::assert_snapshot!(shown(&BOTH, 24, &journal(attempts, Some(finished()))));
}

#[test]
fn a_run_at_a_vendor_has_costs_and_six_replicates_have_an_order() {
    let of = |backend: &'static str, slower: u64| {
        (0..3u64).flat_map(move |task| (1..=6).map(move |replicate| (task, replicate))).map(move |(task, replicate)| {
            let mut attempt = attempt(backend, Condition::Cold, task);
            attempt.total_us += slower + 1000 * u64::from(replicate);
            let unit = format!("{backend}-{task}-{replicate}");
            (attempt.trial.replicate, attempt.tag) = (replicate, samples::tag(&unit));
            attempt.sandbox = Some(samples::sandbox(backend, &unit));
            attempt
        })
    };
    let mut attempts: Vec<Attempt> = of("docker", 0).chain(of("daytona", 300_000)).collect();
    let unsure = attempts.last_mut().unwrap();
    *unsure = failed(unsure.clone(), FailureClass::Timeout);
    insta::assert_snapshot!(shown(&[Condition::Cold], 18, &journal(attempts, Some(finished()))));
}

#[test]
fn a_resumed_sandbox_has_a_row_and_says_what_its_create_is() {
    let conditions = [Condition::Cold, Condition::Resumed];
    let attempts = conditions.into_iter().flat_map(|condition| {
        (0..3).map(move |n| {
            let mut attempt = attempt("aws-microvm", condition, n);
            if condition == Condition::Resumed {
                let (mut before, create) = (attempt.phases[0].clone(), attempt.phases[0].duration_us);
                (before.phase, before.duration_us) = (Phase::Environment, 3_000_000);
                attempt.phases.iter_mut().for_each(|span| span.start_us += 3_000_000);
                attempt.phases.insert(0, before);
                attempt.phases[1].duration_us = create / 2;
                attempt.total_us += 3_000_000;
            }
            attempt
        })
    });
    let shown = shown(&conditions, 3, &journal(attempts, Some(finished())));
    let row = |condition: &str| {
        let of = |line: &&str| line.starts_with("aws-microvm ") && line.contains(&format!(" {condition} "));
        shown.lines().find(of).map(str::to_owned)
    };
    assert!(row("cold").is_some_and(|row| row.contains("110 ms")), "{shown}");
    assert!(row("resumed").is_some_and(|row| row.contains("55 ms")), "{shown}");
    let note = "aws-microvm resumed: create is the resumption; making and suspending the sandbox came before";
    assert_eq!(shown.matches(note).count(), 1, "{shown}");
}

#[test]
fn mixed_failures() {
    let cold = |n| attempt("docker", Condition::Cold, n);
    let mut slow = attempt("local", Condition::Cold, 0);
    slow.phases[0].duration_us = 4_100_000;
    slow.environment.as_mut().unwrap().cache = Some(sandbox_bench_core::CacheUse::Miss);
    let mut unproven = cold(9);
    unproven.proof = Some(ConditionProof::Unproven { why: "no namespace ids".into() });
    let mut again = failed(cold(10), FailureClass::Transport);
    (again.last, again.tag, again.sandbox) = (false, samples::tag("again"), Some(samples::sandbox("docker", "again")));
    let mut events = journal(
        [
            slow,
            attempt("local", Condition::Cold, 1),
            attempt("local", Condition::Cold, 2),
            failed(cold(0), FailureClass::Rejected),
            failed(cold(1), FailureClass::Timeout),
            failed(cold(2), FailureClass::Timeout),
            failed(cold(3), FailureClass::Startup),
            failed(cold(4), FailureClass::Unavailable),
            unproven,
            again,
            cold(10),
        ],
        None,
    );
    // The end of one sandbox is not recorded.
    let ends = |event: &Event| matches!(event, Event::Destroyed { sandbox, .. } if sandbox.id == "id-docker-cold-3");
    events.retain(|event| !ends(event));
    events.push(finished());
    insta::assert_snapshot!(shown(&[Condition::Cold], 12, &events));
}

#[test]
fn an_empty_run() {
    insta::assert_snapshot!(shown(&[Condition::Cold], 0, &journal([], Some(finished()))));
}

#[test]
fn an_interrupted_run() {
    let attempts = [
        attempt("local", Condition::Cold, 0),
        attempt("local", Condition::Cold, 1),
        failed(attempt("docker", Condition::Cold, 0), FailureClass::Interrupted),
    ];
    insta::assert_snapshot!(shown(
        &[Condition::Cold],
        8,
        &journal(attempts, Some(Event::RunFinished { interrupted: true }))
    ));
}

#[test]
fn a_killed_run() {
    let mut events = journal([attempt("local", Condition::Cold, 0)], None);
    events.push(Event::Created { sandbox: samples::sandbox("docker", "running") });
    insta::assert_snapshot!(shown(&[Condition::Cold], 2, &events));
}

#[test]
fn a_solver_that_solves_nothing_still_has_its_start_times() {
    let attempts = (0..4).map(|n| failed(attempt("local", Condition::Cold, n), FailureClass::Rejected));
    insta::assert_snapshot!(shown(&[Condition::Cold], 4, &journal(attempts, Some(finished()))));
}
