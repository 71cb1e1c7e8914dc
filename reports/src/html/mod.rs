//! The report as one HTML page that needs nothing else: styles, charts and the few lines that sort tables are in it, and
//! its content policy forbids the browser to load or run anything more. All words of tasks and sandboxes are escaped.

mod axis;
mod charts;
mod ramp;
mod sections;
mod tables;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sandbox_bench_core::Digest;

use crate::render::objects;
use crate::report::Report;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("sort.js");

/// The whole page.
#[must_use]
pub(crate) fn page(report: &Report) -> String {
    let title = title(report);
    let sections = [
        ("overview", "Overview", sections::overview(report)),
        ("comparison", "Comparison", sections::comparison(report)),
        ("matrix", "Matrix", sections::matrix(report)),
        ("times", "Times", sections::times(report)),
        ("load", "Load", sections::load(report)),
        ("cost", "Cost", sections::cost(report)),
        ("failures", "Failures", sections::failures(report)),
        ("tasks", "Tasks", sections::tasks(report)),
        ("trials", "Trials", sections::trials(report)),
        ("cleanup", "Cleanup", sections::cleanup(report)),
        ("gaps", "Gaps", sections::gaps(report)),
        ("provenance", "Provenance", sections::provenance(report)),
    ];
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(report, &title))
                nav { div { @for (id, name, _) in &sections { a href=(format!("#{id}")) { (name) } } } }
                main {
                    @for (id, name, inside) in &sections {
                        section id=(id) { h2 { (name) } (inside) }
                    }
                }
                footer { p .soft {
                    "Made from the evidence alone: equal evidence gives the same page. The Markdown pages beside it begin with "
                    a href="overview.md" { "overview.md" } "."
                } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}

fn title(report: &Report) -> String {
    match report.runs.as_slice() {
        [run] => format!("Run {}", run.summary.run),
        runs => format!("{} runs", runs.len()),
    }
}

/// Nothing is loaded, and only the script of this page runs: by its digest, so that an injected one does not.
fn policy() -> String {
    let hex = Digest::of(SCRIPT.as_bytes()).hex();
    let byte = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).filter_map(byte).collect();
    let digest = STANDARD.encode(bytes);
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
}

fn head(report: &Report, title: &str) -> Markup {
    let sum =
        |of: fn(&crate::summary::Trials) -> u64| report.runs.iter().map(|run| of(&run.summary.totals)).sum::<u64>();
    let (accepted, runnable) = (sum(|t| t.accepted), sum(crate::summary::Trials::runnable));
    let known = report.cells.iter().filter_map(|cell| cell.figures.cost.known_usd).reduce(|a, b| a + b);
    let unconfirmed: u64 = report.runs.iter().map(|run| run.summary.cleanup.unconfirmed).sum();
    let tiles = [
        ("#overview", format!("{accepted}/{runnable}"), "trials accepted", "good"),
        ("#failures", sum(|t| t.rejected).to_string(), "rejected by the verifier", "bad"),
        ("#failures", sum(|t| t.failed).to_string(), "without a verdict", "odd"),
        ("#gaps", sum(|t| t.unavailable).to_string(), "cannot run there", "none"),
        (
            "#cost",
            known.map_or_else(|| "unknown".to_owned(), crate::render::usd),
            "cost of sandboxes, as far as known",
            "none",
        ),
        ("#cleanup", unconfirmed.to_string(), "not confirmed gone", if unconfirmed > 0 { "bad" } else { "good" }),
    ];
    html! {
        header {
            h1 { (title) }
            @for run in &report.runs {
                p .soft {
                    @if !run.label.is_empty() { b { (run.label) } " " (run.summary.run) " · " }
                    (tables::outcome(run.summary.outcome)) " "
                    (run.started()) " · solver " (crate::render::plain(&run.summary.solver)) " · "
                    @for (index, dataset) in run.manifest.datasets.iter().enumerate() {
                        @if index > 0 { ", " } (crate::render::plain(&dataset.name)) " (" (objects(dataset.tasks, "task")) ")"
                    }
                    " · " (run.replicates()) " · "
                    @match &run.manifest.imported {
                        Some(imported) => { "imported (" (crate::render::plain(&imported.from)) ")" }
                        None => { (run.manifest.plan.order) ", seed " (run.manifest.plan.seed) }
                    }
                }
            }
            div .tiles {
                @for (link, figure, what, class) in &tiles {
                    a .tile href=(link) { b class=(class) { (figure) } span .soft { (what) } }
                }
            }
        }
    }
}
