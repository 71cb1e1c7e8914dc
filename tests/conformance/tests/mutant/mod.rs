//! The reference backend with one fault at a time, to prove that each behaviour can fail.
#![allow(unreachable_pub, reason = "a module of one test target")]

mod backend;
mod faults;
mod sandbox;
mod sink;

pub use backend::MutantAdapter;
pub use faults::{FAULTS, Fault};
