//! Archives: names, links, kinds of members, modes, sizes, damage.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use sandbox_bench_datasets::Limits;
use sandbox_bench_datasets::task::{FileSet, ImageSpec, Task, Verifier};

use crate::support::{Member, Place, file, files_below, gzip, row, row_with, special, tar, task_members, task_with};

fn context(task: &Task) -> PathBuf {
    let ImageSpec::Dockerfile { context: FileSet { root, .. }, .. } = &task.environment.image else { panic!() };
    root.clone()
}

/// Loads one archive as a row. Its files are there as long as the place is.
fn load(archive: &[u8]) -> (Place, Task) {
    let place = Place::new();
    place.write("rows.jsonl", row("t", archive));
    assert_eq!(place.problems("rows.jsonl"), Vec::<String>::new());
    let task = place.tasks("rows.jsonl").pop().unwrap();
    (place, task)
}

/// The problem with one archive.
fn problem(archive: &[u8]) -> String {
    let place = Place::new();
    place.write("rows.jsonl", row("t", archive));
    let problem = place.problem("rows.jsonl");
    assert_eq!(place.names(), ["cache", "data"], "nothing is written outside of the cache");
    problem
}

#[test]
fn members_that_are_refused() {
    let long = "n".repeat(70);
    let cases: Vec<Vec<u8>> = vec![
        task_with([file("../evil", "x")]),
        task_with([file("tests/../../evil", "x")]),
        task_with([file("/etc/evil", "x")]),
        task_with([special("link", b'2', "/etc/passwd")]),
        task_with([special("tests/link", b'2', "../../outside")]),
        task_with([special("a", b'2', "."), special("b", b'2', "a/../..")]),
        task_with([special("hard", b'1', "../outside")]),
        task_with([special("hard", b'1', "not/there")]),
        task_with([special("pipe", b'6', "")]),
        task_with([special("device", b'3', "")]),
        task_with([special("device", b'4', "")]),
        task_with([special("odd", b'Z', "")]),
        task_with([file("new\nline", "x")]),
        task_with([Member { name: b"not-\xff-utf8", ..file("", "x") }]),
        task_with([special("dir", b'2', "tests"), file("dir/evil", "x")]),
        task_with([file("tests", "a file in place of a directory")]),
        task_with([file(&long, "x"), file(&format!("{long}/below"), "x")]),
    ];
    let told: Vec<String> = cases.iter().map(|archive| problem(&gzip(archive))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn links_inside_are_kept() {
    let (_place, task) = load(&gzip(&task_with([
        special("environment/link", b'2', "Dockerfile"),
        special("environment/hard", b'1', "environment/Dockerfile"),
    ])));
    let context = context(&task);
    assert_eq!(fs::read_link(context.join("link")).unwrap().to_str(), Some("Dockerfile"));
    assert_eq!(fs::read_to_string(context.join("hard")).unwrap(), "FROM debian\n");
}

#[test]
fn special_mode_bits_are_dropped_and_executable_ones_kept() {
    let (_place, task) = load(&gzip(&task_with([
        Member { mode: 0o4755, ..file("environment/suid", "") },
        Member { mode: 0o666, ..file("environment/writable", "") },
        Member { mode: 0o000, ..file("environment/none", "") },
    ])));
    let mode = |name: &str| fs::metadata(context(&task).join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode("suid"), mode("writable"), mode("none")], [0o755, 0o644, 0o600]);
}

#[test]
fn the_last_of_equal_members_wins_also_in_another_unicode_form() {
    let (_place, task) = load(&gzip(&task_with([
        file("environment/x", "first"),
        file("environment/x", "last"),
        file("environment/\u{e9}", "composed"),
        file("environment/e\u{301}", "decomposed"),
    ])));
    let files = files_below(&context(&task));
    assert_eq!(files.len(), 3);
    assert_eq!(fs::read_to_string(context(&task).join("x")).unwrap(), "last");
    assert_eq!(fs::read_to_string(context(&task).join("e\u{301}")).unwrap(), "decomposed");
}

#[test]
fn names_with_dots_wrapped_tasks_and_long_names() {
    let dotted = tar([special("./", b'5', "")]
        .into_iter()
        .chain([
            file("./task.toml", ""),
            file("./instruction.md", "Do it."),
            file("./environment/Dockerfile", "FROM x"),
        ])
        .chain([file("./tests/test.sh", "")]));
    let Verifier::Harbor { script, .. } = load(&gzip(&dotted)).1.verifier else { panic!() };
    assert_eq!(script, "test.sh");

    let wrapped = [
        ("w/task.toml", ""),
        ("w/instruction.md", "Do."),
        ("w/environment/Dockerfile", "FROM x"),
        ("w/tests/test.sh", ""),
    ];
    load(&gzip(&tar(wrapped.into_iter().map(|(name, content)| file(name, content)))));

    let long = format!("environment/{}/{}", "d".repeat(90), "f".repeat(90));
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in crate::support::TASK.into_iter().chain([(long.as_str(), "deep")]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let (_place, task) = load(&gzip(&builder.into_inner().unwrap()));
    assert!(files_below(&context(&task)).iter().any(|file| file.len() > 180));
}

#[test]
fn compression_in_all_its_forms() {
    let plain = task_with([]);
    let (first, second) = plain.split_at(700);
    load(&plain);
    load(&[gzip(first), gzip(second)].concat());
    load(&[gzip(&plain), vec![0; 512]].concat());
}

#[test]
fn damage_is_told() {
    let packed = gzip(&task_with([]));
    let mut wrong_checksum = packed.clone();
    let at = wrong_checksum.len() - 6;
    wrong_checksum[at] ^= 0xff;
    let told = [
        problem(&packed[..packed.len() - 4]),
        problem(&packed[..packed.len() / 2]),
        problem(&wrong_checksum),
        problem(&[packed.clone(), b"garbage".to_vec()].concat()),
        problem(&gzip(&[task_with([]), b"more".to_vec()].concat())),
        problem(b"neither tar nor gzip"),
        problem(&gzip(b"")),
        problem(&gzip(&tar([file("a/x", ""), file("b/x", "")]))),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn bombs_are_defused() {
    let zeros = "\0".repeat(3 << 20);
    let ratio = problem(&gzip(&task_with([file("environment/zeros", &zeros)])));
    let small = |limits: Limits| {
        let mut place = Place::new();
        place.limits = limits;
        place.write("rows.jsonl", row("t", &gzip(&task_with([file("environment/x", &"x".repeat(9000))]))));
        place.problem("rows.jsonl")
    };
    let told = [
        ratio,
        small(Limits { unpacked_bytes: 8000, ..Limits::default() }),
        small(Limits { members: 3, ..Limits::default() }),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn base64_in_other_dialects() {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
    let mut packed = gzip(&task_with([]));
    while packed.len() % 3 != 1 || !STANDARD.encode(&packed).contains(['+', '/']) {
        packed.push(0);
    }
    let text = STANDARD.encode(&packed);
    let broken_lines: String =
        text.as_bytes().chunks(76).map(|line| format!("{}\n", str::from_utf8(line).unwrap())).collect();
    let place = Place::new();
    place.write("lines.jsonl", row_with("t", &broken_lines));
    assert_eq!(place.problems("lines.jsonl"), Vec::<String>::new());
    for (name, content) in [
        ("url.jsonl", URL_SAFE.encode(&packed)),
        ("pad.jsonl", STANDARD_NO_PAD.encode(&packed)),
        ("empty.jsonl", String::new()),
    ] {
        place.write(name, row_with("t", &content));
        assert!(place.problem(name).contains("task_files.content is"), "{name}");
    }
}

#[test]
fn archives_as_files_hold_one_task_or_many() {
    let place = Place::new();
    place.write("one.tar.gz", gzip(&task_with([])));
    assert_eq!(place.tasks("one.tar.gz")[0].id, "one");
    let many = ["b", "a"].map(|directory| {
        task_members().into_iter().map(move |member| {
            (
                format!("{directory}/{}", str::from_utf8(member.name).unwrap()),
                str::from_utf8(member.content).unwrap().to_owned(),
            )
        })
    });
    let many: Vec<(String, String)> = many.into_iter().flatten().collect();
    place.write("many.tar", tar(many.iter().map(|(name, content)| file(name, content))));
    let ids: Vec<String> = place.tasks("many.tar").into_iter().map(|task| task.id).collect();
    assert_eq!(ids, ["a", "b"]);
}
