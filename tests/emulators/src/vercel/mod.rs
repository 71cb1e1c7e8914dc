//! Vercel Sandbox, as of November 2026: `POST /v3/sandboxes` and the v2 routes, below `/api` or without it.
//!
//! A **sandbox** is a durable name; a **session** is one virtual machine's life in it, here a machine of the local engine.
//! What it cannot do as the vendor does, what it had to decide, and its flags for fault scripts are listed in the crate's
//! README.

mod auth;
mod boot;
mod commands;

mod create;
mod error;
mod files;
mod images;
mod ndjson;
mod options;
mod page;
mod policy;
mod process;
mod query;
mod quirks;
mod rates;
mod request;
mod routes;
mod sandboxes;
mod session;
mod sessions;
mod snapshots;
mod text;
mod world;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use self::error::{ApiError, Result};
use self::rates::Rate;
use self::world::World;
use crate::{Emulation, Listener, Server};

pub use self::options::{ImageState, Limits, VercelOptions};

/// The emulated account.
struct Vercel {
    emulation: Arc<Emulation>,
    options: VercelOptions,
    world: Mutex<World>,
    /// One sandbox is resumed at a time, so that two requests do not start two machines for it.
    resuming: tokio::sync::Mutex<()>,
    requests: Rate,
    deletions: Rate,
    vcpus: Rate,
}

/// Serves the account on the listener's port, at `/api` and at the root.
pub fn start(listener: Listener, emulation: Arc<Emulation>, options: VercelOptions) -> Server {
    let minute = Duration::from_secs(60);
    let vercel = Arc::new(Vercel {
        emulation: Arc::clone(&emulation),
        world: Mutex::default(),
        resuming: tokio::sync::Mutex::default(),
        requests: Rate::new("requests", options.limits.requests_per_minute, minute),
        deletions: Rate::new("deletions", options.limits.deletions_per_second, Duration::from_secs(1)),
        vcpus: Rate::new("vCPU allocations", options.limits.vcpus_per_minute, minute),
        options,
    });
    let router = Router::new().fallback(routes::answer).with_state(Arc::clone(&vercel));
    listener.serve(emulation, router, move || vercel.view())
}

impl Vercel {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work to its end even if the client goes away, as a service does.
    async fn to_the_end<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let (done, result) = oneshot::channel();
        self.emulation.tasks.spawn(async move {
            // Nobody may be waiting any more.
            let _ = done.send(work.await);
        });
        result.await.map_err(|_| ApiError::internal("shutting down"))?
    }

    /// For the admin route.
    fn view(&self) -> Value {
        let world = self.world();
        let sandboxes: Vec<Value> = world.sandboxes.values().map(|sandbox| sandbox.view()).collect();
        let snapshots: Vec<&String> = world.snapshots.keys().collect();
        let statuses = world.sessions.values().map(|session| (session.identity.id.clone(), json!(session.status())));
        let sessions: serde_json::Map<String, Value> = statuses.collect();
        json!({ "vendor": "vercel", "sandboxes": sandboxes, "sessions": sessions, "snapshots": snapshots })
    }
}
