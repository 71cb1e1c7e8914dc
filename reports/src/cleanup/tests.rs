#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sandbox_bench_core::evidence::{CleanupEntry, CleanupState, Creates, Event};
use sandbox_bench_core::{Artifact, Destruction, SandboxRef, Tag};

use super::Ledger;
use crate::samples::{sandbox, started, tag};

fn entries(events: &[Event]) -> Vec<CleanupEntry> {
    let mut ledger = Ledger::default();
    events.iter().for_each(|event| ledger.record(event));
    ledger.into_entries()
}

/// State, id and reason of the entries after these events.
fn states(events: &[Event]) -> Vec<(CleanupState, Option<String>)> {
    entries(events).into_iter().map(|entry| (entry.state, entry.id)).collect()
}

fn intent(unit: &str, creates: Creates) -> Event {
    Event::Intent { tag: tag(unit), backend: "local".into(), creates }
}

fn created(unit: &str) -> Event {
    Event::Created { sandbox: sandbox("local", unit) }
}

fn create_failed(unit: &str, uncertain: bool) -> Event {
    Event::CreateFailed { tag: tag(unit), error: "the answer was lost".into(), uncertain }
}

fn destroyed(unit: &str, confirmed: bool) -> Event {
    let outcome =
        if confirmed { Destruction::Confirmed } else { Destruction::Unconfirmed { why: "still stopping".into() } };
    Event::Destroyed { sandbox: sandbox("local", unit), outcome }
}

fn artifact(id: &str, tag: Option<Tag>) -> Event {
    Event::ArtifactReady {
        artifact: Artifact {
            backend: "local".into(),
            id: id.into(),
            tag,
            fingerprint: None,
            created_at: None,
            expires_at: None,
            size_bytes: None,
            ready: true,
        },
    }
}

#[test]
fn a_sandbox_is_unconfirmed_from_its_announcement_to_the_backends_word() {
    use CleanupState::{Confirmed, Unconfirmed};
    let id = Some("id-a".to_owned());
    let life = [
        intent("a", Creates::Sandbox),
        created("a"),
        Event::DestroyRequested { sandbox: sandbox("local", "a") },
        destroyed("a", false),
        destroyed("a", true),
        Event::DestroyRequested { sandbox: sandbox("local", "a") },
    ];
    let expected = [
        (Unconfirmed, None, Some("it was announced, and no answer is recorded")),
        (Unconfirmed, id.clone(), Some("it was created, and no end is recorded")),
        (Unconfirmed, id.clone(), Some("its end was requested, and no answer is recorded")),
        (Unconfirmed, id.clone(), Some("still stopping")),
        (Confirmed, id.clone(), None),
        (Confirmed, id, None),
    ];
    for (n, expected) in expected.into_iter().enumerate() {
        let now = entries(&life[..=n]);
        assert_eq!(now.len(), 1);
        assert_eq!((now[0].state, now[0].id.clone(), now[0].why.as_deref()), expected);
    }
}

#[test]
fn a_failed_create_leaves_nothing_and_an_uncertain_one_may() {
    use CleanupState::{Confirmed, Never, Unconfirmed};
    let announced = intent("a", Creates::Sandbox);
    assert_eq!(states(&[announced.clone(), create_failed("a", false)]), [(Never, None)]);

    let uncertain = [announced, create_failed("a", true)];
    let now = entries(&uncertain);
    assert_eq!((now[0].state, now[0].why.as_deref()), (Unconfirmed, Some("the answer was lost")));
    let then = |event: Event| states(&[uncertain.as_slice(), &[event]].concat());
    let id = Some("id-a".to_owned());
    assert_eq!(then(create_failed("a", false)), [(Never, None)], "looked for, and not there");
    assert_eq!(then(created("a")), [(Unconfirmed, id.clone())], "found");
    assert_eq!(then(destroyed("a", true)), [(Confirmed, id)], "found and removed by a later reap");
}

#[test]
fn a_repeated_create_accounts_for_each_try() {
    use CleanupState::{Confirmed, Unconfirmed};
    let events = [
        intent("a", Creates::Sandbox),
        create_failed("a", true),
        intent("a", Creates::Sandbox),
        created("a"),
        destroyed("a", true),
    ];
    assert_eq!(states(&events), [(Unconfirmed, None), (Confirmed, Some("id-a".into()))]);
}

#[test]
fn warm_artifacts_are_retained_and_those_of_others_are_not_ours() {
    let made = artifact("image-1", Some(tag("warm")));
    let events = [
        started(),
        intent("warm", Creates::Artifact),
        made.clone(),
        made,
        artifact("image-2", Some(Tag::new("another-run", "warm"))),
        artifact("image-3", None),
    ];
    assert_eq!(states(&events), [(CleanupState::Retained, Some("image-1".into()))]);
    assert_eq!(entries(&events[..2])[0].state, CleanupState::Unconfirmed);

    let deleted = Event::Destroyed {
        sandbox: SandboxRef { backend: "local".into(), id: "image-1".into(), tag: tag("warm") },
        outcome: Destruction::Confirmed,
    };
    assert_eq!(states(&[&events[..], &[deleted]].concat()), [(CleanupState::Confirmed, Some("image-1".into()))]);
}

