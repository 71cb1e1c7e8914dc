//! A test target's command line: what `cargo test` and `cargo nextest` expect of a target with a `main` of its own.
//!
//! `--list --format terse` lists, `--exact NAME` and plain words select, `--test-threads N` bounds the concurrency
//! (nextest: "Custom test harnesses"). Other flags of libtest are accepted and ignored. Skips are shown with their
//! reason, which libtest cannot do.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::run::Outcome;

type Run = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send>;

/// One test.
pub struct Case {
    name: String,
    promise: String,
    run: Run,
}

impl Case {
    /// A test of this name that shows what `promise` says.
    pub fn new<F>(name: &str, promise: &str, run: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self { name: name.to_owned(), promise: promise.to_owned(), run: Box::new(move || Box::pin(run())) }
    }
}

/// What the arguments ask for.
#[derive(Debug, Default)]
struct Arguments {
    list: bool,
    ignored: bool,
    exact: bool,
    threads: Option<usize>,
    words: Vec<String>,
    skip: Vec<String>,
}

impl Arguments {
    fn parse(mut from: impl Iterator<Item = String>) -> Self {
        let mut arguments = Self::default();
        while let Some(argument) = from.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
                _ => (argument, None),
            };
            match name.as_str() {
                "--list" => arguments.list = true,
                "--ignored" => arguments.ignored = true,
                "--exact" => arguments.exact = true,
                "--test-threads" => arguments.threads = value.or_else(|| from.next()).and_then(|n| n.parse().ok()),
                "--skip" => arguments.skip.extend(value.or_else(|| from.next())),
                "--format" | "--color" | "--logfile" | "-Z" if value.is_none() => drop(from.next()),
                flag if flag.starts_with('-') => {}
                _ => arguments.words.push(name),
            }
        }
        arguments
    }

    fn selects(&self, name: &str) -> bool {
        let hit = |word: &String| if self.exact { name == word } else { name.contains(word.as_str()) };
        !self.ignored && (self.words.is_empty() || self.words.iter().any(hit)) && !self.skip.iter().any(hit)
    }
}

/// Runs the cases that the process's arguments select, prints a line for each, and returns the exit code.
#[must_use]
pub fn run_cases(cases: Vec<Case>) -> ExitCode {
    let arguments = Arguments::parse(std::env::args().skip(1));
    let selected: Vec<Case> = cases.into_iter().filter(|case| arguments.selects(&case.name)).collect();
    if arguments.list {
        selected.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run_selected(selected, arguments.threads.unwrap_or(4).max(1))),
        Err(error) => {
            eprintln!("cannot start the async runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_selected(cases: Vec<Case>, threads: usize) -> ExitCode {
    let start = Instant::now();
    let width = cases.iter().map(|case| case.name.len()).max().unwrap_or(0);
    let slots = Arc::new(Semaphore::new(threads));
    let mut running = JoinSet::new();
    for Case { name, promise, run } in cases {
        let slots = slots.clone();
        running.spawn(async move {
            let slot = slots.acquire_owned().await;
            let start = Instant::now();
            let outcome = run().await;
            drop(slot);
            (name, promise, outcome, start.elapsed())
        });
    }
    let (mut ok, mut skipped, mut failed) = (0, 0, 0);
    while let Some(finished) = running.join_next().await {
        let Ok((name, promise, outcome, took)) = finished else {
            failed += 1;
            continue;
        };
        match &outcome {
            Outcome::Ok => ok += 1,
            Outcome::Skipped(_) => skipped += 1,
            Outcome::Failed(_) => failed += 1,
        }
        println!("{}", line(&name, width, &promise, &outcome, took));
    }
    println!("\n{ok} ok, {skipped} skipped, {failed} failed in {:.1} s", start.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(name: &str, width: usize, promise: &str, outcome: &Outcome, took: Duration) -> String {
    let took = took.as_secs_f64();
    match outcome {
        Outcome::Ok => format!("ok       {name:width$} {took:6.2} s  {promise}"),
        Outcome::Skipped(reason) => format!("skipped  {name:width$}           ({reason})"),
        Outcome::Failed(why) => {
            format!("FAILED   {name:width$} {took:6.2} s  {promise}\n         {}", why.replace('\n', "\n         "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(arguments: &str) -> Vec<&'static str> {
        let arguments = Arguments::parse(arguments.split_whitespace().map(str::to_owned));
        ["exec::a", "exec::ab", "files::a"].into_iter().filter(|name| arguments.selects(name)).collect()
    }

    #[test]
    fn arguments_select_as_libtest_does() {
        assert_eq!(selected(""), ["exec::a", "exec::ab", "files::a"]);
        assert_eq!(selected("exec --nocapture --format terse"), ["exec::a", "exec::ab"]);
        assert_eq!(selected("--exact exec::a --nocapture"), ["exec::a"]);
        assert_eq!(selected("--skip=files --test-threads=2"), ["exec::a", "exec::ab"]);
        assert!(selected("--list --format terse --ignored").is_empty());
    }

    #[test]
    fn failures_are_shown_with_their_reason_below_the_promise() {
        let shown = line("a", 3, "it holds", &Outcome::Failed("one\ntwo".into()), Duration::from_millis(1500));
        assert_eq!(shown, "FAILED   a     1.50 s  it holds\n         one\n         two");
    }
}
