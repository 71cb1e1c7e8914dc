//! What a run's statuses mean: where it stands, since when, and why it does not start.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sandbox_bench_core::{Error, ErrorKind, Resources, SandboxState};

use crate::error::short;
use crate::wire::{Condition, Run, Status, Statuses};

/// Reasons of the cluster that end the hope for an image. `ErrImagePull` alone does not: the cluster tries again.
const NO_IMAGE: [&str; 4] = ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"];
/// Reasons of the cluster for a container that cannot be started from its image.
const NO_START: [&str; 5] =
    ["CreateContainerError", "CreateContainerConfigError", "RunContainerError", "StartError", "ContainerCannotRun"];

/// True if the run is over: exactly these five statuses are final.
pub(crate) fn over(status: Option<Status>) -> bool {
    use Status::{Failed, Skipped, Stopped, Succeeded, UpstreamFailed};
    matches!(status, Some(Succeeded | Failed | UpstreamFailed | Stopped | Skipped))
}

/// The state of a sandbox whose run has this status.
pub(crate) fn state(status: Option<Status>) -> SandboxState {
    match status {
        status if over(status) => SandboxState::Stopped,
        Some(Status::Running) => SandboxState::Running,
        Some(Status::Other) | None => SandboxState::Unknown,
        Some(_) => SandboxState::Starting,
    }
}

impl Statuses {
    fn conditions(&self) -> &[Condition] {
        self.status_conditions.as_deref().unwrap_or_default()
    }

    /// When each status was first reached, by the clocks of scheduler and cluster.
    pub(crate) fn times(&self) -> BTreeMap<String, Timestamp> {
        let mut times = BTreeMap::new();
        for condition in self.conditions() {
            if let Some(time) = condition.last_transition_time {
                times.entry(condition.kind.clone()).or_insert(time);
            }
        }
        times
    }

    /// Whether the run has been handed to a cluster: from then on its image is pulled.
    pub(crate) fn scheduled(&self) -> bool {
        self.conditions()
            .iter()
            .any(|condition| ["scheduled", "starting", "running"].contains(&condition.kind.as_str()))
    }

    /// The last condition in words: status, reason, message.
    pub(crate) fn last(&self) -> String {
        let Some(last) = self.conditions().last() else { return "no status is known".to_owned() };
        let said = [Some(last.kind.as_str()), last.reason.as_deref(), last.message.as_deref()];
        let said: Vec<&str> = said.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        said.join(": ")
    }

    fn says(&self, reasons: &[&str]) -> bool {
        let Some(last) = self.conditions().last() else { return false };
        let texts = [last.reason.as_deref(), last.message.as_deref()];
        texts.into_iter().flatten().any(|text| reasons.iter().any(|reason| text.contains(reason)))
    }

    /// Why this run will not come to run, once that is certain.
    pub(crate) fn hopeless(&self, run: &str, image: &str) -> Option<Error> {
        let run = short(run);
        let last = self.last();
        if self.says(&NO_IMAGE) {
            let message = format!("run {run}: the image {image} cannot be had ({last})");
            return Some(Error::new(ErrorKind::Environment, message));
        }
        if self.says(&NO_START) {
            let message = format!("run {run}: no container can be started from the image {image} ({last})");
            return Some(Error::new(ErrorKind::Environment, message).hint("the image needs /bin/sh"));
        }
        match self.status {
            Some(Status::Failed) => {
                let message = format!("run {run}: it failed before it ran, from the image {image} ({last})");
                Some(Error::new(ErrorKind::Environment, message))
            }
            status if over(status) || status == Some(Status::Stopping) => {
                Some(Error::new(ErrorKind::Failed, format!("run {run}: it ended before it ran ({last})")))
            }
            _ => None,
        }
    }

