//! `sandbox-bench dataset`.
use clap::Args;
use crate::exit::{Exit, Fault};
#[derive(Debug, Args)]
pub struct DatasetArgs {}
pub async fn run(_: DatasetArgs) -> Result<Exit, Fault> { Ok(Exit::Accepted) }
