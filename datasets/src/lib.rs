//! Data sets: finding, reading and checking tasks in every form that the field uses.
//!
//! A [`Dataset`] lists [`TaskEntry`]s as a stream, in a fixed order, without holding task contents; [`Dataset::load`]
//! turns one entry into a [`task::Task`] whose files lie in a cache directory of ours. Nothing that a data set contains
//! can make a loader panic, run without bound, or write outside that directory.

pub mod task;