    /// Why this run does not run yet, when there is no more time to wait.
    pub(crate) fn overdue(&self, run: &str, image: &str, waited: std::time::Duration) -> Error {
        let (run, last, waited) = (short(run), self.last(), waited.as_secs());
        if self.status == Some(Status::Unschedulable) {
            return Error::new(ErrorKind::Capacity, format!("run {run}: no node of the cluster takes it ({last})"))
                .hint("ask for fewer resources, or give the cluster more");
        }
        if self.scheduled() {
            let message = format!("run {run}: the image {image} did not run within {waited} s ({last})");
            return Error::new(ErrorKind::Environment, message);
        }
        Error::new(ErrorKind::Capacity, format!("run {run}: not scheduled within {waited} s ({last})"))
            .hint("does an agent serve this project and its queue, and has it room?")
    }
}

/// Resources that the run has, as the API reports the request.
pub(crate) fn granted(run: &Run) -> Resources {
    let resources = run.resources.clone().unwrap_or_default();
    let positive = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
    Resources {
        cpus: positive(resources.cpu),
        memory_mb: positive(resources.memory).map(|bytes| (bytes / 1_048_576.0).round() as u64),
        gpus: positive(resources.gpu).map(|count| count as u32),
        ..Resources::default()
    }
}

/// What the API says about time and cost of a run. A cost of zero means that the installation does not know it.
pub(crate) fn cost_evidence(run: &Run) -> BTreeMap<String, String> {
    let cost = run.resources.as_ref().and_then(|resources| resources.cost).filter(|cost| *cost > 0.0);
    let facts = [("wait_seconds", run.wait_time), ("duration_seconds", run.duration), ("cost", cost)];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn statuses(status: Status, conditions: &[(&str, &str, &str)]) -> Statuses {
        let condition = |(n, (kind, reason, message)): (usize, &(&str, &str, &str))| Condition {
            kind: (*kind).to_owned(),
            reason: Some((*reason).to_owned()),
            message: Some((*message).to_owned()),
            last_transition_time: Timestamp::from_second(1000 + n as i64).ok(),
        };
        let conditions = conditions.iter().enumerate().map(condition).collect();
        Statuses { status: Some(status), status_conditions: Some(conditions) }
    }

    #[test]
    fn each_way_of_not_starting_has_its_kind() {
        let pull = [("scheduled", "", ""), ("warning", "ImagePullBackOff", "Back-off pulling image")];
        let error = statuses(Status::Warning, &pull).hopeless("0123", "no/such:image").unwrap();
        assert_eq!(*error.kind(), ErrorKind::Environment);
        assert!(error.to_string().contains("no/such:image") && error.to_string().contains("Back-off"), "{error}");

        let again = statuses(Status::Warning, &[("scheduled", "", ""), ("warning", "ErrImagePull", "try again")]);
        assert!(again.hopeless("0123", "image").is_none(), "the cluster tries again");

        let stopped = statuses(Status::Stopped, &[("stopped", "StateManager", "User requested")]);
        assert_eq!(*stopped.hopeless("0123", "image").unwrap().kind(), ErrorKind::Failed);

        let kind = |statuses: Statuses| statuses.overdue("0123", "image", Duration::from_secs(3)).kind().clone();
        assert_eq!(kind(statuses(Status::Queued, &[("queued", "SchedulerStart", "")])), ErrorKind::Capacity);
        let full = [("scheduled", "", ""), ("unschedulable", "Unschedulable", "0/3 nodes are available")];
        assert_eq!(kind(statuses(Status::Unschedulable, &full)), ErrorKind::Capacity);
        assert_eq!(kind(statuses(Status::Starting, &[("starting", "", "")])), ErrorKind::Environment);
    }

    #[test]
    fn the_first_time_of_each_status_counts() {
        let seen = [("running", "", ""), ("warning", "", ""), ("running", "", "")];
        let times = statuses(Status::Running, &seen).times();
        assert_eq!(times["running"], Timestamp::from_second(1000).unwrap());
        assert_eq!(times.len(), 2);
    }
}
