//! What a report keeps of each attempt until all are known: a few numbers, sorted, and beyond some megabytes on disk.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::ramp::{Launch, Ramp, ramp};
use crate::spill::{Records, Series, Sorted, Spool};
use crate::stats::{ByTask, Components, Time, Timed};
use crate::summary::End;

/// What is kept of a cell, or of a run, each a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Create and ready together …
    Start,
    /// … and by task.
    StartByTask,
    /// Total times of accepted attempts.
    Total,
    /// Total times of attempts that came to a verdict, by the hash of their sandbox.
    TotalBySandbox,
    /// Times to a verdict, or to giving up, with task and trial …
    Verdict,
    /// … and by task.
    VerdictByTask,
    /// How attempts ended, by task and replicate.
    End,
    /// When attempts that took time ended.
    Over,
    /// When the attempts of a run were launched.
    Launched,
}

impl Kind {
    fn series(self, of: usize) -> u64 {
        (of as u64) << 8 | self as u64
    }
}

/// Number of values, and their sum: of whole numbers it is the same in any order.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    n: u64,
    sum: f64,
}

impl Sum {
    fn add(&mut self, us: u64) {
        self.n += 1;
        self.sum += us as f64;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    start: Sum,
    verdict: Sum,
    sandbox: Sum,
}

/// Takes in what is kept.
#[derive(Debug)]
pub(super) struct Kept {
    numbers: Spool<3>,
    launches: Spool<4>,
    sums: HashMap<usize, Sums>,
    attempts: u64,
}

/// Which attempt it is: cells, tasks and the trials of a task in a cell are numbered from 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of {
    pub(super) run: usize,
    pub(super) cell: usize,
    pub(super) task: u32,
    pub(super) trial: u32,
    pub(super) replicate: u32,
}

impl Kept {
    /// What does not fit into memory goes to a file in the directory `scratch`.
    pub(super) fn new(scratch: &Path) -> Self {
        Self { numbers: Spool::new(scratch), launches: Spool::new(scratch), sums: HashMap::new(), attempts: 0 }
    }

    /// How long the sandbox took to be ready, in microseconds.
    pub(super) fn start(&mut self, of: Of, us: u64) {
        self.numbers.push([Kind::Start.series(of.cell), us, 0]);
        self.numbers.push([Kind::StartByTask.series(of.cell), of.task.into(), us]);
        self.sums.entry(of.cell).or_default().start.add(us);
    }

    /// How the attempt ended.
    pub(super) fn end(&mut self, of: Of, end: End) {
        let trial = u64::from(of.task) << 32 | u64::from(of.replicate);
        self.numbers.push([Kind::End.series(of.cell), trial, self.attempts << 8 | end.code()]);
        self.attempts += 1;
    }

    /// The total time of an accepted attempt.
    pub(super) fn total(&mut self, of: Of, us: u64) {
        self.numbers.push([Kind::Total.series(of.cell), us, 0]);
    }

    /// The total time of an attempt that came to a verdict in the sandbox with this hash.
    pub(super) fn sandbox(&mut self, of: Of, sandbox: u64, us: u64) {
        self.numbers.push([Kind::TotalBySandbox.series(of.cell), sandbox, us]);
        self.sums.entry(of.cell).or_default().sandbox.add(us);
    }

    /// The time to a verdict, or to giving up.
    pub(super) fn verdict(&mut self, of: Of, time: Time) {
        let trial = u64::from(of.task) << 32 | u64::from(of.trial);
        self.numbers.push([Kind::Verdict.series(of.cell), time.code(), trial]);
        self.numbers.push([Kind::VerdictByTask.series(of.cell), of.task.into(), time.code()]);
        if !time.censored {
            self.sums.entry(of.cell).or_default().verdict.add(time.value as u64);
        }
    }

    /// When the attempt was launched.
    pub(super) fn launch(&mut self, of: Of, launch: Launch) {
        let ready = launch.ready_us.map_or(0, |us| us.saturating_add(1));
        self.launches.push([of.cell as u64, ordered(launch.start_us), launch.total_us, ready]);
        self.numbers.push([Kind::Launched.series(of.run), ordered(launch.start_us), 0]);
        if launch.total_us > 0 {
            self.numbers.push([Kind::Over.series(of.cell), ordered(launch.end_us()), 0]);
        }
    }

    /// All of it in order.
    ///
    /// # Errors
    /// What writing to the disk failed with.
    pub(super) fn sorted(self) -> io::Result<Told> {
        Ok(Told { numbers: self.numbers.sorted()?, launches: self.launches.sorted()?, sums: self.sums })
    }
}

/// A number whose order among numbers without a sign is that of this one.
fn ordered(signed: i64) -> u64 {
    signed.cast_unsigned() ^ 1 << 63
}

fn signed(ordered: u64) -> i64 {
    (ordered ^ 1 << 63).cast_signed()
}

/// Times in microseconds, least first.
pub(super) type Ascending<'a> = std::iter::Map<Records<'a, 3>, fn([u64; 3]) -> f64>;

fn value([_, us, _]: [u64; 3]) -> f64 {
    us as f64
}

/// What was kept, in order.
#[derive(Debug)]
pub(super) struct Told {
    numbers: Sorted<3>,
    launches: Sorted<4>,
    sums: HashMap<usize, Sums>,
}

