//! Data sets: finding, reading and checking tasks in every form that the field uses.
//!
//! A [`Dataset`] lists [`TaskEntry`]s as a stream, in a fixed order, without holding task contents; [`Dataset::load`]
//! turns one entry into a [`task::Task`] whose files lie in a cache directory of ours, or in place when they need no
//! correction. Nothing that a data set contains can make a loader panic, run without bound, or write outside that
//! directory.

mod archive;
mod bundled;
mod cache;
mod convert;
mod dataset;
mod directory;
pub mod dockerfile;
pub mod fetch;
mod fingerprint;
mod format;
pub mod grading;
mod harbor;
mod ignore;
mod inspect;
mod limits;
mod manifest;
mod normalize;
pub mod patch;
mod problem;
mod row;
mod source;
mod swesmith;
pub mod task;
mod tb1;
mod tree;
mod validate;
pub mod write;

pub use convert::{ConvertError, Converted, Target, convert, safe_name};
pub use dataset::{BUNDLED, Dataset, OpenOptions, TaskEntry};
pub use format::{Format, UnknownFormat};
pub use inspect::{Inspection, inspect};
pub use limits::Limits;
pub use problem::{DatasetError, Problem, Severity};
pub use validate::validate;
