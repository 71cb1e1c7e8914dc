//! The emulators as clients see them.
#![allow(clippy::unwrap_used)]

mod aws_microvm;
mod binary;
mod common;
mod daytona;
mod faults;
mod machines;
mod modal;
mod vercel;
