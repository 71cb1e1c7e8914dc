//! Task directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use sandbox_bench_core::{NetworkPolicy, Requirement};
use sandbox_bench_datasets::task::{ImageSpec, Solution, Verifier};

use crate::support::Place;

fn harbor(change: impl FnOnce(&Place)) -> Place {
    let place = Place::new();
    place.task("t");
    change(&place);
    place
}

#[test]
fn a_directory_of_broken_tasks_lists_each_fault() {
    let place = Place::new();
    for name in [
        "a-no-tests",
        "b-no-instruction",
        "c-latin1",
        "d-link-out",
        "e-absolute-link",
        "f-circle",
        "g-no-environment",
        "h-bad-toml",
        "i-bad-type",
        "j-ignored-script",
        "k-empty-instruction",
        "l-no-task-file",
        "m-windows-script",
        "n-pipe",
        "o-unknown-mode",
        "p-good",
    ] {
        place.task(name);
    }
    let remove = |path: &str| fs::remove_file(place.path(path)).unwrap();
    remove("a-no-tests/tests/test.sh");
    remove("b-no-instruction/instruction.md");
    place.write("c-latin1/instruction.md", b"Gr\xfc\xdfe");
    place.write("secret", "s");
    symlink("../../secret", place.path("d-link-out/tests/link")).unwrap();
    symlink("/etc/passwd", place.path("e-absolute-link/tests/link")).unwrap();
    symlink("..", place.path("f-circle/tests/link")).unwrap();
    fs::remove_dir_all(place.path("g-no-environment/environment")).unwrap();
    place.write("h-bad-toml/task.toml", "[environment]\ncpus = \n");
    place.write("i-bad-type/task.toml", "[environment]\nmemory = \"2GB\"\n");
    place.write("j-ignored-script/tests/.harborignore", "*.sh\n");
    place.write("k-empty-instruction/instruction.md", "<!-- canary -->\n\n");
    remove("l-no-task-file/task.toml");
    fs::rename(place.path("m-windows-script/tests/test.sh"), place.path("m-windows-script/tests/test.bat")).unwrap();
    rustix_fifo(&place.path("n-pipe/environment/pipe"));
    place.write("o-unknown-mode/task.toml", "[environment]\nnetwork_mode = \"offline\"\n");
    place.write("notes/anything.txt", "not a task, and not meant to be one");
    insta::assert_snapshot!(place.problems("").join("\n"));
    assert_eq!(place.tasks("").len(), 1);
}

