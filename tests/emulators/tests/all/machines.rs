//! Machines and Dockerfile builds.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use sandbox_bench_emulators::dockerfile::{Build, BuildLog, build};
use sandbox_bench_emulators::machine::{Command, End, Machine, MachineError, MachineSpec, Source};

fn image(name: &str) -> MachineSpec {
    MachineSpec::new(Source::Image(name.into()))
}

async fn sh(machine: &Machine, script: &str) -> String {
    let done = machine.run(machine.command(["sh", "-c", script]), None).await.unwrap();
    assert_eq!(done.end, End::Exited(0), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[tokio::test]
async fn files_go_in_and_out_whole_and_a_missing_one_is_told() {
    let machines = crate::common::machines().await;
    let machine = machines.create(image("any")).await.unwrap();
    let parts: Vec<Bytes> = (0..40).map(|part| Bytes::from(vec![part; 70_000])).collect();
    let whole = parts.concat();
    let size = machine.write_file("/a b/c", stream::iter(parts.into_iter().map(io::Result::Ok))).await.unwrap();
    assert_eq!(size, whole.len() as u64);
    let read: Vec<Bytes> = machine.read_file("/a b/c").await.unwrap().try_collect().await.unwrap();
    assert!(read.concat() == whole);
    assert!(matches!(machine.read_file("/a b").await, Err(MachineError::NoFile(_))));
    machines.destroy_all().await.unwrap();
    assert!(machines.alive().is_empty());
}

#[tokio::test]
async fn a_saved_machine_keeps_files_and_tmp_and_outlives_its_origin() {
    let machines = crate::common::machines().await;
    let mut spec = image("any");
    spec.env.insert("A".into(), "1".into());
    let machine = machines.create(spec).await.unwrap();
    sh(&machine, "echo $A > /root/x; echo 2 > /tmp/y; mkdir /tmp/d; chmod 700 /tmp/d").await;
    let saved = machines.save(&machine).await.unwrap();
    assert_eq!(sh(&machine, "cat /tmp/y; ls -A /").await.lines().next(), Some("2"), "the origin stays usable");
    machines.destroy(&machine).await.unwrap();
    let copy = machines.create(MachineSpec::new(Source::Saved(Arc::clone(&saved)))).await.unwrap();
    assert_eq!(
        sh(&copy, "echo $A; cat /root/x /tmp/y; stat -c %a /tmp/d; ls -A / | grep -c emulator || true").await,
        "1\n1\n2\n700\n0\n"
    );
    machines.delete_saved(&saved).await.unwrap();
    assert_eq!(sh(&copy, "cat /root/x").await, "1\n");
    machines.destroy_all().await.unwrap();
}

#[tokio::test]
async fn commands_take_input_and_a_dropped_one_dies_with_its_tree() {
    let machines = crate::common::machines().await;
    let machine = machines.create(image("any")).await.unwrap();
    let done = machine.run(machine.command(["cat"]), Some(b"abc")).await.unwrap();
    assert_eq!(done.stdout, b"abc");
    let running = machine.start(machine.command(["sh", "-c", "setsid sleep 3000 & sleep 3000"])).unwrap();
    drop(running);
    let gone = "for i in $(seq 500); do pgrep -x sleep >/dev/null || exit 0; sleep 0.01; done; exit 1";
    sh(&machine, gone).await;
    let slow = Command { timeout: Some(std::time::Duration::from_millis(50)), ..machine.command(["sleep", "3000"]) };
    assert!(machine.run(slow, None).await.unwrap().timed_out);
    machines.destroy_all().await.unwrap();
}

fn context(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn given(contexts: &[Vec<u8>]) -> Build<'_> {
    Build { contexts, ..Build::default() }
}

#[tokio::test]
async fn a_dockerfile_is_built_by_executing_it() {
    let machines = crate::common::machines().await;
    let text = r#"
ARG BASE=base
FROM ${BASE}:1 AS first
RUN echo made > /opt-file
FROM base:1
ARG WHO=world
ENV GREETING="hello $WHO"
WORKDIR /w
COPY dir sub/
COPY a.txt b.txt /copied/
COPY --chmod=755 a.txt script
COPY --from=first /opt-file /from/first
RUN echo "$GREETING $WHO" > greeting && \
    echo second >> greeting
RUN <<EOF
cat >> greeting <<'IN'
third
IN
EOF
"#;
    let files = [("dir/x/y", "y"), ("dir/z", "z"), ("a.txt", "a"), ("b.txt", "b")];
    let log = Arc::new(BuildLog::default());
    let saved = build(&machines, text, given(&[context(&files)]), &log).await.unwrap();
    assert!(machines.alive().is_empty(), "stages are gone");
    let machine = machines.create(MachineSpec::new(Source::Saved(saved))).await.unwrap();
    let expected = "hello world world\nsecond\nthird\nyzaba 755 made\n/w hello world\n";
    let script = "cat greeting; cat sub/x/y sub/z /copied/a.txt /copied/b.txt script; echo \" $(stat -c %a script) \
                  $(cat /from/first)\"; echo \"$PWD $GREETING\"; ! ls -A / | grep build";
    assert_eq!(sh(&machine, script).await, expected);
    let text: Vec<Bytes> = log.follow().collect().await;
    assert!(String::from_utf8(text.concat()).unwrap().contains("WORKDIR /w"));
    machines.destroy_all().await.unwrap();
}

#[tokio::test]
async fn failing_builds_name_the_line_and_leave_nothing() {
    let machines = crate::common::machines().await;
    let cases = [
        (
            "FROM base\nRUN echo oops; exit 3\n",
            "line 2: RUN echo oops; exit 3: did not complete successfully: exit code: 3",
        ),
        ("FROM missing:1\n", "not found"),
        ("FROM base\nCOPY nothing /x\n", "\"/nothing\": not found"),
        ("FROM base\nFETCH x\n", "line 2: unknown instruction: FETCH"),
    ];
    for (text, part) in cases {
        let log = BuildLog::default();
        let error = build(&machines, text, given(&[context(&[("a", "a")])]), &log).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(String::from_utf8(log.text()).unwrap().contains(part));
        assert!(machines.alive().is_empty());
    }
    machines.destroy_all().await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_in_the_state_directory() {
    let scratch = crate::common::scratch();
    let machines = crate::common::machines_in(scratch.path()).await;
    let machine = machines.create(image("any")).await.unwrap();
    machines.save(&machine).await.unwrap();
    machine.start(machine.command(["sleep", "3000"])).unwrap();
    machines.destroy_all().await.unwrap();
    for part in ["sandboxes", "snapshots", "layers"] {
        assert_eq!(std::fs::read_dir(scratch.path().join(part)).unwrap().count(), 0, "{part}");
    }
}
