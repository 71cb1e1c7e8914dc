//! REPLACE this page. The adapter to copy: complete, for an example service that only `tests/emulators` has.
//! `scripts/new-adapter NAME` makes one of your own of it, `docs/adding-an-adapter.md` says what to do then.
//!
//! `REPLACE` marks what is the example service's. All else is what the contract asks of every adapter.

mod artifact;
mod backend;
mod client;
mod config;
mod create;
mod destroy;
mod error;
mod exec;
mod labels;
mod log;
mod sandbox;
mod session;
mod transfer;
mod wire;

pub use backend::{connect, connect_with};
pub use config::TemplateConfig;