fn rustix_fifo(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn terminal_bench_1_faults() {
    let place = Place::new();
    let task = |name: &str| {
        place.write(&format!("{name}/task.yaml"), "instruction: Do it.\ndifficulty: easy\n");
        place.write(&format!("{name}/docker-compose.yaml"), "services:\n  client:\n    build: .\n");
        place.write(&format!("{name}/Dockerfile"), "FROM debian\n");
        place.write(&format!("{name}/run-tests.sh"), "#!/bin/sh\n");
    };
    for name in [
        "a-good",
        "b-no-tests",
        "c-no-compose",
        "d-no-dockerfile",
        "e-two-services",
        "f-keys",
        "g-difficulty",
        "h-copies-all",
    ] {
        task(name);
    }
    fs::remove_file(place.path("b-no-tests/run-tests.sh")).unwrap();
    fs::remove_file(place.path("c-no-compose/docker-compose.yaml")).unwrap();
    fs::remove_file(place.path("d-no-dockerfile/Dockerfile")).unwrap();
    place.write(
        "e-two-services/docker-compose.yaml",
        "services:\n  client:\n    build: .\n  db:\n    image: postgres\n",
    );
    place.write("f-keys/solution.yaml", "- command: ls\n");
    place.write("g-difficulty/task.yaml", "instruction: x\n");
    place.write("h-copies-all/Dockerfile", "FROM debian\nCOPY . /app\n");
    insta::assert_snapshot!(place.problems("").join("\n"));
}

#[test]
fn test_outputs_alone_are_enough() {
    let place = harbor(|place| {
        fs::rename(place.path("t/tests/test.sh"), place.path("t/tests/test_outputs.py")).unwrap();
    });
    let Verifier::Harbor { script, .. } = &place.tasks("t")[0].verifier else { panic!() };
    assert_eq!(script, "test_outputs.py");
}

#[test]
fn crlf_is_put_right_in_a_copy() {
    let place = harbor(|place| {
        place.write("t/tests/test.sh", "#!/bin/sh\r\necho hi\r\n");
        place.write("t/environment/data.csv", "a\r\nb\r\n");
        place.write("t/solution/solve.sh", "#!/bin/sh\n");
        fs::set_permissions(place.path("t/tests/test.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    });
    for _again in 0..2 {
        let task = place.tasks("t").pop().unwrap();
        assert_eq!(task.warnings, ["normalized: crlf in tests/test.sh"]);
        let Verifier::Harbor { tests, .. } = &task.verifier else { panic!() };
        assert_eq!(fs::read(tests.root.join("test.sh")).unwrap(), b"#!/bin/sh\necho hi\n");
        assert_eq!(fs::metadata(tests.root.join("test.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        let ImageSpec::Dockerfile { context, .. } = &task.environment.image else { panic!() };
        assert_eq!(fs::read(context.root.join("data.csv")).unwrap(), b"a\r\nb\r\n", "data is left alone");
        assert!(matches!(&task.solution, Some(Solution::Script { files, .. }) if files.root.is_dir()));
    }
    assert_eq!(fs::read(place.path("t/tests/test.sh")).unwrap(), b"#!/bin/sh\r\necho hi\r\n", "so is the original");
}

#[test]
fn a_byte_order_mark_is_taken_off_with_a_warning() {
    let place = harbor(|place| {
        place.write("t/task.toml", "\u{feff}[verifier]\ntimeout_sec = 7\n");
        place.write("t/instruction.md", "\u{feff}Do it.");
    });
    let task = place.tasks("t").pop().unwrap();
    assert_eq!(task.instruction, "Do it.");
    assert_eq!(task.timeouts.verify.unwrap().as_secs(), 7);
    assert_eq!(task.warnings.len(), 2);
}

#[test]
fn what_no_backend_offers_is_a_requirement_not_a_fault() {
    for (toml, needs) in [
        ("[environment]\ngpus = 1", "a GPU"),
        ("[environment]\nos = 'Windows'", "Windows containers"),
        ("[environment.tpu]\ntype = 'v4'\ntopology = '2x2'", "a TPU"),
        ("[[environment.mcp_servers]]\nname = 'x'", "MCP servers"),
        ("[verifier]\nenvironment_mode = 'separate'", "a separate environment for the verifier"),
    ] {
        let place = harbor(|place| {
            place.write("t/task.toml", toml);
            place.write("t/tests/test.bat", "");
        });
        assert_eq!(place.tasks("t")[0].requires, [Requirement::Other(needs.to_owned())], "{toml}");
    }
    let compose = harbor(|place| place.write("t/environment/docker-compose.yaml", "services: {}"));
    assert_eq!(compose.tasks("t")[0].requires, [Requirement::Other("Docker Compose".to_owned())]);
    let steps = harbor(|place| {
        place.write("t/task.toml", "[[steps]]\nname = 'first'\n");
        place.write("t/steps/first/instruction.md", "Begin.");
    });
    assert_eq!(steps.tasks("t")[0].requires, [Requirement::Other("several steps".to_owned())]);
    assert_eq!(steps.tasks("t")[0].instruction, "Begin.");
}

#[test]
fn no_internet_is_a_policy() {
    let place = harbor(|place| place.write("t/task.toml", "[environment]\nallow_internet = false\n"));
    let network = &place.tasks("t")[0].network;
    assert_eq!([&network.baseline, &network.solve, &network.verify], [&NetworkPolicy::NoNetwork; 3]);
}

#[test]
fn images_and_dockerfiles() {
    let both = harbor(|place| place.write("t/task.toml", "[environment]\ndocker_image = 'some/image:1'\n"));
    let environment = both.tasks("t").remove(0).environment;
    assert_eq!(environment.image, ImageSpec::Image("some/image:1".into()));
    assert!(matches!(environment.alternatives.as_slice(), [ImageSpec::Dockerfile { .. }]));
    assert_eq!(environment.files, None);

    let files = harbor(|place| {
        place.write("t/task.toml", "[environment]\ndocker_image = 'some/image:1'\n");
        fs::rename(place.path("t/environment/Dockerfile"), place.path("t/environment/input.txt")).unwrap();
    });
    assert!(files.tasks("t")[0].environment.files.is_some(), "files without a Dockerfile are uploaded");

    let neither = harbor(|place| fs::remove_file(place.path("t/environment/Dockerfile")).unwrap());
    assert_eq!(neither.tasks("t")[0].environment.image, ImageSpec::Base);
}

#[test]
fn ignored_files_stay_out() {
    let place = harbor(|place| {
        place.write("t/tests/.harborignore", "cache/\n");
        place.write("t/tests/cache/big", "");
        place.write("t/environment/.dockerignore", "*.log\n");
        place.write("t/environment/a.log", "");
    });
    let task = place.tasks("t").remove(0);
    let Verifier::Harbor { tests, .. } = &task.verifier else { panic!() };
    assert_eq!(tests.exclude, [".harborignore", "cache/big"]);
    let ImageSpec::Dockerfile { context, .. } = &task.environment.image else { panic!() };
    assert_eq!(context.exclude, ["a.log"]);
}

#[test]
fn a_manifest_is_compared() {
    let place = Place::new();
    place.task("t");
    let digest = place.tasks("t")[0].digest.clone();
    let other = sandbox_bench_core::Digest::of(b"other");
    place.write("t/task.toml", "[task]\nname = 'org/t'\n");
    place.task("u");
    place.write("u/task.toml", "[task]\nname = 'org/u'\n");
    place.write(
        "dataset.toml",
        format!("[[tasks]]\nname = 'org/t'\ndigest = '{digest}'\n[[tasks]]\nname = 'org/gone'\ndigest = '{other}'\n"),
    );
    let problems = place.problems("");
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].starts_with("warning: t: org/t: its digest is"));
    assert!(problems[1].contains("org/gone: the manifest lists it, but it is not here"));
}

#[test]
fn an_empty_directory_is_a_fault() {
    let place = Place::new();
    assert!(place.problem("").contains("there are no tasks"));
}