#[test]
fn an_orphan_that_only_reap_knows_of_is_accounted_for() {
    let reaped = [destroyed("orphan", false)];
    assert_eq!(states(&reaped), [(CleanupState::Unconfirmed, Some("id-orphan".into()))]);
}

/// Any event of the few objects that a run has, in any order.
fn any_event() -> impl Strategy<Value = Event> {
    (0..8, prop::sample::select(vec!["a", "b", "c"])).prop_map(|(kind, unit)| match kind {
        0 => intent(unit, Creates::Sandbox),
        1 => created(unit),
        2 => create_failed(unit, true),
        3 => create_failed(unit, false),
        4 => Event::DestroyRequested { sandbox: sandbox("local", unit) },
        5 => destroyed(unit, true),
        6 => destroyed(unit, false),
        _ => intent(unit, Creates::Artifact),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever happens in whatever order: what is known to have been created and is not known to be gone is in the
    /// ledger, once, as such; and every announcement has an entry.
    #[test]
    fn the_ledger_never_forgets(events in prop::collection::vec(any_event(), 0..14)) {
        let mut ids: BTreeMap<String, bool> = BTreeMap::new();
        let mut announced = 0;
        for event in &events {
            match event {
                Event::Created { sandbox } | Event::DestroyRequested { sandbox } => {
                    ids.entry(sandbox.id.clone()).or_insert(false);
                }
                Event::Destroyed { sandbox, outcome } => {
                    *ids.entry(sandbox.id.clone()).or_insert(false) |= *outcome == Destruction::Confirmed;
                }
                Event::Intent { .. } => announced += 1,
                _ => {}
            }
        }
        let ledger = entries(&events);
        prop_assert!(ledger.len() >= announced);
        for (id, gone) in ids {
            let of_id: Vec<_> = ledger.iter().filter(|entry| entry.id.as_ref() == Some(&id)).collect();
            prop_assert_eq!(of_id.len(), 1);
            let state = if gone { CleanupState::Confirmed } else { CleanupState::Unconfirmed };
            prop_assert_eq!(of_id[0].state, state);
            prop_assert_eq!(of_id[0].why.is_some(), !gone, "what may still exist says why");
        }
    }

    /// Taking out what is settled while the journal is read changes nothing, and leaves nothing behind of it.
    #[test]
    fn what_is_settled_can_be_taken_out_at_any_time(
        events in prop::collection::vec((any_event(), any::<bool>()), 0..30),
    ) {
        let (mut ledger, mut taken) = (Ledger::default(), Vec::new());
        for (event, take) in &events {
            ledger.record(event);
            if *take {
                taken.extend(ledger.take_settled());
            }
        }
        taken.extend(ledger.take_settled());
        let rest = ledger.rest();
        let lasting = |entry: &CleanupEntry| !matches!(entry.state, CleanupState::Confirmed | CleanupState::Never);
        prop_assert!(rest.iter().all(|(_, entry)| lasting(entry)), "what is held may exist");
        taken.extend(rest);
        taken.sort_by_key(|(number, _)| *number);
        let events: Vec<Event> = events.into_iter().map(|(event, _)| event).collect();
        prop_assert_eq!(taken.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>(), entries(&events));
    }

    /// An announcement is settled only by an event that speaks of its tag.
    #[test]
    fn an_announcement_stays_open_until_its_own_answer(events in prop::collection::vec(any_event(), 0..14)) {
        let open: BTreeSet<Tag> = entries(&events)
            .into_iter()
            .filter(|entry| entry.id.is_none() && entry.state == CleanupState::Unconfirmed)
            .map(|entry| entry.tag)
            .collect();
        for unit in ["a", "b", "c"] {
            let of_unit = |event: &&Event| match event {
                Event::Intent { tag, .. } | Event::CreateFailed { tag, .. } => *tag == tag_of(unit),
                Event::Created { sandbox } | Event::DestroyRequested { sandbox } | Event::Destroyed { sandbox, .. } => {
                    sandbox.tag == tag_of(unit)
                }
                _ => false,
            };
            let own: Vec<&Event> = events.iter().filter(of_unit).collect();
            if matches!(own.last(), Some(Event::Intent { .. })) {
                prop_assert!(open.contains(&tag_of(unit)));
            }
        }
    }
}

fn tag_of(unit: &str) -> Tag {
    tag(unit)
}
