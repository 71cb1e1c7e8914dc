//! Reading a run directory back.

mod lines;

pub use lines::Lines;
