//! Environments where a task's image cannot be used as it is: replayed Dockerfiles, stand-ins, and manifests.

use flate2::Compression;
use flate2::write::GzEncoder;
use sandbox_bench_core::evidence::EnvironmentWay;
use sandbox_bench_core::{Digest, FailureClass};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{World, assert_shown, docker};
use serde_json::json;

#[test]
fn a_dockerfile_is_replayed_instruction_by_instruction() {
    let world = World::new();
    let dockerfile = "\
ARG WORD=build
FROM debian:bookworm-slim
ARG WORD
ENV A=\"two words\" B=$WORD
SHELL [\"/bin/sh\", \"-ec\"]
WORKDIR /work/deep
COPY data/ ./data/
ADD [\"one file\", \"/work/\"]
RUN <<EOF
echo \"$A/$B/$WORD\" >from-heredoc
EOF
RUN --mount=type=cache,target=/c cat data/x '../one file' >from-run
USER root
";
    let test = "cd /work/deep; [ \"$(cat from-heredoc)\" = 'two words/build/build' ] && [ \"$(cat from-run)\" = 'x
one' ] && [ \"$A\" = 'two words' ] && [ \"$PWD\" = /work/deep ] && echo 1 >/logs/verifier/reward.txt";
    let _task = world
        .task("one", test)
        .dockerfile(dockerfile)
        .file("environment/data/x", "x\n")
        .file("environment/one file", "one\n");
    let _ = world.bench("run --backend local --dataset tasks --solver none").run().exits(0);
    let environment = world.run().attempt("one").environment.unwrap();
    assert_eq!(environment.way, EnvironmentWay::Recipe);
    assert!(environment.asked.starts_with("recipe of debian:bookworm-slim on host"), "{}", environment.asked);
}

#[test]
fn what_cannot_be_replayed_is_unavailable_and_names_the_line() {
    let world = World::new();
    let _ = world.task("copy-from", WANTS_DONE).dockerfile("FROM gcc AS b\nFROM debian\n\nCOPY --from=b /x /y\n");
    let _ = world.task("url", WANTS_DONE).dockerfile("FROM debian\nADD https://example.org/x /x\n");
    let _ = world.task("secret", WANTS_DONE).dockerfile("FROM debian\nRUN --mount=type=secret,id=x cat /x\n");
    let _ = world.task("base", WANTS_DONE).dockerfile("FROM example.org/special:1\n");
    let outcome = world.bench("run --backend local --dataset tasks --order sequential --dry-run").run().exits(0);
    assert_shown!("unreplayable", outcome.shown());
    let _ = world.bench("run --backend local --dataset tasks").run().exits(3);
    assert_eq!(world.run().attempt("copy-from").failure.unwrap().class, FailureClass::Unavailable);
}

#[test]
fn the_configuration_names_what_stands_in_for_an_image() {
    let world = World::new();
    let _ =
        world.task("image", WANTS_DONE).file("task.toml", "[environment]\ndocker_image = 'example.org/special:1'\n");
    let _ = world.task("recipe", WANTS_DONE).dockerfile("FROM example.org/special:2\nWORKDIR /work\n");
    world.write("bench.toml", "[recipes.local]\n'example.org/special:*' = 'base'\n");
    let _ = world.bench("run --backend local --dataset tasks").run().exits(0);
    for task in ["image", "recipe"] {
        let environment = world.run().attempt(task).environment.unwrap();
        assert_eq!(environment.way, EnvironmentWay::Recipe, "{task}");
        assert!(environment.asked.contains("host ("), "{}", environment.asked);
    }
    for (text, says) in [
        ("[recipes.local]\n'[' = 'base'\n", "bench.toml"),
        ("[recipes.local]\n'a' = ''\n", "mapped to nothing"),
        ("[recipes.lokal]\n'a' = 'base'\n", "unknown backend \"lokal\""),
    ] {
        world.write("bench.toml", text);
        let outcome = world.bench("run --backend local --dataset tasks").run().exits(2);
        assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
    }
}

/// A repository of one module and its test, as a source release.
fn release() -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let test = "import unittest, adder\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        \
                self.assertEqual(adder.add(1, 2), 3)\n\n    def test_zero(self):\n        self.assertEqual(adder.add(0, 0), 0)\n";
    for (name, text) in [("adder.py", "def add(a, b):\n    return a + b\n"), ("test_adder.py", test)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, format!("adder-1/{name}"), text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// An instance of that repository, `bugs.jsonl`, and the repository's manifest.
fn world_with_manifest(python: &str, packages: &[&str]) -> World {
    let world = World::new();
    let release = release();
    world.write("environments/adder-1.tar.gz", &release);
    let manifest = json!({
        "python_version": python,
        "archive": { "file": "adder-1.tar.gz", "sha256": Digest::of(&release).hex() },
        "system_packages": packages,
        "install_cmds": ["test -f adder.py && python -c 'import sys; print(sys.prefix)' >prefix"],
        // The form of pytest's lines, without pytest.
        "pre_verify_cmds": ["grep -q testbed-venv prefix || exit 9"],
        "test_command": "python -m unittest -v test_adder 2>&1 | \
            sed -n -e 's/^test_\\([a-z]*\\) .* ok$/test_adder.py::test_\\1 PASSED/p' -e 's/^test_\\([a-z]*\\) .* FAIL$/test_adder.py::test_\\1 FAILED/p'",
    });
    let manifests = json!({ "repos": { "own__adder.12345678": manifest } });
    world.write("environments/swesmith_env_manifests.json", manifests.to_string());
    let bug = json!({
        "instance_id": "own__adder.12345678.func_basic__1", "repo": "swesmith/own__adder.12345678",
        "patch": "--- a/adder.py\n+++ b/adder.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a + b\n+    return a - b\n",
        "image_name": "", "FAIL_TO_PASS": ["test_adder.py::test_add"], "PASS_TO_PASS": ["test_adder.py::test_zero"],
        "problem_statement": "The sum is wrong.",
    });
    world.write("bugs.jsonl", format!("{bug}\n"));
    world
}

#[test]
fn a_repositorys_manifest_is_replayed() {
    let python = std::process::Command::new("/usr/bin/python3")
        .args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        .output()
        .unwrap();
    let world = world_with_manifest(String::from_utf8(python.stdout).unwrap().trim(), &["no-such-package"]);
    let _ = world.bench("run --backend local --dataset bugs.jsonl --solver gold").run().exits(0);
    let attempt = world.run().attempt("own__adder.12345678.func_basic__1");
    let environment = attempt.environment.unwrap();
    assert_eq!(environment.way, EnvironmentWay::Recipe);
    assert!(
        environment.asked.starts_with("manifest of own__adder.12345678, recipe of python:"),
        "{}",
        environment.asked
    );
    let told = attempt.warnings.iter().find(|warning| warning.contains("no-such-package"));
    assert!(told.is_some_and(|told| told.starts_with("recipe: no package manager")), "{:?}", attempt.warnings);
    let line = "run --backend local --dataset bugs.jsonl --solver none --environments \
                environments/swesmith_env_manifests.json --condition warm";
    let _ = world.bench(line).run().exits(1);
}

#[test]
fn a_repositorys_manifest_is_built_where_the_backend_builds() {
    if !docker::wanted() {
        return;
    }
    let world = world_with_manifest("3.11", &[]);
    let _ = world.bench("run --backend docker --dataset bugs.jsonl --solver gold").run().exits(0);
    let environment = world.run().attempt("own__adder.12345678.func_basic__1").environment.unwrap();
    assert_eq!(environment.way, EnvironmentWay::Dockerfile);
    assert!(environment.asked.starts_with("manifest of own__adder.12345678, Dockerfile"), "{}", environment.asked);
}
