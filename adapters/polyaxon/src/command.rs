//! One command as the daemon has to be told.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbox_bench_core::{Call, Error, ErrorKind, ExecSpec, Result};
use sandbox_bench_kit::guest::{self, Mark, Wrapped};

use crate::find::Start;
use crate::wire::ExecRequest;

const SCRIPT: &str = include_str!("guest/start.sh");
/// Where the output of commands is, in the sandbox.
pub(crate) const PLACE: &str = "/tmp/.sandbox-bench";
/// The daemon's own limit comes so much later than ours: it would leave children alive, and tells nothing about them.
const DAEMON_MARGIN: Duration = Duration::from_secs(30);

/// A command ready to be sent.
pub(crate) struct Prepared {
    /// What is sent.
    pub(crate) request: ExecRequest,
    /// Random text of the marks in its output.
    pub(crate) frame: String,
    /// What its processes are known by.
    pub(crate) mark: Mark,
    /// Directory of its output files.
    pub(crate) dir: String,
}

impl Prepared {
    /// The command of `spec`.
    ///
    /// # Errors
    /// `InvalidRequest`; `Denied` for a secret that was not granted.
    pub(crate) fn new(call: &Call, spec: &ExecSpec, start: &Start) -> Result<Self> {
        let Wrapped { argv, frame, mark } = Wrapped::new(spec)?;
        let env = guest::variables(call, &start.env, spec)?;
        check_names(&env)?;
        let argv = match &spec.user {
            Some(user) => guest::as_user(user, &env, argv),
            None => argv,
        };
        let dir = format!("{PLACE}/{frame}");
        let (cwd, make) = match (&spec.cwd, &start.workdir) {
            (Some(cwd), _) => (cwd.as_str(), "0"),
            (None, Some(workdir)) => (workdir.as_str(), "1"),
            (None, None) => ("", "0"),
        };
        let stdin = if spec.stdin.is_some() { "1" } else { "0" };
        let starter = ["/bin/sh", "-c", SCRIPT, "sh", &dir, cwd, make, stdin].into_iter().map(str::to_owned);
        let request = ExecRequest {
            command: starter.chain(argv).collect(),
            env,
            stdin: spec.stdin.as_ref().map(|bytes| STANDARD.encode(bytes)),
            timeout_ms: millis(spec.limit(call) + DAEMON_MARGIN),
            ..ExecRequest::default()
        };
        Ok(Self { request, frame, mark, dir })
    }
}

/// Checks the names of variables, of which the platform keeps some for itself.
///
/// # Errors
/// `InvalidRequest`.
pub(crate) fn check_names(env: &BTreeMap<String, String>) -> Result<()> {
    match env.keys().find(|name| name.starts_with("POLYAXON_")) {
        Some(name) => {
            Err(Error::invalid(format!("{name}: variables that begin with POLYAXON_ are the platform's own")))
        }
        None => Ok(()),
    }
}

/// Why a command was not started, by what [`SCRIPT`] or the daemon said instead.
pub(crate) fn not_started(what: &str, spec: &ExecSpec, words: &str) -> Error {
    // The streams that carried them may have arrived in either order.
    let told = words.split_whitespace().find(|word| ["no-directory", "no-place"].contains(word));
    match told {
        Some("no-directory") => {
            let cwd = spec.cwd.as_deref().unwrap_or("the sandbox's own directory");
            Error::new(ErrorKind::NotFound, format!("{what}: no working directory {cwd}"))
        }
        Some("no-place") => Error::new(ErrorKind::Failed, format!("{what}: no file can be made below {PLACE}"))
            .hint("the image needs mkdir and a /tmp that can be written"),
        _ => {
            let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
            Error::new(ErrorKind::Failed, format!("{what}: the command was not started: {words}"))
                .hint("the image needs /bin/sh")
        }
    }
}

/// Whole milliseconds, at least one.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}
