//! The emulators as clients see them.
#![allow(clippy::unwrap_used)]

mod common;
mod faults;
mod machines;
