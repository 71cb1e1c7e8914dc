//! Naming what is compared: `RUN`, or `RUN:backend/condition`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sandbox_bench_core::Condition;

/// A run directory, or one cell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The run directory.
    pub run: PathBuf,
    /// The cell.
    pub cell: Option<(String, Condition)>,
}

impl FromStr for Selector {
    type Err = String;

    /// What follows the last colon is a cell if it has a slash; a directory may have a colon in its name.
    fn from_str(text: &str) -> Result<Self, String> {
        let cell = text.rsplit_once(':').and_then(|(run, cell)| Some((run, cell.split_once('/')?)));
        let whole = || Self { run: text.into(), cell: None };
        match cell {
            Some((run, (backend, condition))) if !run.is_empty() && !condition.contains('/') => {
                match serde_json::from_value(serde_json::Value::from(condition)) {
                    Ok(condition) => Ok(Self { run: run.into(), cell: Some((backend.to_owned(), condition)) }),
                    Err(_) if PathBuf::from(text).exists() => Ok(whole()),
                    Err(_) => Err(format!("{condition:?} is no condition: RUN or RUN:backend/condition")),
                }
            }
            _ => Ok(whole()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.run.display())?;
        match &self.cell {
            Some((backend, condition)) => write!(f, ":{backend}/{condition}"),
            None => Ok(()),
        }
    }
}
