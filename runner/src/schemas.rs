//! The JSON Schemas in `docs/schemas` of what this crate alone writes or reads are those of its types.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use sandbox_bench_reports::schema;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// The command that brings them up to date.
const UPDATE: &str = "UPDATE_SCHEMAS=1 cargo test -p sandbox-bench schemas";

/// Compares the shipped schema `name` with that of `T`, which we write.
pub fn check<T: JsonSchema>(name: &str) {
    compare(name, &schema::of::<T>());
}

/// Compares the shipped schema `name` with that of `T`, which people write.
pub fn check_read<T: JsonSchema>(name: &str) {
    compare(name, &SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>());
}

fn compare(name: &str, schema: &Schema) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/schemas/{name}.json"));
    let current = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::write(&path, &current).unwrap();
    }
    let shipped = fs::read_to_string(&path).unwrap_or_default();
    assert!(shipped == current, "docs/schemas/{name}.json is out of date; run: {UPDATE}");
}
