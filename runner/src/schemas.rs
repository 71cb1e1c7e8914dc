//! The JSON Schemas in `docs/schemas` of what this crate alone writes are those of its types.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use sandbox_bench_reports::schema;
use schemars::JsonSchema;

/// The command that brings them up to date.
const UPDATE: &str = "UPDATE_SCHEMAS=1 cargo test -p sandbox-bench schemas";

/// Compares the shipped schema `name` with that of `T`.
pub fn check<T: JsonSchema>(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/schemas/{name}.json"));
    let current = serde_json::to_string_pretty(&schema::of::<T>()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let shipped = fs::read_to_string(&path).unwrap_or_default();
    assert!(shipped == current, "docs/schemas/{name}.json is out of date; run: {UPDATE}");
}
