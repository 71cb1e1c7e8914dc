//! Daytona, the platform generation "v0": API, toolbox proxy, object storage of build contexts.
//!
//! Flags that the fault script can set, on the request that they shall affect:
//!
//! | flag | on | |
//! |---|---|---|
//! | `state-stuck` | create, start, stop, delete | the state never leaves the transition |
//! | `start-fails` | create, start | ends in state `error` |
//! | `delete-ignored` | delete | answers as if it deleted |
//! | `stale-list` | list | the list does not change since the last one |
//! | `truncated-output` (bytes) | execute, logs | so much of the output, and no word about the rest |
//! | `platform-timeout` (ms) | execute | 408 from the platform; the process keeps running |

mod auth;
mod builds;
mod extract;
mod failure;
mod index;
mod lifecycle;
mod listing;
mod model;
mod options;
mod organization;
mod quota;
mod rates;
mod record;
mod routes;
mod sandbox;
mod settings;
mod snapshots;
mod state;
mod storage;
mod timers;
mod toolbox;

use std::sync::Arc;

pub use self::options::{DaytonaOptions, Permission, Quota, RateLimits};
use crate::emulation::Emulation;
use crate::server::{Listener, Server};

/// Starts an emulator of Daytona. The API's base is `{server.base_url()}/api`.
pub fn start(listener: Listener, emulation: Arc<Emulation>, options: DaytonaOptions) -> Server {
    let daytona = Arc::new(state::Daytona::new(Arc::clone(&emulation), listener.base_url(), options));
    timers::start(&daytona);
    let view = Arc::clone(&daytona);
    listener.serve(emulation, routes::router(&daytona), move || view.view())
}
