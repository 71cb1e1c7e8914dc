//! Tables that the commands print: borderless, aligned, the same everywhere.

use std::collections::BTreeSet;

use comfy_table::{ContentArrangement, Table, presets::NOTHING};
use sandbox_bench_core::evidence::PlanSettings;
use serde::Serialize;

use super::estimate::Estimate;
use super::options::OutputFormat;
use crate::exit::Fault;
use crate::plan::TaskName;
use crate::run::{self, Plan, Request};
use crate::say;
use crate::ways::Missing;

/// Column of the model in a plan, where models are a dimension of it.
const MODEL: usize = 3;

/// An aligned table without borders.
#[must_use]
pub fn plain<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    dynamic(header.iter().map(|&name| name.to_owned()).collect(), rows.into_iter().map(Vec::from))
}

/// An aligned table without borders, of any number of columns.
#[must_use]
pub fn dynamic(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A size for people, in the unit that fits: `340 B`, `1.5 KiB`, `12 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"KiB");
    // What would be rounded up to 1024 belongs to the next unit.
    while size >= 1023.5 {
        let Some(next) = units.next() else { break };
        (size, unit) = (size / 1024.0, next);
    }
    if size < 9.95 { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") }
}

/// Prints `value` as JSON on stdout.
///
/// # Errors
/// It cannot be written as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    say::result(serde_json::to_string_pretty(value).map_err(Fault::evidence)?)
}

#[derive(Serialize)]
struct PlannedTrial<'a> {
    #[serde(flatten)]
    key: &'a sandbox_bench_core::evidence::TrialKey,
    environment: Option<String>,
    unavailable: Option<String>,
}

/// What `--dry-run --format json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    settings: &'a PlanSettings,
    estimate: &'a Estimate,
    trials: &'a [PlannedTrial<'a>],
}

/// Prints what a run would do.
///
/// # Errors
/// The plan cannot be written as JSON.
pub fn print_plan(plan: &Plan, request: &Request, estimate: &Estimate, format: OutputFormat) -> Result<(), Fault> {
    let nothing_missing = Missing::default();
    let trials: Vec<PlannedTrial<'_>> = plan
        .trials
        .iter()
        .map(|key| {
            let name = TaskName { dataset: key.dataset.clone(), task: key.task.clone() };
            let setup = plan.tasks.get(&name).map(|task| task.setup(&key.backend, &nothing_missing));
            let unavailable = plan.condition_unavailable(key).or_else(|| setup?.err().map(str::to_owned));
            let asked = setup.and_then(Result::ok).map(|setup| setup.asked.clone());
            let environment = asked.filter(|_| unavailable.is_none());
            PlannedTrial { key, environment, unavailable }
        })
        .collect();
    let settings = run::settings(request);
    if format == OutputFormat::Json {
        return print_json(&Shown { settings: &settings, estimate, trials: &trials });
    }
    let variants = plan.trials.iter().any(|key| !key.variant.is_plain());
    let rows = trials.iter().enumerate().map(|(number, trial)| {
        let how = match (&trial.unavailable, &trial.environment) {
            (Some(why), _) => format!("unavailable: {why}"),
            (None, environment) => environment.clone().unwrap_or_default(),
        };
        let key = trial.key;
        let mut row = vec![
            (number + 1).to_string(),
            key.backend.clone(),
            key.condition.to_string(),
            format!("{}/{}", key.dataset, key.task),
            key.replicate.to_string(),
            how,
        ];
        if variants {
            row.insert(MODEL, key.variant.to_string());
        }
        if !request.models.is_empty() {
            row.insert(MODEL, key.model.clone().unwrap_or_default());
        }
        row
    });
    let cells: BTreeSet<_> =
        plan.trials.iter().map(|key| (&key.backend, key.condition, &key.model, &key.variant)).collect();
    let mut header = ["#", "backend", "condition", "task", "replicate", "environment"].map(str::to_owned).to_vec();
    if variants {
        header.insert(MODEL, "variant".to_owned());
    }
    if !request.models.is_empty() {
        header.insert(MODEL, "model".to_owned());
    }
    say::result(dynamic(header, rows))?;
    let varies = if settings.varies.is_empty() { "nothing".to_owned() } else { settings.varies.join(", ") };
    say::result(format_args!(
        "\ntrials {}, cells {}, order {}, seed {}, solver {}\nvaries: {varies}\n{}",
        trials.len(),
        cells.len(),
        request.order.name(),
        request.seed,
        request.solver,
        estimate.words()
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_in_the_unit_that_fits() {
        for (size, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }
}
