//! The Daytona adapter: sandboxes of the platform that the vendor calls v0, over its REST API and its toolbox.
//!
//! [`connect`] takes the account from the environment as the official client does; the result fulfils
//! [`sandbox_bench_core::Backend`]. Everything created is named and labelled with the correlation tag, so that nothing of
//! ours is ever lost there. How the contract maps to the platform, and where it cannot, is in the crate's README.

mod account;
mod artifact;
mod backend;
mod build;
mod client;
mod config;
mod create;
mod destroy;
mod error;
mod exec;
mod labels;
mod launch;
mod logs;
mod observe;
mod sandbox;
mod session;
mod storage;
mod toolbox;
mod transfer;
mod wire;

pub use account::{Account, Credential};
pub use backend::{connect, connect_as};
pub use config::DaytonaConfig;
