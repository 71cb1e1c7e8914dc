//! A sandbox: what the API says about it, and the machine behind it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::record::{Record, State};
use super::toolbox::Sessions;
use crate::log::Log;
use crate::machine::Machine;

pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) created: Instant,
    pub(super) build_log: Arc<Log>,
    pub(super) signing_key: Mutex<String>,
    record: watch::Sender<Record>,
    live: Mutex<Live>,
}

struct Live {
    machine: Option<Arc<Machine>>,
    /// Of the current boot.
    sessions: Arc<Sessions>,
    last_activity: Instant,
    stopped: Option<Instant>,
}

impl Sandbox {
    pub(super) fn new(record: Record) -> Sandbox {
        let live = Live { machine: None, sessions: Arc::default(), last_activity: Instant::now(), stopped: None };
        Sandbox {
            id: record.id.clone(),
            created: Instant::now(),
            build_log: Arc::default(),
            signing_key: Mutex::new(uuid::Uuid::new_v4().to_string()),
            record: watch::Sender::new(record),
            live: Mutex::new(live),
        }
    }

    pub(super) fn record(&self) -> Record {
        self.record.borrow().clone()
    }

    /// Only [`super::state::Daytona::change`] calls this, which also tells the list.
    pub(super) fn modify(&self, change: impl FnOnce(&mut Record)) {
        self.record.send_modify(change);
        let state = self.record.borrow().state;
        let mut live = self.live();
        let stopped = matches!(state, State::Stopped | State::Archived);
        live.stopped = if stopped { live.stopped.or_else(|| Some(Instant::now())) } else { None };
    }

    /// Waits until nothing is going on, at most so long.
    pub(super) async fn settled(&self, limit: Duration) -> State {
        let mut record = self.record.subscribe();
        let settled = record.wait_for(|record| record.state.settled());
        let _ = tokio::time::timeout(limit, settled).await.map(drop);
        self.record.borrow().state
    }

    /// Waits until it goes down.
    pub(super) async fn down(&self) {
        // The sender lives as long as `self`.
        let _ = self.record.subscribe().wait_for(|record| record.state.down()).await.map(drop);
    }

    pub(super) fn machine(&self) -> Option<Arc<Machine>> {
        self.live().machine.clone()
    }

    pub(super) fn set_machine(&self, machine: Option<Arc<Machine>>) {
        self.live().machine = machine;
    }

    pub(super) fn sessions(&self) -> Arc<Sessions> {
        Arc::clone(&self.live().sessions)
    }

    /// Ends all sessions; later ones are new.
    pub(super) fn forget_sessions(&self) {
        self.live().sessions = Arc::default();
    }

    pub(super) fn touch(&self) {
        self.live().last_activity = Instant::now();
        self.record.send_modify(|record| record.last_activity_at = jiff::Timestamp::now());
    }

    pub(super) fn idle(&self) -> Duration {
        self.live().last_activity.elapsed()
    }

    /// For how long it has been stopped, if it is.
    pub(super) fn stopped(&self) -> Option<Duration> {
        self.live().stopped.map(|since| since.elapsed())
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
