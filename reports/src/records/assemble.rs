//! Puts commands and cases together while a journal is read.
//!
//! A command is in the journal before the attempt that it belongs to: receipts are held until their attempt is told, so that
//! memory is bounded by what the attempts that were open at one time did.

use std::collections::{BTreeSet, HashMap};

use sandbox_bench_core::evidence::{Attempt, Event, Manifest, SCHEMA_VERSION};
use sandbox_bench_core::{Decision, Phase, Tag};

use super::{CaseReport, CommandReceipt};

/// The label of the command that decides a case.
const VERIFIER: &str = "verifier";

/// Receipts and case reports in the making: hand over the events of a journal in their order.
#[derive(Debug)]
pub struct Records {
    manifest: Manifest,
    open: HashMap<Tag, Open>,
}

/// What is known of something that is under way.
#[derive(Debug, Default)]
struct Open {
    backend: Option<String>,
    sandbox: Option<String>,
    receipts: Vec<CommandReceipt>,
}

impl Records {
    /// Of the run of this manifest.
    #[must_use]
    pub fn new(manifest: Manifest) -> Self {
        Self { manifest, open: HashMap::new() }
    }

    /// Takes in one event. At the end of an attempt: its report, and the receipts of its commands in their order.
    pub fn record(&mut self, event: &Event) -> Option<(CaseReport, Vec<CommandReceipt>)> {
        match event {
            Event::Intent { tag, backend, .. } => self.open(tag).backend = Some(backend.clone()),
            Event::Created { sandbox } => self.open(&sandbox.tag).sandbox = Some(sandbox.id.clone()),
            Event::Receipt { tag, receipt } => {
                let receipt = CommandReceipt::of(SCHEMA_VERSION, &self.manifest.run, tag, receipt.clone());
                self.open(tag).receipts.extend(receipt);
            }
            Event::AttemptFinished { attempt } => return Some(self.finish(attempt)),
            _ => {}
        }
        None
    }

    /// The receipts of commands that belong to no finished case, by tag.
    #[must_use]
    pub fn rest(self) -> Vec<CommandReceipt> {
        let mut open: Vec<(Tag, Open)> = self.open.into_iter().collect();
        open.sort_by(|(a, _), (b, _)| a.cmp(b));
        open.into_iter().flat_map(|(_, open)| open.receipts_in_sandbox()).collect()
    }

    fn open(&mut self, tag: &Tag) -> &mut Open {
        self.open.entry(tag.clone()).or_default()
    }

    fn finish(&mut self, attempt: &Attempt) -> (CaseReport, Vec<CommandReceipt>) {
        let case = CaseReport::of(&self.manifest, attempt);
        let mut receipts = self.open.remove(&attempt.tag).unwrap_or_default().receipts;
        for receipt in &mut receipts {
            receipt.case = Some(case.case.clone());
            receipt.backend = Some(case.backend.clone());
            receipt.task = Some(case.task.clone());
            receipt.sandbox = case.sandbox.as_ref().map(|sandbox| sandbox.id.clone());
            receipt.matches = matches(attempt, receipt);
        }
        (case, receipts)
    }
}

impl Open {
    fn receipts_in_sandbox(self) -> impl Iterator<Item = CommandReceipt> {
        let Self { backend, sandbox, receipts } = self;
        receipts.into_iter().map(move |receipt| CommandReceipt {
            backend: backend.clone(),
            sandbox: sandbox.clone(),
            ..receipt
        })
    }
}

/// Whether a command did what was expected of it, where anything was.
fn matches(attempt: &Attempt, receipt: &CommandReceipt) -> Option<bool> {
    if receipt.phase == Phase::Verify && receipt.tool == VERIFIER {
        return match attempt.verdict.as_ref()?.decision {
            Decision::Accepted => Some(true),
            Decision::Rejected => Some(false),
            Decision::Undecided => None,
        };
    }
    let step_of_recording = receipt.phase == Phase::Solve && receipt.tool.starts_with("step ");
    let replay = attempt.replay.as_ref().filter(|_| step_of_recording)?;
    let differing: BTreeSet<u32> = replay.divergences.iter().map(|one| one.receipt).collect();
    if differing.contains(&receipt.step) {
        return Some(false);
    }
    // The first differences are listed, all steps that differ are counted.
    (differing.len() == replay.diverged as usize).then_some(true)
}
