//! The first command in a sandbox: its success means *ready*, and its output tells this sandbox from any other.

use sandbox_bench_core::condition::{ConditionProof, Freshness};
use sandbox_bench_core::{CreateFacts, ExecSpec, ProcessIdentity, Tag};

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
show witness "/proc/${1:-none}/stat"
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

/// Leaves a process that outlives the command, and makes it the script's argument.
const LEAVE: &str = "sleep 86400 </dev/null >/dev/null 2>&1 & set -- $!\n";

/// The command that reads the facts; with the process that was left before a suspension, also whether it still runs.
#[must_use]
pub fn command(witness: Option<ProcessIdentity>) -> ExecSpec {
    let mut spec = ExecSpec::sh(SCRIPT);
    spec.argv.extend(witness.iter().flat_map(|left| ["sh".to_owned(), left.pid.to_string()]));
    spec
}

/// The same before a suspension: it leaves a process that is to go on after the resumption.
#[must_use]
pub fn leaving_a_witness() -> ExecSpec {
    ExecSpec::sh(&format!("{LEAVE}{SCRIPT}"))
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
            "witness" => facts.witness = process(&value),
            "uid" => probe.root = value == "0",
            _ => {}
        }
    }
    probe
}

/// Reads `/proc/PID/stat`; none for a process that has ended and is only listed.
fn process(stat: &str) -> Option<ProcessIdentity> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    // The name before it may hold blanks and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let start_ticks = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(ProcessIdentity { pid, start_ticks })
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
    /// The sandbox that showed this before it was suspended, as the backend says it was.
    Resumed {
        /// What it showed.
        before: &'a Freshness,
    },
}

impl Expected<'_> {
    /// The process that is to be seen running, if there is one.
    #[must_use]
    pub fn witness(&self) -> Option<ProcessIdentity> {
        match self {
            Self::Resumed { before } => before.witness,
            Self::Cold | Self::Warm { .. } | Self::Reuse { .. } => None,
        }
    }
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
        Expected::Resumed { before } => match (&before.witness, &facts.witness) {
            _ if facts.marker.is_some() => violated("the resumed sandbox holds the marker of a trial".into()),
            _ if facts.artifact_fingerprint.is_some() => {
                violated("the resumed sandbox was started from a warm artifact".into())
            }
            _ if rebooted(before, facts) => violated("the sandbox was booted anew instead of resumed".into()),
            (Some(left), Some(found)) if left == found => {
                proven(format!("suspended and resumed: the process {} that was left running goes on", left.pid))
            }
            (Some(left), _) => {
                violated(format!("the process {} that was left running before the suspension is gone", left.pid))
            }
            (None, _) => ConditionProof::Unproven { why: "the sandbox does not show its processes".into() },
        },
    }
}

/// True if another boot is seen than before, or an earlier moment of it.
fn rebooted(before: &Freshness, facts: &Freshness) -> bool {
    let another = before.boot_id.as_ref().zip(facts.boot_id.as_ref()).is_some_and(|(then, now)| then != now);
    another || before.uptime_seconds.zip(facts.uptime_seconds).is_some_and(|(then, now)| now < then)
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
    fn resumed_means_that_the_same_processes_go_on() {
        let stat = |start: u64| {
            parse(&format!(
                "boot=b\nuptime=5.0 1\nwitness=7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 9\n"
            ))
        };
        let before = stat(40).facts;
        assert_eq!(before.witness, Some(ProcessIdentity { pid: 7, start_ticks: 40 }));
        let resumed = |facts: &Freshness| state(&Expected::Resumed { before: &before }, facts, "img");
        assert_eq!(resumed(&before), "proven");
        assert_eq!(resumed(&stat(41).facts), "violated", "the number is another process's");
        assert_eq!(resumed(&Freshness { witness: None, ..before.clone() }), "violated");
        assert_eq!(resumed(&Freshness { uptime_seconds: Some(4.0), ..before.clone() }), "violated", "a new boot");
        assert_eq!(resumed(&Freshness { boot_id: Some("c".into()), ..before.clone() }), "violated");
        assert_eq!(resumed(&Freshness { artifact_fingerprint: Some("f".into()), ..before.clone() }), "violated");
        let silent = Freshness::default();
        assert_eq!(state(&Expected::Resumed { before: &silent }, &silent, "img"), "unproven");
        assert_eq!(parse("witness=7 (sleep) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 40 9").facts.witness, None);
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
