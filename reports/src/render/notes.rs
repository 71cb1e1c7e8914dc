//! The lines beneath the table. Each is there only if the data say so.

use sandbox_bench_core::evidence::{Listing, Variant};
use sandbox_bench_core::{Condition, Phase};

use super::{duration, plain, times, usd};
use crate::percentile::Durations;
use crate::stats::Unit;
use crate::summary::{Cell, RankedCell, Ranking, Summary};

/// Below this number of values, p95 lies between the two greatest ones.
const FEW: u64 = 20;

/// A first create is pointed out if it is this many times the median, and by this many microseconds more.
const SLOW_FACTOR: u64 = 3;
const SLOW_MARGIN_US: u64 = 100_000;

/// Disagreements that are told one by one.
const SHOWN: usize = 5;

/// The lines beneath the table of a summary.
#[must_use]
pub fn notes(summary: &Summary) -> Vec<String> {
    let mut notes: Vec<String> = reading(&summary.cells).into_iter().collect();
    notes.extend(medians(&summary.cells));
    notes.extend(summary.ranking.as_ref().map(order));
    notes.extend(costs(summary));
    notes.extend(summary.cells.iter().flat_map(cell_notes));
    notes.extend(run_notes(summary));
    notes
}

/// How to read the times, with the n of each.
fn reading(cells: &[Cell]) -> Option<String> {
    let shown: Vec<(&Cell, [u64; 3])> =
        cells.iter().map(|cell| (cell, sizes(cell))).filter(|(_, n)| *n != [0; 3]).collect();
    let least = shown.iter().flat_map(|(_, n)| n).copied().filter(|n| *n > 0).min()?;
    let alike = shown.iter().all(|(_, [create, ready, total])| create == ready && ready == total);
    let sizes = if alike { "n" } else { "n (create/ready/total)" };
    let told = |[create, ready, total]: [u64; 3]| match alike {
        true => create.to_string(),
        false => format!("{create}/{ready}/{total}"),
    };
    let usual = usual(shown.iter().map(|(_, n)| *n));
    let others: Vec<String> = shown
        .iter()
        .filter(|(_, n)| Some(*n) != usual)
        .map(|(cell, n)| format!("{} {}", name(cell), told(*n)))
        .collect();
    let n = match usual {
        None => format!("{sizes}: {}", others.join(", ")),
        Some(usual) if others.is_empty() => format!("{sizes} = {}", told(usual)),
        Some(usual) => format!("{sizes} = {}, but {}", told(usual), others.join(", ")),
    };
    let caution = if least < FEW { "; p95 of n < 20 is close to the greatest value" } else { "" };
    Some(format!("times: p50 / p95 (R-7); create and ready of all attempts, total of accepted ones; {n}{caution}"))
}

/// What most of the values are, if more than half of them are one.
fn usual(values: impl ExactSizeIterator<Item = [u64; 3]> + Clone) -> Option<[u64; 3]> {
    let half = values.len() / 2;
    values.clone().find(|value| values.clone().filter(|other| other == value).count() > half)
}

/// The intervals of the total times, where there are enough values.
fn medians(cells: &[Cell]) -> Vec<String> {
    let of = |unit: Unit| {
        let known = cells.iter().filter_map(|cell| Some((cell, cell.total_p50.as_ref()?)));
        let each: Vec<String> = known
            .filter(|(_, median)| median.resampled == unit)
            .map(|(cell, median)| {
                let end = |end: Option<f64>| end.map_or_else(|| "∞".to_owned(), |us| duration(us.round() as u64));
                format!("{} {} – {}", name(cell), end(median.interval.low), end(median.interval.high))
            })
            .collect();
        let drawn = if unit == Unit::Tasks { "tasks" } else { "trials of each task" };
        (!each.is_empty()).then(|| format!("95 % interval of the total p50, {drawn} resampled: {}", each.join(", ")))
    };
    [Unit::Tasks, Unit::Trials].into_iter().filter_map(of).collect()
}

/// The level at which two neighbours are told apart.
const LEVEL: f64 = 0.05;

fn order(ranking: &Ranking) -> String {
    let places = match ranking {
        Ranking::Refused { why } => return format!("no order of the rows is claimed: {why}"),
        Ranking::Ranked { places } => places,
    };
    let name = |place: &RankedCell| titled(&place.backend, place.condition, place.model.as_deref(), &place.variant);
    let mut text = String::new();
    for place in places {
        match place.p {
            None => text += &name(place),
            Some(p) if p <= LEVEL => text += &format!(" < {} (p {})", name(place), p_value(p)),
            Some(p) => text += &format!(" ~ {} (p {})", name(place), p_value(p)),
        }
    }
    format!("by total time: {text}; Mann-Whitney within tasks, Holm; ~ is not told apart")
}

