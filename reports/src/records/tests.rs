#![allow(clippy::unwrap_used)]

use std::fs;

use sandbox_bench_core::evidence::{Attempt, Creates, Event, Receipt};
use sandbox_bench_core::{
    Completion, Condition, Decision, Digest, Divergence, FailureClass, InputEntry, Phase, ReplayRecord, Stage,
    StreamReport, TreeKill,
};
use serde_json::json;

use super::{CASES, CaseReport, CommandReceipt, RECEIPTS};
use crate::cost::RateCard;
use crate::derived::write_derived;
use crate::samples::{self, attempt, failed, sandbox, tag};

fn receipt(step: u32, (phase, label): (Phase, &str), completion: Completion) -> Receipt {
    Receipt {
        step,
        phase,
        operation: "exec".into(),
        label: label.into(),
        start_us: 10,
        duration_us: 20,
        guest_us: None,
        completion: Some(completion),
        stdout: Some(StreamReport { total_bytes: Some(9), delivered_bytes: 4, gap_at: Some(2) }),
        stderr: Some(StreamReport::default()),
        bytes: None,
        error: None,
    }
}

fn exited(code: i32) -> Completion {
    Completion::Exited { code }
}

/// The journal of these attempts, each with its receipts, then `more`.
fn written(attempts: Vec<(Attempt, Vec<Receipt>)>, more: Vec<Event>) -> (Vec<CommandReceipt>, Vec<CaseReport>) {
    let mut events = vec![samples::started()];
    for (attempt, receipts) in attempts {
        let tag = attempt.tag.clone();
        events.extend(receipts.into_iter().map(|receipt| Event::Receipt { tag: tag.clone(), receipt }));
        events.extend(samples::events(attempt));
    }
    events.extend(more);
    let dir = tempfile::tempdir().unwrap();
    samples::write_run(dir.path(), &samples::manifest(&[Condition::Cold], 2), &events);
    write_derived(dir.path(), &RateCard::named(None).unwrap()).unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let receipts = read(RECEIPTS).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (receipts, read(CASES).lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn exit_code_zero_of_a_verifier_that_says_no_is_a_receipt_that_does_not_match() {
    let mut one = failed(attempt("local", Condition::Cold, 0), FailureClass::Rejected);
    one.solver = Some(exited(0));
    one.inputs = vec![InputEntry {
        name: "tests".into(),
        digest: Digest::of(b"tests"),
        size: 5,
        destination: "/tests".into(),
        stage: Stage::Verify,
    }];
    let upload = Receipt { operation: "upload".into(), ..receipt(1, (Phase::Inputs, "instruction"), exited(0)) };
    let steps = vec![
        upload,
        receipt(2, (Phase::Solve, "solver"), exited(0)),
        receipt(3, (Phase::Verify, "verifier"), exited(0)),
    ];
    let (receipts, cases) = written(vec![(one.clone(), steps)], Vec::new());
    let [solver, verifier] = receipts.as_slice() else { panic!("{receipts:#?}") };
    assert_eq!((solver.step, solver.tool.as_str(), solver.matches), (2, "solver", None));
    assert_eq!((verifier.exit_code, verifier.matches), (Some(0), Some(false)));
    assert_eq!((verifier.stdout_truncated, verifier.stderr_truncated, verifier.timed_out), (true, false, false));
    let [case] = cases.as_slice() else { panic!("{cases:#?}") };
    assert_eq!((verifier.case.as_ref(), verifier.task.as_ref()), (Some(&case.case), Some(&case.task)));
    assert_eq!(verifier.sandbox, one.sandbox.map(|sandbox| sandbox.id));
    assert_eq!((case.decision, case.completion.clone()), (Some(Decision::Rejected), Some(exited(0))));
    assert_eq!(json!(case.expected), json!({ "rewards_at_least": 1 }));
    assert_eq!(case.observed["rewards"], json!({ "reward": 0.0 }));
    assert_eq!(case.evaluator.material["tests"], Digest::of(b"tests"));
    assert_eq!(case.evaluator.material["task"], one.task_digest);
    assert_eq!(case.failure.as_ref().map(|failure| failure.class.as_str()), Some("rejected"));
}

#[test]
fn what_was_not_evaluated_has_no_decision_and_a_time_limit_no_exit_code() {
    let one = failed(attempt("local", Condition::Cold, 0), FailureClass::Timeout);
    let over = Completion::DeadlineExceeded { tree_killed: TreeKill::Yes };
    let (receipts, cases) = written(vec![(one, vec![receipt(1, (Phase::Verify, "verifier"), over)])], Vec::new());
    assert_eq!((receipts[0].timed_out, receipts[0].exit_code, receipts[0].matches), (true, None, None));
    assert_eq!((cases[0].decision, cases[0].expected.len(), cases[0].observed.len()), (None, 0, 0));
}

#[test]
fn steps_of_a_recording_match_or_not_one_by_one() {
    let step = |number: u32| receipt(number, (Phase::Solve, &*format!("step {number}")), exited(0));
    let divergence = |receipt: u32, of: &str| Divergence {
        step: receipt,
        receipt,
        of: of.into(),
        recorded: "a".into(),
        seen: "b".into(),
    };
    let replayed = |diverged: u32| {
        let mut one = attempt("local", Condition::Cold, 0);
        one.replay = Some(ReplayRecord {
            recording: Digest::of(b"r"),
            steps: 3,
            ran: 3,
            not_compared: 0,
            divergences: vec![divergence(2, "stdout"), divergence(2, "exit_code")],
            diverged,
        });
        let steps = vec![step(1), step(2), receipt(3, (Phase::Solve, "working directory"), exited(0))];
        written(vec![(one, steps)], Vec::new()).0.iter().map(|one| one.matches).collect::<Vec<_>>()
    };
    assert_eq!(replayed(1), [Some(true), Some(false), None]);
    // Not all differences are listed: of the others nothing is known.
    assert_eq!(replayed(2), [None, Some(false), None]);
}

#[test]
fn commands_of_a_killed_attempt_and_of_a_warm_artifact_are_kept_without_a_case() {
    let killed = tag("killed");
    let more = vec![
        Event::Intent { tag: killed.clone(), backend: "local".into(), creates: Creates::Sandbox },
        Event::Created { sandbox: sandbox("local", "killed") },
        Event::Receipt { tag: killed.clone(), receipt: receipt(1, (Phase::Solve, "solver"), exited(1)) },
    ];
    let finished = (attempt("docker", Condition::Cold, 0), vec![receipt(1, (Phase::Ready, "ready"), exited(0))]);
    let (receipts, cases) = written(vec![finished], more);
    assert_eq!((receipts.len(), cases.len()), (2, 1));
    let lost = &receipts[1];
    assert_eq!((lost.case.as_ref(), lost.backend.as_deref()), (None, Some("local")));
    assert_eq!((lost.sandbox.as_deref(), &lost.tag), (Some("id-killed"), &killed));
}
