//! The result for a person.

use std::fmt::Write as _;

use super::{Changed, Counts, TaskFinding, Triage};
use crate::render::{objects, plain};

/// Findings of one kind that are told.
const TOLD: usize = 20;

/// The result in words, ending in a newline.
#[must_use]
pub fn text(triage: &Triage) -> String {
    let mut text = format!(
        "{} of {} failed, in {}\n",
        triage.failed,
        objects(triage.attempts, "attempt"),
        triage.runs.iter().map(|run| plain(run)).collect::<Vec<_>>().join(", ")
    );
    for group in &triage.causes {
        let cells: Vec<String> = group.cells.iter().map(|(cell, n)| format!("{} {n}", plain(cell))).collect();
        let by: Vec<String> = group.decided_by.iter().map(|(by, n)| format!("{by} {n}")).collect();
        let _ = writeln!(
            text,
            "\n{}: {} of {}\n  where: {}\n  by:    {}",
            group.cause.name(),
            objects(group.attempts, "attempt"),
            objects(group.tasks, "task"),
            cells.join(", "),
            by.join(", ")
        );
        for example in &group.examples {
            let evidence = &example.decided.evidence;
            let _ = writeln!(
                text,
                "  {} {} {}\n    {}:{}: {}",
                plain(&example.run),
                plain(&example.cell),
                plain(&example.task),
                plain(&evidence.file),
                evidence.line,
                plain(&evidence.text)
            );
        }
    }
    findings(&mut text, "accepted and rejected in the same cell: flaky", &triage.flaky);
    findings(&mut text, "accepted nowhere", &triage.never_passing);
    changed(&mut text, &triage.changed);
    if !triage.quarantine.is_empty() {
        let _ = writeln!(text, "\nquarantine: {}", objects(triage.quarantine.len() as u64, "task"));
        for quarantined in triage.quarantine.iter().take(TOLD) {
            let _ = writeln!(text, "  {}: {}", plain(&quarantined.task.task), plain(&quarantined.why));
        }
        more(&mut text, triage.quarantine.len());
    }
    text
}

fn findings(text: &mut String, what: &str, found: &[TaskFinding]) {
    if found.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{} {what}", objects(found.len() as u64, "task"));
    for finding in found.iter().take(TOLD) {
        let cell = |(cell, counts): (&String, &Counts)| {
            format!("{} {}/{}", plain(cell), counts.accepted, counts.accepted + counts.rejected + counts.failed)
        };
        let cells: Vec<String> = finding.cells.iter().map(cell).collect();
        let _ = writeln!(text, "  {}: {}", plain(&finding.task.task), cells.join(", "));
    }
    more(text, found.len());
}

fn changed(text: &mut String, changed: &[Changed]) {
    if changed.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{} otherwise than in the baseline", objects(changed.len() as u64, "reference solution"));
    for Changed { task, backend, before, now } in changed.iter().take(TOLD) {
        let share = |counts: &Counts| format!("{} of {}", counts.accepted, counts.accepted + counts.rejected);
        let (before, now) = (share(before), share(now));
        let _ = writeln!(text, "  {} {}: accepted {before} before, {now} now", plain(backend), plain(&task.task));
    }
    more(text, changed.len());
}

fn more(text: &mut String, all: usize) {
    if all > TOLD {
        let _ = writeln!(text, "  and {} more (--format json has all)", all - TOLD);
    }
}
