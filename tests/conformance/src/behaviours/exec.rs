//! Starting commands: arguments, environment, directory, stdin, and how they end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sandbox_bench_core::{Completion, ExecSpec, SandboxSpec};

use super::beats;
use crate::check::{Check, Stop, refused, same};
use crate::ensure;
use crate::harness::Harness;

/// As long as a single argument or variable may be on Linux, with room to spare (`MAX_ARG_STRLEN` is 128 KiB).
const LONG: usize = 100_000;

pub async fn exit_codes_are_exact(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    for code in [0, 1, 7, 126, 127, 255] {
        let ran = h.exec(&s, &ExecSpec::sh(&format!("exit {code}"))).await?;
        same(&format!("exit {code}"), ran.report.completion, Completion::Exited { code })?;
    }
    Ok(())
}

pub async fn a_program_that_cannot_run_ends_as_in_a_shell(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.put(&s, "/conformance/plain", "not a program").await?;
    for (program, code) in [("no-such-program", 127), ("/no/such/program", 127), ("/conformance/plain", 126)] {
        let ran = h.exec(&s, &ExecSpec::new([program])).await?;
        same(program, ran.report.completion, Completion::Exited { code })?;
    }
    Ok(())
}

pub async fn signals_are_told(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    for signal in [9, 15] {
        let ran = h.exec(&s, &ExecSpec::sh(&format!("kill -{signal} $$; sleep 5"))).await?;
        let expected = match h.can().exact_signals {
            true => Completion::Signalled { signal },
            false => Completion::Exited { code: 128 + signal },
        };
        same(&format!("a command that got signal {signal}"), ran.report.completion, expected)?;
    }
    Ok(())
}

pub async fn arguments_arrive_unchanged(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let long = "x".repeat(LONG);
    let awkward = [
        "",
        "a b",
        " lead and trail ",
        "tab\tline\nend\n",
        "quote's \"both\"",
        "$HOME $(id) `id` \\ \\n",
        "-n",
        "--",
        "*",
        "a=b",
        "%s%d",
        "grüße 漢字 🦀",
        "",
        &long,
    ];
    let mut argv = vec!["sh", "-c", "for a; do printf '%s|' \"$a\"; done", "sh"];
    argv.extend(awkward);
    let ran = h.exec(&s, &ExecSpec::new(argv)).await?;
    ran.text()?;
    let expected: String = awkward.iter().map(|argument| format!("{argument}|")).collect();
    same("the arguments", String::from_utf8_lossy(&ran.stdout).into_owned(), expected)
}

pub async fn the_environment_is_set_and_overridden(h: &Harness) -> Check {
    let long = "y".repeat(LONG);
    let awkward = "two\nlines, \"quotes\", $HOME, grüße=1";
    let env = [("SANDBOX_ONLY", "s"), ("BOTH", "sandbox"), ("EMPTY", "")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let s = h.create(&SandboxSpec { env, ..h.spec() }).await?.sandbox;

    let show = r#"printf '%s|' "$SANDBOX_ONLY" "$BOTH" "${EMPTY-unset}" "${AWKWARD-unset}" "${LONG-unset}""#;
    let spec = ExecSpec::sh(show).env("BOTH", "command").env("AWKWARD", awkward).env("LONG", long.as_str());
    let with = h.exec(&s, &spec).await?.text()?;
    same("variables of sandbox and command", with, format!("s|command||{awkward}|{long}|"))?;
    let after = h.sh(&s, show).await?;
    same("variables of the next command", after, "s|sandbox||unset|unset|".to_owned())
}

pub async fn nothing_of_the_host_environment_enters(h: &Harness) -> Check {
    // What cargo sets for its tests. Other variables of the host may be in an image too, and for a good reason.
    let own: Vec<String> =
        std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")).map(|(name, _)| name).collect();
    if own.is_empty() {
        return Err(Stop::Skipped("the suite was not started by cargo, whose variables it looks for".into()));
    }
    let s = h.sandbox().await?;
    let inside = h.sh(&s, "env; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'; true").await?;
    let seen = own.iter().find(|name| inside.lines().any(|line| line.starts_with(&format!("{name}="))));
    ensure!(seen.is_none(), "a variable of the host is visible in the sandbox: {seen:?}");
    let tools = h.sh(&s, "command -v sh && command -v ls && echo $PATH").await?;
    ensure!(tools.lines().count() == 3, "a PATH that finds the usual tools is set: got {tools:?}");
    Ok(())
}

pub async fn the_working_directory_is_the_one_asked_for(h: &Harness) -> Check {
    let created = h.create(&SandboxSpec { workdir: Some("/conformance/new dir".into()), ..h.spec() }).await?;
    let s = created.sandbox;
    same("the sandbox's directory", h.sh(&s, "pwd").await?, "/conformance/new dir".into())?;
    let told = created.facts.workdir.unwrap_or_else(|| "/conformance/new dir".into());
    same("the directory in the facts", told, "/conformance/new dir".to_owned())?;
    same("the command's directory", h.exec(&s, &ExecSpec::sh("pwd").cwd("/usr")).await?.text()?, "/usr".into())?;
    let missing = ExecSpec::sh("touch /conformance/ran").cwd("/no/such/directory");
    let result = s.exec(&h.call(), &missing, &sandbox_bench_core::TailSink::new(0)).await;
    refused("a command in a directory that does not exist", result, &["not_found"])?;
    h.sh(&s, "test ! -e /conformance/ran").await.map(drop)
}

pub async fn stdin_arrives_and_ends(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let all: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let stdin = |argv: &[&str], bytes: &[u8]| ExecSpec {
        stdin: Some(Bytes::copy_from_slice(bytes)),
        ..ExecSpec::new(argv.iter().copied()).timeout(Duration::from_secs(20))
    };
    let digest = h.exec(&s, &stdin(&["sha256sum"], &all)).await?.text()?;
    let expected = sandbox_bench_core::Digest::of(&all);
    ensure!(
        expected.to_string().ends_with(digest.trim_end_matches([' ', '-'])),
        "stdin as read has the digest {digest}"
    );
    let ignored = h.exec(&s, &stdin(&["true"], &all)).await?;
    same("a command that does not read its stdin", ignored.report.completion, Completion::Exited { code: 0 })?;
    let none = h.exec(&s, &ExecSpec::new(["cat"]).timeout(Duration::from_secs(20))).await?;
    same("stdin when none is given", none.text()?, String::new())
}

pub async fn commands_run_in_parallel(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "mkdir -p /tmp/meet").await?;
    // Each waits for all the others: one after another, none would end.
    let meet = |n: usize| {
        let script =
            format!("touch /tmp/meet/{n}; until [ $(ls /tmp/meet | wc -l) -ge 4 ]; do sleep 0.1; done; echo {n}");
        ExecSpec::sh(&script).timeout(Duration::from_secs(20))
    };
    let specs = [meet(0), meet(1), meet(2), meet(3)];
    let [a, b, c, d] = &specs;
    let ran = tokio::join!(h.exec(&s, a), h.exec(&s, b), h.exec(&s, c), h.exec(&s, d));
    for (n, ran) in [ran.0?, ran.1?, ran.2?, ran.3?].iter().enumerate() {
        same("the output of one of four parallel commands", ran.text()?, n.to_string())?;
    }
    Ok(())
}

