//! A MicroVM, as the API shows it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::clock::seconds;
use super::hooks::HookPlan;
use super::request::IdlePolicy;
use super::size::Size;
use crate::log::Log;
use crate::machine::Machine;

/// Bytes kept of what a program writes.
const LOG: usize = 1 << 20;
/// States that are remembered, for answers that are behind.
const REMEMBERED: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Running,
    Suspending,
    Suspended,
    Terminating,
    Terminated,
}

impl State {
    pub(super) fn word(self) -> &'static str {
        match self {
            State::Pending => "PENDING",
            State::Running => "RUNNING",
            State::Suspending => "SUSPENDING",
            State::Suspended => "SUSPENDED",
            State::Terminating => "TERMINATING",
            State::Terminated => "TERMINATED",
        }
    }

    pub(super) fn over(self) -> bool {
        matches!(self, State::Terminating | State::Terminated)
    }
}

/// What a MicroVM is told; see [`super::life`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Suspend,
    Resume,
    Terminate,
    /// To say that it terminates, and not to.
    Linger,
    /// To stop as if by itself.
    Die,
}

/// What a MicroVM was asked to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) image_arn: String,
    pub(super) image_version: String,
    pub(super) size: Size,
    pub(super) hooks: HookPlan,
    pub(super) execution_role: Option<String>,
    pub(super) key: Option<String>,
    pub(super) idle: Option<IdlePolicy>,
    /// Seconds.
    pub(super) maximum: u64,
    pub(super) ingress: Vec<String>,
    pub(super) egress: Vec<String>,
    pub(super) payload: Option<String>,
}

pub(super) struct Microvm {
    /// Its place in lists.
    pub(super) number: u64,
    pub(super) id: String,
    /// The host name of its endpoint.
    pub(super) endpoint: String,
    pub(super) plan: Plan,
    /// What its program writes.
    pub(super) log: Arc<Log>,
    started_at: Timestamp,
    history: Mutex<VecDeque<Entry>>,
    state: watch::Sender<State>,
    orders: mpsc::UnboundedSender<Order>,
    machine: Mutex<Option<Arc<Machine>>>,
    /// When bytes last passed its endpoint.
    traffic: Mutex<Instant>,
    /// From when on the endpoint answers.
    reachable: Mutex<Option<Instant>>,
    /// Connections to the endpoint.
    pub(super) connections: Arc<Semaphore>,
    /// Ports that the proxy has tried to speak TLS with.
    pub(super) probed: tokio::sync::Mutex<Vec<u16>>,
}

/// A state and since when.
#[derive(Clone, Debug)]
struct Entry {
    since: Instant,
    state: State,
    reason: Option<String>,
    terminated_at: Option<Timestamp>,
}

impl Microvm {
    /// One that is pending, and the orders that it will be given.
    pub(super) fn new(number: u64, region: &str, plan: Plan) -> (Arc<Microvm>, mpsc::UnboundedReceiver<Order>) {
        let (orders, given) = mpsc::unbounded_channel();
        let entry = Entry { since: Instant::now(), state: State::Pending, reason: None, terminated_at: None };
        let microvm = Microvm {
            number,
            id: format!("microvm-{}", Uuid::new_v4()),
            endpoint: format!("{}.lambda-microvm.{region}.on.aws", Uuid::new_v4()),
            connections: Arc::new(Semaphore::new(plan.size.connections())),
            plan,
            log: Arc::new(Log::new(LOG)),
            started_at: Timestamp::now(),
            history: Mutex::new(VecDeque::from([entry])),
            state: watch::Sender::new(State::Pending),
            orders,
            machine: Mutex::default(),
            traffic: Mutex::new(Instant::now()),
            reachable: Mutex::default(),
            probed: tokio::sync::Mutex::default(),
        };
        (Arc::new(microvm), given)
    }

    pub(super) fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Changes as the state does.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// How long ago it ended.
    pub(super) fn ended_for(&self) -> Option<Duration> {
        let history = lock(&self.history);
        let last = history.back().filter(|entry| entry.state == State::Terminated);
        last.map(|entry| entry.since.elapsed())
    }

    pub(super) fn enter(&self, state: State, reason: Option<&str>) {
        {
            let mut history = lock(&self.history);
            let before = history.back().and_then(|entry| entry.reason.clone());
            let terminated_at = (state == State::Terminated).then(Timestamp::now);
            let reason = reason.map(str::to_owned).or(before);
            history.push_back(Entry { since: Instant::now(), state, reason, terminated_at });
            if history.len() > REMEMBERED {
                history.pop_front();
            }
        }
        self.state.send_replace(state);
    }

    /// Its life may be over, and then nobody listens.
    pub(super) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    pub(super) fn machine(&self) -> Option<Arc<Machine>> {
        lock(&self.machine).clone()
    }

    pub(super) fn set_machine(&self, machine: Option<Arc<Machine>>) {
        *lock(&self.machine) = machine;
    }

    /// Bytes pass its endpoint.
    pub(super) fn touch(&self) {
        *lock(&self.traffic) = Instant::now();
    }

    pub(super) fn last_traffic(&self) -> Instant {
        *lock(&self.traffic)
    }

    pub(super) fn reachable_at(&self, at: Instant) {
        *lock(&self.reachable) = Some(at);
    }

    pub(super) fn reachable(&self) -> bool {
        lock(&self.reachable).is_some_and(|at| at <= Instant::now())
    }

    /// In a list, as things were `lag` ago.
    pub(super) fn summary(&self, lag: Duration) -> Value {
        json!({
            "microvmId": self.id,
            "state": self.at(lag).state.word(),
            "imageArn": self.plan.image_arn,
            "imageVersion": self.plan.image_version,
            "startedAt": seconds(self.started_at),
        })
    }

    /// As things were `lag` ago.
    pub(super) fn view(&self, lag: Duration) -> Value {
        let (plan, entry) = (&self.plan, self.at(lag));
        let mut view = self.summary(lag);
        view["endpoint"] = json!(self.endpoint);
        view["maximumDurationInSeconds"] = json!(plan.maximum);
        view["executionRoleArn"] = json!(plan.execution_role);
        view["kmsKeyIdentifier"] = json!(plan.key);
        view["idlePolicy"] = json!(plan.idle);
        view["ingressNetworkConnectors"] = json!(plan.ingress);
        view["egressNetworkConnectors"] = json!(plan.egress);
        view["stateReason"] = json!(entry.reason);
        view["terminatedAt"] = entry.terminated_at.map(seconds).unwrap_or_default();
        view["terminationReasonCode"] = Value::Null;
        view
    }

    fn at(&self, lag: Duration) -> Entry {
        let history = lock(&self.history);
        let old = |entry: &&Entry| entry.since.elapsed() >= lag;
        let entry = history.iter().rev().find(old).or(history.front());
        // It has an entry from the beginning on, and never loses its last.
        entry.cloned().unwrap_or(Entry {
            since: Instant::now(),
            state: self.state(),
            reason: None,
            terminated_at: None,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
