//! The charts, as SVG that takes its colours from the page.

use maud::{Markup, html};
use sandbox_bench_core::Phase;

use super::axis::{Axis, px, time};
use crate::render::{cost, duration};
use crate::report::{CellView, Curve, Report, Saving, Tasks, Verdicts, median};

/// Lines that are drawn in a slope chart.
const SLOPES: usize = 200;
/// Tasks that are drawn in the matrix.
const ROWS: usize = 300;
/// Width of the charts.
pub(super) const WIDTH: f64 = 560.0;
/// Height of a bar with its distance to the next.
const BAR: f64 = 30.0;

/// The colour of a cell; from the ninth on they repeat, dashed.
pub(super) fn colour(cell: usize) -> String {
    format!("k{}{}", cell % 8, if cell / 8 % 2 == 1 { " dash" } else { "" })
}

pub(super) fn frame(width: f64, height: f64, label: &str, inside: &Markup) -> Markup {
    html! {
        svg viewBox=(format!("0 0 {} {}", px(width), px(height))) width=(px(width)) height=(px(height)) role="img" aria-label=(label) {
            (inside)
        }
    }
}

/// One bar for each cell: the medians of its phases, one after the other.
pub(super) fn phases(report: &Report) -> Option<Markup> {
    let medians = |cell: &CellView| -> Vec<(usize, Phase, u64, u64)> {
        let of = |(index, phase): (usize, Phase)| cell.figures.completed(phase).map(|d| (index, phase, d.p50_us, d.n));
        Phase::ALL.into_iter().enumerate().filter_map(of).collect()
    };
    let shown: Vec<(&CellView, Vec<_>)> =
        report.cells.iter().map(|cell| (cell, medians(cell))).filter(|(_, m)| !m.is_empty()).collect();
    let sum = |medians: &[(usize, Phase, u64, u64)]| medians.iter().map(|m| m.2 as f64).sum::<f64>();
    let greatest = shown.iter().map(|(_, medians)| sum(medians)).fold(0.0, f64::max);
    let axis = Axis::linear(greatest, 4.0, WIDTH - 90.0);
    let height = shown.len() as f64 * (BAR + 14.0);
    let used: Vec<usize> =
        (0..Phase::ALL.len()).filter(|index| shown.iter().any(|(_, m)| m.iter().any(|p| p.0 == *index))).collect();
    let bars = html! {
        (axis.times(0.0, height))
        @for (row, (cell, medians)) in shown.iter().enumerate() {
            @let y = row as f64 * (BAR + 14.0);
            text x="2" y=(px(y + 13.0)) { (cell.name) }
            @for (position, (index, phase, us, n)) in medians.iter().enumerate() {
                @let before = sum(medians.get(..position).unwrap_or_default());
                @let (from, to) = (axis.at(before), axis.at(before + *us as f64));
                rect class=(format!("bar ph{index}")) x=(px(from)) y=(px(y + 18.0)) width=(px((to - from).max(0.5))) height="18" {
                    title { (cell.name) ": " (phase.name()) " " (duration(*us)) " (median, n = " (n) ")" }
                }
            }
            text .tick x=(px(axis.at(sum(medians)) + 6.0)) y=(px(y + 31.0)) { (duration(sum(medians) as u64)) }
        }
    };
    (!shown.is_empty()).then(|| {
        html! {
            div .legend {
                @for index in used { @if let Some(phase) = Phase::ALL.get(index) {
                    span class=(format!("ph{index}")) { i {} em { (phase.name()) } }
                } }
            }
            (frame(WIDTH, height + 24.0, "Median time of each phase by cell", &bars))
        }
    })
}

/// A curve of shares: the cell's index and name, what its n is, and each time with the share up to it.
pub(super) struct Drawn<'a> {
    pub(super) cell: usize,
    pub(super) name: &'a str,
    pub(super) n: String,
    pub(super) steps: &'a [(f64, f64)],
}

/// The curves of an empirical distribution of each cell.
pub(super) fn distribution(report: &Report, of: impl Fn(&CellView) -> &Curve) -> Vec<Drawn<'_>> {
    let known = report.cells.iter().enumerate().map(|(cell, view)| (cell, &view.name, of(view)));
    let drawn = known.filter(|(_, _, curve)| curve.n > 0).map(|(cell, name, curve)| {
        let n = format!("n = {}", curve.n);
        Drawn { cell, name, n, steps: &curve.steps }
    });
    drawn.collect()
}

