//! What a person sees while a run goes on: a bar for each backend on a terminal, a line for each finished trial elsewhere.
//! Everything goes to stderr; stdout belongs to the result.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console::Style;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sandbox_bench_core::evidence::{Attempt, Failure, TrialKey};
use sandbox_bench_core::{FailureClass, Phase};

use crate::say;
use crate::trial::Watch;
use crate::warm::Ready;

/// Shows progress. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    shared: Arc<Shared>,
}

struct Shared {
    bars: MultiProgress,
    lines: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    total: usize,
    done: usize,
    backends: BTreeMap<String, Lane>,
}

struct Lane {
    bar: ProgressBar,
    passed: usize,
    failed: usize,
    unavailable: usize,
    running: BTreeMap<TrialKey, Phase>,
}

impl Progress {
    /// Progress for these numbers of trials by backend. `quiet` shows nothing but failures.
    #[must_use]
    pub fn new(trials: &BTreeMap<String, usize>, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal && !quiet { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let width = trials.keys().map(String::len).max().unwrap_or(0);
        let template = format!("{{prefix:{width}}} {{bar:20}} {{pos:>4}}/{{len}}  {{msg}}  {{elapsed_precise:.dim}}");
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let mut state = State { total: trials.values().sum(), ..State::default() };
        for (name, count) in trials {
            let bar = bars.add(ProgressBar::new(*count as u64)).with_style(style.clone()).with_prefix(name.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            let lane = Lane { bar, passed: 0, failed: 0, unavailable: 0, running: BTreeMap::new() };
            lane.show();
            state.backends.insert(name.clone(), lane);
        }
        Self { shared: Arc::new(Shared { bars, lines: !terminal && !quiet, state: Mutex::new(state) }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A trial was started.
    pub fn started(&self, key: &TrialKey) {
        if let Some(lane) = self.state().backends.get_mut(&key.backend) {
            lane.running.insert(key.clone(), Phase::Environment);
            lane.show();
        }
    }

    /// A trial's attempt is over; if a further one follows, then perhaps in another way to the environment.
    pub fn finished(&self, attempt: &Attempt, other_way: bool) {
        let mut state = self.state();
        if attempt.last {
            state.done += 1;
        }
        let (done, total) = (state.done, state.total);
        if let Some(lane) = state.backends.get_mut(&attempt.trial.backend) {
            lane.running.remove(&attempt.trial);
            if attempt.last {
                match attempt.failure.as_ref().map(|failure| failure.class) {
                    None => lane.passed += 1,
                    Some(FailureClass::Unavailable) => lane.unavailable += 1,
                    Some(_) => lane.failed += 1,
                }
                lane.bar.inc(1);
            }
            lane.show();
        }
        drop(state);
        let TrialKey { backend, condition, task, model, variant, .. } = &attempt.trial;
        let width = total.to_string().len();
        let model = model.as_ref().map(|model| format!(" {}", printable(model))).unwrap_or_default();
        let variant = if variant.is_plain() { String::new() } else { format!(" {}", printable(&variant.to_string())) };
        let place = format!("[{done:>width$}/{total}] {backend} {condition}{model}{variant} {}", printable(task));
        match &attempt.failure {
            None if self.shared.lines => self.say(&format!("{place}: accepted in {}", seconds(attempt.total_us))),
            None => {}
            Some(failure) => {
                let again = match (attempt.last, other_way) {
                    (true, _) => "",
                    (false, true) => " (goes on with another way to the environment)",
                    (false, false) => " (will be repeated)",
                };
                let class = Style::new().for_stderr().red().apply_to(failure.class);
                self.say(&format!("{place}: {class}: {}{again}", gist(&failure.message)));
            }
        }
    }

    /// A warm artifact is being made.
    pub fn prewarming(&self, backend: &str, task: &str) {
        if let Some(lane) = self.state().backends.get_mut(backend) {
            lane.bar.set_message(format!("prewarming the environment of {task}"));
        }
    }

    /// A warm artifact was made, found, or could not be had.
    pub fn prewarmed(&self, backend: &str, task: &str, result: Result<&Ready, &Failure>) {
        let told = match result {
            Ok(Ready { built_us: Some(us), .. }) => {
                format!("{backend} prewarmed the environment of {task} in {}", seconds(*us))
            }
            Ok(Ready { built_us: None, .. }) => format!("{backend} has a warm artifact for the environment of {task}"),
            Err(failure) => {
                return self
                    .say(&format!("{backend} cannot prewarm the environment of {task}: {}", gist(&failure.message)));
            }
        };
        if self.shared.lines {
            self.say(&told);
        }
    }

    /// Prints a line without disturbing the bars.
    pub fn say(&self, line: &str) {
        self.shared.bars.suspend(|| say::aside(line));
    }

    /// Takes the bars away.
    pub fn end(&self) {
        for lane in self.state().backends.values() {
            lane.bar.finish_and_clear();
        }
    }
}

impl Watch for Progress {
    fn phase(&self, trial: &TrialKey, phase: Phase) {
        if let Some(lane) = self.state().backends.get_mut(&trial.backend)
            && let Some(current) = lane.running.get_mut(trial)
        {
            *current = phase;
            lane.show();
        }
    }
}

impl Lane {
    fn show(&self) {
        let mut phases: BTreeMap<Phase, usize> = BTreeMap::new();
        for phase in self.running.values() {
            *phases.entry(*phase).or_default() += 1;
        }
        let phases: Vec<String> = phases.iter().map(|(phase, count)| format!("{phase} {count}")).collect();
        let mut message = format!("{} passed  {} failed", self.passed, self.failed);
        if self.unavailable > 0 {
            message += &format!("  {} unavailable", self.unavailable);
        }
        message += &format!("  {} running", self.running.len());
        if !phases.is_empty() {
            message += &format!(": {}", phases.join(", "));
        }
        self.bar.set_message(message);
    }
}

/// Text from a data set that cannot drive a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn seconds(us: u64) -> String {
    let us = Duration::from_micros(us);
    if us < Duration::from_secs(1) { format!("{} ms", us.as_millis()) } else { format!("{:.2} s", us.as_secs_f64()) }
}

/// A message on one line and without control characters, which a sandbox may have put there: its beginning and, where
/// it is long, its end, which mostly says why. All of it is in the evidence.
fn gist(message: &str) -> String {
    let message = console::strip_ansi_codes(message);
    let plain = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned();
    let lines: Vec<String> = message.lines().map(plain).filter(|line| !line.is_empty()).collect();
    match lines.as_slice() {
        [first, _, .., before, last] => format!("{first} … {before}; {last}"),
        few => few.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::gist;

    #[test]
    fn a_long_message_is_told_by_its_beginning_and_end() {
        assert_eq!(gist("one\n\n two\nthree\n"), "one; two; three");
        assert_eq!(
            gist("build failed\nGet:1\nGet:2\nE: no such package\nexit code 100"),
            "build failed … E: no such package; exit code 100"
        );
    }

    #[test]
    fn a_sandbox_does_not_speak_to_the_terminal() {
        assert_eq!(gist("\u{1b}[91mE:\u{1b}[0m bad\r\u{7}\u{1b}]0;title\u{7}"), "E: bad");
    }
}
