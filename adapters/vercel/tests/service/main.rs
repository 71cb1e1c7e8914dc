//! The adapter against a service that behaves as the real one does on bad days. What it does on good ones is the
//! conformance suite's to show, over the emulator.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod commands;
mod files;
mod sandboxes;
mod script;
