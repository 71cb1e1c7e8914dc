//! Hard cases, tried on one backend: what a sandbox has to bear, with what is expected of it, what was seen, and what was left
//! behind. They ask nothing but the contract, and hold on every backend.
//!
//! Two sandboxes are made. As for the doctor's other checks there is no journal: `reap --all-on` finds what this process
//! could not end.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_bench_core::{
    Backend, Call, Completion, Error, ErrorKind, ExecReport, ExecSpec, Grants, Input, OutputSink, Sandbox, SandboxRef,
    SandboxState, Stage, Stream, Tag, TagQuery, TailSink, TreeKill,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::connect;
use crate::doctor::{self, CREATE_LIMIT, DESTROY_LIMIT, EXEC_LIMIT, State};

/// Most bytes of the oversized output that may pass.
const OUTPUT_LIMIT: u64 = 64 << 10;

/// A hard case and what came of it.
#[derive(Debug, Serialize)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What is expected.
    pub expected: &'static str,
    /// What was seen.
    pub observed: String,
    /// What is expected to be kept and to be gone afterwards; seen to be so if the case is `ok`.
    pub afterwards: &'static str,
}

/// What came of the cases of one backend.
#[derive(Debug, Default)]
pub struct Cases {
    /// The cases, in the order in which they were tried.
    pub cases: Vec<Case>,
    /// False if a sandbox may still exist.
    pub clean: bool,
}

/// A case that did not come out as expected: true if the backend does not claim that it would.
struct Unexpected {
    known: bool,
    seen: String,
}

impl<T: Display> From<T> for Unexpected {
    fn from(seen: T) -> Self {
        Self { known: false, seen: seen.to_string() }
    }
}

type Seen = Result<String, Unexpected>;

/// Tries all cases on `backend`. Whatever happens, the sandboxes are asked to go.
pub async fn examine(backend: &dyn Backend, run: &str, interrupt: &CancellationToken) -> Cases {
    let mut cases = Cases { cases: Vec::new(), clean: true };
    let hard = Hard { backend, run, interrupt, made: Mutex::default() };
    let (first, second) = (Tag::new(run, "hard-1"), Tag::new(run, "hard-2"));
    hard.all(&first, &second, &mut cases).await;
    let mut left = Vec::new();
    for tag in [&first, &second] {
        left.extend(hard.end(tag).await.err());
    }
    cases.clean = left.is_empty();
    let seen =
        if cases.clean { Ok("the backend says that both are gone".to_owned()) } else { Err(left.join("; ").into()) };
    cases.note("cleanup", ("both sandboxes end", "nothing is left"), seen);
    cases
}

impl Cases {
    fn note(&mut self, name: &'static str, (expected, afterwards): (&'static str, &'static str), seen: Seen) {
        let (state, observed) = match seen {
            Ok(seen) => (State::Ok, seen),
            Err(Unexpected { known: true, seen }) => (State::Warning, seen),
            Err(Unexpected { known: false, seen }) => (State::Failed, seen),
        };
        self.cases.push(Case { name, state, expected, observed, afterwards });
    }
}

/// What a request came to: a sandbox, or a lost answer.
type Made = (Tag, Option<SandboxRef>);

struct Hard<'a> {
    backend: &'a dyn Backend,
    run: &'a str,
    interrupt: &'a CancellationToken,
    made: Mutex<Vec<Made>>,
}

