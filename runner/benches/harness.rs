//! What the harness costs on top of the backend.
//!
//! On Docker: a no-op trial (`debian:bookworm-slim`, solver `true`, a verifier that writes the reward) by the binary, against
//! the same sequence of Engine API calls on one kept connection, in alternating blocks. On local: create to first
//! command. Everything is measured in one run of this program; compare its ratios, not its times with those of another
//! run. `--check` ends with 1 when a budget is exceeded.
//!
//! `cargo bench -p sandbox-bench --bench harness [-- --check]`

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bollard::Docker;
use bollard::body_full;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder, RemoveContainerOptionsBuilder,
    StartContainerOptions, UploadToContainerOptionsBuilder,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use sandbox_bench_core::Phase;
use sandbox_bench_core::evidence::Attempt;

/// Blocks of raw sequences and of trials, in turn.
const BLOCKS: usize = 6;
/// Sequences or trials in a block.
const PER_BLOCK: usize = 6;
const IMAGE: &str = "debian:bookworm-slim";

const BUDGET_RATIO: f64 = 1.10;
const BUDGET_CPU: f64 = 0.020;
const BUDGET_MEMORY_MIB: f64 = 40.0;
/// Twice what create and first command were measured to take with the same library on an idle machine.
const BUDGET_LOCAL: Duration = Duration::from_micros(2 * 6_600);