/// "= 0.03", "< 0.001"
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { format!("= {p:.2}").replace("= 0.00", "< 0.01") }
}

/// What the costs are, if any is known.
fn costs(summary: &Summary) -> Option<String> {
    let known: f64 = summary.cells.iter().filter_map(|cell| cell.cost.known_usd).reduce(|a, b| a + b)?;
    let unknown: u64 = summary.cells.iter().map(|cell| cell.cost.unknown).sum();
    let estimated: u64 = summary.cells.iter().map(|cell| cell.cost.estimated).sum();
    let mut text = format!("cost: sandboxes only, {} in all", usd(known));
    if estimated > 0 {
        text += &format!(", {} estimated by {} of {}", attempts(estimated), summary.rates.name, summary.rates.date);
    }
    if unknown > 0 {
        text += &format!("; unknown of {}", attempts(unknown));
    }
    Some(text)
}

/// The n of the three times that the table shows.
fn sizes(cell: &Cell) -> [u64; 3] {
    [cell.completed(Phase::Create), cell.completed(Phase::Ready), cell.total.accepted]
        .map(|times| times.map_or(0, |t| t.n))
}

fn cell_notes(cell: &Cell) -> Vec<String> {
    let apart = |times: Option<Durations>, what: &str| {
        times.map(|t| format!("{}, not in total: {} {what}, p50 / p95 {}", name(cell), attempts(t.n), times_of(t)))
    };
    [
        apart(cell.total.rejected, "rejected"),
        apart(cell.total.failed, "without a verdict"),
        passes(cell),
        agent(cell),
        replays(cell),
        shared(cell),
        repeated(cell),
        environments(cell),
        resumptions(cell),
        slow_start(cell),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// pass@k, with the number of tasks that it is of.
fn passes(cell: &Cell) -> Option<String> {
    let told: Vec<String> = cell
        .pass_at
        .iter()
        .map(|p| format!("pass@{} {:.2} (n = {})", p.k, p.estimate, objects(p.tasks, "task")))
        .collect();
    (!told.is_empty()).then(|| format!("{}: {}", name(cell), told.join(", ")))
}

/// What the model did and cost. Unknown money is said to be unknown.
fn agent(cell: &Cell) -> Option<String> {
    let agent = cell.agent.as_ref()?;
    let mut told = vec![format!("{} turns", agent.turns)];
    if agent.uncounted < agent.attempts {
        told.push(format!("{} tokens in, {} out", agent.tokens.input, agent.tokens.output));
    }
    let bases = [(agent.measured, "measured"), (agent.estimated, "estimated"), (agent.unpriced, "unknown")];
    let basis: Vec<String> = bases.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if agent.unpriced < agent.attempts {
        told.push(format!("{:.4} USD for the model ({})", agent.usd, basis.join(", ")));
    } else {
        told.push("cost of the model unknown".to_owned());
    }
    if let Some(usd) = agent.usd_per_accepted {
        told.push(format!("{usd:.4} USD for each accepted trial"));
    }
    let ends: Vec<String> =
        agent.ends.iter().filter(|(end, _)| *end != "finished").map(|(end, n)| format!("{n} {end}")).collect();
    if !ends.is_empty() {
        told.push(format!("ended otherwise than finished: {}", ends.join(", ")));
    }
    Some(format!("{}: {}: {}", name(cell), attempts(agent.attempts), told.join("; ")))
}

fn replays(cell: &Cell) -> Option<String> {
    let replay = cell.replay?;
    Some(format!("{}: {} of {} replayed steps differ from the recording", name(cell), replay.diverged, replay.steps))
}

/// Under `reuse` the cleanup column counts sandboxes, of which there are fewer than trials.
fn shared(cell: &Cell) -> Option<String> {
    let ended = cell.cleanup.confirmed + cell.cleanup.unconfirmed;
    (cell.condition == Condition::Reuse && cell.trials.runnable() > 0)
        .then(|| format!("{}: {} shared {}", name(cell), objects(cell.trials.runnable(), "trial"), objects_of(ended)))
}

fn objects_of(sandboxes: u64) -> String {
    let objects = if sandboxes == 1 { "1 sandbox".to_owned() } else { format!("{sandboxes} sandboxes") };
    format!("{objects}, whose end the column cleanup counts")
}

fn repeated(cell: &Cell) -> Option<String> {
    let retries = cell.trials.retries;
    (retries > 0).then(|| format!("{}: {} beyond the first of a trial", name(cell), attempts(retries)))
}

/// Pulls and builds are no part of `create`; a reader should know that they happened.
fn environments(cell: &Cell) -> Option<String> {
    let misses = cell.environment.misses;
    let took = cell
        .completed(Phase::Environment)
        .map(|t| format!(" (environment phase: p50 / p95 {}, n = {})", times_of(t), t.n));
    (misses > 0).then(|| {
        let noun = if misses == 1 { "environment was" } else { "environments were" };
        format!(
            "{}: {misses} {noun} pulled, built or unpacked first; not in create{}",
            name(cell),
            took.unwrap_or_default()
        )
    })
}

/// Under `resumed` the column create is about something else than in other rows.
fn resumptions(cell: &Cell) -> Option<String> {
    let before = cell.completed(Phase::Environment).filter(|_| cell.condition == Condition::Resumed)?;
    Some(format!(
        "{}: create is the resumption; making and suspending the sandbox came before (environment phase: p50 / p95 {}, \
         n = {})",
        name(cell),
        times_of(before),
        before.n
    ))
}

/// As with any benchmark: a first run may have paid for caches that the later ones found filled.
fn slow_start(cell: &Cell) -> Option<String> {
    let (first, create) = (cell.first_create_us?, cell.completed(Phase::Create)?);
    let slow =
        create.n > 2 && first >= create.p50_us.saturating_mul(SLOW_FACTOR) && first - create.p50_us >= SLOW_MARGIN_US;
    slow.then(|| {
        let (cell, first, median) = (name(cell), duration(first), duration(create.p50_us));
        format!("{cell}: the first create took {first}, the median is {median}: it may have filled caches")
    })
}

/// What there was besides the trials and could not be used.
fn left_out(summary: &Summary) -> Option<String> {
    let Listing { count, first } = &summary.left_out;
    let is = if *count == 1 { "is" } else { "are" };
    match (first.first(), &summary.imported) {
        (None, _) => None,
        (Some(_), None) => {
            let tasks = objects(*count, "task");
            Some(format!("{tasks} {is} invalid and left out; `sandbox-bench dataset validate` tells why"))
        }
        (Some(first), Some(_)) => Some(format!("{} {is} left out: {}", objects(*count, "result"), plain(first))),
    }
}

fn run_notes(summary: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    if !summary.finished {
        notes.push("the run did not finish: it was killed, or is still running".to_owned());
    } else if summary.interrupted {
        notes.push("the run was interrupted".to_owned());
    }
    let planned = summary.totals.planned.unwrap_or(0);
    let missing = planned.saturating_sub(summary.totals.attempted);
    if missing > 0 {
        notes.push(format!("{missing} of {planned} planned trials were not run"));
    }
    if let Some(from) = &summary.imported {
        notes.push(format!(
            "imported ({}): what its files do not tell is not known, and no condition is proven",
            plain(from)
        ));
    }
    notes.extend(left_out(summary));
    if !summary.quarantined.is_empty() {
        let is = if summary.quarantined.count == 1 { "is" } else { "are" };
        notes.push(format!("{} {is} in quarantine and left out", objects(summary.quarantined.count, "task")));
    }
    notes.extend(disagreements(&summary.disagreements));
    if summary.cleanup.unconfirmed > 0 {
        notes.push(format!("cleanup: {} not confirmed gone", objects(summary.cleanup.unconfirmed, "object")));
    }
    if summary.cleanup.retained > 0 {
        notes.push(format!("cleanup: {} kept for later runs", objects(summary.cleanup.retained, "warm artifact")));
    }
    let unknown: u64 = summary.unknown_events.values().sum();
    if unknown > 0 {
        let names: Vec<&str> = summary.unknown_events.keys().map(String::as_str).collect();
        notes.push(format!("{unknown} journal lines of a newer version were not understood: {}", names.join(", ")));
    }
    notes
}

/// Facts that speak against verdicts, the first few of them.
fn disagreements(listing: &Listing) -> Vec<String> {
    let shown = listing.first.iter().take(SHOWN);
    let mut notes: Vec<String> = shown.map(|words| format!("verdict in doubt: {}", plain(words))).collect();
    let more = listing.count.saturating_sub(notes.len() as u64);
    if more > 0 {
        notes.push(format!("{} more in doubt: `verdict.disagreements` in trials.jsonl", objects(more, "verdict")));
    }
    notes
}

pub(super) fn name(cell: &Cell) -> String {
    titled(&cell.backend, cell.condition, cell.model.as_deref(), &cell.variant)
}

/// `docker cold`, and what else sets a cell apart.
fn titled(backend: &str, condition: Condition, model: Option<&str>, variant: &Variant) -> String {
    let variant = variant.to_string();
    let parts = [Some(backend), Some(condition.name()), model, Some(&variant)];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn times_of(durations: Durations) -> String {
    times(Some(durations))
}

fn attempts(n: u64) -> String {
    objects(n, "attempt")
}

/// "1 task", "2 tasks"
pub(crate) fn objects(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
