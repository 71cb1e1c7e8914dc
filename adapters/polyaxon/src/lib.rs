//! The Polyaxon adapter: a sandbox is a service run with `plugins.sandbox: true`.
//!
//! [`connect`] finds host, token and project as the official client 2.18.0 does; the result fulfils
//! [`sandbox_bench_core::Backend`]. Parts of one origin are spoken to: the API (`/api/v1`: runs and their
//! statuses) and the sandbox gateway (`/sandbox/v1`: commands and files in the run's main container). How the contract
//! maps to them, and where it cannot, is in the crate's README.
//!
//! Evidence can be published there too: [`tracker`] keeps it in a run of its own, its files in that run's artifacts
//! (`/streams/v1`).

mod api;
mod backend;
mod command;
mod component;
mod config;
mod create;
mod destroy;
mod error;
mod exec;
mod find;
mod gateway;
mod handle;
mod kill;
mod output;
mod sandbox;
mod session;
mod settings;
mod status;
mod track;
mod transfer;
mod wire;

pub use backend::{connect, connect_with};
pub use component::component;
pub use config::PolyaxonConfig;
pub use track::{TrackConfig, tracker};