/// The share of attempts that came to a verdict by each time, by Kaplan and Meier.
pub(super) fn verdicts(report: &Report) -> Vec<Drawn<'_>> {
    let mut drawn = Vec::new();
    for (cell, view) in report.cells.iter().enumerate() {
        let Verdicts { curve, censored, .. } = &view.verdict;
        if curve.n > 0 {
            let n = format!("n = {}, {censored} without one", curve.n);
            drawn.push(Drawn { cell, name: &view.name, n, steps: &curve.steps });
        }
    }
    drawn
}

/// The share up to each time, one curve for each cell.
pub(super) fn curves(label: &str, curves: &[Drawn<'_>]) -> Option<Markup> {
    let (left, right, top, bottom) = (62.0, WIDTH - 34.0, 8.0, 240.0);
    let drawn: Vec<&Drawn<'_>> = curves.iter().filter(|curve| !curve.steps.is_empty()).collect();
    if drawn.is_empty() {
        return None;
    }
    let ends = drawn.iter().flat_map(|curve| [curve.steps.first(), curve.steps.last()]);
    let axis = Axis::over(ends.flatten().map(|step| step.0), left, right);
    let y = |share: f64| bottom - share * (bottom - top);
    let path = |steps: &[(f64, f64)]| {
        let (mut path, mut last) = (String::new(), 0.0);
        for (x, share) in steps {
            let command = if path.is_empty() { "M" } else { "L" };
            path += &format!("{command}{} {}V{}", px(axis.at(*x)), px(y(last)), px(y(*share)));
            last = *share;
        }
        path + &format!("H{}", px(right))
    };
    let inside = html! {
        @for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            line .grid x1=(px(left)) x2=(px(right)) y1=(px(y(share))) y2=(px(y(share))) {}
            text .tick x=(px(left - 6.0)) y=(px(y(share) + 4.0)) text-anchor="end" { (format!("{:.0} %", share * 100.0)) }
        }
        (axis.times(top, bottom))
        @for curve in &drawn {
            path class=(format!("curve {}", colour(curve.cell))) d=(path(curve.steps)) { title { (curve.name) " (" (curve.n) ")" } }
        }
    };
    Some(html! {
        div .legend { @for curve in curves { span class=(colour(curve.cell)) { i {} em { (curve.name) " (" (curve.n) ")" } } } }
        (frame(WIDTH, bottom + 26.0, label, &inside))
    })
}

/// For each pair of a cold and a warm cell: the warm cell's name, and a line for each task from its cold to its warm median.
pub(super) fn slopes(report: &Report) -> Vec<(String, Markup)> {
    let named =
        |saving: &Saving| Some((report.cells.get(saving.warm)?.name.clone(), slope(report, saving.cold, saving.warm)?));
    report.savings.iter().filter_map(named).collect()
}

fn slope(report: &Report, cold: usize, warm: usize) -> Option<Markup> {
    let median = |task: &crate::report::TaskView, cell: usize| median(task, cell).filter(|median| median.is_finite());
    let lines: Vec<_> = report
        .tasks
        .iter()
        .filter_map(|task| Some((task, median(task, cold)?, median(task, warm)?)))
        .take(SLOPES)
        .collect();
    if lines.is_empty() {
        return None;
    }
    let (left, right, top, bottom) = (70.0, 270.0, 10.0, 230.0);
    let axis = Axis::over(lines.iter().flat_map(|(_, cold, warm)| [*cold, *warm]), bottom, top);
    let inside = html! {
        @for tick in axis.ticks() {
            line .grid x1=(px(left)) x2=(px(right)) y1=(px(axis.at(tick))) y2=(px(axis.at(tick))) {}
            text .tick x=(px(left - 6.0)) y=(px(axis.at(tick) + 4.0)) text-anchor="end" { (time(tick)) }
        }
        @for (task, cold, warm) in &lines {
            g class=(if warm <= cold { "good" } else { "bad" }) {
                title { (task.task) ": " (duration(cold.round() as u64)) " → " (duration(warm.round() as u64)) }
                line .slope x1=(px(left + 8.0)) x2=(px(right - 8.0)) y1=(px(axis.at(*cold))) y2=(px(axis.at(*warm))) {}
                circle .dot cx=(px(left + 8.0)) cy=(px(axis.at(*cold))) r="3" {}
                circle .dot cx=(px(right - 8.0)) cy=(px(axis.at(*warm))) r="3" {}
            }
        }
        text x=(px(left)) y=(px(bottom + 18.0)) { "cold" }
        text x=(px(right)) y=(px(bottom + 18.0)) text-anchor="end" { "warm" }
    };
    Some(html! {
        (frame(right + 10.0, bottom + 26.0, "Cold to warm median by task", &inside))
        p .soft {
            (lines.iter().filter(|(_, cold, warm)| warm < cold).count()) " of " (lines.len()) " tasks faster when warm"
        }
    })
}

