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

/// The cells of one run, given all their launches.
pub(super) fn ramps(cells: Vec<Vec<Launch>>) -> Vec<Ramp> {
    let first = cells.iter().flatten().map(|launch| launch.start_us).min().unwrap_or(0);
    let mut order: Vec<i64> = cells.iter().flatten().map(|launch| launch.start_us).collect();
    order.sort_unstable();
    cells.into_iter().map(|launches| ramp(launches, first, &order)).collect()
}

fn ramp(mut launches: Vec<Launch>, first: i64, order: &[i64]) -> Ramp {
    launches.sort_unstable_by_key(|launch| (launch.start_us, launch.total_us));
    let since = |us: i64| us.saturating_sub(first) as f64;
    let end = |launch: &Launch| launch.start_us.saturating_add(i64::try_from(launch.total_us).unwrap_or(i64::MAX));
    // What took no time was never running beside anything.
    let lasting = || launches.iter().filter(|launch| launch.total_us > 0);
    let mut ends: Vec<i64> = lasting().map(end).collect();
    ends.sort_unstable();
    let mut running: Vec<(f64, u32)> = Vec::new();
    let (mut starts, mut ended) = (lasting().map(|launch| launch.start_us).peekable(), ends.into_iter().peekable());
    let (mut now, mut most) = (0_u32, 0_u32);
    // What ends at the moment at which another starts made room for it.
    while let Some(next_end) = ended.peek().copied() {
        let at = match starts.peek().copied() {
            Some(start) if start < next_end => {
                starts.next();
                now += 1;
                start
            }
            _ => {
                ended.next();
                now = now.saturating_sub(1);
                next_end
            }
        };
        most = most.max(now);
        match running.last_mut() {
            Some(last) if last.0 == since(at) => last.1 = now,
            _ => running.push((since(at), now)),
        }
    }
    let every = launches.len().div_ceil(POINTS).max(1);
    let ready = launches.iter().enumerate().filter(|(index, _)| index % every == 0).filter_map(|(_, launch)| {
        let place = order.partition_point(|start| *start < launch.start_us) as u64 + 1;
        Some((place, launch.ready_us? as f64))
    });
    let ready = ready.collect();
    Ramp { running: slices(running), ready, most }
}

/// At most [`POINTS`] points: the greatest of each slice of time.
fn slices(points: Vec<(f64, u32)>) -> Vec<(f64, u32)> {
    let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) else { return points };
    if points.len() <= POINTS {
        return points;
    }
    let width = (last.0 - first.0).max(1.0) / POINTS as f64;
    let mut thinned: Vec<(f64, u32)> = Vec::with_capacity(POINTS + 1);
    let mut slice = usize::MAX;
    for (at, now) in points {
        let own = ((at - first.0) / width) as usize;
        match thinned.last_mut() {
            Some(kept) if own == slice => kept.1 = kept.1.max(now),
            _ => thinned.push((at, now)),
        }
        slice = own;
    }
    // After its end nothing runs.
    thinned.push((last.0, last.1));
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
