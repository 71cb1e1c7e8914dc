//! The sections of the page.

use maud::{Markup, html};
use sandbox_bench_core::Phase;

use super::{charts, ramp, tables};
use crate::derived::{CLEANUP, SUMMARY, TRIALS, TRIALS_PARQUET};
use crate::evidence::{JOURNAL, MANIFEST};
use crate::render::{cost as cell_cost, counts, duration, notes, objects, one_line, p_value, percents, plain, usd};
use crate::report::{Order, Report, cleanup_word, median};
use crate::stats::{Interval, Unit};

/// The level at which two neighbours are told apart.
const LEVEL: f64 = 0.05;

pub(super) fn overview(report: &Report) -> Markup {
    let columns = [
        ("cell", false),
        ("accepted", true),
        ("95 %", true),
        ("create p50", true),
        ("ready p50", true),
        ("total p50", true),
        ("total p95", true),
        ("n", true),
        ("cost/accepted", true),
        ("rejected", true),
        ("no verdict", true),
        ("unavailable", true),
        ("proof", false),
        ("cleanup", false),
    ];
    let rows = html! {
        @for (index, cell) in report.cells.iter().enumerate() {
            @let (figures, trials) = (&cell.figures, &cell.figures.trials);
            @let link = format!("#cell-{index}");
            @let p50 = |phase| figures.completed(phase).map(|d| d.p50_us as f64);
            tr {
                td .nowrap { a href=(link) { (cell.name) } }
                td .n data-v=(trials.accepted) { a href=(link) { (trials.accepted) "/" (trials.runnable()) } }
                td .n { (figures.accepted_share.map_or_else(|| "–".to_owned(), percents)) }
                (tables::time(p50(Phase::Create)))
                (tables::time(p50(Phase::Ready)))
                (tables::time(figures.total.accepted.map(|d| d.p50_us as f64)))
                (tables::time(figures.total.accepted.map(|d| d.p95_us as f64)))
                td .n { (figures.total.accepted.map_or(0, |d| d.n)) }
                td .n data-v=(figures.cost.per_success_usd.map(|usd| usd.to_string()).unwrap_or_default()) { a href="#cost" { (cell_cost(&figures.cost)) } }
                (tables::count(trials.rejected, "#failures"))
                (tables::count(trials.failed, "#failures"))
                (tables::count(trials.unavailable, "#gaps"))
                td { (counts([(figures.proof.proven, "proven"), (figures.proof.unproven, "unproven"), (figures.proof.violated, "violated")])) }
                td { a href="#cleanup" { (counts([(figures.cleanup.confirmed, "confirmed"), (figures.cleanup.unconfirmed, "unconfirmed"), (figures.cleanup.retained, "kept")])) } }
            }
        }
    };
    html! {
        (tables::sortable(&columns, &rows))
        h3 { "How to read it" }
        @for run in &report.runs {
            @if !run.label.is_empty() { p .soft { b { (run.label) } } }
            ul .soft { @for note in notes(&run.summary) { li { (one_line(&note)) } } }
        }
    }
}

pub(super) fn comparison(report: &Report) -> Markup {
    let comparable = &report.comparable;
    let name = |cell: usize| report.cells.get(cell).map_or("", |cell| cell.name.as_str());
    let first = comparable.rows.first().map_or("", |row| name(row.cell));
    let columns = [
        ("cell", false),
        ("accepted", true),
        ("95 %", true),
        ("p50 to a verdict", true),
        ("95 %", true),
        ("change by task", true),
        ("95 %", true),
    ];
    let ends = |interval: Interval| {
        let end = |end: Option<f64>| end.map_or_else(|| "∞".to_owned(), |us| duration(us.round() as u64));
        format!("{} – {}", end(interval.low), end(interval.high))
    };
    let changes = |interval: Interval| {
        let end = |end: Option<f64>| end.map_or_else(|| "∞".to_owned(), percent);
        format!("{} … {}", end(interval.low), end(interval.high))
    };
    let dash = || "–".to_owned();
    let rows = html! {
        @for row in &comparable.rows {
            tr {
                td .nowrap { a href=(format!("#cell-{}", row.cell)) { (name(row.cell)) } }
                td .n data-v=(row.accepted) { (row.accepted) "/" (row.trials) }
                td .n { (row.share.map_or_else(dash, percents)) }
                (tables::time(row.median))
                td .n { (row.interval.map_or_else(dash, |(interval, _)| ends(interval))) }
                td .n { (row.change.map_or_else(dash, |(change, _)| percent(change))) }
                td .n { (row.change.and_then(|(_, interval)| interval).map_or_else(dash, changes)) }
            }
        }
    };
    let drawn = comparable.rows.iter().find_map(|row| row.interval).map(|(_, unit)| unit);
    html! {
        p .soft {
            (objects(comparable.tasks as u64, "task")) " that every cell could run"
            @if comparable.left_out > 0 { "; " (comparable.left_out) " that some could not are left out" }
            ". What failed or timed out counts as longer than what did not. Change: the median over tasks of the change of the task's own median"
            @if !first.is_empty() { ", against " (first) }
            "."
            @if let Some(unit) = drawn {
                " Intervals of times: bootstrap, " (if unit == Unit::Tasks { "tasks" } else { "trials of each task" }) " resampled; of shares: Wilson."
            }
        }
        (tables::sortable(&columns, &rows))
        @match &comparable.order {
            Order::Single => {}
            Order::Refused(why) => p { b { "No order is claimed: " } (why) "." }
            Order::Ranked(places) => {
                h3 { "Order by time to a verdict" }
                ol { @for place in places {
                    li {
                        (name(place.cell)) " "
                        span .soft {
                            @match place.p {
                                None => "first",
                                Some(p) if p <= LEVEL => { "slower than the one before, p " (p_value(p)) }
                                Some(p) => { "not told apart from the one before, p " (p_value(p)) }
                            }
                        }
                    }
                } }
                p .soft { "Mann-Whitney within tasks, Holm." }
            }
        }
    }
}