pub async fn unusable_requests_are_refused(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let touch = || ExecSpec::sh("touch /tmp/ran");
    let bad = [
        ("no arguments at all", ExecSpec::new(Vec::<String>::new())),
        ("an empty program name", ExecSpec::new(["", "x"])),
        ("a NUL in an argument", ExecSpec::new(["sh", "-c", "touch /tmp/ran", "a\0b"])),
        ("a NUL in a value", touch().env("A", "a\0b")),
        ("a variable without a name", touch().env("", "x")),
        ("an equals sign in a variable's name", touch().env("A=B", "x")),
    ];
    for (what, spec) in bad {
        let result = s.exec(&h.call(), &spec, &sandbox_bench_core::TailSink::new(0)).await;
        refused(what, result, &["invalid_request"])?;
    }
    h.sh(&s, "test ! -e /tmp/ran").await.map(drop)
}

pub async fn the_time_inside_is_plausible(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let start = Instant::now();
    let ran = h.exec(&s, &ExecSpec::sh("sleep 0.5")).await?;
    let host = start.elapsed();
    let Some(guest) = ran.report.guest_time else {
        return Err(Stop::Skipped("the backend does not measure inside the sandbox".into()));
    };
    let error = ran.report.resolution.unwrap_or_default() + Duration::from_millis(20);
    ensure!(
        guest + error >= Duration::from_millis(500) && guest <= host + error,
        "half a second of sleep took {guest:?} inside and {host:?} outside (resolution {:?})",
        ran.report.resolution
    );
    Ok(())
}

pub async fn requests_and_bytes_are_counted(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let call = h.call();
    s.exec(&call, &ExecSpec::new(["true"]), &sandbox_bench_core::TailSink::new(0)).await?;
    let exec = call.meter.read();
    ensure!(exec.api_calls > 0, "an exec counted no request");
    h.put(&s, "/conformance/counted", vec![b'x'; 50_000]).await?;
    s.download(&call, "/conformance/counted", &h.host_path(), 1 << 20).await?;
    let down = call.meter.read().since(&exec);
    ensure!(down.bytes_down >= 50_000, "a download of 50 000 bytes counted {} bytes", down.bytes_down);
    let input = sandbox_bench_core::Input::bytes("f", "/f", sandbox_bench_core::Stage::Setup, 0o644, vec![0; 50_000]);
    let call = h.granting(sandbox_bench_core::Grants { inputs: vec![input.entry.clone()], ..Default::default() });
    s.upload(&call, &[input]).await?;
    let up = call.meter.read();
    ensure!(up.bytes_up >= 50_000 && up.api_calls > 0, "an upload of 50 000 bytes counted {up:?}");
    Ok(())
}

pub async fn a_background_process_neither_delays_nor_ends_with_its_command(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    // It holds stdout and outlives the time limit, which is for the command alone.
    let spec = ExecSpec::sh(&beats::starting(&["kept"], "echo started")).timeout(Duration::from_secs(3));
    let start = Instant::now();
    let ran = h.exec(&s, &spec).await?;
    ensure!(start.elapsed() < h.pace.soon, "the command waited for its background process: {:?}", start.elapsed());
    same("its output", ran.text()?, "started".into())?;
    tokio::time::sleep(Duration::from_millis(3500).saturating_sub(start.elapsed())).await;
    beats::alive(h, &s, &["kept"]).await
}

pub async fn a_background_process_ends_with_its_command_where_asked(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.exec(&s, &ExecSpec::sh(&beats::starting(&["other"], "true"))).await?.text()?;
    let script = beats::starting(&["plain"], &beats::starting_detached("detached"));
    let spec = ExecSpec { keep_background: false, ..ExecSpec::sh(&script) };
    h.exec(&s, &spec).await?.text()?;
    beats::dead(h, &s, if h.can().tree_kill { &["plain", "detached"] } else { &["plain"] }).await?;
    beats::alive(h, &s, &["other"]).await
}
