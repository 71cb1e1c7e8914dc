//! A sandbox that serves several trials, for the condition `reuse`.
//!
//! The session is opened before its first trial's clock starts, so that every trial in it is a reuse. Between trials the
//! working directory goes back to what it was after the preparation, and tests, solution, logs and left-over processes
//! go; everything else of the sandbox stays, which is what reuse means.

use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_core::evidence::Cleanup;
use sandbox_bench_core::{
    Backend, CreateFacts, Created, ExecSpec, FailureClass, NetworkPolicy, Phase, Sandbox, Stage, Tag,
};

use super::bench::Bench;
use super::context::{Calls, Context, MARGIN, TRANSFER_LIMIT, Trial};
use super::materials::Materials;
use super::open::{self, NotOpened};
use super::prepare;
use super::recorder::Recorder;
use super::stop::Stop;
use super::work::{self, Work};

/// Backstop of a sandbox that serves many trials.
const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// The state of a session.
#[derive(Default)]
pub enum Session {
    /// Not opened yet, or ended after an error: the next trial opens a new sandbox.
    #[default]
    Closed,
    /// Open.
    Open(Held),
}

/// The sandbox of an open session.
pub struct Held {
    /// The sandbox.
    pub sandbox: Arc<dyn Sandbox>,
    /// How it came to be.
    pub facts: CreateFacts,
    /// Tag of the trial (or of the opening) that used it last.
    pub previous: Tag,
}

/// Saves the prepared working directory, from which every trial of the session starts, and the processes that are there.
/// Runs as root.
const SAVE: &str = r#"
mkdir -p /.sandbox-bench && echo /proc/[0-9]* >/.sandbox-bench/processes
rm -rf /.sandbox-bench/pristine && mkdir -p /.sandbox-bench/pristine && cp -a "$0"/. /.sandbox-bench/pristine/
"#;

/// Ends what earlier trials left running and goes back to the saved working directory. Spares the processes that were
/// there when it was saved, and its own ancestors. Runs as root.
const RESET: &str = r#"
read -r keep </.sandbox-bench/processes || exit 1
p=$$
while [ -n "$p" ] && [ "$p" -gt 1 ]; do
  keep="$keep /proc/$p"
  p=$(sed 's/^.*) [A-Z] \([0-9]*\) .*/\1/' /proc/$p/stat 2>/dev/null)
done
for p in /proc/[0-9]*; do
  case " $keep " in *" $p "*) ;; *) kill -9 "${p#/proc/}" 2>/dev/null ;; esac
done
rm -rf /tests /solution /oracle /logs /.sandbox-bench/solver /.sandbox-bench/TASK.md
find "$0" -mindepth 1 -maxdepth 1 -exec rm -rf {} + && cp -a /.sandbox-bench/pristine/. "$0"/
"#;

/// Saves the working directory of a session that was just prepared.
async fn save(bench: &Bench<'_>) -> Result<(), Stop> {
    run(bench, "save working directory", SAVE).await
}

/// Brings the session's sandbox back to its prepared state.
pub async fn reset(bench: &Bench<'_>) -> Result<(), Stop> {
    run(bench, "reset working directory", RESET).await
}

async fn run(bench: &Bench<'_>, label: &str, script: &str) -> Result<(), Stop> {
    // Where the image alone knows the working directory, it is where a command without one starts.
    let here = ExecSpec::sh("pwd").timeout(TRANSFER_LIMIT);
    let workdir = match &bench.setup.workdir {
        Some(workdir) => workdir.clone(),
        None => {
            let call = bench.calls.call(Stage::Setup, here.timeout + MARGIN);
            let ran = bench.rec.exec(Phase::Prepare, "working directory", bench.sandbox(), &call, &here).await?;
            ran.stdout.tail.trim().to_owned()
        }
    };
    if workdir.is_empty() || workdir == "/" {
        let message = format!("reuse needs a working directory of its own, not {workdir:?}");
        return Err(Stop::new(FailureClass::Unavailable, Phase::Prepare, message));
    }
    let mut spec = ExecSpec::new(["sh", "-c", script, &workdir]).cwd("/").timeout(TRANSFER_LIMIT);
    spec.user = bench.root();
    let call = bench.calls.call(Stage::Setup, spec.timeout + MARGIN);
    let ran = bench.rec.exec(Phase::Prepare, label, bench.sandbox(), &call, &spec).await?;
    if ran.success() {
        return Ok(());
    }
    let class = FailureClass::Environment;
    Err(Stop::from_completion(class, Phase::Prepare, label, &ran.report.completion, &ran.last_words()))
}

/// Opens the session if it is not open.
///
/// # Errors
/// Why it is not open, and what that leaves to clean up.
pub async fn ensure_open(context: &Context, trial: &Trial, session: &mut Session) -> Result<(), NotOpened> {
    if matches!(session, Session::Open(_)) {
        return Ok(());
    }
    let tag = Tag::new(&context.run, &format!("session-{}", uuid::Uuid::now_v7().simple()));
    let failed = |stop| NotOpened { stop, cleanup: Cleanup::Nothing };
    let materials = Materials::gather(context, trial, &tag)
        .map_err(|error| failed(Stop::new(FailureClass::Environment, Phase::Inputs, error.to_string())))?;
    let calls = Calls::new(&tag, context, trial.network(), materials.manifest());
    let rec = Recorder::new(tag.clone(), context, trial.key.clone());
    let work = Work { context, trial, rec: &rec, calls: &calls, materials: &materials };
    let mut spec = open::request(context, trial, None);
    spec.tag = tag.clone();
    spec.lifetime = open::allowed_lifetime(trial, spec.lifetime.max(SESSION_LIFETIME));
    let Created { sandbox, facts } = open::open(context, &rec, &calls, &trial.backend, &spec).await?;
    match make_ready(&work, &sandbox).await {
        Ok(()) => {
            *session = Session::Open(Held { sandbox, facts, previous: tag });
            Ok(())
        }
        Err(stop) => {
            let cleanup = open::end(context, &calls, &trial.backend, sandbox.reference()).await;
            Err(NotOpened { stop, cleanup })
        }
    }
}

async fn make_ready(work: &Work<'_>, sandbox: &Arc<dyn Sandbox>) -> Result<(), Stop> {
    let bench = work.bench(sandbox.clone())?;
    work::ready(&bench).await?;
    work::inputs(&bench).await?;
    prepare::environment(&bench).await?;
    save(&bench).await
}

/// Ends a session that no trial needs any more.
pub async fn close(context: &Context, backend: &Arc<dyn Backend>, session: &mut Session) -> Cleanup {
    match std::mem::take(session) {
        Session::Closed => Cleanup::Nothing,
        Session::Open(held) => {
            let reference = held.sandbox.reference();
            let calls = Calls::new(&reference.tag, context, NetworkPolicy::NoNetwork, Vec::new());
            open::end(context, &calls, backend, reference).await
        }
    }
}