/// Tasks by cells: what became of the trials.
pub(super) fn matrix(report: &Report) -> Markup {
    let (label, cell_width, row) = (250.0, 92.0, 24.0);
    // Columns carry their names at a slant, so that many fit.
    let head = 82.0;
    let shown = report.tasks.iter().take(ROWS);
    let width = label + report.cells.len() as f64 * cell_width + 90.0;
    let height = head + report.tasks.len().min(ROWS) as f64 * row + 4.0;
    let inside = html! {
        @for (column, cell) in report.cells.iter().enumerate() {
            @let x = label + column as f64 * cell_width + 14.0;
            text transform=(format!("translate({} {}) rotate(-28)", px(x), px(head - 8.0))) { (short(&cell.name, 26)) title { (cell.name) } }
        }
        @for (index, task) in shown.enumerate() {
            @let y = head + index as f64 * row;
            text x="0" y=(px(y + 16.0)) { (short(&task.task, 32)) title { (task.dataset) " " (task.task) } }
            @for (column, cell) in task.cells.iter().enumerate() {
                @let x = label + column as f64 * cell_width;
                @let counts = cell.counts();
                @if let Some(link) = &cell.link {
                    a href=(link) { (square(x, y, cell_width - 4.0, row - 4.0, counts)) }
                } @else {
                    rect .empty x=(px(x + 0.5)) y=(px(y + 0.5)) width=(px(cell_width - 5.0)) height=(px(row - 5.0)) rx="3" {}
                }
            }
        }
    };
    html! {
        div .legend {
            @for (class, what) in [("good", "accepted"), ("bad", "rejected"), ("odd", "no verdict"), ("blank", "cannot run there")] {
                span class=(class) { i {} em { (what) } }
            }
        }
        div .wide { (frame(width, height, "Accepted trials by task and cell", &inside)) }
        @if report.tasks.len() > ROWS { p .soft { (report.tasks.len() - ROWS) " more tasks are in the table of tasks." } }
    }
}

/// A box, filled in proportion to what became of the trials.
fn square(x: f64, y: f64, width: f64, height: f64, counts: Tasks) -> Markup {
    let parts =
        [("good", counts.accepted), ("bad", counts.rejected), ("odd", counts.failed), ("blank", counts.unavailable)];
    let all = (counts.runnable() + counts.unavailable).max(1) as f64;
    let words =
        if counts.runnable() == 0 { "–".to_owned() } else { format!("{}/{}", counts.accepted, counts.runnable()) };
    let mut from = 0;
    html! {
        @for (class, n) in parts {
            @if n > 0 {
                rect class=(format!("bar {class}")) x=(px(x + from as f64 / all * width)) y=(px(y)) width=(px(n as f64 / all * width)) height=(px(height)) {}
            }
            @let () = from += n;
        }
        text .count x=(px(x + width / 2.0)) y=(px(y + height / 2.0 + 4.0)) text-anchor="middle" { (words) }
        title {
            (counts.accepted) " accepted, " (counts.rejected) " rejected, " (counts.failed) " without a verdict, "
            (counts.unavailable) " unavailable"
        }
    }
}

/// Cost of an accepted trial, one bar for each cell that has one.
pub(super) fn costs(report: &Report) -> Option<Markup> {
    let shown: Vec<(usize, &CellView, f64)> = report
        .cells
        .iter()
        .enumerate()
        .filter_map(|(index, cell)| Some((index, cell, cell.figures.cost.per_success_usd?)))
        .collect();
    let greatest = shown.iter().map(|(_, _, usd)| *usd).fold(0.0, f64::max);
    let axis = Axis::linear(greatest, 0.0, WIDTH - 110.0);
    let bars = html! {
        @for (row, (index, cell, usd)) in shown.iter().enumerate() {
            @let y = row as f64 * (BAR + 14.0);
            text x="2" y=(px(y + 13.0)) { (cell.name) }
            rect class=(format!("bar {}", colour(*index))) x="0" y=(px(y + 18.0)) width=(px(axis.at(*usd).max(1.0))) height="18" rx="3" {}
            text x=(px(axis.at(*usd) + 6.0)) y=(px(y + 31.5)) { (cost(&cell.figures.cost)) }
        }
    };
    let height = shown.len() as f64 * (BAR + 14.0) + 4.0;
    (!shown.is_empty()).then(|| frame(WIDTH, height, "Cost of an accepted trial by cell", &bars))
}

/// The words, or their two ends.
fn short(words: &str, most: usize) -> String {
    let count = words.chars().count();
    if count <= most {
        return words.to_owned();
    }
    let (start, end) = (most / 2, most - most / 2 - 1);
    words.chars().take(start).chain(['…']).chain(words.chars().skip(count - end)).collect()
}
