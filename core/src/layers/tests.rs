//! The layers' promises, against a scripted backend.
#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Layer as _, RetryPolicy, stack};
use crate::*;

type Script = VecDeque<std::result::Result<(), ErrorKind>>;

/// Answers each operation by the next line of a script; an empty script never answers.
struct Scripted {
    info: BackendInfo,
    script: Mutex<Script>,
    seen: Mutex<Vec<Instant>>,
}

impl Scripted {
    async fn next(&self) -> Result<()> {
        self.seen.lock().unwrap().push(Instant::now());
        let next = self.script.lock().unwrap().pop_front();
        match next {
            Some(Ok(())) => Ok(()),
            Some(Err(kind)) => Err(Error::new(kind, "scripted")),
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Backend for Scripted {
    fn info(&self) -> &BackendInfo {
        &self.info
    }
    async fn preflight(&self, _: &Call) -> Result<Preflight> {
        unreachable!()
    }
    async fn create(&self, _: &Call, _: &SandboxSpec, _: &dyn OutputSink) -> Result<Created> {
        self.next().await?;
        unreachable!("scripts of create hold errors only")
    }
    async fn attach(&self, _: &Call, _: &SandboxRef) -> Result<Arc<dyn Sandbox>> {
        unreachable!()
    }
    async fn find(&self, _: &Call, _: &TagQuery) -> Result<Vec<Found>> {
        self.next().await.map(|()| Vec::new())
    }
    async fn destroy(&self, _: &Call, _: &SandboxRef) -> Result<Destruction> {
        self.next().await.map(|()| Destruction::Confirmed)
    }
}

fn scripted(script: impl IntoIterator<Item = std::result::Result<(), ErrorKind>>) -> (Arc<Scripted>, Arc<dyn Backend>) {
    let info = BackendInfo {
        name: "scripted".into(),
        adapter_version: "0".into(),
        backend_version: None,
        api_version: None,
        endpoint: "none".into(),
        region: None,
        architecture: "x86_64".into(),
        capabilities: Capabilities::default(),
    };
    let script = script.into_iter().collect();
    let inner = Arc::new(Scripted { info, script: Mutex::new(script), seen: Mutex::default() });
    (inner.clone(), stack(inner, RetryPolicy::default()))
}

fn call() -> Call {
    let grants = Grants { network: NetworkPolicy::Public, ..Grants::default() };
    Call::new(Tag::new("run", "unit"), Duration::from_secs(60), Arc::new(grants))
}

fn spec() -> SandboxSpec {
    SandboxSpec::new(Tag::new("run", "unit"), Source::Base)
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_operation_is_repeated_after_a_transport_fault() {
    let (inner, backend) = scripted([Err(ErrorKind::Transport), Err(ErrorKind::Unavailable), Ok(())]);
    let call = call();
    backend.find(&call, &TagQuery::All).await.unwrap();
    assert_eq!(inner.seen.lock().unwrap().len(), 3);
    assert_eq!(call.meter.read().retries, 2);
}

#[tokio::test(start_paused = true)]
async fn a_create_is_repeated_only_when_nothing_took_effect() {
    let (inner, backend) = scripted([Err(ErrorKind::Unavailable), Err(ErrorKind::Transport)]);
    let error = backend.create(&call(), &spec(), &TailSink::new(0)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::UncertainSubmission { tag: spec().tag });
    assert_eq!(inner.seen.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_request_is_not_repeated() {
    let (inner, backend) = scripted([Err(ErrorKind::InvalidRequest)]);
    assert!(backend.find(&call(), &TagQuery::All).await.is_err());
    assert_eq!(inner.seen.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_out_by_everybody() {
    let limited = ErrorKind::RateLimited { retry_after: Some(Duration::from_secs(30)) };
    let (inner, backend) = scripted([Err(limited), Ok(()), Ok(())]);
    let (first, second) = tokio::join!(async { backend.find(&call(), &TagQuery::All).await }, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        backend.find(&call(), &TagQuery::All).await
    },);
    first.unwrap();
    second.unwrap();
    let seen = inner.seen.lock().unwrap();
    assert!(seen[1..].iter().all(|at| *at - seen[0] >= Duration::from_secs(30)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_returns_ends_at_its_deadline() {
    let (_, backend) = scripted([]);
    let start = Instant::now();
    let error = backend.find(&call(), &TagQuery::All).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(start.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_never_returns_is_an_uncertain_submission_with_its_tag() {
    let (_, backend) = scripted([]);
    let error = backend.create(&call(), &spec(), &TailSink::new(0)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::UncertainSubmission { tag: spec().tag });
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_that_hangs_is_cut_after_the_grace() {
    let (_, backend) = scripted([]);
    let call = call();
    let cancel = call.cancel.clone();
    let start = Instant::now();
    let (result, ()) = tokio::join!(backend.find(&call, &TagQuery::All), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    });
    assert_eq!(*result.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(start.elapsed(), Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_outlasts_the_deadline_is_not_begun() {
    let limited = ErrorKind::RateLimited { retry_after: Some(Duration::from_secs(600)) };
    let (_, backend) = scripted([Err(limited.clone())]);
    let start = Instant::now();
    let error = backend.create(&call(), &spec(), &TailSink::new(0)).await.err().unwrap();
    assert_eq!(*error.kind(), limited);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn cancellation_ends_the_wait_for_a_repetition_at_once() {
    let limited = ErrorKind::RateLimited { retry_after: Some(Duration::from_secs(30)) };
    let (inner, backend) = scripted([Err(limited)]);
    let (call, spec, sink) = (call(), spec(), TailSink::new(0));
    let cancel = call.cancel.clone();
    let start = Instant::now();
    let (result, ()) = tokio::join!(backend.create(&call, &spec, &sink), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cancel.cancel();
    });
    assert_eq!(*result.err().unwrap().kind(), ErrorKind::Cancelled);
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert_eq!(inner.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn bytes_that_are_not_the_listed_ones_are_denied() {
    let mut input = Input::bytes("tests", "/tests/a", Stage::Setup, 0o644, "listed");
    assert!(input.is_intact().unwrap());
    input.payload = Payload::Bytes { bytes: "smuggled".into(), mode: 0o644 };
    let grants = Grants { inputs: vec![input.entry.clone()], ..Grants::default() };
    let call = Call::new(Tag::new("run", "unit"), Duration::from_secs(60), Arc::new(grants));
    let run = |_: Call| -> super::BoxFuture<'_, Result<()>> { Box::pin(async { Ok(()) }) };
    let inputs = [input];
    let error = super::GuardLayer.around(super::Operation::Upload(&inputs), &call, run).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_network_that_was_not_granted_is_denied_before_anything_is_sent() {
    let (inner, backend) = scripted([]);
    let call = Call::new(Tag::new("run", "unit"), Duration::from_secs(60), Arc::default());
    let error = backend.create(&call, &spec(), &TailSink::new(0)).await.err().unwrap();
    assert_eq!(*error.kind(), ErrorKind::Denied);
    assert!(inner.seen.lock().unwrap().is_empty());
}
