//! The JSON Schemas that are shipped in `docs/schemas` are those of the code.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use sandbox_bench_reports::schema;

/// The command that brings `docs/schemas` up to date.
const UPDATE: &str = "UPDATE_SCHEMAS=1 cargo test -p sandbox-bench-reports --test schemas";

#[test]
fn the_shipped_schemas_are_up_to_date() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
    for (name, schema) in schema::all() {
        let path = directory.join(format!("{name}.json"));
        let current = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, &current).unwrap();
        }
        let shipped = fs::read_to_string(&path).unwrap_or_default();
        assert!(shipped == current, "docs/schemas/{name}.json is out of date; run: {UPDATE}");
    }
}
