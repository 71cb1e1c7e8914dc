//! The Docker adapter: sandboxes are containers of a Docker Engine (or of Podman's compatible service).
//!
//! [`connect`] finds the engine, agrees on an API version, and looks at what it can enforce; the result fulfils
//! [`sandbox_bench_core::Backend`]. Everything created carries a label with the correlation tag, so that nothing of ours
//! is ever lost at the engine. How the contract maps to the engine, and where it cannot, is in the crate's README.

mod artifact;
mod backend;
mod build;
mod client;
mod config;
mod container;
mod create;
mod error;
mod exec;
mod image;
mod kill;
mod labels;
mod observe;
mod sandbox;
mod session;
mod transfer;
mod user;

pub use backend::connect;
pub use config::{DockerConfig, PullPolicy};
