//! A MicroVM's life: one task that alone changes its state.
//!
//! `PENDING` → `RUNNING` ⇄ `SUSPENDED` → `TERMINATED`, driven by orders, by the idle policy, by the maximum duration, and
//! by faults.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Aws;
use super::hooks::run_body;
use super::microvm::{Microvm, Order, State};
use super::program;
use crate::faults::Flags;
use crate::machine::{Machine, MachineSpec, Saved, Source};

/// The reason of an end that was asked for.
const SUCCESS: &str = "Success.";
/// Between two looks at whether a machine has ended.
const LOOK: Duration = Duration::from_millis(200);
/// The reason of an end that nobody asked for.
const DIED: &str = "The MicroVM stopped unexpectedly.";

/// What goes wrong, by the fault script.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    /// It never runs.
    fails: bool,
    /// It dies so long after it began to run.
    dies_after: Option<Duration>,
}

impl Fate {
    pub(super) fn of(flags: &Flags) -> Fate {
        Fate { fails: flags.has("start-fails"), dies_after: flags.value("dies").map(Duration::from_millis) }
    }
}

/// What a MicroVM starts from.
pub(super) struct Origin {
    pub(super) saved: Arc<Saved>,
    pub(super) env: std::collections::BTreeMap<String, String>,
}

impl Aws {
    /// Lives it to its end.
    pub(super) async fn live(
        self: Arc<Self>,
        microvm: Arc<Microvm>,
        origin: Origin,
        mut orders: mpsc::UnboundedReceiver<Order>,
        fate: Fate,
    ) {
        let maximum = Instant::now() + self.seconds(microvm.plan.maximum);
        // Not given up half-way, so that a machine that exists is always known.
        let machine = self.make_machine(&microvm, &origin, fate).await;
        let started = match machine {
            Ok(machine) => tokio::select! {
                started = self.start_program(&microvm, &machine) => started,
                () = terminated(&mut orders) => Err(SUCCESS.to_owned()),
                () = tokio::time::sleep_until(maximum) => Err(duration_reached()),
            },
            Err(reason) => Err(reason),
        };
        let reason = match started {
            Ok(()) => self.run_microvm(&microvm, &mut orders, maximum, fate).await,
            Err(reason) => reason,
        };
        self.end_microvm(&microvm, &reason).await;
    }

    async fn make_machine(&self, microvm: &Microvm, origin: &Origin, fate: Fate) -> Result<Arc<Machine>, String> {
        tokio::time::sleep(self.emulation.timing.transition).await;
        if fate.fails {
            return Err("Internal error while starting the MicroVM.".to_owned());
        }
        let spec = MachineSpec {
            env: origin.env.clone(),
            limits: microvm.plan.size.limits(),
            offline: self.options.isolates(&microvm.plan.egress),
            ..MachineSpec::new(Source::Saved(Arc::clone(&origin.saved)))
        };
        let machine = self.emulation.machines.create(spec).await.map_err(|error| error.to_string())?;
        let machine = Arc::new(machine);
        microvm.set_machine(Some(Arc::clone(&machine)));
        Ok(machine)
    }

    async fn start_program(&self, microvm: &Microvm, machine: &Machine) -> Result<(), String> {
        let (hooks, tasks) = (&microvm.plan.hooks, &self.emulation.tasks);
        program::start(machine, tasks, &microvm.log)?;
        // Where the service restores a program that was ready, here it starts anew: it is ready again first.
        if let Some(ready) = hooks.ready {
            ready.wait(machine, tasks).await?;
        }
        if let Some(run) = hooks.run {
            let body = run_body(&microvm.id, microvm.plan.payload.as_deref());
            run.call(machine, tasks, Some(&body)).await?;
        }
        Ok(())
    }