fn main() -> anyhow::Result<ExitCode> {
    let check = std::env::args().any(|arg| arg == "--check");
    let work = tempfile::tempdir()?;
    no_op_task(&work.path().join("tasks/no-op"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut over = Vec::new();
    let mut budget = |name: &str, value: f64, limit: f64| {
        let verdict = if value <= limit { "within" } else { "OVER" };
        println!("{name:<44} {value:>10.4}   {verdict} {limit}");
        if value > limit {
            over.push(name.to_owned());
        }
    };

    let docker =
        runtime.block_on(async { anyhow::Ok(Docker::connect_with_local_defaults()?.negotiate_version().await?) });
    match docker {
        Err(error) => println!("docker left out: {error}"),
        Ok(docker) => {
            let (raw, trials) = alternate(&runtime, &docker, work.path())?;
            println!("docker, one raw sequence: median {:.1} ms, n = {}", millis(median(&raw)), raw.len());
            println!("docker, one trial:        median {:.1} ms, n = {}", millis(median(&trials)), trials.len());
            budget(
                "docker trial / raw sequence",
                median(&trials).as_secs_f64() / median(&raw).as_secs_f64(),
                BUDGET_RATIO,
            );
            let few = run(work.path(), "docker", 10, 4)?;
            let many = run(work.path(), "docker", 50, 4)?;
            budget("own CPU seconds per trial", (many.cpu - few.cpu) / 40.0, BUDGET_CPU);
            budget("peak memory in MiB, 50 trials", many.memory_mib, BUDGET_MEMORY_MIB);
            println!("peak memory in MiB, 10 trials: {:.1}", few.memory_mib);
            println!("wall seconds per trial at concurrency 4: {:.3}", (many.wall - few.wall).as_secs_f64() / 40.0);
        }
    }

    let local = run(work.path(), "local", 40, 1)?;
    let ready: Vec<Duration> = local
        .attempts
        .iter()
        .map(|a| Duration::from_micros(a.phase_us(Phase::Create).unwrap_or(0) + a.phase_us(Phase::Ready).unwrap_or(0)))
        .collect();
    println!("local, create to first command: median {:.1} ms, n = {}", millis(median(&ready)), ready.len());
    budget("local create to first command, seconds", median(&ready).as_secs_f64(), BUDGET_LOCAL.as_secs_f64());

    let help: Vec<Duration> = (0..20)
        .map(|_| {
            let start = Instant::now();
            let status = Command::new(binary()).arg("--help").stdout(Stdio::null()).status()?;
            ensure!(status.success(), "--help failed");
            Ok(start.elapsed())
        })
        .collect::<anyhow::Result<_>>()?;
    budget("--help, seconds", median(&help).as_secs_f64(), 0.020);
    if check && !over.is_empty() {
        eprintln!("over budget: {}", over.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Raw sequences and trials in alternating blocks, so that a drift of the machine meets both.
fn alternate(
    runtime: &tokio::runtime::Runtime,
    docker: &Docker,
    work: &Path,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut raw, mut trials) = (Vec::new(), Vec::new());
    for block in 0..=BLOCKS {
        let sequences: Vec<Duration> = (0..PER_BLOCK)
            .map(|number| {
                let start = Instant::now();
                runtime.block_on(sequence(docker, &format!("raw-{block}-{number}-{}", std::process::id())))?;
                Ok(start.elapsed())
            })
            .collect::<anyhow::Result<_>>()?;
        let attempts = run(work, "docker", PER_BLOCK, 1)?.attempts;
        // The first block warms both up.
        if block > 0 {
            raw.extend(sequences);
            trials.extend(periods(&attempts));
        }
    }
    Ok((raw, trials))
}

/// What one trial takes of a run: from the start of one to the start of the next, everything included.
fn periods(attempts: &[Attempt]) -> Vec<Duration> {
    let mut starts: Vec<_> = attempts.iter().map(|attempt| attempt.started_at).collect();
    starts.sort();
    starts.windows(2).filter_map(|pair| pair[1].duration_since(pair[0]).try_into().ok()).collect()
}

/// The calls of one no-op trial, as a program would make them that does nothing else.
async fn sequence(docker: &Docker, name: &str) -> anyhow::Result<()> {
    let body = ContainerCreateBody {
        image: Some(IMAGE.into()),
        cmd: Some(vec!["sleep".into(), "600".into()]),
        host_config: Some(HostConfig { init: Some(true), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    docker.create_container(Some(CreateContainerOptionsBuilder::default().name(name).build()), body).await?;
    let result = async {
        docker.start_container(name, None::<StartContainerOptions>).await?;
        exec(docker, name, &["sh", "-c", "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/pid; id -u"])
            .await?;
        upload(docker, name, &[(".sandbox-bench/TASK.md", "Do nothing.\n"), (".sandbox-bench/marker", name)]).await?;
        upload(docker, name, &[(".sandbox-bench/solver", "true\n")]).await?;
        exec(docker, name, &["sh", "/.sandbox-bench/solver"]).await?;
        upload(docker, name, &[("tests/test.sh", TEST)]).await?;
        exec(
            docker,
            name,
            &["sh", "-c", "mkdir -p /logs/verifier && chmod 777 /logs/verifier && exec sh /tests/test.sh"],
        )
        .await?;
        let options = DownloadFromContainerOptionsBuilder::default().path("/logs").build();
        docker.download_from_container(name, Some(options)).try_for_each(|_| async { Ok(()) }).await?;
        anyhow::Ok(())
    };
    let result = result.await;
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    docker.remove_container(name, Some(options)).await?;
    result
}

async fn exec(docker: &Docker, name: &str, argv: &[&str]) -> anyhow::Result<()> {
    let options = CreateExecOptions {
        cmd: Some(argv.iter().map(|arg| (*arg).to_owned()).collect()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..CreateExecOptions::default()
    };
    let exec = docker.create_exec(name, options).await?.id;
    let StartExecResults::Attached { mut output, .. } = docker.start_exec(&exec, None::<StartExecOptions>).await?
    else {
        bail!("the exec was not attached");
    };
    while let Some(chunk) = output.next().await {
        chunk?;
    }
    let code = docker.inspect_exec(&exec).await?.exit_code;
    ensure!(code == Some(0), "{argv:?} ended with {code:?}");
    Ok(())
}

async fn upload(docker: &Docker, name: &str, files: &[(&str, &str)]) -> anyhow::Result<()> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content.as_bytes())?;
    }
    let options = UploadToContainerOptionsBuilder::default().path("/").build();
    docker.upload_to_container(name, Some(options), body_full(archive.into_inner()?.into())).await?;
    Ok(())
}

const TEST: &str = "#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n";

fn no_op_task(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory.join("tests"))?;
    std::fs::write(directory.join("instruction.md"), "Do nothing.\n")?;
    std::fs::write(directory.join("tests/test.sh"), TEST)?;
    let task = format!("schema_version = \"1.4\"\n[environment]\ndocker_image = \"{IMAGE}\"\n");
    std::fs::write(directory.join("task.toml"), task)?;
    Ok(())
}

/// What a run of the binary cost.
struct Cost {
    wall: Duration,
    cpu: f64,
    memory_mib: f64,
    attempts: Vec<Attempt>,
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sandbox-bench"))
}

/// Runs the no-op task so many times.
fn run(work: &Path, backend: &str, replicates: usize, concurrency: usize) -> anyhow::Result<Cost> {
    let results = tempfile::tempdir_in(work)?;
    let start = Instant::now();
    // `time` would not be there everywhere; a shell's own `ulimit` and `times` do not give the memory. So: wait4.
    let child = Command::new(binary())
        .args(["run", "--quiet", "--backend", backend, "--solver", "command:true", "--format", "json"])
        .args(["--replicates", &replicates.to_string(), "--concurrency", &concurrency.to_string()])
        .arg("--dataset")
        .arg(work.join("tasks"))
        .arg("--results")
        .arg(results.path())
        .stdout(Stdio::null())
        .spawn()?;
    let usage = wait(child)?;
    let wall = start.elapsed();
    let run = std::fs::read_dir(results.path())?.next().context("no run directory")??.path();
    let lines = std::fs::read_to_string(run.join("trials.jsonl"))?;
    let attempts: Vec<Attempt> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(attempts.iter().all(Attempt::accepted), "a no-op trial was not accepted: {}", run.display());
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    Ok(Cost { wall, cpu, memory_mib: usage.ru_maxrss as f64 / 1024.0, attempts })
}

/// Waits for a child and returns what it used, without its own children.
#[allow(unsafe_code, reason = "wait4 has no safe wrapper in the libraries that we use")]
fn wait(child: std::process::Child) -> anyhow::Result<libc::rusage> {
    let pid = libc::pid_t::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: plain old data, for which all zeros are a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call; nobody else waits for this child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    ensure!(waited == pid, "wait4: {}", std::io::Error::last_os_error());
    ensure!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the run failed with status {status}");
    Ok(usage)
}

#[allow(clippy::cast_precision_loss)]
fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

fn median(values: &[Duration]) -> Duration {
    let mut values = values.to_vec();
    values.sort();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
