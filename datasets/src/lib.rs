//! Data sets: finding, reading and checking tasks in every form that the field uses.
//!
//! A [`Dataset`] lists [`TaskEntry`]s as a stream, in a fixed order, without holding task contents; [`Dataset::load`]
//! turns one entry into a [`task::Task`] whose files lie in a cache directory of ours, or in place when they need no
//! correction. Nothing that a data set contains can make a loader panic, run without bound, or write outside that
//! directory.
//!
//! # What is a data set
//!
//! The name `smoke` (bundled), or a path:
//!
//! * a **task directory**: `task.toml` makes it a Harbor task, `task.yaml` a terminal-bench 1 task;
//! * a **row file**: `*.jsonl`, `*.ndjson`, `*.parquet`, or `*.json` with an array. The keys of a row say what it is:
//!   `task_files` or `task_binary` (an archive with a task), or `instance_id` and `patch` (SWE-smith);
//! * an **archive** (`*.tar`, `*.tar.gz`, `*.tgz`) of one task directory or of several;
//! * a **directory** of any of these, which is the union of them in name order, [`Limits::depth`] levels deep. Names
//!   that begin with `.` or `README`, and `environments`, are passed over.
//!
//! Ids come from the task's name, its directory, its archive or its row, and must be unique. Only rows of
//! `<source>/tasks.parquet` in a directory of sources are told apart by `<source>/`.
//!
//! `environments/<repository key>/` beside a SWE-smith row file (or below [`OpenOptions::environments`]) holds a
//! `Dockerfile` with its context that stands for the repository's published image, and optionally `environment.toml`
//! with `workdir`, `test_command`, `timeout_sec`, `parser = "pytest"` and `[resources]`. `swesmith_env_manifests.json` there
//! (or a file that [`OpenOptions::environments`] names) describes repositories as data: Python version, system packages,
//! source at a commit, install commands, pins.

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
