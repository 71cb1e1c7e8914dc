//! The adapter against a real engine: what is particular to Docker. The contract itself is tested by the conformance
//! suite.
#![allow(clippy::unwrap_used)]

mod commands;
mod common;
mod images;
mod sandboxes;
