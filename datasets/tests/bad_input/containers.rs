//! Parquet in its variants, qualified ids, mixed directories, conversion.

use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::builder::{GenericListBuilder, LargeStringBuilder, ListBuilder, StringBuilder};
use arrow_array::{Array as _, ArrayRef, BinaryArray, LargeStringArray, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use sandbox_bench_datasets::{Format, OpenOptions, Target, convert};

use crate::support::{Place, file, gzip, row, task_with};

fn write(place: &Place, name: &str, columns: Vec<(&str, ArrayRef)>, compression: Compression) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties =
        WriterProperties::builder().set_compression(compression).set_max_row_group_row_count(Some(2)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn text(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn archives(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| gzip(&task_with([file("environment/n", &n.to_string())]))).collect()
}

fn task_binaries(ids: &[&str]) -> Vec<(&'static str, ArrayRef)> {
    let archives = archives(ids.len());
    vec![("path", text(ids)), ("task_binary", Arc::new(BinaryArray::from_iter_values(archives)))]
}

#[test]
fn every_compression_is_read() {
    let place = Place::new();
    for (name, compression) in [
        ("none", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("zstd", Compression::ZSTD(ZstdLevel::default())),
        ("gzip", Compression::GZIP(GzipLevel::default())),
        ("lz4", Compression::LZ4_RAW),
    ] {
        let file = format!("{name}.parquet");
        write(&place, &file, task_binaries(&["a", "b", "c", "d", "e"]), compression);
        let tasks = place.tasks(&file);
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c", "d", "e"], "{name}: {:?}", place.problems(&file));
        let distinct: std::collections::BTreeSet<_> = tasks.iter().map(|task| &task.digest).collect();
        assert_eq!(distinct.len(), 5, "{name}: every row is its own");
    }
}

#[test]
fn binaries_may_be_base64_texts() {
    let place = Place::new();
    let texts: Vec<String> = archives(1).iter().map(|bytes| STANDARD.encode(bytes)).collect();
    let columns = vec![("path", text(&["a"])), ("task_binary", text(&[&texts[0]]))];
    write(&place, "x.parquet", columns, Compression::SNAPPY);
    assert_eq!(place.tasks("x.parquet").len(), 1);
}

#[test]
fn lists_in_all_encodings() {
    let place = Place::new();
    let items = ["t.py::a", "t.py::b"];
    let mut plain = ListBuilder::new(StringBuilder::new());
    plain.append_value(items.map(Some));
    let mut named = ListBuilder::new(StringBuilder::new()).with_field(Field::new("element", DataType::Utf8, true));
    named.append_value(items.map(Some));
    let mut large: GenericListBuilder<i64, LargeStringBuilder> = GenericListBuilder::new(LargeStringBuilder::new());
    large.append_value(items.map(Some));
    let lists: [(&str, ArrayRef); 4] = [
        ("item", Arc::new(plain.finish())),
        ("element", Arc::new(named.finish())),
        ("large", Arc::new(large.finish())),
        ("text", text(&["[\"t.py::a\", \"t.py::b\"]"])),
    ];
    let mut digests = std::collections::BTreeSet::new();
    for (name, list) in lists {
        let columns = vec![
            ("instance_id", text(&["o__r.12345678.kind"])),
            (
                "patch",
                Arc::new(LargeStringArray::from(vec!["--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"])) as ArrayRef,
            ),
            ("FAIL_TO_PASS", list.clone()),
            ("PASS_TO_PASS", list),
            ("image_name", text(&["some/image"])),
        ];
        let file = format!("{name}.parquet");
        write(&place, &file, columns, Compression::SNAPPY);
        let task = place.tasks(&file).pop().unwrap_or_else(|| panic!("{name}: {:?}", place.problems(&file)));
        digests.insert(task.digest);
    }
    assert_eq!(digests.len(), 1, "the encoding is not part of the task");
}

#[test]
fn structs_and_nulls() {
    let place = Place::new();
    let archive = STANDARD.encode(&archives(1)[0]);
    let files = format!("{{\"encoding\":\"tar.gz+base64\",\"content\":\"{archive}\"}}");
    let optional = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let fields =
        |names: &[&str]| -> Fields { names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect() };
    let instance = StructArray::new(
        fields(&["task_id", "instruction", "task_files"]),
        vec![
            optional(vec![Some("t"), None, Some("u")]),
            optional(vec![None, None, Some("Other.")]),
            optional(vec![Some(&files), Some(&files), None]),
        ],
        None,
    );
    let inner = Field::new("instance", instance.data_type().clone(), true);
    let metadata = StructArray::new(vec![inner].into(), vec![Arc::new(instance)], None);
    let prompts = optional(vec![Some("Do it."), Some("Do it."), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![("prompt", prompts), ("metadata", Arc::new(metadata))];
    write(&place, "x.parquet", columns, Compression::SNAPPY);
    insta::assert_snapshot!(place.problems("x.parquet").join("\n"), @r"
    x.parquet: row 2: the row has no task_id; give every row a task_id
    x.parquet: u: task_files is no object; it needs encoding and content
    ");
    assert_eq!(place.tasks("x.parquet")[0].instruction, "Do it.");
}

#[test]
fn unknown_columns_and_broken_files() {
    let place = Place::new();
    write(&place, "other.parquet", vec![("a", text(&["x"]))], Compression::SNAPPY);
    assert!(place.problem("other.parquet").contains("the row has no known form"));
    place.write("not.parquet", "text");
    assert!(place.problem("not.parquet").contains("the Parquet file is broken"));
}

#[test]
fn paths_are_unique_only_in_their_source() {
    let place = Place::new();
    for source in ["first", "second"] {
        write(&place, &format!("{source}/tasks.parquet"), task_binaries(&["a"]), Compression::SNAPPY);
    }
    let ids: Vec<String> = place.tasks("").into_iter().map(|task| task.id).collect();
    assert_eq!(ids, ["first/a", "second/a"]);
    assert_eq!(place.tasks("first/tasks.parquet")[0].id, "a");
}

#[test]
fn a_directory_is_the_union_of_what_is_in_it() {
    let place = Place::new();
    place.task("b-task");
    place.write("a-rows.jsonl", row("a-row", &archives(1)[0]));
    place.write("c.tar.gz", gzip(&task_with([])));
    place.task("d/nested/deep");
    place.task("environments/not-a-task");
    place.task(".hidden");
    place.task("README-examples");
    place.write("x/rows.jsonl", row("a-row", &archives(1)[0]));
    let ids: Vec<String> = place.tasks("").into_iter().map(|task| task.id).collect();
    assert_eq!(ids, ["a-row", "b-task", "c", "deep"]);
    let problem = place.problem("");
    assert!(problem.starts_with("x/rows.jsonl: a-row: the id is used twice; it was first in"), "{problem}");
}

#[test]
fn a_format_narrows_what_is_read() {
    let place = Place::new();
    place.task("task");
    place.write("rows.jsonl", row("row", &archives(1)[0]));
    let ids = |format: Format| {
        let options = OpenOptions { format: Some(format), ..OpenOptions::new(place.path("../cache")) };
        let dataset = sandbox_bench_datasets::Dataset::open(place.path("").to_str().unwrap(), options).unwrap();
        dataset.entries().map(|entry| entry.unwrap().id).collect::<Vec<_>>()
    };
    assert_eq!(ids(Format::Harbor), ["task"]);
    assert_eq!(ids(Format::TaskRows), ["row"]);
    assert_eq!(ids(Format::TerminalBench1), Vec::<String>::new());
}

#[test]
fn conversion_keeps_the_tasks() {
    let place = Place::new();
    place.task("set/one");
    place.write("set/rows.jsonl", row("two", &archives(1)[0]));
    let bug = serde_json::json!({
        "instance_id": "o__r.12345678.kind", "patch": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n",
        "FAIL_TO_PASS": ["t.py::a"], "PASS_TO_PASS": ["t.py::b"], "image_name": "some/image",
    });
    place.write("set/bugs.jsonl", bug.to_string());
    place.write("set/environments/o__r.12345678/Dockerfile", "FROM debian\n");
    let facts = |name: &str| {
        let mut tasks = place.tasks(name);
        tasks.sort_by(|a, b| a.id.cmp(&b.id));
        tasks
            .into_iter()
            .map(|task| (task.id, task.digest, task.instruction, task.environment.fingerprint))
            .collect::<Vec<_>>()
    };
    let before = facts("set");
    for (target, name) in [(Target::Jsonl, "as-jsonl"), (Target::Parquet, "as-parquet")] {
        let mut problems = Vec::new();
        let converted =
            convert(&place.open("set"), target, &place.path(name), |problem| problems.push(problem)).unwrap();
        assert_eq!((converted.tasks, converted.written.len(), problems.len()), (3, 2, 0));
        assert_eq!(facts(name), before);
        let again = convert(&place.open("set"), target, &place.path(name), |_| {});
        assert_eq!(again.unwrap_err().source.kind(), std::io::ErrorKind::AlreadyExists, "nothing is overwritten");
    }
    let mut problems = Vec::new();
    let converted =
        convert(&place.open("set"), Target::Directories, &place.path("as-dirs"), |problem| problems.push(problem))
            .unwrap();
    assert_eq!((converted.tasks, problems.len()), (2, 1));
    assert!(problems[0].to_string().contains("no form as a directory"));
    let digests = |facts: &[(String, sandbox_bench_core::Digest, String, sandbox_bench_core::Digest)]| {
        facts.iter().map(|fact| fact.1.clone()).collect::<Vec<_>>()
    };
    let kept: Vec<_> = before.iter().filter(|fact| fact.0 != "o__r.12345678.kind").cloned().collect();
    assert_eq!(digests(&facts("as-dirs")), digests(&kept));
}
