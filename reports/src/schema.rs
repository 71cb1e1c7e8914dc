//! The JSON Schemas of all evidence files, generated from the types that write and read them.

use sandbox_bench_core::evidence::{Attempt, JournalLine, Manifest};
use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use crate::cleanup::CleanupReport;
use crate::compare::Comparison;
use crate::derived::TrialRow;
use crate::records::{CaseReport, CommandReceipt};
use crate::summary::Summary;
use crate::triage::{Baseline, Triage};

/// Every schema with the name of the evidence it describes, such as `manifest`. Draft 2020-12.
#[must_use]
pub fn all() -> Vec<(&'static str, Schema)> {
    vec![
        ("manifest", of::<Manifest>()),
        ("journal-line", of::<JournalLine>()),
        ("attempt", of::<Attempt>()),
        ("trial", of::<TrialRow>()),
        ("comparison", of::<Comparison>()),
        ("command-receipt", of::<CommandReceipt>()),
        ("case-report", of::<CaseReport>()),
        ("cleanup", of::<CleanupReport>()),
        ("summary", of::<Summary>()),
        ("triage", of::<Triage>()),
        ("baseline", of::<Baseline>()),
    ]
}

/// The schema of a type, as written, not as read: what a writer of ours may leave out is optional, everything else is there.
#[must_use]
pub fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}
