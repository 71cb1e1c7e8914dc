//! Figures about solvers that are models, and about replays.

use std::collections::BTreeMap;

use sandbox_bench_core::evidence::Attempt;
use sandbox_bench_core::{Spend, TokenCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a model did in the attempts of a cell, failed ones included: each cost money.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFigures {
    /// Attempts in which the model was asked.
    pub attempts: u64,
    /// How they ended, by name.
    pub ends: BTreeMap<String, u64>,
    /// Answers of the model.
    pub turns: u64,
    /// Requests to the gateway, repeated ones included.
    pub requests: u64,
    /// Tokens of the attempts that have counts.
    pub tokens: TokenCounts,
    /// Attempts without token counts.
    pub uncounted: u64,
    /// US dollars, of the attempts whose cost is known. The sandbox's own cost is no part of it.
    pub usd: f64,
    /// Attempts whose cost the gateway said.
    pub measured: u64,
    /// Attempts whose cost comes from a price table.
    pub estimated: u64,
    /// Attempts of unknown cost, which are not in `usd`.
    pub unpriced: u64,
    /// US dollars of all attempts for each accepted trial; none if a cost is unknown or nothing was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_accepted: Option<f64>,
    /// Time that the models took, in microseconds.
    pub model_us: u64,
    /// Time spent waiting before requests were repeated, in microseconds.
    pub waiting_us: u64,
    /// Time spent on tools, in microseconds.
    pub tool_us: u64,
}

/// The chance that at least one of k trials at a task is accepted, averaged over tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassAt {
    /// k.
    pub k: u64,
    /// Tasks with at least k trials that came to a verdict; the others tell nothing.
    pub tasks: u64,
    /// The unbiased estimate: for a task with c accepted of n trials, 1 − C(n−c, k) / C(n, k).
    pub estimate: f64,
}

/// How replays of a recording went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayFigures {
    /// Attempts that repeated a recording.
    pub attempts: u64,
    /// Steps that were repeated.
    pub steps: u64,
    /// Steps that came out differently.
    pub diverged: u64,
}

/// Adds an attempt to the figures of its cell.
pub(super) fn add(figures: &mut Option<AgentFigures>, replays: &mut Option<ReplayFigures>, attempt: &Attempt) {
    if let Some(replay) = &attempt.replay {
        let figures = replays.get_or_insert_default();
        figures.attempts += 1;
        figures.steps += u64::from(replay.ran);
        figures.diverged += u64::from(replay.diverged);
    }
    let Some(agent) = &attempt.agent else { return };
    let figures = figures.get_or_insert_default();
    figures.attempts += 1;
    *figures.ends.entry(agent.end.name().to_owned()).or_default() += 1;
    figures.turns += u64::from(agent.turns);
    figures.requests += u64::from(agent.requests);
    match &agent.tokens {
        Some(tokens) => figures.tokens = figures.tokens.plus(tokens),
        None => figures.uncounted += 1,
    }
    figures.usd += agent.spend.usd().unwrap_or(0.0);
    match agent.spend {
        Spend::Measured { .. } => figures.measured += 1,
        Spend::Estimated { .. } => figures.estimated += 1,
        Spend::Unknown { .. } => figures.unpriced += 1,
    }
    figures.model_us = figures.model_us.saturating_add(agent.model_us);
    figures.waiting_us = figures.waiting_us.saturating_add(agent.waiting_us);
    figures.tool_us = figures.tool_us.saturating_add(agent.tool_us);
}

/// The figures, given the number of accepted trials.
pub(super) fn finish(figures: Option<AgentFigures>, accepted: u64) -> Option<AgentFigures> {
    figures.map(|figures| {
        let known = figures.unpriced == 0 && accepted > 0;
        let usd_per_accepted = known.then(|| figures.usd / accepted as f64);
        AgentFigures { usd_per_accepted, ..figures }
    })
}

/// pass@k for k = 1, 2, 4, … and the most trials that a task has. `tasks`: for each, trials with a verdict, and accepted
/// ones.
pub(super) fn pass_at(tasks: &[(u64, u64)]) -> Vec<PassAt> {
    let most = tasks.iter().map(|(n, _)| *n).max().unwrap_or(0);
    let mut sizes: Vec<u64> = std::iter::successors(Some(1), |k| Some(k * 2)).take_while(|k| *k < most).collect();
    sizes.extend((most > 0).then_some(most));
    sizes
        .into_iter()
        .map(|k| {
            let of_task: Vec<f64> =
                tasks.iter().filter(|(n, _)| *n >= k).map(|(n, c)| pass_of_task(*n, *c, k)).collect();
            let estimate = of_task.iter().sum::<f64>() / of_task.len() as f64;
            PassAt { k, tasks: of_task.len() as u64, estimate }
        })
        .collect()
}

/// 1 − C(n−c, k) / C(n, k), as a product that does not overflow.
fn pass_of_task(n: u64, c: u64, k: u64) -> f64 {
    if n - c < k {
        return 1.0;
    }
    1.0 - (n - c + 1..=n).map(|i| 1.0 - k as f64 / i as f64).product::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By counting: of all choices of k of n trials, those with an accepted one among them.
    fn counted(n: u64, c: u64, k: u64) -> f64 {
        let chosen: Vec<u64> = (0..1_u64 << n).filter(|choice| u64::from(choice.count_ones()) == k).collect();
        let passes = chosen.iter().filter(|choice| **choice & ((1 << c) - 1) != 0).count();
        passes as f64 / chosen.len() as f64
    }

    #[test]
    fn the_estimate_is_what_counting_gives() {
        for n in 1..=7 {
            for c in 0..=n {
                for k in 1..=n {
                    let (estimate, counted) = (pass_of_task(n, c, k), counted(n, c, k));
                    assert!((estimate - counted).abs() < 1e-12, "n {n}, c {c}, k {k}: {estimate}, {counted}");
                }
            }
        }
    }

    #[test]
    fn a_task_with_too_few_trials_tells_nothing_of_a_greater_k() {
        let found = pass_at(&[(4, 1), (1, 1), (0, 0)]);
        assert_eq!(found.iter().map(|p| (p.k, p.tasks)).collect::<Vec<_>>(), [(1, 2), (2, 1), (4, 1)]);
        assert_eq!(found.first().map(|p| p.estimate), Some(0.625));
        assert_eq!(pass_at(&[(0, 0)]), []);
    }
}
