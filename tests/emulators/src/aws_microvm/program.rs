//! The program that an image starts.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::log::Log;
use crate::machine::{Command, Event, Machine};
use crate::tasks::Tasks;

/// Starts it, as the image's `ENTRYPOINT` and `CMD` say. It runs until the machine ends; what it writes goes to the log.
/// The answer comes when it has ended by itself.
///
/// # Errors
/// The image says nothing, or the machine has ended. A program that ends, or cannot be executed, shows by its silence and
/// in the log.
pub(super) fn start(machine: &Machine, tasks: &Tasks, log: &Arc<Log>) -> Result<oneshot::Receiver<()>, String> {
    let facts = machine.facts();
    let argv: Vec<String> = facts.entrypoint.into_iter().chain(facts.command).collect();
    if argv.is_empty() {
        return Err("The container image has no command.".to_owned());
    }
    let cwd = Some(facts.workdir.unwrap_or_else(|| "/".to_owned()));
    let command = Command { cwd, ..machine.command(argv) };
    let mut running = machine.start(command).map_err(|error| error.to_string())?;
    let (over, ended) = oneshot::channel();
    let log = Arc::clone(log);
    tasks.spawn(async move {
        while let Ok(Some(event)) = running.next().await {
            if let Event::Output(_, bytes) = event {
                log.write(&bytes);
            }
        }
        match running.outcome().await {
            Ok(outcome) => log.line(&format!("[the program ended: {:?}]", outcome.end)),
            Err(error) => log.line(&format!("[{error}]")),
        }
        // Most do not wait for it.
        let _ = over.send(());
    });
    Ok(ended)
}