impl Told {
    fn of(&self, kind: Kind, cell: usize) -> Series<'_, 3> {
        self.numbers.series(kind.series(cell))
    }

    fn times<'a>(&'a self, kind: Kind, cell: usize) -> (usize, impl Fn() -> Ascending<'a>) {
        let series = self.of(kind, cell);
        (series.len(), move || series.iter().map(value as fn([u64; 3]) -> f64))
    }

    /// Times to ready: how many, and they themselves, least first.
    pub(super) fn starts<'a>(&'a self, cell: usize) -> (usize, impl Fn() -> Ascending<'a>) {
        self.times(Kind::Start, cell)
    }

    /// Total times of accepted attempts, likewise.
    pub(super) fn totals<'a>(&'a self, cell: usize) -> (usize, impl Fn() -> Ascending<'a>) {
        self.times(Kind::Total, cell)
    }

    /// Where the spread of times to ready lies, by task.
    pub(super) fn start_by_task(&self, cell: usize) -> Option<Components> {
        self.components(Kind::StartByTask, cell, self.sums.get(&cell)?.start, |us| Some(us as f64))
    }

    /// … of times to a verdict, by task.
    pub(super) fn total_by_task(&self, cell: usize) -> Option<Components> {
        let seen = |code: u64| Some(Time::of_code(code)).filter(|time| !time.censored).map(|time| time.value);
        self.components(Kind::VerdictByTask, cell, self.sums.get(&cell)?.verdict, seen)
    }

    /// … and by sandbox.
    pub(super) fn total_by_sandbox(&self, cell: usize) -> Option<Components> {
        self.components(Kind::TotalBySandbox, cell, self.sums.get(&cell)?.sandbox, |us| Some(us as f64))
    }

    fn components(&self, kind: Kind, cell: usize, all: Sum, value: fn(u64) -> Option<f64>) -> Option<Components> {
        let groups = self.of(kind, cell).groups();
        let values = groups.map(|(_, numbers)| numbers.into_iter().filter_map(value).collect::<Vec<f64>>());
        Components::of_groups(values, all.n, all.sum)
    }

    /// Times to a verdict, least first, with the numbers of task and trial.
    pub(super) fn verdicts(&self, cell: usize) -> impl Iterator<Item = Timed> {
        self.of(Kind::Verdict, cell).iter().map(|[_, code, trial]| Timed {
            time: Time::of_code(code),
            task: (trial >> 32) as usize,
            trial: (trial & u64::from(u32::MAX)) as usize,
        })
    }

    /// Times to a verdict, by the number of the task.
    pub(super) fn verdicts_by_task(&self, cell: usize) -> impl Iterator<Item = (usize, Vec<Time>)> {
        let groups = self.of(Kind::VerdictByTask, cell).groups();
        groups.map(|(task, codes)| (task as usize, codes.into_iter().map(Time::of_code).collect()))
    }

    /// How each trial ended, by its last attempt, with the number of its task.
    pub(super) fn ends(&self, cell: usize) -> impl Iterator<Item = (usize, End)> {
        let mut ends = self.of(Kind::End, cell).iter().peekable();
        std::iter::from_fn(move || {
            let [_, trial, mut last] = ends.next()?;
            while let Some([.., later]) = ends.next_if(|[_, same, _]| *same == trial) {
                last = later;
            }
            Some(((trial >> 32) as usize, End::of_code(last & 0xff)))
        })
    }

    /// How a cell of a run went on in time.
    pub(super) fn ramp(&self, run: usize, cell: usize) -> Ramp {
        let launches = self.launches.series(cell as u64);
        let launched = self.of(Kind::Launched, run);
        let first = launched.at(0).map_or(0, |[_, start, _]| signed(start));
        ramp(
            launches.len(),
            first,
            || {
                launches.iter().map(|[_, start, total_us, ready]| Launch {
                    start_us: signed(start),
                    total_us,
                    ready_us: ready.checked_sub(1),
                })
            },
            || self.of(Kind::Over, cell).iter().map(|[_, end, _]| signed(end)),
            launched.iter().map(|[_, start, _]| signed(start)),
        )
    }

    /// To be asked when all has been read.
    ///
    /// # Errors
    /// What reading failed with.
    pub(super) fn check(&self) -> io::Result<()> {
        self.numbers.check()?;
        self.launches.check()
    }
}

/// The times of a cell to a verdict, of some of the tasks.
pub(super) struct OfTasks<'a> {
    pub(super) told: &'a Told,
    pub(super) cell: usize,
    /// The tasks, by their numbers.
    pub(super) some: &'a [bool],
}

impl OfTasks<'_> {
    fn has(&self, task: usize) -> bool {
        self.some.get(task).copied().unwrap_or(false)
    }

    /// The times, least first.
    pub(super) fn timed(&self) -> impl Iterator<Item = Timed> {
        self.told.verdicts(self.cell).filter(|timed| self.has(timed.task))
    }
}

impl ByTask for OfTasks<'_> {
    type Task = usize;

    fn by_task(&self) -> impl Iterator<Item = (usize, Vec<Time>)> {
        self.told.verdicts_by_task(self.cell).filter(|(task, _)| self.has(*task))
    }

    fn ascending(&self) -> impl Iterator<Item = (usize, Time)> {
        self.timed().map(|timed| (timed.task, timed.time))
    }
}
