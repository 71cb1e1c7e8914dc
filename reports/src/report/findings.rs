//! Tasks that tell something about themselves or about a backend.

use super::{Report, TaskView, Tasks};

/// Tasks to look at, by their index.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Accepted nowhere, though they ran: the task, the solver, or all environments.
    pub(crate) never: Vec<usize>,
    /// Accepted in some cells and never in others that ran them: the environments differ.
    pub(crate) split: Vec<usize>,
    /// Accepted and rejected in one and the same cell.
    pub(crate) flaky: Vec<usize>,
}

impl Report {
    /// What the verdicts of each task say together.
    pub(crate) fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        for (index, task) in self.tasks.iter().enumerate() {
            let ran = ran(task);
            let accepted = ran.iter().filter(|counts| counts.accepted > 0).count();
            if ran.is_empty() {
                continue;
            }
            if accepted == 0 {
                findings.never.push(index);
            } else if accepted < ran.len() {
                findings.split.push(index);
            }
            if ran.iter().any(|counts| counts.accepted > 0 && counts.rejected > 0) {
                findings.flaky.push(index);
            }
        }
        findings
    }
}

fn ran(task: &TaskView) -> Vec<Tasks> {
    task.cells.iter().map(super::TaskCell::counts).filter(|counts| counts.runnable() > 0).collect()
}

impl Findings {
    /// Each kind with what it means.
    pub(crate) fn all(&self) -> [(&'static str, &[usize]); 3] {
        [
            ("accepted nowhere: the task, the solver, or every environment", &self.never),
            ("accepted in some cells only: their environments, or solvers, may differ", &self.split),
            ("accepted and rejected in the same cell: flaky", &self.flaky),
        ]
    }
}
