//! The first command in a sandbox: its success means *ready*, and its output tells this sandbox from any other.

use sandbox_bench_core::condition::{ConditionProof, Freshness};
use sandbox_bench_core::{CreateFacts, ExecSpec, Tag};

/// Directory of the harness inside a sandbox.
pub const HOME: &str = "/.sandbox-bench";
/// File that holds the tag of the last trial that used the sandbox.
pub const MARKER: &str = "/.sandbox-bench/marker";
/// File that prewarm bakes into an artifact: the fingerprint of its environment.
pub const ARTIFACT: &str = "/.sandbox-bench/artifact";

/// Shell built-ins and one process, so that it adds next to nothing to the time until *ready*. The namespaces' links say by
/// themselves what they are; an old `readlink` takes one at a time.
const SCRIPT: &str = r#"
show() { if [ -r "$2" ]; then IFS= read -r value <"$2"; echo "$1=$value"; fi; }
show boot /proc/sys/kernel/random/boot_id
show uptime /proc/uptime
show marker /.sandbox-bench/marker
show artifact /.sandbox-bench/artifact
uid=
if [ -r /proc/self/status ]; then
  while read -r key real effective rest; do
    if [ "$key" = Uid: ]; then uid=$effective; break; fi
  done </proc/self/status
fi
echo "uid=${uid:-$(id -u)}"
cd /proc/self/ns 2>/dev/null && { readlink pid mnt 2>/dev/null || { readlink pid; readlink mnt; }; }
exit 0
"#;

/// The command that reads the facts.
#[must_use]
pub fn command() -> ExecSpec {
    ExecSpec::sh(SCRIPT)
}

/// What the first command told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probe {
    /// The facts.
    pub facts: Freshness,
    /// True if commands that name no user run as root.
    pub root: bool,
}

/// Reads the command's output.
#[must_use]
pub fn parse(output: &str) -> Probe {
    let mut probe = Probe::default();
    let facts = &mut probe.facts;
    for line in output.lines() {
        if line.starts_with("pid:[") {
            facts.pid_namespace = Some(line.to_owned());
        } else if line.starts_with("mnt:[") {
            facts.mount_namespace = Some(line.to_owned());
        }
        let Some((name, value)) = line.split_once('=').filter(|(_, value)| !value.is_empty()) else { continue };
        let value = value.to_owned();
        match name {
            "boot" => facts.boot_id = Some(value),
            "uptime" => facts.uptime_seconds = value.split(' ').next().and_then(|seconds| seconds.parse().ok()),
            "marker" => facts.marker = Some(value),
            "artifact" => facts.artifact_fingerprint = Some(value),
            "uid" => probe.root = value == "0",
            _ => {}
        }
    }
    probe
}

/// What a trial expects of the sandbox that it got.
#[derive(Debug, Clone)]
pub enum Expected<'a> {
    /// Nothing of an earlier trial and nothing of an artifact.
    Cold,
    /// Exactly this artifact.
    Warm {
        /// Its id.
        id: &'a str,
        /// The fingerprint baked into it.
        fingerprint: &'a str,
    },
    /// The marker of the previous trial.
    Reuse {
        /// Its tag.
        previous: &'a Tag,
    },
}

/// Compares the facts with the declared condition.
#[must_use]
pub fn prove(expected: &Expected<'_>, facts: &Freshness, created: &CreateFacts) -> ConditionProof {
    let proven = |why: String| ConditionProof::Proven { why };
    let violated = |why: String| ConditionProof::Violated { why };
    match expected {
        Expected::Cold => match (&facts.marker, &facts.artifact_fingerprint) {
            (Some(marker), _) => violated(format!("the new sandbox holds the marker of an earlier trial, {marker}")),
            (_, Some(artifact)) => violated(format!("the new sandbox was started from a warm artifact, {artifact}")),
            (None, None) if facts.boot_id.is_none() && facts.pid_namespace.is_none() => {
                ConditionProof::Unproven { why: "the sandbox shows neither a boot id nor a pid namespace".into() }
            }
            (None, None) => proven("new sandbox without marker or artifact".into()),
        },
        Expected::Warm { id, fingerprint } => match &facts.artifact_fingerprint {
            _ if created.resolved_source != *id => {
                violated(format!("asked for artifact {id}, started from {}", created.resolved_source))
            }
            Some(found) if found != fingerprint => {
                violated(format!("the artifact holds environment {found}, not {fingerprint}"))
            }
            Some(_) if facts.marker.is_some() => violated("the artifact holds the marker of a trial".into()),
            Some(_) => proven(format!("started from artifact {id}, which holds the expected environment")),
            None => {
                violated("the sandbox does not hold what prewarm put into the artifact: it was started cold".into())
            }
        },
        Expected::Reuse { previous } => match &facts.marker {
            Some(marker) if marker == previous.as_str() => proven(format!("holds the marker of {previous}")),
            Some(marker) => violated(format!("holds the marker of {marker}, not of {previous}")),
            None => violated(format!("the marker of {previous} is gone: this is another sandbox")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(marker: Option<&str>, artifact: Option<&str>) -> Freshness {
        Freshness {
            boot_id: Some("b".into()),
            marker: marker.map(Into::into),
            artifact_fingerprint: artifact.map(Into::into),
            ..Freshness::default()
        }
    }

    fn state(expected: &Expected<'_>, facts: &Freshness, source: &str) -> &'static str {
        let created = CreateFacts { resolved_source: source.into(), ..CreateFacts::default() };
        match prove(expected, facts, &created) {
            ConditionProof::Proven { .. } => "proven",
            ConditionProof::Unproven { .. } => "unproven",
            ConditionProof::Violated { .. } => "violated",
        }
    }

    #[test]
    fn cold_means_no_trace_of_anything_earlier() {
        assert_eq!(state(&Expected::Cold, &facts(None, None), "img"), "proven");
        assert_eq!(state(&Expected::Cold, &facts(Some("t"), None), "img"), "violated");
        assert_eq!(state(&Expected::Cold, &facts(None, Some("f")), "img"), "violated");
        assert_eq!(state(&Expected::Cold, &Freshness::default(), "img"), "unproven");
    }

    #[test]
    fn a_warm_run_that_fell_back_to_cold_is_a_violation() {
        let warm = Expected::Warm { id: "a1", fingerprint: "f1" };
        assert_eq!(state(&warm, &facts(None, Some("f1")), "a1"), "proven");
        assert_eq!(state(&warm, &facts(None, None), "a1"), "violated");
        assert_eq!(state(&warm, &facts(None, Some("f2")), "a1"), "violated");
        assert_eq!(state(&warm, &facts(None, Some("f1")), "a2"), "violated");
    }

    #[test]
    fn reuse_means_the_marker_of_the_previous_trial() {
        let previous = Tag::new("run", "one");
        let reuse = Expected::Reuse { previous: &previous };
        assert_eq!(state(&reuse, &facts(Some(previous.as_str()), None), "img"), "proven");
        assert_eq!(state(&reuse, &facts(Some("sbx-run-two"), None), "img"), "violated");
        assert_eq!(state(&reuse, &facts(None, None), "img"), "violated");
    }

    #[test]
    fn odd_output_gives_no_facts_and_no_panic() {
        assert_eq!(parse("garbage\n=\nboot=\nuptime=x y\n"), Probe::default());
        let Probe { facts, root } = parse("boot=abc\nuptime=12.5 3\npid:[1]\nmarker=sbx-a-b\nuid=0\n");
        assert!(root);
        assert_eq!(facts.uptime_seconds, Some(12.5));
        assert_eq!(facts.marker.as_deref(), Some("sbx-a-b"));
    }
}
