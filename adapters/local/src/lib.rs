//! The embedded `local` backend.

#[cfg(target_os = "linux")]
pub mod engine;
