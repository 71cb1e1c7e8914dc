//! The Modal adapter: sandboxes of the vendor's second generation (V2), over gRPC.
//!
//! [`connect`] takes the account from the environment and `~/.modal.toml` as the official clients do; the result fulfils
//! [`sandbox_bench_core::Backend`]. Everything created is named and tagged with the correlation tag, so that nothing of ours is
//! ever lost there. How the contract maps to the service, and where it cannot, is in the crate's README.

mod account;
mod artifact;
mod backend;
mod client;
mod config;
mod context;
mod create;
mod destroy;
mod error;
mod exec;
mod guest;
mod image;
mod labels;
mod live;
mod network;
mod observe;
mod output;
mod proto;
mod router;
mod sandbox;
mod session;
mod size;
mod spool;
mod stdin;
mod token;
mod transfer;

pub use account::Account;
pub use backend::{connect, connect_as};
pub use config::{ClientShape, ModalConfig};