impl Hard<'_> {
    async fn all(&self, first: &Tag, second: &Tag, cases: &mut Cases) {
        let one = match self.create(first).await {
            Ok(one) => one,
            Err(error) => return cases.note("sandbox", ("a sandbox to try them in", "-"), Err(error.into())),
        };
        let one = one.as_ref();
        cases.note(
            "normal task",
            ("exit code 0, the sum on stdout", "the file it wrote is kept"),
            self.normal(one).await,
        );
        let cut = ("exit code 0, 64 KiB at most, the rest counted", "the sandbox is kept");
        cases.note("oversized output", cut, self.oversized(one).await);
        let denied = ("denied, and nothing is sent", "no such file, the sandbox is kept");
        cases.note("denied data request", denied, self.denied(one).await);
        let cancelled = ("the command is cancelled", "its processes are gone, the sandbox is kept");
        cases.note("client disconnect", cancelled, self.disconnect(one).await);
        let limit = ("the time limit ends the command", "its processes are gone, the sandbox is kept");
        cases.note("process timeout", limit, self.timeout(one).await);
        let other = match self.create(second).await {
            Ok(other) => other,
            Err(error) => return cases.note("second sandbox", ("another sandbox beside it", "-"), Err(error.into())),
        };
        let apart = ("neither sees the other's file", "each keeps its own");
        cases.note("session isolation", apart, self.isolation(one, other.as_ref()).await);
        let replaced = ("the old one ends, the new one goes on", "no command runs in the old one");
        cases.note("service replacement", replaced, self.replacement(one, other.as_ref()).await);
    }

    fn call(&self, tag: &Tag, limit: Duration) -> Call {
        let grants = Grants { network: doctor::request(self.backend, tag.clone()).network, ..Grants::default() };
        Call::new(tag.clone(), limit, Arc::new(grants)).with_cancel(self.interrupt.child_token())
    }

    async fn create(&self, tag: &Tag) -> Result<Arc<dyn Sandbox>, Error> {
        let spec = doctor::request(self.backend, tag.clone());
        let call = self.call(tag, CREATE_LIMIT + EXEC_LIMIT);
        let created = self.backend.create(&call, &spec, &TailSink::new(0)).await.map(|created| created.sandbox);
        match &created {
            Ok(sandbox) => self.made().push((tag.clone(), Some(sandbox.reference().clone()))),
            Err(error) if matches!(error.kind(), ErrorKind::UncertainSubmission { .. }) => {
                self.made().push((tag.clone(), None));
            }
            Err(_) => {}
        }
        created
    }

    /// Ends what came of the request under this tag. Goes on after an interruption.
    async fn end(&self, tag: &Tag) -> Result<(), String> {
        let made = self.made().iter().find(|(of, _)| of == tag).map(|(_, sandbox)| sandbox.clone());
        let Some(sandbox) = made else { return Ok(()) };
        let call = Call { tag: tag.clone(), ..connect::call(self.run).with_limit(DESTROY_LIMIT) };
        let ended = doctor::clean_up(self.backend, &call, sandbox).await;
        ended.map_err(|why| format!("{tag} may still exist: {why}"))
    }

    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(&self, sandbox: &dyn Sandbox, spec: &ExecSpec, sink: &dyn OutputSink) -> Result<ExecReport, Error> {
        sandbox.exec(&self.call(&sandbox.reference().tag, EXEC_LIMIT * 2), spec, sink).await
    }

    /// Runs a script that tells by its exit code whether what it says holds.
    async fn holds(&self, sandbox: &dyn Sandbox, what: &str, script: &str) -> Result<(), Unexpected> {
        let ran = self.run(sandbox, &ExecSpec::sh(script).timeout(EXEC_LIMIT), &TailSink::new(0)).await?;
        if ran.completion.success() { Ok(()) } else { Err(format!("{what} does not hold ({})", ran.completion).into()) }
    }

    async fn normal(&self, sandbox: &dyn Sandbox) -> Seen {
        let script = "n=0; for i in 2 3 5; do n=$((n + i)); done; echo $n >/tmp/hard-total; echo $n";
        let sink = TailSink::new(64);
        let ran = self.run(sandbox, &ExecSpec::sh(script), &sink).await?;
        let said = sink.text(Stream::Stdout);
        if !ran.completion.success() || said.trim() != "10" {
            return Err(format!("{}, {said:?}", ran.completion).into());
        }
        self.holds(sandbox, "the file is kept", "read n </tmp/hard-total && [ $n = 10 ]").await?;
        Ok("exit code 0, 10".to_owned())
    }

    async fn oversized(&self, sandbox: &dyn Sandbox) -> Seen {
        let script = "l=0123456789abcdef; l=$l$l$l$l; l=$l$l$l$l; l=$l$l$l$l; i=0; \
                      while [ $i -lt 1024 ]; do echo $l; i=$((i + 1)); done; echo the end";
        let spec = ExecSpec { output_limit: OUTPUT_LIMIT, ..ExecSpec::sh(script) };
        let sink = TailSink::new(16);
        let ran = self.run(sandbox, &spec, &sink).await?;
        let passed = ran.stdout.delivered_bytes;
        let total = ran.stdout.total_bytes.map_or_else(|| "an unknown number".to_owned(), |total| total.to_string());
        let seen = format!("{}, {passed} of {total} bytes", ran.completion);
        match ran.completion.success() && passed <= OUTPUT_LIMIT && ran.stdout.truncated() {
            false => Err(seen.into()),
            true if !sink.text(Stream::Stdout).trim().ends_with("the end") => {
                Err(format!("{seen}, without its end").into())
            }
            true => Ok(seen + ", its end among them"),
        }
    }

    async fn denied(&self, sandbox: &dyn Sandbox) -> Seen {
        let input = Input::bytes("not granted", "/tmp/hard-denied", Stage::Setup, 0o644, "data");
        let call = self.call(&sandbox.reference().tag, EXEC_LIMIT);
        match sandbox.upload(&call, &[input]).await {
            Err(error) if *error.kind() == ErrorKind::Denied => {
                self.holds(sandbox, "there is no such file", "[ ! -e /tmp/hard-denied ]").await?;
                Ok(format!("{} requests; {error}", call.meter.read().api_calls))
            }
            Err(error) => Err(error.into()),
            Ok(_) => Err("the file was placed".into()),
        }
    }

    async fn disconnect(&self, sandbox: &dyn Sandbox) -> Seen {
        let cancel = self.interrupt.child_token();
        let call = self.call(&sandbox.reference().tag, EXEC_LIMIT * 2).with_cancel(cancel.clone());
        let spec = ExecSpec::sh("echo begun; sleep 5; echo late >/tmp/hard-late").timeout(EXEC_LIMIT);
        let ran = sandbox.exec(&call, &spec, &Leaves(cancel)).await?;
        let Completion::Cancelled { tree_killed } = ran.completion else {
            return Err(format!("{}: its output came too late to leave it", ran.completion).into());
        };
        self.gone(sandbox, "cancelled", tree_killed, "sleep 6; [ ! -e /tmp/hard-late ]").await
    }

    async fn timeout(&self, sandbox: &dyn Sandbox) -> Seen {
        let script = "(sleep 4; echo late >/tmp/hard-child) & sleep 60";
        let spec = ExecSpec::sh(script).timeout(Duration::from_secs(1));
        let ran = self.run(sandbox, &spec, &TailSink::new(0)).await?;
        let Completion::DeadlineExceeded { tree_killed } = ran.completion else {
            return Err(ran.completion.into());
        };
        self.gone(sandbox, "time limit exceeded", tree_killed, "sleep 5; [ ! -e /tmp/hard-child ]").await
    }

    /// Whether the processes of a command that was ended are gone. A backend that does not claim to end them all is not
    /// at fault.
    async fn gone(&self, sandbox: &dyn Sandbox, ended: &str, killed: TreeKill, script: &str) -> Seen {
        let killed = match killed {
            TreeKill::Yes => "seen to be gone",
            TreeKill::No => "not all gone",
            TreeKill::Unknown => "not told",
        };
        let ended = format!("{ended}; its processes: {killed}");
        match self.holds(sandbox, "its processes are gone", script).await {
            Ok(()) => Ok(ended),
            Err(Unexpected { seen, .. }) => {
                let known = !self.backend.info().capabilities.tree_kill;
                Err(Unexpected { known, seen: format!("{ended}; {seen}") })
            }
        }
    }

    async fn isolation(&self, one: &dyn Sandbox, other: &dyn Sandbox) -> Seen {
        self.holds(one, "it can write", "echo one >/tmp/hard-canary").await?;
        self.holds(other, "it sees no file of the other", "[ ! -e /tmp/hard-canary ] && [ ! -e /tmp/hard-total ]")
            .await?;
        self.holds(other, "it can write", "echo other >/tmp/hard-canary").await?;
        self.holds(one, "it keeps its own file", "read w </tmp/hard-canary && [ $w = one ]").await?;
        Ok("neither did".to_owned())
    }

    async fn replacement(&self, old: &dyn Sandbox, new: &dyn Sandbox) -> Seen {
        let tag = old.reference().tag.clone();
        self.end(&tag).await?;
        let ran = self.run(old, &ExecSpec::sh("echo still here"), &TailSink::new(0)).await;
        let seen = match ran {
            Ok(ran) if ran.completion.success() => return Err("a command ran in the old one".into()),
            Ok(ran) => ran.completion.to_string(),
            Err(error) => error.kind().name().to_owned(),
        };
        let found = self.backend.find(&self.call(&tag, EXEC_LIMIT), &TagQuery::Exact(tag.clone())).await?;
        if found.iter().any(|one| one.state == SandboxState::Running) {
            return Err("the backend still calls the old one running".into());
        }
        self.holds(new, "the new one goes on", "read w </tmp/hard-canary && [ $w = other ]").await?;
        Ok(format!("a command in the old one: {seen}"))
    }
}

/// A client that leaves at the first output.
struct Leaves(CancellationToken);

impl OutputSink for Leaves {
    fn write(&self, _: Stream, _: &[u8]) {
        self.0.cancel();
    }
}
