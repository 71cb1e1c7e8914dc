//! How a run went on in time: trials at once, and time to ready in the order of launches.

use maud::{Markup, html};

use super::axis::{Axis, px, time};
use super::charts::{WIDTH, colour, frame};
use crate::report::{CellView, Ramp, Report};

const LEFT: f64 = 66.0;
const RIGHT: f64 = WIDTH - 46.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 200.0;

/// The cells of a run that have something to draw.
fn cells(report: &Report, run: usize) -> Vec<(usize, &CellView, &Ramp)> {
    let own = report.cells.iter().enumerate().filter(|(_, cell)| cell.run == run);
    own.filter_map(|(index, cell)| Some((index, cell, cell.ramp.as_ref()?))).collect()
}

fn legend(cells: &[(usize, &CellView, &Ramp)]) -> Markup {
    html! {
        div .legend { @for (index, cell, ramp) in cells {
            span class=(colour(*index)) { i {} em { (cell.name) " (at most " (ramp.most) " at a time)" } }
        } }
    }
}

/// How many attempts of each cell of a run were running at each time.
pub(super) fn running(report: &Report, run: usize) -> Option<Markup> {
    let cells = cells(report, run);
    let end = cells.iter().filter_map(|(_, _, ramp)| ramp.running.last()).map(|point| point.0).fold(0.0, f64::max);
    let most = cells.iter().map(|(_, _, ramp)| ramp.most).max()?;
    let x = Axis::linear(end, LEFT, RIGHT);
    let y = Axis::linear(f64::from(most), BOTTOM, TOP);
    let path = |ramp: &Ramp| {
        let mut path = format!("M{} {}", px(x.at(0.0)), px(y.at(0.0)));
        for (at, now) in &ramp.running {
            path += &format!("H{}V{}", px(x.at(*at)), px(y.at(f64::from(*now))));
        }
        path
    };
    let inside = html! {
        @for tick in whole(&y) {
            line .grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(y.at(tick))) y2=(px(y.at(tick))) {}
            text .tick x=(px(LEFT - 6.0)) y=(px(y.at(tick) + 4.0)) text-anchor="end" { (tick) }
        }
        (x.times(TOP, BOTTOM))
        @for (index, cell, ramp) in &cells {
            path class=(format!("curve thin {}", colour(*index))) d=(path(ramp)) { title { (cell.name) } }
        }
    };
    Some(html! {
        (legend(&cells))
        (frame(WIDTH, BOTTOM + 26.0, "Attempts running at a time, by cell", &inside))
    })
}

/// Time to ready of each sandbox of a run, in the order in which they were launched.
pub(super) fn ready(report: &Report, run: usize) -> Option<Markup> {
    let cells = cells(report, run);
    let points = || cells.iter().flat_map(|(_, _, ramp)| &ramp.ready);
    let last = points().map(|point| point.0).max()?;
    let x = Axis::linear(last as f64, LEFT, RIGHT);
    let y = Axis::over(points().map(|point| point.1), BOTTOM, TOP);
    let inside = html! {
        @for tick in y.ticks() {
            line .grid x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(y.at(tick))) y2=(px(y.at(tick))) {}
            text .tick x=(px(LEFT - 6.0)) y=(px(y.at(tick) + 4.0)) text-anchor="end" { (time(tick)) }
        }
        @for tick in whole(&x) {
            text .tick x=(px(x.at(tick))) y=(px(BOTTOM + 16.0)) text-anchor="middle" { (tick) }
        }
        @for (index, cell, ramp) in &cells {
            g class=(colour(*index)) {
                title { (cell.name) }
                @for (place, us) in &ramp.ready { circle .dot cx=(px(x.at(*place as f64))) cy=(px(y.at(*us))) r="2.5" {} }
            }
        }
    };
    Some(html! {
        (legend(&cells))
        (frame(WIDTH, BOTTOM + 26.0, "Time to ready by order of launch", &inside))
    })
}

/// The ticks that are whole numbers.
fn whole(axis: &Axis) -> Vec<f64> {
    axis.ticks().into_iter().filter(|tick| tick.fract() == 0.0).collect()
}
