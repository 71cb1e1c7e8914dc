//! `sandbox-bench compare`: what changed between two runs or cells, and gates for CI.

use clap::Args;
use sandbox_bench_reports::compare::{self, CompareError, Comparison, Gate, GateState, Selector};
use sandbox_bench_reports::evidence::EvidenceError;
use sandbox_bench_reports::render;

use super::options::{OutputFormat, RatesOption};
use super::table;
use crate::exit::{Exit, Fault};
use crate::say;

const AFTER: &str = "\
Compared are tasks of equal content that both sides could run; all other differences are listed.
The verdict is better, worse, same (no change is shown) or too few (a task has fewer than 6 trials
on a side). The unit is the sandbox; what failed or timed out counts as longer than what did not.

Gates, for --fail-if: METRIC OPERATOR BOUND, such as 'p95(ready) > +10%'
  METRIC    p1 to p99 of a time, as p95(ready); paired(TIME), the median change of a task's own
            median; passed; cost (of an accepted trial). Times are total and the phases:
            environment, create, ready, inputs, prepare, solve, verify, collect, snapshot, destroy
  OPERATOR  > >= < <=
  BOUND     with a sign, the change from A to B: +10%, +50ms (us, ms, s, min), -5pp (percentage
            points of passed), +0.01usd. A change that is not shown counts as none
            without a sign, the figure of B: 2s, 95% (of passed), 0.02usd

Exit codes:
  0  no gate's condition holds
  1  a gate's condition holds
  2  wrong command line, or nothing to compare
  3  a gate cannot be decided: too few values, or none
  5  the evidence could not be read";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct CompareArgs {
    /// The first side: a run directory, or one cell of it as RUN:backend/condition. Changes are relative to it.
    #[arg(value_name = "A")]
    a: Selector,
    /// The second side. Of two runs, cells of the same name are compared.
    #[arg(value_name = "B")]
    b: Selector,
    /// End with code 1 if this holds; may be repeated.
    #[arg(long, value_name = "GATE")]
    fail_if: Vec<Gate>,
    #[command(flatten)]
    rates: RatesOption,
    /// Form of the result on stdout.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
}

/// Compares and prints. The exit code is that of the gates.
///
/// # Errors
/// A run cannot be read, or there is nothing to compare.
pub fn run(args: &CompareArgs) -> Result<Exit, Fault> {
    let rates = args.rates.card()?;
    let compared = compare::compare(&args.a, &args.b, &rates, &args.fail_if).map_err(fault)?;
    match args.format {
        OutputFormat::Json => table::print_json(&compared)?,
        OutputFormat::Text => say::result(render::comparison(&compared).trim_end())?,
    }
    Ok(exit(&compared))
}

/// A run that is not there or has no such cell is a wrong request; one that is damaged is not.
fn fault(error: CompareError) -> Fault {
    match error {
        CompareError::Evidence(EvidenceError::NoRun(_) | EvidenceError::OtherKind { .. }) => Fault::usage(error),
        CompareError::Evidence(_) => Fault::evidence(error),
        CompareError::NoCell { .. } | CompareError::NothingInCommon { .. } => Fault::usage(error),
    }
}

fn exit(compared: &Comparison) -> Exit {
    let any = |state| compared.cells.iter().flat_map(|cells| &cells.gates).any(|gate| gate.state == state);
    match () {
        () if any(GateState::Failed) => Exit::Rejected,
        () if any(GateState::Undecided) => Exit::Infrastructure,
        () => Exit::Accepted,
    }
}