/// "+12 %"
fn percent(change: f64) -> String {
    if change.is_finite() { format!("{:+.1} %", change * 100.0) } else { "∞".to_owned() }
}

pub(super) fn matrix(report: &Report) -> Markup {
    html! {
        p .soft { "Accepted of the trials that could run. A box leads to the first attempt." }
        (charts::matrix(report))
    }
}

pub(super) fn times(report: &Report) -> Markup {
    let slopes = charts::slopes(report);
    let (ready, total) =
        (charts::distribution(report, |cell| &cell.start), charts::distribution(report, |cell| &cell.total));
    let figures = [
        (
            "Phases".to_owned(),
            "Medians of the attempts that completed a phase; their sum is not the median of the sum.",
            charts::phases(report),
        ),
        (
            "Sandbox ready".to_owned(),
            "Create and ready together, of all attempts that got there.",
            charts::curves("Share of sandboxes ready by time", &ready),
        ),
        (
            "Total".to_owned(),
            "From submission to the end, of accepted attempts.",
            charts::curves("Share of accepted attempts by total time", &total),
        ),
        (
            "Verdict".to_owned(),
            "Share of attempts that came to a verdict (Kaplan-Meier): a curve that stays below 100 % has attempts that never did.",
            charts::curves("Share of attempts with a verdict by time", &charts::verdicts(report)),
        ),
    ];
    let slopes = slopes.into_iter().map(|(name, chart)| {
        (format!("Cold to warm: {name}"), "A line for each task: medians to a verdict.", Some(chart))
    });
    html! {
        div .charts { @for (name, note, chart) in figures.into_iter().chain(slopes) { (figure(&name, note, chart)) } }
        @for table in report.timing() {
            h3 { (table.title) }
            p .soft { (table.note) }
            (tables::figures(&table))
        }
    }
}

/// How the runs went on in time.
pub(super) fn load(report: &Report) -> Markup {
    let charts: Vec<(String, Option<Markup>, Option<Markup>)> = report
        .runs
        .iter()
        .enumerate()
        .map(|(index, run)| {
            let of = if run.label.is_empty() { String::new() } else { format!(": {}", run.label) };
            (of, ramp::running(report, index), ramp::ready(report, index))
        })
        .collect();
    html! {
        @if charts.iter().all(|(_, running, _)| running.is_none()) { p .soft { "When attempts began is not known." } }
        div .charts { @for (of, running, ready) in charts {
            (figure(&format!("Attempts at a time{of}"), "From the first start. Of many, the greatest of each slice of time is drawn.", running))
            (figure(&format!("Time to ready by launch{of}"), "Create and ready together, in the order in which attempts were launched.", ready))
        } }
    }
}

fn figure(name: &str, note: &str, chart: Option<Markup>) -> Markup {
    html! { @if let Some(chart) = chart { figure { figcaption { (name) } p .soft { (note) } div .wide { (chart) } } } }
}

