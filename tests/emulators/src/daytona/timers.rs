//! Intervals that end sandboxes: idle, stopped for long, lived for long.

use std::sync::Arc;
use std::time::Duration;

use super::lifecycle;
use super::record::State;
use super::sandbox::Sandbox;
use super::state::Daytona;

/// The vendor looks so many times a minute.
const LOOKS_PER_MINUTE: u32 = 6;

pub(super) fn start(daytona: &Arc<Daytona>) {
    let weak = Arc::downgrade(daytona);
    let pause = daytona.options.minute / LOOKS_PER_MINUTE;
    daytona.emulation.tasks.spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let Some(daytona) = weak.upgrade() else { return };
            let sandboxes: Vec<Arc<Sandbox>> = daytona.holdings().sandboxes.values().cloned().collect();
            for sandbox in sandboxes {
                look(&daytona, &sandbox);
            }
        }
    });
}

fn look(daytona: &Arc<Daytona>, sandbox: &Arc<Sandbox>) {
    let record = sandbox.record();
    let passed = |minutes: i64, elapsed: Duration| {
        u32::try_from(minutes).is_ok_and(|minutes| elapsed >= daytona.options.minute * minutes)
    };
    let stopped = sandbox.stopped();
    // Each of these is refused while something is going on, and tried again at the next look.
    if record.ttl > 0 && passed(record.ttl, sandbox.created.elapsed()) {
        let _ = lifecycle::delete(daytona, sandbox, false);
    } else if record.state == State::Started && record.auto_stop > 0 && passed(record.auto_stop, sandbox.idle()) {
        let _ = lifecycle::stop(daytona, sandbox, false);
    } else if stopped.is_some_and(|stopped| record.auto_delete >= 0 && passed(record.auto_delete, stopped)) {
        let _ = lifecycle::delete(daytona, sandbox, false);
    } else if record.state == State::Stopped
        && stopped.is_some_and(|stopped| record.auto_archive > 0 && passed(record.auto_archive, stopped))
    {
        let _ = lifecycle::archive(daytona, sandbox);
    }
}
