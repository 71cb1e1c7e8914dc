//! Every kind of bad input that is met in practice, and what the user is told about it.
#![allow(clippy::unwrap_used)]

mod archives;
mod containers;
mod directories;
mod rows;
mod support;
