//! The pages.

use sandbox_bench_core::Phase;

use super::text::{list, table, words};
use crate::derived::{CLEANUP, TRIALS};
use crate::render::{self, cost, counts, duration, notes, objects, percents};
use crate::report::{Order, PAGE, Report, cleanup_word, median};
use crate::stats::Interval;

/// What a cell of a table shows when there is nothing to tell.
const NOTHING: &str = "–";

pub(super) fn overview(report: &Report) -> String {
    let mut text = "# Overview\n\n".to_owned();
    for run in &report.runs {
        let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
        text += &format!(
            "{label}run {} of {}, solver {}: **{}**\n\n",
            words(&run.summary.run),
            run.started(),
            words(&run.summary.solver),
            format!("{:?}", run.summary.outcome).to_lowercase()
        );
    }
    let columns = ["cell", "not passed", "proof", "passed", "95 %", "create", "ready", "total", "cost/pass"];
    let row = |cell: &crate::report::CellView| {
        let (figures, trials) = (&cell.figures, &cell.figures.trials);
        let failures = trials.failures.iter().map(|(class, n)| (*n, class.as_str()));
        let not_passed =
            [(trials.rejected, "rejected")].into_iter().chain(failures).chain([(trials.unavailable, "unavailable")]);
        let proof = &figures.proof;
        vec![
            words(&cell.name),
            words(&counts(not_passed)),
            counts([(proof.proven, "proven"), (proof.unproven, "unproven"), (proof.violated, "violated")]),
            format!("{}/{}", trials.accepted, trials.runnable()),
            figures.accepted_share.map_or_else(|| NOTHING.to_owned(), percents),
            render::times(figures.completed(Phase::Create)),
            render::times(figures.completed(Phase::Ready)),
            render::times(figures.total.accepted),
            words(&cost(&figures.cost)),
        ]
    };
    text += &table(&columns, 3, report.cells.iter().map(row));
    for run in &report.runs {
        let label = if run.label.is_empty() { String::new() } else { format!("{}: ", run.label) };
        text += &format!("\n{}", list(notes(&run.summary).iter().map(|note| format!("{label}{}", words(note)))));
    }
    let pages = [
        ("comparison.md", "the cells on the tasks that all of them could run"),
        ("times.md", "what warm artifacts save, and where the time goes"),
        ("tasks.md", "each task"),
        ("backends.md", "each cell, phase by phase"),
        ("failures.md", "what failed, and how"),
        ("cleanup.md", "what was created, and what is known of its end"),
        ("gaps.md", "what the evidence does not tell"),
        (PAGE, "all of it with charts"),
    ];
    text + "\n## Pages\n\n" + &list(pages.map(|(file, what)| format!("[{file}]({file}): {what}")))
}

pub(super) fn comparison(report: &Report) -> String {
    let comparable = &report.comparable;
    let mut text = format!(
        "# Comparison\n\n{} that every cell could run; {} that some could not left out. What failed or timed out \
         counts as longer than what did not. Change: the median over tasks of the change of the task's own median, \
         against the first row.\n\n",
        objects(comparable.tasks as u64, "task"),
        comparable.left_out
    );
    let columns = ["cell", "accepted", "95 %", "p50 to a verdict", "95 %", "change by task", "95 %"];
    let name = |cell: usize| report.cells.get(cell).map_or_else(String::new, |cell| words(&cell.name));
    let ends = |interval: Interval, show: fn(f64) -> String| {
        let end = |end: Option<f64>| end.map_or_else(|| "∞".to_owned(), show);
        format!("{} … {}", end(interval.low), end(interval.high))
    };
    let nothing = || NOTHING.to_owned();
    text += &table(
        &columns,
        1,
        comparable.rows.iter().map(|row| {
            vec![
                name(row.cell),
                format!("{}/{}", row.accepted, row.trials),
                row.share.map_or_else(nothing, percents),
                row.median.map_or_else(nothing, time),
                row.interval.map_or_else(nothing, |(interval, _)| ends(interval, time)),
                row.change.map_or_else(nothing, |(change, _)| percent(change)),
                row.change.and_then(|(_, interval)| interval).map_or_else(nothing, |i| ends(i, percent)),
            ]
        }),
    );
    match &comparable.order {
        Order::Single => {}
        Order::Refused(why) => text += &format!("\nNo order is claimed: {}.\n", words(why)),
        Order::Ranked(places) => {
            text += "\nBy time to a verdict (Mann-Whitney within tasks, Holm; p against the one before):\n\n";
            text += &list(places.iter().map(|place| {
                let p = place.p.map(|p| format!(", p = {p:.3}")).unwrap_or_default();
                format!("{}{p}", name(place.cell))
            }));
        }
    }
    text
}

