//! The Vercel Sandbox adapter: sandboxes are microVMs of the vendor's service, reached over HTTPS.
//!
//! [`connect`] settles credentials, team and project; the result fulfils [`sandbox_bench_core::Backend`]. Every sandbox is
//! named by its correlation tag and carries it, so that nothing of ours is ever lost at the service. How the contract maps
//! to the service, and where it cannot, is in the crate's README.

mod artifact;
mod backend;
mod client;
mod config;
mod create;
mod credentials;
mod destroy;
mod error;
mod exec;
mod helper;
mod labels;
mod log;
mod network;
mod observe;
mod sandbox;
mod session;
mod transfer;
mod wire;

pub use backend::{connect, connect_with};
pub use config::{AccountPlan, VercelConfig};
