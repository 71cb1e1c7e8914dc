//! `wire-members.txt` lists what the adapter's sources use of the service, no operation less and nothing that is not used. What is
//! listed is held against the official package's service model by `tests/sdk/run aws`, so that drift of the wire fails there.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Members that a type of the SDK's stands for, so that the sources have no name for them.
const BY_TYPE: [&str; 3] = ["port", "uri", "disabled"];

fn sources() -> String {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let files = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    files.collect::<Vec<_>>().join("\n").split_whitespace().collect()
}

fn listed() -> Vec<[String; 3]> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("wire-members.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()).collect()
}

/// As the SDK writes a name: `minimumMemoryInMiB` is `minimum_memory_in_mib`.
fn in_rust(name: &str) -> String {
    let name = name.replace("MiB", "Mib");
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[test]
fn each_operation_that_is_called_is_listed_and_each_listed_one_is_called() {
    let sources = sources();
    let listed: BTreeSet<String> = listed().into_iter().map(|[operation, ..]| in_rust(&operation)).collect();
    let names = sources.split("lambda.").skip(1).filter_map(|after| Some(after.split_once("()")?.0));
    let called: BTreeSet<String> = names
        .filter(|name| name.contains("microvm") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        .map(str::to_owned)
        .collect();
    assert!(called.len() > 5, "{called:?}");
    assert_eq!(listed, called);
}

#[test]
fn each_member_that_is_listed_is_used() {
    let sources = sources();
    for [operation, side, member] in listed() {
        let name = in_rust(member.rsplit(['.', ']']).next().unwrap());
        let used = [format!(".{name}"), format!(".set_{name}("), format!("{name}:")];
        let known = BY_TYPE.contains(&name.as_str()) || used.iter().any(|use_| sources.contains(use_));
        assert!(known, "{operation} {side} {member}: .{name} is nowhere in the sources");
    }
}
