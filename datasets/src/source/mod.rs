//! Where tasks come from: a task directory, or a file of rows.

mod guard;
pub(crate) mod json;
pub(crate) mod parquet;
pub(crate) mod scan;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use json::Layout;
use parquet::Table;

use crate::problem::Fault;

/// What a source is.
#[derive(Debug)]
pub(crate) enum Kind {
    /// One task directory.
    Directory {
        /// The task's id, if it is not the directory's own.
        id: Option<String>,
    },
    /// JSON rows.
    Json(Layout),
    /// Parquet rows. The file is opened when first needed.
    Parquet(OnceLock<Arc<Table>>),
}

/// One source.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where it is read.
    pub(crate) path: PathBuf,
    /// What it is called in messages: where the user has it.
    pub(crate) shown: PathBuf,
    pub(crate) kind: Kind,
    /// Put before the ids of `path` rows that are unique only in their source.
    pub(crate) qualifier: Option<String>,
}

impl Source {
    /// The open Parquet file.
    pub(crate) fn table(&self) -> Result<Arc<Table>, Fault> {
        let Kind::Parquet(cell) = &self.kind else {
            return Err(Fault::new("this is no Parquet file", "start again"));
        };
        if let Some(table) = cell.get() {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(Table::open(&self.path)?);
        Ok(Arc::clone(cell.get_or_init(|| table)))
    }
}
