//! Series of values in the platform's form: a text file of events for each, and a summary of it in the lineage, as `traceml`
//! 1.5.0 (the tracking part of the official client) writes them.

use std::fmt::Write as _;

use sandbox_bench_core::Series;
use serde_json::{Value, json};

/// Directory of the files.
pub(super) const DIRECTORY: &str = "events/metric";

/// `step|timestamp|metric`, a line for each value.
pub(super) fn text(series: &Series) -> String {
    let mut text = "step|timestamp|metric".to_owned();
    for point in &series.points {
        // A String takes everything.
        let _ = write!(text, "\n{}|{}|{}", point.step, point.at, point.value);
    }
    text
}

/// What the lineage says of a series: the figures of pandas' `describe`, and the last value.
pub(super) fn summary(series: &Series) -> Value {
    let (Some(first), Some(last)) = (series.points.first(), series.points.last()) else { return json!({}) };
    let mut sorted: Vec<f64> = series.points.iter().map(|point| point.value).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    let mut metric = json!({
        "count": count, "mean": mean, "min": sorted.first(), "max": sorted.last(), "last": last.value,
        "25%": quantile(&sorted, 0.25), "50%": quantile(&sorted, 0.5), "75%": quantile(&sorted, 0.75),
    });
    if sorted.len() > 1 {
        metric["std"] = json!((squares / (count - 1.0)).sqrt());
    }
    json!({
        "is_event": true,
        "step": { "count": series.points.len(), "min": first.step, "max": last.step },
        "timestamp": { "min": first.at.to_string(), "max": last.at.to_string() },
        "metric": metric,
    })
}

/// Linear between the two values around the place.
fn quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let place = p * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (sorted.get(place.floor() as usize)?, sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::Point;

    use super::*;

    fn series(values: &[f64]) -> Series {
        let at = "2026-11-29T17:45:52.152687Z".parse().unwrap();
        let points = values.iter().zip(1..).map(|(value, step)| Point { step, at, value: *value }).collect();
        Series { name: "s".into(), points }
    }

    #[test]
    fn a_series_is_written_as_the_platform_reads_it() {
        let text = text(&series(&[12.5, 3.0]));
        assert_eq!(text, "step|timestamp|metric\n1|2026-11-29T17:45:52.152687Z|12.5\n2|2026-11-29T17:45:52.152687Z|3");
    }

    /// The expected values are those of `pandas.Series([1, 2, 3, 10]).describe()`.
    #[test]
    fn the_summary_has_the_figures_that_pandas_has() {
        let metric = summary(&series(&[1.0, 10.0, 2.0, 3.0]))["metric"].clone();
        let of = |name: &str| metric[name].as_f64().unwrap();
        assert_eq!((of("count"), of("mean"), of("min"), of("max"), of("last")), (4.0, 4.0, 1.0, 10.0, 3.0));
        assert_eq!((of("25%"), of("50%"), of("75%")), (1.75, 2.5, 4.75));
        assert!((of("std") - 4.082_482_904_638_63).abs() < 1e-12);
        let single = summary(&series(&[7.0]));
        assert_eq!((single["metric"]["50%"].as_f64(), single["metric"].get("std")), (Some(7.0), None));
    }
}
