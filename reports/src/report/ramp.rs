//! How a run went on in time: how many trials ran at once, and how long sandboxes took to be ready in the order in which
//! they were launched. Both follow from the attempts' start times, whatever shape the load was given.

/// One attempt in time, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launch {
    /// Since the epoch.
    pub(super) start_us: i64,
    pub(super) total_us: u64,
    /// Create and ready together, if the sandbox got there.
    pub(super) ready_us: Option<u64>,
}

/// The same of a cell, as it is drawn.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ramp {
    /// Microseconds since the first start of the run, and how many attempts run from then on.
    pub(crate) running: Vec<(f64, u32)>,
    /// Place in the run's order of launches, from 1, and time to ready in microseconds.
    pub(crate) ready: Vec<(u64, f64)>,
    /// The most that ran at once.
    pub(crate) most: u32,
}

/// Points that are kept of a curve; of more, the greatest of each slice of time.
const POINTS: usize = 240;

impl Launch {
    /// When it was over.
    pub(super) fn end_us(&self) -> i64 {
        self.start_us.saturating_add(i64::try_from(self.total_us).unwrap_or(i64::MAX))
    }
}

/// A cell with `count` launches, which come in the order of time, as do the ends of those that lasted; `first` is the first start
/// of its run, `run` all of that run's starts.
pub(super) fn ramp<L, E>(
    count: usize,
    first: i64,
    launches: impl Fn() -> L,
    ends: impl Fn() -> E,
    run: impl Iterator<Item = i64>,
) -> Ramp
where
    L: Iterator<Item = Launch>,
    E: Iterator<Item = i64>,
{
    let since = |us: i64| us.saturating_sub(first) as f64;
    // What took no time was never running beside anything.
    let starts = || launches().filter(|launch| launch.total_us > 0).map(|launch| launch.start_us);
    let running = || running(starts(), ends()).map(|(at, now)| (since(at), now));
    let (mut run, mut before) = (run.peekable(), 0);
    let every = count.div_ceil(POINTS).max(1);
    let ready = launches().enumerate().filter(|(index, _)| index % every == 0).filter_map(|(_, launch)| {
        while run.next_if(|start| *start < launch.start_us).is_some() {
            before += 1;
        }
        Some((before + 1, launch.ready_us? as f64))
    });
    let ready = ready.collect();
    Ramp { ready, most: running().map(|(_, now)| now).max().unwrap_or(0), running: slices(running) }
}

/// How many are running from each time on, given the times at which they start and end.
fn running(starts: impl Iterator<Item = i64>, ends: impl Iterator<Item = i64>) -> impl Iterator<Item = (i64, u32)> {
    let (mut starts, mut ends, mut now) = (starts.peekable(), ends.peekable(), 0_u32);
    std::iter::from_fn(move || {
        let at = starts.peek().copied().into_iter().chain(ends.peek().copied()).min()?;
        // What ends at the moment at which another starts made room for it.
        while ends.next_if_eq(&at).is_some() {
            now = now.saturating_sub(1);
        }
        while starts.next_if_eq(&at).is_some() {
            now += 1;
        }
        Some((at, now))
    })
}

/// At most [`POINTS`] points and the last: the greatest of each slice of time.
fn slices<I: Iterator<Item = (f64, u32)>>(points: impl Fn() -> I) -> Vec<(f64, u32)> {
    let (mut count, mut first, mut last) = (0, None, None);
    for point in points() {
        count += 1;
        first.get_or_insert(point);
        last = Some(point);
    }
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    if count <= POINTS {
        return points().collect();
    }
    let width = (last.0 - first.0).max(1.0) / POINTS as f64;
    let mut thinned: Vec<(f64, u32)> = Vec::with_capacity(POINTS + 1);
    let mut slice = usize::MAX;
    for (at, now) in points() {
        let own = ((at - first.0) / width) as usize;
        match thinned.last_mut() {
            Some(kept) if own == slice => kept.1 = kept.1.max(now),
            _ => thinned.push((at, now)),
        }
        slice = own;
    }
    // After its end nothing runs.
    thinned.push(last);
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The cells of one run, given all their launches in any order.
    fn ramps(cells: Vec<Vec<Launch>>) -> Vec<Ramp> {
        let mut run: Vec<i64> = cells.iter().flatten().map(|launch| launch.start_us).collect();
        run.sort_unstable();
        let first = run.first().copied().unwrap_or(0);
        let of = |mut cell: Vec<Launch>| {
            cell.sort_unstable_by_key(|launch| (launch.start_us, launch.total_us));
            let mut ends: Vec<i64> = cell.iter().filter(|l| l.total_us > 0).map(Launch::end_us).collect();
            ends.sort_unstable();
            ramp(cell.len(), first, || cell.iter().copied(), || ends.iter().copied(), run.iter().copied())
        };
        cells.into_iter().map(of).collect()
    }

    fn launch(start_us: i64, total_us: u64) -> Launch {
        Launch { start_us, total_us, ready_us: Some(total_us / 2) }
    }

    #[test]
    fn what_ends_makes_room_for_what_starts() {
        let ramps = ramps(vec![vec![launch(100, 10), launch(110, 10), launch(115, 20)], vec![launch(105, 2)]]);
        assert_eq!(ramps[0].running, [(0.0, 1), (10.0, 1), (15.0, 2), (20.0, 1), (35.0, 0)]);
        assert_eq!((ramps[0].most, ramps[1].most), (2, 1));
        assert_eq!(ramps[0].ready, [(1, 5.0), (3, 5.0), (4, 10.0)], "in the order of the whole run");
        assert_eq!(ramps[1].ready, [(2, 1.0)]);
    }

    proptest! {
        #[test]
        fn however_many_there_are_the_most_is_drawn_and_the_end_is_empty(
            launches in proptest::collection::vec((0i64..10_000, 0u64..500), 1..2000),
        ) {
            let all: Vec<Launch> = launches.into_iter().map(|(start, total)| launch(start, total)).collect();
            let ramp = ramps(vec![all]).remove(0);
            prop_assert!(ramp.running.len() <= POINTS + 2 && ramp.ready.len() <= POINTS);
            prop_assert!(ramp.running.last().is_none_or(|point| point.1 == 0));
            if ramp.running.len() > POINTS {
                prop_assert_eq!(ramp.running.iter().map(|point| point.1).max(), Some(ramp.most));
            }
        }
    }
}
