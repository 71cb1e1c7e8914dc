//! What a summary keeps of each attempt until all are known: a few numbers, sorted, and beyond some megabytes on disk.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use sandbox_bench_core::Phase;
use sandbox_bench_core::evidence::CleanupState;

use super::builder::End;
use super::times::CellTimes;
use super::{AllTimes, Median};
use crate::percentile::Durations;
use crate::spill::{Series, Sorted, Spool};
use crate::stats::{Time, Timed, resampled_median};

/// The times that a cell has of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    /// The phase by its index, of attempts that completed it.
    Completed(usize),
    /// … and of those that did not.
    Broken(usize),
    /// Total times by the end of the attempt; of accepted ones with the trial.
    Accepted,
    Rejected,
    Failed,
    All,
    /// Times to a verdict, with the task …
    Verdict,
    /// … and the same in the order of the tasks.
    VerdictByTask,
}

impl Times {
    /// The series of these times of a cell.
    fn series(self, cell: usize) -> u64 {
        let phases = Phase::ALL.len() as u64;
        let kind = match self {
            Self::Completed(phase) => phase as u64,
            Self::Broken(phase) => phases + phase as u64,
            Self::Accepted => 2 * phases,
            Self::Rejected => 2 * phases + 1,
            Self::Failed => 2 * phases + 2,
            Self::All => 2 * phases + 3,
            Self::Verdict => 2 * phases + 4,
            Self::VerdictByTask => 2 * phases + 5,
        };
        (cell as u64) << 8 | kind
    }
}

/// Series of [`Kept::ends`]: attempts by trial, and cells and objects by tag.
const TRIALS: u64 = 0;
const TAGS: u64 = 1;

/// Takes in what is kept.
#[derive(Debug)]
pub(super) struct Kept {
    times: Spool<3>,
    ends: Spool<4>,
    attempts: u64,
    /// Numbers of tasks, by their hash.
    tasks: HashMap<u64, u32>,
    /// Accepted attempts by cell and the number of the task.
    accepted: HashMap<(usize, u32), u32>,
    /// Sum of all total times of a cell.
    sums: HashMap<usize, u64>,
}

impl Kept {
    /// What does not fit into memory goes to a file in the directory `scratch`.
    pub(super) fn new(scratch: &Path) -> Self {
        Self {
            times: Spool::new(scratch),
            ends: Spool::new(scratch),
            attempts: 0,
            tasks: HashMap::new(),
            accepted: HashMap::new(),
            sums: HashMap::new(),
        }
    }

    /// A time of a cell, in microseconds.
    pub(super) fn time(&mut self, cell: usize, which: Times, us: u64) {
        self.times.push([which.series(cell), us, 0]);
    }

    /// The total time of an attempt at a task (by its hash).
    pub(super) fn total(&mut self, cell: usize, which: Times, us: u64, task: u64) {
        let of = if which == Times::Accepted { self.accepted(cell, task) } else { 0 };
        self.times.push([which.series(cell), us, of]);
        self.times.push([Times::All.series(cell), us, 0]);
        let sum = self.sums.entry(cell).or_default();
        *sum = sum.saturating_add(us);
    }

    /// A time to a verdict.
    pub(super) fn verdict(&mut self, cell: usize, time: Time, task: u64) {
        self.times.push([Times::Verdict.series(cell), time.code(), task]);
        self.times.push([Times::VerdictByTask.series(cell), task, time.code()]);
    }

    /// The number of a task and that of its next accepted trial, in one.
    fn accepted(&mut self, cell: usize, task: u64) -> u64 {
        let number = self.number(task);
        let trials = self.accepted.entry((cell, number)).or_default();
        *trials += 1;
        u64::from(number) << 32 | u64::from(*trials - 1)
    }

    fn number(&mut self, task: u64) -> u32 {
        let next = self.tasks.len() as u32;
        *self.tasks.entry(task).or_insert(next)
    }

    /// How an attempt at a trial of a task (both by their hashes) ended, and if the verifier had its word.
    pub(super) fn end(&mut self, trial: u64, task: u64, cell: usize, end: End, judged: bool) {
        let task = u64::from(self.number(task));
        let packed = (cell as u64) << 40 | task << 8 | end.code() << 1 | u64::from(judged);
        self.ends.push([TRIALS, trial, self.attempts, packed]);
        self.attempts += 1;
    }

    /// The cell of a tag (by its hash).
    pub(super) fn tag(&mut self, tag: u64, cell: usize) {
        self.ends.push([TAGS, tag, 0, cell as u64]);
    }

    /// The state of an object with this tag.
    pub(super) fn object(&mut self, tag: u64, state: CleanupState) {
        self.ends.push([TAGS, tag, 1, state as u64]);
    }

