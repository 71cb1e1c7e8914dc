//! The behaviours, by what they are about. Each is one promise; [`crate::table`] says in a line which.
//!
//! Commands in sandboxes may assume a POSIX shell and coreutils-like tools, nothing more.
#![allow(missing_docs, reason = "each behaviour is documented by its line in the table")]

pub mod artifacts;
pub mod beats;
pub mod create;
pub mod deadlines;
pub mod download;
pub mod exec;
pub mod grants;
pub mod isolation;
pub mod lifecycle;
pub mod limits;
pub mod network;
pub mod output;
pub mod search;
pub mod upload;
pub mod users;
