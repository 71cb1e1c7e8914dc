//! Listing a large file. Alone in its process, so that what the process holds is what listing takes.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};

use sandbox_bench_datasets::{Dataset, OpenOptions};

#[test]
fn a_large_file_is_listed_without_being_held() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("rows.jsonl");
    let padding = "x".repeat(2000);
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for n in 0..40_000 {
        writeln!(file, "{{\"task_id\":\"t{n}\",\"prompt\":\"{padding}\",\"task_files\":{{}}}}").unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let dataset = Dataset::open(path.to_str().unwrap(), OpenOptions::new(place.path().join("cache"))).unwrap();
    let before = resident_kilobytes();
    assert_eq!(dataset.entries().map(Result::unwrap).count(), 40_000);
    let grown = resident_kilobytes().saturating_sub(before);
    assert!(grown < 20_000, "listing 80 MB of rows took {grown} kB");
}

/// What this process holds in memory.
fn resident_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
