//! Rows of JSON files.

use sandbox_bench_datasets::safe_name;
use serde_json::{Value, json};

use crate::support::{Place, gzip, row, task_with};

fn packed() -> Vec<u8> {
    gzip(&task_with([]))
}

/// A good row with one change.
fn changed(id: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(&row(id, &packed())).unwrap();
    change(&mut value);
    value.to_string()
}

fn bug(id: &str) -> Value {
    json!({
        "instance_id": id,
        "patch": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n",
        "FAIL_TO_PASS": ["t.py::a"],
        "PASS_TO_PASS": ["t.py::b"],
        "image_name": "some/image",
        "repo": "swesmith/o__r.12345678",
        "problem_statement": "It is broken.",
    })
}

#[test]
fn a_file_of_broken_rows_lists_each_fault_and_keeps_the_rest() {
    let place = Place::new();
    let rows = [
        row("good", &packed()),
        String::new(),
        "{\"task_id\": \"cut".to_owned(),
        "[]".to_owned(),
        json!({ "some": "thing" }).to_string(),
        changed("", |_| {}),
        changed("x", |row| row["task_id"] = Value::Null),
        changed("x", |row| row["task_id"] = json!(["list"])),
        changed("bad\u{7}id", |_| {}),
        row("good", &packed()),
        changed("env", |row| row["env_type"] = json!("moon")),
        changed("encoding", |row| row["task_files"]["encoding"] = json!("zip")),
        changed("empty", |row| {
            row["prompt"] = json!("");
            row["instruction"] = json!(" ");
        }),
        changed("files", |row| row["task_files"] = json!(7)),
        changed("checksum", |row| row["archive_sha256"] = json!("00")),
        changed("GOOD", |_| {}),
        "{\"task_id\": \"end".to_owned(),
    ];
    place.write("rows.jsonl", rows.join("\n"));
    insta::assert_snapshot!(place.problems("rows.jsonl").join("\n"));
    let ids: Vec<String> = place.tasks("rows.jsonl").into_iter().map(|task| task.id).collect();
    assert_eq!(ids, ["good", "GOOD"]);
}

#[test]
fn broken_bugs() {
    let place = Place::new();
    let change = |id: &str, key: &str, value: Value| {
        let mut row = bug(&format!("o__r.12345678.{id}"));
        row[key] = value;
        row.to_string()
    };
    let mut without = bug("o__r.12345678.without");
    without.as_object_mut().unwrap().remove("FAIL_TO_PASS");
    let mut swebench = bug("o__r-1");
    swebench.as_object_mut().unwrap().remove("image_name");
    swebench["test_patch"] = json!("");
    let rows = [
        change("good", "created_at", json!("2025")),
        change("empty-patch", "patch", json!("")),
        change("no-patch", "patch", json!("just text")),
        change("outside", "patch", json!("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n")),
        change("no-tests", "FAIL_TO_PASS", json!([])),
        change("odd-tests", "PASS_TO_PASS", json!("not json")),
        change("odd-list", "PASS_TO_PASS", json!([1])),
        change("text-list", "PASS_TO_PASS", json!("[\"t.py::b\"]")),
        change("blanks", "PASS_TO_PASS", json!(["t.py::b[a b]"])),
        change("silent", "problem_statement", json!("")),
        change("go", "FAIL_TO_PASS", json!(["TestX"])),
        change("image", "image_name", json!("two words")),
        without.to_string(),
        swebench.to_string(),
        bug("no-key").to_string(),
        bug("../x__y.z.kind").to_string(),
    ];
    place.write("bugs.jsonl", rows.join("\n"));
    insta::assert_snapshot!(place.problems("bugs.jsonl").join("\n"));
}

#[test]
fn image_names_fall_back() {
    use sandbox_bench_datasets::task::ImageSpec;
    let place = Place::new();
    let mut row = bug("Own__Repo.12345678.kind__1");
    place.write("named.jsonl", row.to_string());
    row.as_object_mut().unwrap().remove("image_name");
    place.write("unnamed.jsonl", row.to_string());
    let images = |file: &str| {
        let environment = place.tasks(file).remove(0).environment;
        let names = [environment.image].into_iter().chain(environment.alternatives);
        names.map(|image| if let ImageSpec::Image(name) = image { name } else { panic!() }).collect::<Vec<_>>()
    };
    let published =
        ["swebench/swesmith.x86_64.own_1776_repo.12345678", "jyangballin/swesmith.x86_64.own_1776_repo.12345678"];
    assert_eq!(images("unnamed.jsonl"), published);
    assert_eq!(images("named.jsonl"), ["some/image", published[0], published[1]]);
}

