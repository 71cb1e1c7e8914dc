//! `sandbox-runner/1`: the program in a MicroVM's image that runs commands and moves files for the adapter.
//!
//! It has two listeners. The API ([`api`]) is what the adapter speaks to through the vendor's proxy: commands are jobs that
//! outlive connections ([`jobs`]), their output is kept on disk and asked for by offset, files and archives arrive whole or
//! not at all ([`files`], [`archive`]). The hooks ([`hooks`]) are what the vendor calls around a MicroVM's life; the one
//! named `run` brings the digest of the token that guards the API ([`boot`]). The protocol is described in the README.
//!
//! With arguments it is a step of an image's Dockerfile instead ([`image`]).
//!
//! Its memory is bounded by the number of jobs, never by what they write. It links statically and needs nothing in the
//! image but a kernel; `/bin/sh` only for commands given as text.

mod api;
mod archive;
mod boot;
mod files;
mod hooks;
mod image;
mod jobs;
mod receive;
mod refusal;
mod settings;
mod sys;
mod users;

use std::process::ExitCode;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::api::Runner;
use crate::boot::Boot;
use crate::jobs::Jobs;
use crate::settings::Settings;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = if arguments.is_empty() { run() } else { image::step(&arguments) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-runner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let settings = Settings::read(|name| std::env::var(name).ok())?;
    sys::prepare_process();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start: {e}"))?;
    let done = runtime.block_on(serve(settings));
    // Long polls and half-read bodies are not waited for.
    runtime.shutdown_background();
    done
}

async fn serve(settings: Settings) -> Result<(), String> {
    let bind = async |address| TcpListener::bind(address).await.map_err(|e| format!("cannot listen on {address}: {e}"));
    let (api, hooks) = (bind(settings.api).await?, bind(settings.hooks).await?);
    let state = settings.state_directory()?;
    let boot = Arc::new(Boot::new(settings.token_required));
    let jobs = Jobs::new(state.join("jobs"));
    let runner = Arc::new(Runner { boot: boot.clone(), jobs: jobs.clone(), spool: state });
    announce(&api, &hooks)?;
    let mut asked = signal(SignalKind::terminate()).map_err(|e| format!("cannot handle signals: {e}"))?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|e| format!("cannot handle signals: {e}"))?;
    let ended = tokio::select! {
        done = axum::serve(api, api::router(runner)) => done.map_err(|e| e.to_string()),
        done = axum::serve(hooks, hooks::router(boot)) => done.map_err(|e| e.to_string()),
        _ = asked.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    };
    jobs.kill_all();
    ended
}

/// One line on stdout says where it listens, for those who asked for any free port.
fn announce(api: &TcpListener, hooks: &TcpListener) -> Result<(), String> {
    let address = |listener: &TcpListener| listener.local_addr().map_err(|e| e.to_string());
    println!("{}", serde_json::json!({ "api": address(api)?.to_string(), "hooks": address(hooks)?.to_string() }));
    Ok(())
}