pub(super) fn cost(report: &Report) -> Markup {
    let columns = [
        ("cell", false),
        ("per accepted", true),
        ("known", true),
        ("measured", true),
        ("estimated", true),
        ("unknown", true),
        ("model", true),
    ];
    let rows = html! {
        @for (index, cell) in report.cells.iter().enumerate() {
            @let cost = &cell.figures.cost;
            tr {
                td .nowrap { a href=(format!("#cell-{index}")) { (cell.name) } }
                td .n { (cell_cost(cost)) }
                td .n { (cost.known_usd.map_or_else(|| "–".to_owned(), usd)) }
                td .n { (cost.measured) }
                td .n { (cost.estimated) }
                td .n { (cost.unknown) }
                td .n { (cell.figures.agent.as_ref().map_or_else(|| "–".to_owned(), |agent| usd(agent.usd))) }
            }
        }
    };
    html! {
        p .soft {
            "Sandboxes only, failed attempts included; counts are attempts. ≈ estimated, ≥ at least, ≤ at most. Rates: "
            @for (index, run) in report.runs.iter().enumerate() {
                @if index > 0 { "; " } (plain(&run.summary.rates.name)) " of " (run.summary.rates.date)
            }
            ". What models cost stands apart."
        }
        @if let Some(chart) = charts::costs(report) {
            figure { figcaption { "Cost of an accepted trial" } div .wide { (chart) } }
        } @else {
            p { "No cost of an accepted trial is known: " a href="#gaps" { "why" } "." }
        }
        (tables::sortable(&columns, &rows))
    }
}

pub(super) fn failures(report: &Report) -> Markup {
    let findings = report.findings();
    html! {
        @if report.failures.is_empty() {
            p { "No attempt failed." }
        } @else {
            p .soft { "Attempts by class and phase. Repeated attempts count for themselves." }
            div .wide { table .sort {
                thead { tr {
                    th scope="col" { "class" } th scope="col" { "phase" } th .n scope="col" { "attempts" }
                    th scope="col" { "where" } th scope="col" { "such as" }
                } }
                tbody { @for mode in &report.failures { tr {
                    td { (mode.class) }
                    td { (mode.phase) }
                    td .n data-v=(mode.total()) {
                        @match mode.examples.first() { Some((_, link)) => a href=(link) { (mode.total()) }, None => (mode.total()) }
                    }
                    td { ul { @for (cell, n) in report.cells.iter().zip(&mode.counts).filter(|(_, n)| **n > 0) { li .nowrap { (cell.name) ": " (n) } } } }
                    td .any { ul { @for (message, link) in &mode.examples { li { a href=(link) { (message) } } } } }
                } } }
            } }
        }
        @for (what, tasks) in findings.all() {
            @if !tasks.is_empty() {
                h3 { (objects(tasks.len() as u64, "task")) " " (what) }
                ul { @for index in tasks.iter().take(50) { @if let Some(task) = report.tasks.get(*index) {
                    li { a href=(format!("#task-{index}")) { (task.task) } }
                } } }
                @if tasks.len() > 50 { p .soft { (tasks.len() - 50) " more are in the table of tasks." } }
            }
        }
    }
}

pub(super) fn tasks(report: &Report) -> Markup {
    html! {
        p .soft { "Accepted of the trials that could run, and the median time to a verdict." }
        div .wide { table .sort {
            thead { tr { th scope="col" { "task" } @for cell in &report.cells { th .n scope="col" { (cell.name) } } } }
            tbody { @for (index, task) in report.tasks.iter().enumerate() { tr id=(format!("task-{index}")) {
                td .any { (task.task) " " span .soft { (task.dataset) @if let Some(digest) = &task.digest { " " (digest) } } }
                @for (column, cell) in task.cells.iter().enumerate() {
                    @let counts = cell.counts();
                    @match &cell.link {
                        None => td .n data-v="" { "–" },
                        Some(link) => {
                            @let median = median(task, column).unwrap_or(f64::NAN);
                            td .n data-v=(if median.is_finite() { format!("{median:.0}") } else { String::new() }) {
                                a href=(link) { (counts.accepted) "/" (counts.runnable()) }
                                @if counts.unavailable > 0 { " " span .none { "unavailable" } }
                                @else { " " span .soft { (if median.is_finite() { duration(median.round() as u64) } else { "∞".to_owned() }) } }
                            }
                        }
                    }
                }
            } } }
        } }
    }
}