#[test]
fn an_environment_directory_stands_for_the_image() {
    use sandbox_bench_datasets::task::{ImageSpec, Verifier};
    let place = Place::new();
    place.write("bugs.jsonl", bug("o__r.12345678.kind").to_string());
    let settings = "environments/o__r.12345678/environment.toml";
    place.write("environments/o__r.12345678/Dockerfile", "FROM python:3.11-slim\nWORKDIR /testbed\n");
    place.write(settings, "test_command = 'make check'\ntimeout_sec = 30\nparser = 'pytest'\n");
    let task = place.tasks("bugs.jsonl").remove(0);
    let ImageSpec::Dockerfile { recipe, context, .. } = &task.environment.image else { panic!() };
    assert_eq!((recipe.from.as_str(), context.exclude.len()), ("python:3.11-slim", 1));
    assert_eq!(task.timeouts.verify.unwrap().as_secs(), 30);
    let Verifier::SweSmith(row) = &task.verifier else { panic!() };
    assert_eq!(row.test_command, "make check");
    let before = task.environment.fingerprint;
    place.write("environments/o__r.12345678/Dockerfile", "FROM python:3.12-slim\nWORKDIR /testbed\n");
    assert_ne!(place.tasks("bugs.jsonl")[0].environment.fingerprint, before);
    place.write(settings, "parser = 'junit'\n");
    assert!(place.problem("bugs.jsonl").contains("parser is \"junit\", but must be \"pytest\""));
}

#[test]
fn a_manifest_describes_the_environment_and_names_the_image_that_comes_first() {
    use sandbox_bench_datasets::task::{ImageSpec, Verifier};
    let place = Place::new();
    let rows =
        ["own", "published", "wrong", "damaged"].map(|repo| bug(&format!("o__{repo}.12345678.kind")).to_string());
    place.write("bugs.jsonl", rows.join("\n"));
    place.write("environments/source-1.tar.gz", "archive");
    let archive = |sha256: &str| json!({ "file": "source-1.tar.gz", "sha256": sha256 });
    let right = sandbox_bench_core::Digest::of(b"archive");
    let manifests = json!({ "swesmith_version": "0.0.6", "repo_count": 4, "repos": {
        "o__own.12345678": {
            "python_version": "3.11", "archive": archive(&right.hex()), "install_cmds": ["pip install ."],
            "pre_verify_cmds": ["ulimit -n 4096"], "resources": {"cpu": 2, "memoryGb": 4}, "timeout_sec": 60,
        },
        "o__published.12345678": {
            "owner": "o", "repo": "published", "commit": "0123456789abcdef0123456789abcdef01234567",
            "docker_image": "team/published", "python_version": "3.10", "install_cmds": [],
        },
        "o__wrong.12345678": { "install_cmds": [] },
        "o__damaged.12345678": { "python_version": "3.11", "archive": archive("00") },
    } });
    place.write("environments/swesmith_env_manifests.json", manifests.to_string());
    let tasks = place.tasks("bugs.jsonl");
    let [own, published] = &tasks[..] else { panic!("two tasks") };
    let ImageSpec::Dockerfile { manifest, recipe, context, .. } = &own.environment.image else { panic!() };
    assert_eq!((manifest.as_deref(), recipe.from.as_str()), (Some("o__own.12345678"), "python:3.11-slim"));
    assert_eq!(std::fs::read_to_string(context.root.join("source-1.tar.gz")).unwrap(), "archive");
    assert_eq!((own.resources.cpus, own.resources.memory_mb), (Some(2.0), Some(4096)));
    assert_eq!(own.timeouts.verify.unwrap().as_secs(), 60);
    let Verifier::SweSmith(row) = &own.verifier else { panic!() };
    assert!(row.test_command.starts_with("ulimit -n 4096\n"), "{}", row.test_command);
    assert_eq!(published.environment.image, ImageSpec::Image("some/image".into()), "what the row names is faithful");
    let last = published.environment.alternatives.last();
    assert!(matches!(last, Some(ImageSpec::Dockerfile { manifest: Some(_), .. })), "{last:?}");
    let told = place.problems("bugs.jsonl");
    assert!(told.iter().any(|told| told.contains("o__wrong.12345678") && told.contains("python_version")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("source-1.tar.gz has the sha256")), "{told:?}");
}

