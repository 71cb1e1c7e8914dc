//! Trials: one attempt at one task on one backend under one condition, phase by phase:
//! environment → create → ready → inputs → prepare → solve → verify → collect → destroy.
//!
//! An attempt always ends in a record, whatever happened in it; only evidence that cannot be written is an error.
//! Whatever it created is destroyed, kept by its session, or in the record as unconfirmed.

mod agent;
mod attempt;
mod bench;
mod context;
mod ctrf;
mod freshness;
mod grade;
mod materials;
mod open;
mod prepare;
mod prewarm;
mod recorder;
mod replay;
mod resumed;
mod session;
mod solve;
mod steps;
mod stop;
mod swesmith;
mod verify;
mod work;

pub use self::agent::TRAJECTORY;
pub use self::attempt::attempt;
pub use self::context::{Context, Limits, Start, Trial, Watch};
pub use self::prewarm::prewarm;
pub use self::session::{Session, close};