pub(super) fn trials(report: &Report) -> Markup {
    let columns = [
        ("task", false),
        ("result", false),
        ("create", true),
        ("ready", true),
        ("total", true),
        ("cost", true),
        ("proof", false),
        ("line", true),
        ("outputs", false),
    ];
    html! {
        p .soft {
            "Each attempt with its evidence: its line in trials.jsonl, and what its commands put out. Outputs come from sandboxes: they are shown as they are."
            @if report.unlisted > 0 { " " (report.unlisted) " further attempts are in trials.jsonl only." }
        }
        @for (index, cell) in report.cells.iter().enumerate() {
            @let base = report.runs.get(cell.run).map_or("", |run| run.base.as_str());
            @let own: Vec<_> = report.attempts.iter().filter(|attempt| attempt.cell == index).collect();
            @let rows = html! { @for attempt in &own { tr id=(attempt.anchor(&report.cells)) {
                td .any {
                    @if let Some(task) = report.tasks.get(attempt.task) { (task.task) }
                    " " span .soft { "#" (attempt.replicate) @if attempt.attempt > 1 { ", attempt " (attempt.attempt) } }
                }
                td .any {
                    b class=(tables::end(attempt.end)) { (attempt.word()) }
                    @if let Some(phase) = attempt.phase { " " span .soft { "in " (phase.name()) } }
                    @if !attempt.message.is_empty() { br; (attempt.message) }
                }
                (tables::time(attempt.create_us.map(|us| us as f64)))
                (tables::time(attempt.ready_us.map(|us| us as f64)))
                (tables::time(Some(attempt.total_us as f64)))
                td .n data-v=(attempt.usd.map(|usd| usd.to_string()).unwrap_or_default()) { (attempt.usd.map_or_else(|| "–".to_owned(), usd)) }
                td { (attempt.proof) }
                td .n data-v=(attempt.line) { a href=(format!("{base}{TRIALS}")) { (attempt.line) } }
                td .any { @for (position, (name, link)) in attempt.outputs.iter().enumerate() {
                    @if position > 0 { ", " }
                    @match link { Some(link) => a href=(link) { (name) }, None => span .soft title="the file is not there" { (name) } }
                } }
            } } };
            details id=(format!("cell-{index}")) open[report.attempts.len() <= 40] {
                summary { (cell.name) " " span .soft { (objects(own.len() as u64, "attempt")) } }
                (tables::sortable(&columns, &rows))
            }
        }
    }
}

pub(super) fn cleanup(report: &Report) -> Markup {
    html! {
        @for run in &report.runs {
            @if !run.label.is_empty() { h3 { (run.label) } }
            @if run.cleanup.is_empty() {
                p { @if run.manifest.imported.is_some() { "What the imported run left behind is not known." } @else { "Nothing was created." } }
            } @else {
                div .wide { table .sort {
                    thead { tr { th scope="col" { "backend" } th scope="col" { "what" } th scope="col" { "state" } th .n scope="col" { "objects" } } }
                    tbody { @for ((backend, kind, state), n) in &run.cleanup { tr {
                        td { (backend) } td { (kind) }
                        td class=(if *state == sandbox_bench_core::evidence::CleanupState::Unconfirmed { "bad" } else { "" }) { (cleanup_word(*state)) }
                        td .n { a href=(format!("{}{CLEANUP}", run.base)) { (n) } }
                    } } }
                } }
            }
            @if !run.left.is_empty() {
                h3 { "What exists or may exist" }
                ul { @for line in &run.left { li { (line.backend) " " code { (line.id) } ": " (cleanup_word(line.state)) @if !line.why.is_empty() { ": " (line.why) } } } }
            }
        }
    }
}

pub(super) fn gaps(report: &Report) -> Markup {
    let gaps = report.gaps();
    html! {
        @if gaps.is_empty() { p { "None are known." } } @else { ul { @for gap in &gaps { li { (one_line(gap)) } } } }
    }
}

pub(super) fn provenance(report: &Report) -> Markup {
    html! {
        @for run in &report.runs {
            @let (manifest, base) = (&run.manifest, &run.base);
            h3 { @if !run.label.is_empty() { (run.label) " " } (plain(&manifest.run)) }
            ul {
                li { "sandbox-bench " (plain(&manifest.binary_version)) @if let Some(revision) = &manifest.binary_revision { " (" (plain(revision)) ")" } }
                @if let Some(host) = &manifest.host {
                    li { "host: " (plain(&host.os)) " " (plain(&host.kernel)) ", " (plain(&host.architecture)) ", " (host.cpus) " CPUs, " (host.memory_mb) " MiB" }
                } @else { li { "host: not known" } }
                @for backend in &manifest.backends {
                    li {
                        (plain(&backend.name)) ": adapter " (plain(&backend.adapter_version))
                        @if let Some(version) = &backend.backend_version { ", version " (plain(version)) }
                        @if let Some(region) = &backend.region { ", region " (plain(region)) }
                        ", " (plain(&backend.architecture))
                    }
                }
                @for dataset in &manifest.datasets { li { "data set " (plain(&dataset.name)) ": " (objects(dataset.tasks, "task")) ", " code { (dataset.digest) } } }
                @match &manifest.imported {
                    Some(imported) => @for file in &imported.files {
                        li { "imported (" (plain(&imported.from)) "): " (plain(&file.name)) ", " (objects(file.attempts, "attempt")) ", " code { (file.digest) } }
                    }
                    None => li { "concurrency " (manifest.plan.concurrency) ", at most " (manifest.plan.max_attempts) " attempts of a trial" }
                }
                li {
                    "evidence: "
                    @for (index, file) in [MANIFEST, JOURNAL, TRIALS, TRIALS_PARQUET, CLEANUP, SUMMARY].into_iter().enumerate() {
                        @if index > 0 { ", " } a href=(format!("{base}{file}")) { (file) }
                    }
                }
            }
        }
    }
}
