//! Figures for comparing runs, and series of what was measured, trial by trial.
//!
//! A series belongs to one cell of the plan and one kind of time: what is measured under different conditions, or of what came to
//! different ends, is never in one series. Its steps are the numbers of the trials within the cell, so that equal steps of different
//! series of a cell are of the same trial.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::{Digest, Point, Series};
use serde_json::{Map, Value, json};

/// Most characters of the name of a series.
const NAME_LIMIT: usize = 128;

/// Figures and series in the making.
#[derive(Debug, Default)]
pub struct Figures {
    /// Figures by name.
    pub outputs: Map<String, Value>,
    series: BTreeMap<String, Vec<Point>>,
    steps: BTreeMap<String, u64>,
}

/// The values of one trial.
pub struct Trial<'a> {
    figures: &'a mut Figures,
    cell: String,
    step: u64,
    at: Timestamp,
}

impl Figures {
    /// Adds a figure. One that is not known is left out.
    pub fn fact(&mut self, name: &str, value: Value) {
        if !value.is_null() {
            self.outputs.insert(word(name), value);
        }
    }

    /// Adds counts of a cell, or of the whole run if `cell` is empty.
    pub fn facts(&mut self, cell: &str, counts: &[(&str, u64)]) {
        for (name, count) in counts {
            let name = if cell.is_empty() { (*name).to_owned() } else { format!("{cell}_{name}") };
            self.fact(&name, json!(count));
        }
    }

    /// The next trial of a cell.
    pub fn point(&mut self, cell: String, at: Timestamp) -> Trial<'_> {
        let step = self.steps.entry(cell.clone()).or_default();
        *step += 1;
        let step = *step;
        Trial { figures: self, cell, step, at }
    }

    /// The series, by name.
    pub fn into_series(self) -> (Map<String, Value>, Vec<Series>) {
        (self.outputs, self.series.into_iter().map(|(name, points)| Series { name, points }).collect())
    }
}

impl Trial<'_> {
    /// Adds a time in microseconds.
    pub fn seconds(&mut self, name: &str, us: u64) {
        self.value(&format!("{name}_seconds"), us as f64 / 1e6);
    }

    /// Adds a value.
    pub fn value(&mut self, name: &str, value: f64) {
        let point = Point { step: self.step, at: self.at, value };
        self.figures.series.entry(word(&format!("{}_{name}", self.cell))).or_default().push(point);
    }
}

/// `text` as a name that queries can hold: letters, digits and `_`. Of more than dashes that had to be changed, a digest is kept, so that
/// no two become one.
fn word(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    if text.len() <= NAME_LIMIT && text.chars().all(|c| legal(c) == c || c == '-') {
        return text.chars().map(legal).collect();
    }
    let digest = Digest::of(text.as_bytes()).short(8);
    let kept: String = text.chars().map(legal).take(NAME_LIMIT - 1 - digest.len()).collect();
    format!("{kept}_{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_steps_of_a_cell_are_of_the_same_trial() {
        let mut figures = Figures::default();
        let at = Timestamp::UNIX_EPOCH;
        figures.point("a-cold".into(), at).seconds("ready", 1_500_000);
        figures.point("a-warm".into(), at).seconds("ready", 1);
        let mut failed = figures.point("a-cold".into(), at);
        failed.seconds("failed", 7);
        figures.point("a-cold".into(), at).seconds("ready", 2_000_000);
        let (_, series) = figures.into_series();
        let of = |name: &str| -> Vec<(u64, f64)> {
            let found = series.iter().find(|series| series.name == name).expect(name);
            found.points.iter().map(|point| (point.step, point.value)).collect()
        };
        assert_eq!(of("a_cold_ready_seconds"), [(1, 1.5), (3, 2.0)]);
        assert_eq!(of("a_cold_failed_seconds"), [(2, 7e-6)]);
        assert_eq!(of("a_warm_ready_seconds"), [(1, 1e-6)]);
    }

    #[test]
    fn every_name_is_legal_and_no_two_become_one() {
        assert_eq!(word("aws-microvm-cold_p50_seconds"), "aws_microvm_cold_p50_seconds");
        let (a, b) = (word("docker-cold-some/model:1"), word("docker-cold-some/model-1"));
        assert_ne!(a, b);
        assert!(a.starts_with("docker_cold_some_model_1_"), "{a}");
        assert!(word(&"ü".repeat(300)).len() <= NAME_LIMIT);
    }
}