    /// All of it in order.
    ///
    /// # Errors
    /// What writing to the disk failed with.
    pub(super) fn sorted(self) -> io::Result<Told> {
        let mut hashes: Vec<(u64, u32)> = self.tasks.into_iter().collect();
        hashes.sort_unstable();
        let mut order = vec![0; hashes.len()];
        for (place, (_, number)) in hashes.iter().enumerate() {
            if let Some(slot) = order.get_mut(*number as usize) {
                *slot = place;
            }
        }
        Ok(Told {
            times: self.times.sorted()?,
            ends: self.ends.sorted()?,
            order,
            accepted: self.accepted,
            sums: self.sums,
        })
    }
}

/// What was kept, in order.
#[derive(Debug)]
pub(super) struct Told {
    times: Sorted<3>,
    ends: Sorted<4>,
    /// Place of each task, by its number, in the order of their hashes.
    order: Vec<usize>,
    accepted: HashMap<(usize, u32), u32>,
    sums: HashMap<usize, u64>,
}

/// The state of a trial after its last recorded attempt.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) cell: usize,
    pub(super) attempts: u64,
    pub(super) end: End,
    /// Number of the task.
    pub(super) task: u64,
    /// True if the verifier had its word.
    pub(super) judged: bool,
}

impl Told {
    /// Every trial.
    pub(super) fn trials(&self) -> impl Iterator<Item = Trial> {
        let mut ends = self.ends.series(TRIALS).iter().peekable();
        std::iter::from_fn(move || {
            let [_, trial, _, mut last] = ends.next()?;
            let mut attempts = 1;
            while let Some([.., packed]) = ends.next_if(|[_, same, ..]| *same == trial) {
                (attempts, last) = (attempts + 1, packed);
            }
            let (cell, task) = ((last >> 40) as usize, last >> 8 & u64::from(u32::MAX));
            Some(Trial { cell, attempts, end: End::of_code(last >> 1 & 0x7f), task, judged: last & 1 == 1 })
        })
    }

    /// The cell of every object whose tag is that of an attempt, and the object's state.
    pub(super) fn objects(&self) -> impl Iterator<Item = (usize, CleanupState)> {
        let mut cell = None;
        self.ends.series(TAGS).iter().filter_map(move |[_, tag, object, what]| match object {
            0 => {
                cell = Some((tag, what as usize));
                None
            }
            _ => cell.filter(|(same, _)| *same == tag).and_then(|(_, cell)| Some((cell, state(what)?))),
        })
    }

    fn of(&self, cell: usize, which: Times) -> Series<'_, 3> {
        self.times.series(which.series(cell))
    }

    /// The figures of some times of a cell.
    pub(super) fn durations(&self, cell: usize, which: Times) -> Option<Durations> {
        let times = self.of(cell, which);
        Durations::of_sorted(times.len(), |index| times.at(index).map(|[_, us, _]| us))
    }

    /// The figures of all its total times.
    pub(super) fn all(&self, cell: usize) -> Option<AllTimes> {
        let (times, sum) = (self.of(cell, Times::All), self.sums.get(&cell).copied().unwrap_or(0));
        AllTimes::of_sorted(times.len(), sum, |index| times.at(index).map(|[_, us, _]| us))
    }

    /// The median total time of its accepted attempts with its interval; none if they are too few.
    pub(super) fn median(&self, cell: usize) -> Option<Median> {
        let times = self.of(cell, Times::Accepted);
        let mut tasks: Vec<(usize, usize)> = self
            .accepted
            .iter()
            .filter(|((of, _), _)| *of == cell)
            .filter_map(|((_, task), n)| Some((*self.order.get(*task as usize)?, *n as usize)))
            .collect();
        tasks.sort_unstable();
        let mut places = vec![0; self.order.len()];
        for (task, (place, _)) in tasks.iter().enumerate() {
            if let Some(slot) = places.get_mut(*place) {
                *slot = task;
            }
        }
        let place = |number: u64| self.order.get(number as usize).and_then(|place| places.get(*place)).copied();
        let ascending = || {
            times.iter().map(|[_, us, of]| Timed {
                time: Time::seen(us as f64),
                task: place(of >> 32).unwrap_or(0),
                trial: (of & u64::from(u32::MAX)) as usize,
            })
        };
        let sizes: Vec<usize> = tasks.into_iter().map(|(_, n)| n).collect();
        resampled_median(&sizes, ascending, false).map(Median::of)
    }

    /// Its times to a verdict.
    pub(super) fn verdicts(&self, cell: usize) -> CellTimes<'_> {
        CellTimes { ascending: self.of(cell, Times::Verdict), by_task: self.of(cell, Times::VerdictByTask) }
    }

    /// To be asked when all has been read.
    ///
    /// # Errors
    /// What reading failed with.
    pub(super) fn check(&self) -> io::Result<()> {
        self.times.check()?;
        self.ends.check()
    }
}

/// The state that has this number.
fn state(number: u64) -> Option<CleanupState> {
    use CleanupState::{Confirmed, Never, Retained, Unconfirmed};
    [Never, Confirmed, Retained, Unconfirmed].into_iter().find(|state| *state as u64 == number)
}
