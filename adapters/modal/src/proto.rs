//! The vendor's messages, generated from `proto/` and kept in the repository, so that nobody needs a compiler for them. The
//! test `generated` proves them up to date, and makes them anew.

#[rustfmt::skip]
#[path = "proto/modal.client.rs"]
#[allow(clippy::all, dead_code, missing_docs, reason = "generated")]
pub(crate) mod client;
#[rustfmt::skip]
#[path = "proto/modal.task_command_router.rs"]
#[allow(clippy::all, dead_code, missing_docs, reason = "generated")]
pub(crate) mod task_command_router;
