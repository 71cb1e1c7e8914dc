//! Typed access to TOML tables with Harbor's coercions, and errors that name the key.
//!
//! Source: Harbor 0.26 (pydantic's lax mode): whole floats and numeric strings count as integers, integers and numeric
//! strings as floats. Unknown keys are ignored.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::problem::{Fault, excerpt};

/// A table and its dotted path in the file.
pub(crate) struct Section<'a> {
    path: String,
    table: &'a Table,
}

impl<'a> Section<'a> {
    pub(crate) fn root(table: &'a Table) -> Self {
        Self { path: String::new(), table }
    }

    /// The dotted path of a key.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A fault of this key.
    pub(crate) fn wrong(&self, key: &str, must: &str) -> Fault {
        let name = self.name(key);
        let found = match self.table.get(key) {
            None => "missing".to_owned(),
            Some(Value::String(text)) => excerpt(text),
            Some(value @ (Value::Integer(_) | Value::Float(_) | Value::Boolean(_))) => value.to_string(),
            Some(value) => format!("a {}", value.type_str()),
        };
        Fault::new(format!("{name} is {found}, but must be {must}"), format!("correct {name}"))
    }

    fn get<T>(&self, key: &str, must: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>, Fault> {
        self.table.get(key).map(|value| read(value).ok_or_else(|| self.wrong(key, must))).transpose()
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, Fault> {
        self.get(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Fault> {
        self.get(key, "true or false", Value::as_bool)
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, Fault> {
        self.get(key, "a finite number", number)
    }

    /// A whole number.
    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, Fault> {
        self.get(key, "a whole number", |value| {
            let number = number(value)?;
            // 2^53: above it a float no longer tells neighbours apart.
            (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
        })
    }

    /// A string or a whole number, as text.
    pub(crate) fn text_or_integer(&self, key: &str) -> Result<Option<String>, Fault> {
        self.get(key, "a string or a whole number", |value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Integer(number) => Some(number.to_string()),
            _ => None,
        })
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, Fault> {
        self.get(key, "a list of strings", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    /// A table of strings; empty if missing.
    pub(crate) fn text_map(&self, key: &str) -> Result<BTreeMap<String, String>, Fault> {
        let map = self.get(key, "a table of strings", |value| {
            let pairs = value.as_table()?.iter();
            pairs.map(|(name, value)| value.as_str().map(|value| (name.clone(), value.to_owned()))).collect()
        })?;
        Ok(map.unwrap_or_default())
    }

    pub(crate) fn section(&self, key: &str) -> Result<Option<Section<'a>>, Fault> {
        let table = self.get(key, "a table", Value::as_table)?;
        Ok(table.map(|table| Section { path: self.name(key), table }))
    }

    /// A list of tables; empty if missing.
    pub(crate) fn sections(&self, key: &str) -> Result<Vec<Section<'a>>, Fault> {
        let tables: Option<Vec<&Table>> =
            self.get(key, "a list of tables", |value| value.as_array()?.iter().map(Value::as_table).collect())?;
        let tables = tables.unwrap_or_default();
        Ok(tables
            .into_iter()
            .enumerate()
            .map(|(n, table)| Section { path: format!("{}[{n}]", self.name(key)), table })
            .collect())
    }

    /// The table as JSON, for metadata: dates become strings.
    pub(crate) fn json(&self) -> serde_json::Map<String, serde_json::Value> {
        self.table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
    }
}

fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Float(number) => *number,
        Value::Integer(number) => *number as f64,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::String(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Boolean(flag) => (*flag).into(),
        Value::Datetime(date) => date.to_string().into(),
        Value::Array(items) => items.iter().map(json).collect(),
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
    }
}
