//! SWE-smith instances: the bug and its fix are applied on the host, to files brought out of the sandbox, so that a
//! patch does the same everywhere and needs no tool in the image. The fail-to-pass test files are taken out of the
//! solver's sight and put back for the verifier, as upstream's instance branches do.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

use bytes::Bytes;
use sandbox_bench_core::{ExecSpec, FailureClass, Input, Phase, Stage};
use sandbox_bench_datasets::patch::{self, Direction, PatchError};
use sandbox_bench_datasets::task::SweSmith;

use super::bench::Bench;
use super::context::TRANSFER_LIMIT;
use super::stop::Stop;

/// Largest source file that a patch may touch, in bytes.
const MAX_FILE: u64 = 32 << 20;

/// A file of the repository, held on the host.
pub struct HeldFile {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

/// Applies the instance's patch in the sandbox. A patch that is applied already is left alone.
pub async fn patch(bench: &Bench<'_>, phase: Phase, instance: &SweSmith, direction: Direction) -> Result<(), Stop> {
    let failed =
        |error: PatchError| Stop::new(FailureClass::Patch, phase, format!("the patch does not apply: {error}"));
    let touched = patch::files_touched(&instance.bug_patch).map_err(failed)?;
    let mut files = Vec::new();
    for path in &touched {
        files.extend(fetch(bench, phase, path).await?);
    }
    let read = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.bytes.clone());
    let changes = match patch::apply(&instance.bug_patch, direction, read) {
        Ok(changes) => changes,
        Err(PatchError::AlreadyApplied) => {
            bench.rec.warn("the patch was applied already");
            return Ok(());
        }
        Err(error) => return Err(failed(error)),
    };
    let (kept, removed): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.content.is_some());
    let stage = if phase == Phase::Solve { Stage::Solve } else { Stage::Setup };
    let inputs: Vec<Input> = kept
        .into_iter()
        .filter_map(|change| {
            let old = files.iter().find(|file| file.path == change.path).map_or(0o644, |file| file.mode);
            let mode = change.executable.map_or(old, |executable| if executable { 0o755 } else { 0o644 });
            Some(Input::bytes("patched", &inside(bench, &change.path), stage, mode, change.content?))
        })
        .collect();
    place(bench, phase, stage, &inputs).await?;
    remove(bench, phase, removed.iter().map(|change| change.path.as_str())).await
}

/// Takes the files of the fail-to-pass tests out of the sandbox.
pub async fn hide_tests(bench: &Bench<'_>, instance: &SweSmith) -> Result<Vec<HeldFile>, Stop> {
    let names: BTreeSet<&str> = instance.fail_to_pass.iter().filter_map(|id| Some(id.split_once("::")?.0)).collect();
    let mut held = Vec::new();
    for name in names {
        held.extend(fetch(bench, Phase::Prepare, name).await?);
    }
    remove(bench, Phase::Prepare, held.iter().map(|file| file.path.as_str())).await?;
    Ok(held)
}

/// Puts hidden test files back, whatever the solver made of their places.
pub async fn restore_tests(bench: &Bench<'_>, held: &[HeldFile]) -> Result<(), Stop> {
    let inputs: Vec<Input> = held
        .iter()
        .map(|file| {
            let bytes = Bytes::from(file.bytes.clone());
            Input::bytes("hidden test", &inside(bench, &file.path), Stage::Verify, file.mode, bytes)
        })
        .collect();
    place(bench, Phase::Verify, Stage::Verify, &inputs).await
}

fn inside(bench: &Bench<'_>, path: &str) -> String {
    let workdir = bench.setup.workdir.as_deref().unwrap_or(&bench.task.default_workdir);
    format!("{}/{path}", workdir.trim_end_matches('/'))
}

/// One file of the repository; none if it is not there.
async fn fetch(bench: &Bench<'_>, phase: Phase, path: &str) -> Result<Option<HeldFile>, Stop> {
    let tar = bench.context.packs.scratch(&format!("{}.tar", uuid::Uuid::now_v7()));
    let call = bench.calls.call(Stage::Setup, TRANSFER_LIMIT);
    let from = inside(bench, path);
    let found = bench.rec.download(phase, path, bench.sandbox(), &call, (&from, &tar, MAX_FILE)).await?;
    if found.is_none() {
        return Ok(None);
    }
    let read = read_single(&tar);
    let _ = std::fs::remove_file(&tar);
    let (bytes, mode) =
        read.map_err(|e| Stop::new(FailureClass::Transport, phase, format!("{path}: the sandbox sent no file: {e}")))?;
    Ok(Some(HeldFile { path: path.to_owned(), bytes, mode }))
}

/// The one regular file in a tar file, with its permission bits.
fn read_single(tar: &std::path::Path) -> std::io::Result<(Vec<u8>, u32)> {
    let mut archive = tar::Archive::new(File::open(tar)?);
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.header().entry_type().is_file() {
            let mode = entry.header().mode()? & 0o777;
            let mut bytes = Vec::new();
            entry.take(MAX_FILE).read_to_end(&mut bytes)?;
            return Ok((bytes, mode));
        }
    }
    Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no regular file"))
}

async fn place(bench: &Bench<'_>, phase: Phase, stage: Stage, inputs: &[Input]) -> Result<(), Stop> {
    if inputs.is_empty() {
        return Ok(());
    }
    let call = bench.calls.deriving(stage, inputs);
    bench.rec.upload(phase, "patched files", bench.sandbox(), &call, inputs).await
}

async fn remove(bench: &Bench<'_>, phase: Phase, paths: impl Iterator<Item = &str>) -> Result<(), Stop> {
    let paths: Vec<String> = paths.map(|path| inside(bench, path)).collect();
    if paths.is_empty() {
        return Ok(());
    }
    let argv = ["rm", "-f", "--"].into_iter().map(str::to_owned).chain(paths);
    let mut spec = ExecSpec::new(argv).cwd("/");
    spec.user = bench.root();
    let call = bench.calls.call(Stage::Setup, spec.timeout + super::context::MARGIN);
    let ran = bench.rec.exec(phase, "remove files", bench.sandbox(), &call, &spec).await?;
    if ran.success() {
        return Ok(());
    }
    let class = FailureClass::Environment;
    Err(Stop::from_completion(class, phase, "remove files", &ran.report.completion, &ran.last_words()))
}
