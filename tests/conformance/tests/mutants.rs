//! Every behaviour fails on a backend that breaks its promise: a test that cannot fail shows nothing.

mod mutant;
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_conformance::{BEHAVIOURS, Behaviour, Case, Outcome, run_behaviour, run_cases};
use sandbox_bench_core::{Backend, Call, Tag, TagQuery};

use mutant::{FAULTS, Fault, MutantAdapter};

fn main() -> ExitCode {
    support::with_reference(|_| {
        let mut cases =
            vec![Case::new("every_behaviour_is_broken_by_a_fault", "none is left out", || async { complete() })];
        for (fault, broken) in FAULTS {
            for name in *broken {
                let case = format!("{fault:?}::{name}");
                cases.push(Case::new(&case, "this fault breaks this behaviour", move || notices(*fault, name)));
            }
        }
        run_cases(cases)
    })
}

fn complete() -> Outcome {
    let broken = |name| FAULTS.iter().any(|(_, broken)| broken.contains(&name));
    let unbroken: Vec<&str> = BEHAVIOURS.iter().map(|behaviour| behaviour.name).filter(|name| !broken(name)).collect();
    match unbroken.is_empty() {
        true => Outcome::Ok,
        false => Outcome::Failed(format!("no fault breaks {unbroken:?}")),
    }
}

/// Passes if the behaviour fails on a backend with the fault.
async fn notices(fault: Fault, name: &str) -> Outcome {
    let Some(behaviour): Option<&'static Behaviour> = BEHAVIOURS.iter().find(|behaviour| behaviour.name == name) else {
        return Outcome::Failed(format!("there is no behaviour {name}"));
    };
    let adapter = match MutantAdapter::new(fault) {
        Ok(adapter) => Arc::new(adapter),
        Err(error) => return Outcome::Failed(format!("no directory for the state: {error}")),
    };
    let outcome = run_behaviour(behaviour, adapter.clone()).await;
    let call = Call::new(Tag::new("mutants", "clean"), Duration::from_secs(30), Arc::default());
    for found in adapter.sound().find(&call, &TagQuery::All).await.unwrap_or_default() {
        adapter.sound().destroy(&call, &found.reference).await.ok();
    }
    match outcome {
        Outcome::Failed(_) => Outcome::Ok,
        other => Outcome::Failed(format!("it came out as {other:?}")),
    }
}
