//! The binary as a user runs it.
#![allow(clippy::unwrap_used)]

mod agent;
mod aws_microvm;
mod backends;
mod compare;
mod dataset;
mod daytona;
mod disk;
mod docker;
mod fixture;
mod gold;
mod import;
mod interrupt;
mod kill;
mod limits;
mod modal;
mod options;
mod pipes;
mod plan;
mod plan_file;
mod prewarm;
mod recipes;
mod replay;
mod sdk;
mod solver;
mod track;
mod triage;
mod unavailable;
mod usage;
mod vercel;
mod verdict;
