//! From evidence to numbers. Reads run directories only: it knows neither backends nor the runner.
//!
//! * [`evidence`] reads a run directory back, whatever happened to the run.
//! * [`cleanup`] accounts for everything that the run created.
//! * [`cost`] prices the sandboxes, from a dated rate card where the backend does not say.
//! * [`csb`] writes a run as result files of code-sandbox-bench, and its figures by that harness's methods.
//! * [`summary`] condenses the attempts into counts and percentiles.
//! * [`records`] puts receipts and case reports together, each readable on its own.
//! * [`derived`] rebuilds every file of a run directory that follows from its journal.
//! * [`compare`] puts two runs or cells side by side.
//! * [`render`] shows a summary to a person.
//! * [`report`] writes the HTML page and the Markdown pages of one or more runs.
//! * [`triage`] looks for the causes of failures, and keeps what reference solutions came to.
//! * [`stats`] holds the statistics, each by a named method.
//! * [`schema`] holds the JSON Schemas of all evidence files.

pub mod cleanup;
pub mod compare;
pub mod cost;
pub mod csb;
pub mod derived;
pub mod evidence;
pub mod files;
mod html;
mod markdown;
pub mod percentile;
pub mod records;
pub mod render;
pub mod report;
pub mod schema;
mod spill;
pub mod stats;
pub mod summary;
pub mod triage;

#[cfg(test)]
mod samples;