pub(super) fn times(report: &Report) -> String {
    let mut text = "# Times\n".to_owned();
    for shown in report.timing() {
        let rows = shown.rows.iter().map(|row| row.iter().map(|cell| words(&cell.text)).collect());
        text += &format!("\n## {}\n\n{}\n\n{}", shown.title, shown.note, table(shown.columns, shown.names, rows));
    }
    text
}

pub(super) fn tasks(report: &Report) -> String {
    let columns: Vec<&str> = ["task"].into_iter().chain(report.cells.iter().map(|cell| cell.name.as_str())).collect();
    let rows = report.tasks.iter().map(|task| {
        let digest = task.digest.as_ref().map(|digest| format!(" ({digest})")).unwrap_or_default();
        let cells = task.cells.iter().enumerate().map(|(column, cell)| {
            let counts = cell.counts();
            if counts.runnable() + counts.unavailable == 0 {
                return NOTHING.to_owned();
            }
            if counts.runnable() == 0 {
                return "unavailable".to_owned();
            }
            let median = median(task, column).map_or_else(String::new, |median| format!(", {}", time(median)));
            format!("{}/{}{median}", counts.accepted, counts.runnable())
        });
        [words(&task.task) + &digest].into_iter().chain(cells).collect()
    });
    format!(
        "# Tasks\n\nAccepted of the trials that could run, and the median time to a verdict.\n\n{}",
        table(&columns, 1, rows)
    )
}

pub(super) fn backends(report: &Report) -> String {
    let mut text = "# Backends\n\nTimes are p50 / p95 (R-7) of the attempts that completed a phase.\n".to_owned();
    for cell in &report.cells {
        text += &format!("\n## {}\n\n", words(&cell.name));
        let rows = cell.figures.phases.iter().map(|phase| {
            vec![
                phase.phase.name().to_owned(),
                phase.completed.map_or(0, |d| d.n).to_string(),
                render::times(phase.completed),
                phase.completed.map_or_else(|| NOTHING.to_owned(), |d| duration(d.max_us)),
                phase.failed.map_or(0, |d| d.n).to_string(),
            ]
        });
        text += &table(&["phase", "n", "p50 / p95", "greatest", "not completed"], 1, rows);
        let base = report.runs.get(cell.run).map_or("", |run| run.base.as_str());
        text += &format!("\nEvidence: [{TRIALS}]({base}{TRIALS})\n");
    }
    text
}

pub(super) fn failures(report: &Report) -> String {
    let mut text = "# Failures\n\n".to_owned();
    if report.failures.is_empty() {
        text += "No attempt failed.\n";
    } else {
        let rows = report.failures.iter().map(|mode| {
            let places = report.cells.iter().zip(&mode.counts).filter(|(_, n)| **n > 0);
            let places: Vec<String> = places.map(|(cell, n)| format!("{} {n}", words(&cell.name))).collect();
            let examples: Vec<String> = mode.examples.iter().map(|(message, _)| words(message)).collect();
            vec![
                mode.class.to_owned(),
                mode.phase.to_owned(),
                places.join(", "),
                examples.join("; "),
                mode.total().to_string(),
            ]
        });
        text += &table(&["class", "phase", "where", "such as", "attempts"], 4, rows);
    }
    for (what, tasks) in report.findings().all() {
        if !tasks.is_empty() {
            let names = tasks.iter().filter_map(|index| report.tasks.get(*index)).map(|task| words(&task.task));
            text += &format!("\n## {} {what}\n\n{}", objects(tasks.len() as u64, "task"), list(names));
        }
    }
    text
}

pub(super) fn cleanup(report: &Report) -> String {
    let mut text = "# Cleanup\n".to_owned();
    for run in &report.runs {
        let title = if run.label.is_empty() { String::new() } else { format!("\n## {}\n", run.label) };
        let rows = run.cleanup.iter().map(|((backend, kind, state), n)| {
            vec![words(backend), (*kind).to_owned(), cleanup_word(*state).to_owned(), n.to_string()]
        });
        text += &format!("{title}\n{}", table(&["backend", "what", "state", "objects"], 3, rows));
        let left = run.left.iter().map(|line| {
            format!("{} {}: {} {}", words(&line.backend), words(&line.id), cleanup_word(line.state), words(&line.why))
        });
        text += &format!("\n{}\nAll of them: [{CLEANUP}]({}{CLEANUP})\n", list(left), run.base);
    }
    text
}

pub(super) fn gaps(report: &Report) -> String {
    let gaps = report.gaps();
    let told = if gaps.is_empty() { "None are known.\n".to_owned() } else { list(gaps.iter().map(|gap| words(gap))) };
    format!("# Gaps\n\n{told}")
}

/// A time in microseconds; what most attempts did not come to is longer than all that was seen.
fn time(us: f64) -> String {
    if us.is_finite() { duration(us.round() as u64) } else { "∞".to_owned() }
}

fn percent(change: f64) -> String {
    if change.is_finite() { format!("{:+.1} %", change * 100.0) } else { "∞".to_owned() }
}
