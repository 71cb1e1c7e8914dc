//! The engine's promises, on a real kernel. The tests run as root and as an ordinary user and adapt to what exists.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod files;
mod images;
mod isolation;
mod jobs;
mod life;
mod limits;
mod support;
