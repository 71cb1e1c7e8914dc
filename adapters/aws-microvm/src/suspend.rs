//! Suspending a MicroVM and resuming it.
//!
//! The service answers before it has done what it was told. It may be told twice: one that is suspended stays so, one that runs
//! goes on. So whatever has not happened after a while is asked for again, also where an order was lost or came too early.

use std::time::Duration;

use aws_sdk_lambdamicrovms::types::MicrovmState;
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::Effect;
use sandbox_bench_kit::wait::bounded;
use tokio::time::Instant;

use crate::cloud::ask;
use crate::vm::Vm;

/// Pauses between two looks at a MicroVM that changes.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// How long the service may take before it is told again.
const AGAIN: Duration = Duration::from_secs(10);

/// The time that a MicroVM was suspended, by the host's clock: from when it was seen to be, until it was told to go on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rest {
    /// It was told to suspend, and not seen to run since.
    pub(crate) resting: bool,
    since: Option<Instant>,
    total: Duration,
}

impl Rest {
    fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn pause(&mut self) {
        self.total = self.so_far();
        self.since = None;
    }

    /// All of it until now.
    pub(crate) fn so_far(&self) -> Duration {
        self.total + self.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// Suspends it, once its runner has answered: one that starts cannot be.
///
/// # Errors
/// `InvalidRequest` if the service was not told at its start, `SandboxLost`, those of the service.
pub(crate) async fn suspend(vm: &Vm, call: &Call) -> Result<()> {
    if !vm.resumable {
        return Err(Error::invalid(format!("MicroVM {} was not started to be suspended", vm.id)));
    }
    if !vm.rest().resting {
        vm.ready(call).await?;
        vm.stop_using();
    }
    let what = format!("MicroVM {}: suspend", vm.id);
    let order = || async {
        let request = vm.cloud.lambda.suspend_microvm().microvm_identifier(&vm.id);
        ask(call, &what, Effect::Idempotent, request.send()).await.map(drop)
    };
    until(vm, call, &what, &MicrovmState::Suspended, order).await?;
    vm.rest().begin();
    Ok(())
}

/// Lets it go on.
///
/// # Errors
/// `SandboxLost`, those of the service.
pub(crate) async fn resume(vm: &Vm, call: &Call) -> Result<()> {
    let what = format!("MicroVM {}: resume", vm.id);
    vm.rest().pause();
    let order = || async {
        let request = vm.cloud.lambda.resume_microvm().microvm_identifier(&vm.id);
        ask(call, &what, Effect::Idempotent, request.send()).await.map(drop)
    };
    until(vm, call, &what, &MicrovmState::Running, order).await?;
    vm.rest().resting = false;
    Ok(())
}

/// Gives the order, and waits until the service says that it was followed.
async fn until<Fut>(vm: &Vm, call: &Call, what: &str, wanted: &MicrovmState, order: impl Fn() -> Fut) -> Result<()>
where
    Fut: Future<Output = Result<()>> + Send,
{
    let (mut pause, mut told) = (PAUSES[0], Instant::now());
    of_a_living_one(vm, call, order().await).await?;
    loop {
        match vm.look(call).await {
            Ok(seen) if seen.state == *wanted => return Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::RateLimited { .. }) => {
                return Err(error);
            }
            _ => {}
        }
        if told.elapsed() > AGAIN {
            told = Instant::now();
            call.meter.retried();
            of_a_living_one(vm, call, order().await).await?;
        }
        bounded(call, what, tokio::time::sleep(pause)).await?;
        pause = (pause * 3 / 2).min(PAUSES[1]);
    }
}

/// What the service refuses to one that has ended is its loss.
async fn of_a_living_one(vm: &Vm, call: &Call, told: Result<()>) -> Result<()> {
    match told {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::NotFound) => {
            match vm.look(call).await {
                Err(lost) if *lost.kind() == ErrorKind::SandboxLost => Err(lost),
                _ => Err(error),
            }
        }
        told => told,
    }
}
