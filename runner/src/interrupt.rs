//! Ctrl-C, SIGTERM and SIGHUP. The first stops new work, ends what runs, and tears down; the second ends the process at once.

use tokio_util::sync::CancellationToken;

use crate::say;

/// Exit code of an interrupted run, as shells have it for SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

/// A token that the first signal cancels. The second signal ends the process without waiting for anything; what then
/// is left at the backends is in the journal, for `reap`.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let cancelled = token.clone();
    // Lives as long as the process: it must see the second signal at any time.
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
        };
        next().await;
        cancelled.cancel();
        say::aside(
            "\ninterrupted: ending trials and removing sandboxes; once more to leave at once (then run `sandbox-bench reap`)",
        );
        next().await;
        std::process::exit(i32::from(EXIT_INTERRUPTED));
    });
    Ok(token)
}