#[test]
fn arrays_hold_bugs() {
    let place = Place::new();
    let rows = [bug("o__r.12345678.a"), bug("o__r.12345678.b")];
    place.write("bugs.json", format!("\u{feff}{}", serde_json::to_string_pretty(&rows).unwrap()));
    assert_eq!(place.tasks("bugs.json").len(), 2);
    place.write("cut.json", serde_json::to_string(&rows).unwrap().trim_end_matches(']'));
    assert!(place.problem("cut.json").contains("the array is broken"));
    assert_eq!(place.tasks("cut.json").len(), 2, "what came before is kept");
    place.write("set/other.json", "[1, 2]");
    place.write("set/object.json", "{}");
    place.write("set/bugs.json", serde_json::to_string(&rows).unwrap());
    assert_eq!(place.problems("set"), Vec::<String>::new(), "other JSON files are none of our business");
}

#[test]
fn nested_and_text_forms_are_the_same_task() {
    let place = Place::new();
    let flat: Value = serde_json::from_str(&row("t", &packed())).unwrap();
    let files = flat["task_files"].to_string();
    let instance = json!({ "task_id": "t", "instruction": "Do it.", "task_files": files });
    let metadata = json!({ "env_type": "harbor_terminalbench", "instance": instance });
    let metadata_text = json!({ "env_type": "harbor_terminalbench", "instance": instance.to_string() }).to_string();
    for (name, form) in [
        ("flat", flat),
        ("nested", json!({ "prompt": "Do it.", "metadata": metadata })),
        ("texts", json!({ "prompt": "Do it.", "metadata": metadata_text })),
        (
            "no-instruction",
            json!({ "prompt": "Do it.", "metadata": { "instance": { "task_id": "t", "task_files": files } } }),
        ),
    ] {
        let file = format!("{name}.jsonl");
        place.write(&file, form.to_string());
        let task = place.tasks(&file).pop().unwrap_or_else(|| panic!("{name}: {:?}", place.problems(&file)));
        assert_eq!((task.id.as_str(), task.instruction.as_str()), ("t", "Do it."), "{name}");
    }
}

#[test]
fn work_directories_follow_the_env_type() {
    let place = Place::new();
    for (env_type, workdir) in
        [("terminalbench", "/workspace"), ("harbor_terminalbench", "/workspace"), ("harbor_swesmith", "/testbed")]
    {
        place.write("x.jsonl", changed("t", |row| row["env_type"] = json!(env_type)));
        assert_eq!(place.tasks("x.jsonl")[0].default_workdir, workdir);
    }
}

#[test]
fn long_lines_and_a_byte_order_mark() {
    let place = Place::new();
    let long = changed("long", |row| row["padding"] = json!("x".repeat(5 << 20)));
    place.write("x.jsonl", format!("\u{feff}{long}\r\n{}\r\n", row("short", &packed())));
    assert_eq!(place.tasks("x.jsonl").len(), 2);
    assert!(place.problem("x.jsonl").contains("begins with a byte order mark"));
}

#[test]
fn ids_become_safe_names_that_stay_apart() {
    assert_eq!(safe_name("plain-task_1.0"), "plain-task_1.0");
    for id in ["org/name", "with blank", "UPPER", "", ".hidden", "../x", &"long".repeat(100), "größe"] {
        let name = safe_name(id);
        assert!(!name.contains(['/', ' ']) && !name.starts_with('.') && name.len() < 260, "{id} -> {name}");
    }
    assert_ne!(safe_name("Task").to_lowercase(), safe_name("task").to_lowercase());
    assert_ne!(safe_name("a/b"), safe_name("a b"));
}