    /// From `RUNNING` to the reason of its end.
    async fn run_microvm(
        &self,
        microvm: &Microvm,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        maximum: Instant,
        fate: Fate,
    ) -> String {
        let dies = fate.dies_after.map(|after| Instant::now() + after);
        self.running(microvm, self.options.endpoint_lag);
        loop {
            let timer = self.timer(microvm);
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Suspend) if microvm.state() == State::Running => {
                        if let Err(reason) = self.suspend(microvm).await {
                            return reason;
                        }
                    }
                    Some(Order::Resume) if microvm.state() == State::Suspended => {
                        if let Err(reason) = self.resume(microvm).await {
                            return reason;
                        }
                    }
                    Some(Order::Suspend | Order::Resume) => {}
                    Some(Order::Linger) => microvm.enter(State::Terminating, None),
                    Some(Order::Terminate) | None => return SUCCESS.to_owned(),
                    Some(Order::Die) => return DIED.to_owned(),
                },
                () = until(Some(maximum)) => return duration_reached(),
                () = until(dies) => return DIED.to_owned(),
                () = gone(microvm) => return DIED.to_owned(),
                () = until(timer) => match microvm.state() {
                    State::Suspended => return "Suspended duration reached.".to_owned(),
                    // Traffic may have come since the timer was set.
                    _ if self.timer(microvm).is_none_or(|at| at > Instant::now()) => {}
                    _ => if let Err(reason) = self.suspend(microvm).await {
                        return reason;
                    },
                },
            }
        }
    }

    fn running(&self, microvm: &Microvm, lag: Duration) {
        microvm.touch();
        microvm.reachable_at(Instant::now() + lag);
        microvm.enter(State::Running, None);
    }

    /// When the idle policy acts next.
    fn timer(&self, microvm: &Microvm) -> Option<Instant> {
        let idle = microvm.plan.idle?;
        Some(match microvm.state() {
            State::Suspended => microvm.last_traffic() + self.seconds(idle.suspended_duration_seconds),
            State::Terminating => return None,
            _ => microvm.last_traffic() + self.seconds(idle.max_idle_duration_seconds),
        })
    }

    async fn suspend(&self, microvm: &Microvm) -> Result<(), String> {
        microvm.enter(State::Suspending, None);
        let machine = alive(microvm)?;
        if let Some(hook) = microvm.plan.hooks.suspend {
            hook.call(&machine, &self.emulation.tasks, None).await?;
        }
        machine.stop_all(true).await.map_err(|error| error.to_string())?;
        tokio::time::sleep(self.emulation.timing.transition).await;
        // From here on the suspended duration counts.
        microvm.touch();
        microvm.enter(State::Suspended, None);
        Ok(())
    }

    async fn resume(&self, microvm: &Microvm) -> Result<(), String> {
        tokio::time::sleep(self.emulation.timing.transition).await;
        let machine = alive(microvm)?;
        machine.stop_all(false).await.map_err(|error| error.to_string())?;
        if let Some(hook) = microvm.plan.hooks.resume {
            hook.call(&machine, &self.emulation.tasks, None).await?;
        }
        self.running(microvm, Duration::ZERO);
        Ok(())
    }

    async fn end_microvm(&self, microvm: &Microvm, reason: &str) {
        let state = microvm.state();
        microvm.enter(State::Terminating, Some(reason));
        if let Some(machine) = microvm.machine() {
            let asked = state == State::Running && reason != DIED;
            if let Some(hook) = microvm.plan.hooks.terminate.filter(|_| asked) {
                // It ends whatever the hook says.
                let _ = hook.call(&machine, &self.emulation.tasks, None).await;
            }
            // What would not go stays known to the machines, which remove it at the end.
            let _ = self.emulation.machines.destroy(&machine).await;
            microvm.set_machine(None);
        }
        tokio::time::sleep(self.emulation.timing.transition).await;
        microvm.enter(State::Terminated, Some(reason));
    }
}

fn duration_reached() -> String {
    "Maximum duration reached.".to_owned()
}

fn alive(microvm: &Microvm) -> Result<Arc<Machine>, String> {
    microvm.machine().filter(|machine| !machine.ended()).ok_or_else(|| DIED.to_owned())
}

/// Waits for the order to end; others make no sense before it runs.
async fn terminated(orders: &mut mpsc::UnboundedReceiver<Order>) {
    while orders.recv().await.is_some_and(|order| order != Order::Terminate) {}
}

/// Waits for its machine to end by itself, as one does that runs out of memory.
async fn gone(microvm: &Microvm) {
    while microvm.machine().is_some_and(|machine| !machine.ended()) {
        tokio::time::sleep(LOOK).await;
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
