//! What the service says about a sandbox: its state, timestamps, and what it cost.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::{Call, Observation, Resources, Result, SandboxRef, SandboxState, TagQuery};
use sandbox_bench_kit::guest::Usage;

use crate::client::Client;
use crate::error;
use crate::labels;
use crate::proto::client::{SandboxGetStatsResponse, SandboxInfo};

/// A time on the wire is in seconds since the epoch; 0 is none.
pub(crate) fn timestamp(seconds: f64) -> Option<Timestamp> {
    let seconds = Some(seconds).filter(|seconds| seconds.is_finite() && *seconds > 0.0 && *seconds < 1e11)?;
    Timestamp::from_microsecond((seconds * 1e6) as i64).ok()
}

/// The service's timestamps of a sandbox, by event.
pub(crate) fn times(info: &SandboxInfo) -> BTreeMap<String, Timestamp> {
    let task = info.task_info.clone().unwrap_or_default();
    [
        ("created", info.created_at),
        ("enqueued", task.enqueued_at),
        ("started", task.started_at),
        ("ready", info.ready_at.unwrap_or_default()),
        ("finished", task.finished_at),
    ]
    .into_iter()
    .filter_map(|(event, at)| Some((event.to_owned(), timestamp(at)?)))
    .collect()
}

/// The state of a sandbox that is listed.
pub(crate) fn state(info: &SandboxInfo) -> SandboxState {
    match &info.task_info {
        Some(task) if task.finished_at > 0.0 || task.result.as_ref().is_some_and(|result| result.status != 0) => {
            SandboxState::Stopped
        }
        Some(task) if task.started_at > 0.0 => SandboxState::Running,
        Some(_) => SandboxState::Starting,
        None => SandboxState::Unknown,
    }
}

/// What bears on cost, by name. The service gathers it minutes later: until then there is nothing, and nothing is not zero.
pub(crate) fn cost(stats: &SandboxGetStatsResponse) -> BTreeMap<String, String> {
    let number =
        |value: f64| Some(value).filter(|value| value.is_finite() && *value > 0.0).map(|value| value.to_string());
    let mut facts: BTreeMap<String, String> = [
        ("cost_usd", stats.cost.clone().filter(|cost| cost.parse::<f64>().is_ok_and(|cost| cost >= 0.0))),
        ("running_seconds", number(stats.duration_hours * 3600.0)),
        // The service counts physical cores.
        ("billed_vcpu_seconds", number(stats.billed_cpu_core_seconds * 2.0)),
        ("billed_gib_seconds", number(stats.billed_memory_gib_seconds)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect();
    if stats.num_datapoints > 0 {
        let by = stats.cost_by_resource.iter();
        facts.extend(by.map(|(resource, cost)| (format!("cost_usd.{}", resource.to_lowercase()), cost.clone())));
    }
    facts
}

/// What is known of a running sandbox.
///
/// # Errors
/// `SandboxLost` if it has ended.
pub(crate) async fn observe(
    client: &Client,
    call: &Call,
    reference: &SandboxRef,
    (granted, usage): (Resources, Usage),
) -> Result<Observation> {
    let id = reference.id.as_str();
    if let Some(result) = client.end(call, id, 0.0).await? {
        return Err(error::lost(id, result.status().as_str_name()));
    }
    let listed = client.list(call, vec![labels::wanted(&TagQuery::Exact(reference.tag.clone()))], false).await?;
    let info = listed.into_iter().find(|info| info.id == id).unwrap_or_default();
    let mut evidence = BTreeMap::new();
    if !info.regions.is_empty() {
        evidence.insert("region".to_owned(), info.regions.join(" "));
    }
    match client.stats(call, id).await {
        Ok(stats) => evidence.extend(cost(&stats)),
        Err(error) => tracing::debug!(sandbox = id, %error, "the service does not tell what a sandbox cost"),
    }
    match client.rates(call).await {
        Ok(rates) => evidence.extend(rates.iter().map(|(name, rate)| (format!("rate.{name}"), rate.clone()))),
        Err(error) => tracing::debug!(%error, "the service does not tell its rates"),
    }
    Ok(Observation {
        granted,
        cpu_us: usage.cpu_us,
        peak_memory_bytes: usage.peak_memory_bytes,
        provider_times: times(&info),
        cost_evidence: evidence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_gathered_yet_is_not_zero() {
        assert!(cost(&SandboxGetStatsResponse::default()).is_empty());
        let stats = SandboxGetStatsResponse {
            cost: Some("0.0123".into()),
            cost_by_resource: [("CPU".to_owned(), "0.01".to_owned())].into(),
            num_datapoints: 3,
            duration_hours: 0.5,
            billed_cpu_core_seconds: 900.0,
            billed_memory_gib_seconds: 3600.0,
        };
        let facts = cost(&stats);
        let expected = [
            ("billed_gib_seconds", "3600"),
            ("billed_vcpu_seconds", "1800"),
            ("cost_usd", "0.0123"),
            ("cost_usd.cpu", "0.01"),
            ("running_seconds", "1800"),
        ];
        assert!(facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected), "{facts:?}");
        let odd =
            SandboxGetStatsResponse { cost: Some("a lot".into()), duration_hours: f64::NAN, ..Default::default() };
        assert!(cost(&odd).is_empty());
    }

    #[test]
    fn times_that_are_none_are_left_out() {
        assert_eq!(timestamp(1.5).map(|at| at.as_millisecond()), Some(1500));
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(timestamp(none), None);
        }
        let info = SandboxInfo { created_at: 1_800_000_000.0, ..SandboxInfo::default() };
        assert_eq!(times(&info).into_keys().collect::<Vec<_>>(), ["created"]);
    }
}
