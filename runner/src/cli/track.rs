//! `sandbox-bench track`.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::Args;
use sandbox_bench_reports::cost::RateCard;
use sandbox_bench_reports::derived::SUMMARY;

use crate::config::Config;
use crate::exit::{Exit, Fault};
use crate::journal::Journal;
use crate::track::Tracking;
use crate::{fixture, run, say};

/// The option of other commands.
#[derive(Debug, Args)]
pub struct TrackOption {
    /// Publish the evidence to a tracker as well: polyaxon. It changes nothing of the result; what could not be sent is sent
    /// by `sandbox-bench track RUN`.
    #[arg(long, value_name = "TRACKER")]
    track: Option<String>,
}

impl TrackOption {
    /// The tracker, if one is named.
    ///
    /// # Errors
    /// It is unknown, or its configuration makes no sense.
    pub fn tracking(&self, config: &Config) -> Result<Option<Tracking>, Fault> {
        self.track.as_ref().map(|name| Tracking::new(name, config)).transpose()
    }

    /// True if a tracker is named.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.track.is_some()
    }
}

#[derive(Debug, Args)]
pub struct TrackArgs {
    /// Run directories.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The tracker.
    #[arg(long, default_value = "polyaxon", value_name = "TRACKER")]
    tracker: String,
    /// Configuration [default: bench.toml, if it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Runs the command: publishes each run, as far as it is not published yet.
///
/// # Errors
/// A run is still going on, its evidence cannot be read, or the tracker does not answer.
pub async fn run(args: TrackArgs) -> Result<Exit, Fault> {
    let config = Config::read(args.config.as_deref()).map_err(Fault::usage)?;
    let tracking = Tracking::new(&args.tracker, &config)?;
    let mut exit = Exit::Accepted;
    for directory in &args.runs {
        let shown = directory.display();
        if Journal::in_use(directory).with_context(|| format!("run {shown}")).map_err(Fault::evidence)? {
            return Err(Fault::usage(anyhow!(
                "run {shown} is still going on; what it is published as follows from its end"
            )));
        }
        // A run that was killed has not derived anything yet.
        if !directory.join(SUMMARY).is_file() {
            match fixture::is_fixture(directory) {
                true => drop(fixture::derive_files(directory)?),
                false => drop(run::derive(directory, &RateCard::named(None).map_err(Fault::infrastructure)?)?),
            }
        }
        let published = tracking.publish(directory).await;
        let published = published.with_context(|| format!("run {shown}")).map_err(Fault::infrastructure)?;
        say::result(&published)?;
        for (what, why) in &published.missing {
            say::aside(format_args!("missing: {what}: {why}"));
        }
        if !published.complete() {
            say::aside(format_args!("next:     sandbox-bench track {shown} sends what is missing"));
            exit = Exit::Infrastructure;
        }
    }
    Ok(exit)
}
