//! Polyaxon 2.18: one origin with the API and the sandbox gateway.
//!
//! The gateway (`/sandbox/v1`) really executes. The API (`/api/v1`) and the artifacts of runs (`/streams/v1`) are small ones in
//! memory, or the real open-source server behind us ([`PolyaxonOptions::upstream`]), which has neither gateway nor cluster. In both cases an agent in
//! the place of a cluster walks runs through their statuses, makes a machine when a container would start, and ends it
//! when it has to.
//!
//! What nobody outside of the vendor can see is a guess here, and marked so: the daemon's limits and error codes, what
//! it does when a client goes away (the command is killed), how it writes bytes that are no text (replaced).
//!
//! Flags that the fault script can set, on the request that they shall affect:
//!
//! | flag | on | |
//! |---|---|---|
//! | `needs-approval` | create | a policy of the organization holds the run; in memory only |
//! | `stay-queued` | create | no agent ever takes it |
//! | `unschedulable` | create | no node has room for it |
//! | `start-fails` | create | the container cannot be started: status `failed` |
//! | `late-gateway` (ms) | create | the gateway finds the pod so much later than the status says `running` |
//! | `never-stops` | create | stays `stopping` for ever |
//! | `truncated-output` (bytes) | exec | so much of each stream, and a flag |
//! | `stuck-offset` | fs/read | the next offset does not advance |

mod agent;
mod gateway;
mod options;
mod platform;
mod pods;
mod reply;
mod routes;
mod streams;
mod upstream;
mod world;

use std::sync::Arc;

pub use self::options::PolyaxonOptions;
use crate::emulation::Emulation;
use crate::server::{Listener, Server};

/// Starts an emulator of Polyaxon. `POLYAXON_HOST` is the server's base URL.
pub fn start(listener: Listener, emulation: Arc<Emulation>, options: PolyaxonOptions) -> Server {
    let world = Arc::new(world::World::new(Arc::clone(&emulation), options));
    world.emulation.tasks.spawn(agent::resume(Arc::clone(&world)));
    let view = Arc::clone(&world);
    listener.serve(emulation, routes::router(&world), move || view.view())
}
