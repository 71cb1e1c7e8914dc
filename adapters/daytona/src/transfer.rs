//! Inputs into a sandbox and files out of it: one archive each, packed and unpacked in the sandbox as root.

use std::path::Path;
use std::time::Duration;

use futures_util::TryStreamExt;
use reqwest::Body;
use reqwest::multipart::{Form, Part};
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::guest::{as_user, not_become};
use sandbox_bench_kit::wait::{bounded, winding_up};

use crate::sandbox::Guest;
use crate::session::WIND_UP_LIMIT;

/// Most time for packing or unpacking. The platform may cut requests that take minutes.
const PACK_LIMIT: Duration = Duration::from_secs(240);
/// What packing leaves of the call's time for the answer.
const MARGIN: Duration = Duration::from_secs(1);

/// Unpacks the archive $1 over the root directory.
const UNPACK: &str = r#"umask 022; tar -xpf "$1" -C /; code=$?; rm -f "$1"; exit "$code""#;
/// Packs the entry $2 of the directory $1 to standard output.
const PACK: &str = r#"[ -e "$1/$2" ] || [ -L "$1/$2" ] || exit 44; exec tar -cf - -C "$1" -- "$2""#;
/// Keeps what a command prints in the file $1, at most $2 bytes; prints its errors, and ends as it does.
const KEEP: &str = r#"out=$1 limit=$2; shift 2; umask 077
{ "$@" 2>"$out.err"; echo $? >"$out.code"; } | head -c "$limit" >"$out"
read -r code <"$out.code"; head -c 500 "$out.err"; rm -f "$out.err" "$out.code"; exit "$code""#;
/// How [`PACK`] says that there is nothing to pack.
const MISSING: i32 = 44;
/// A program that is not there, by the shell's convention.
const NO_PROGRAM: i32 = 127;
/// `tar`: a file changed or went while it was read. The archive is sound.
const CHANGED: i32 = 1;
/// `tar` was cut at the limit: by SIGPIPE.
const CUT: i32 = 141;

/// Places all inputs: one archive up, one command to unpack it.
pub(crate) async fn upload(guest: &Guest, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    let what = guest.what("upload");
    let path = file(guest, call).await?;
    let inputs = inputs.to_vec();
    // Read twice, so that the request says how long it is, and none is begun that cannot be ended.
    let measured = tokio::task::spawn_blocking({
        let inputs = inputs.clone();
        move || archive::inputs_size(&inputs)
    });
    let size = bounded(call, &what, measured)
        .await?
        .map_err(|e| Error::new(ErrorKind::Failed, format!("{what}: packing failed")).because(e))??;
    let (task, stream) = archive::tar(call.meter.clone(), move |builder| archive::write_inputs(builder, &inputs));
    let content = Part::stream_with_length(Body::wrap_stream(stream), size).file_name("inputs.tar");
    let form = Form::new().text("files[0].path", path.clone()).part("files[0].file", content);
    let answer = guest.toolbox.upload(call, &what, form).await;
    // What is wrong with the inputs says more than that the request was cut.
    let bytes = bounded(call, &what, task.finish()).await??;
    if let Err(error) = answer {
        return Err(guest.explained(call, error).await);
    }
    run(guest, call, &what, as_root(&["/bin/sh", "-c", UNPACK, "sh", &path])).await.and_then(
        |(code, text)| match code {
            0 => Ok(()),
            NO_PROGRAM => Err(no_tar(&what)),
            _ if text.contains("No space left") => Err(Error::new(ErrorKind::Failed, format!("{what}: {text}"))),
            _ => Err(Error::invalid(format!("{what}: {text}"))),
        },
    )?;
    Ok(Uploaded { bytes, proof: UploadProof::Acknowledged })
}

/// Streams `from` into the host file `to`. After any error there is no such file.
pub(crate) async fn download(guest: &Guest, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let done = fetch(guest, call, from, (to, limit)).await;
    if done.is_err() {
        // An older one would be taken for the result. The error at hand says more than a failure to remove it.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn fetch(guest: &Guest, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let relative = archive::relative(from)?;
    let what = guest.what(&format!("download of {from}"));
    let entry = relative.file_name().map_or(".".into(), |name| name.to_string_lossy().into_owned());
    let directory = format!("/{}", relative.parent().map(Path::to_string_lossy).unwrap_or_default());
    let path = file(guest, call).await?;
    let most = limit.saturating_add(1).to_string();
    let keep = ["/bin/sh", "-c", KEEP, "sh", &path, &most].into_iter().map(str::to_owned);
    let argv = keep.chain(as_root(&["/bin/sh", "-c", PACK, "sh", &directory, &entry])).collect();
    let (code, text) = run(guest, call, &what, argv).await?;
    match code {
        0 | CHANGED | CUT => {}
        MISSING => return Err(Error::new(ErrorKind::NotFound, format!("{what}: no such path"))),
        NO_PROGRAM => return Err(no_tar(&what)),
        _ => return Err(Error::new(ErrorKind::Failed, format!("{what}: {text}"))),
    }
    let received = async {
        let answer = guest.toolbox.download(call, &what, &path).await?;
        let chunks = answer.bytes_stream().map_err(|e| {
            Error::new(ErrorKind::Transport, format!("{what}: the connection failed")).because(e.without_url())
        });
        archive::receive(call, &what, chunks, (to, limit)).await
    };
    let received = received.await;
    let (toolbox, call_later) = (guest.toolbox.clone(), winding_up(call, WIND_UP_LIMIT));
    guest.later(async move { toolbox.remove(&call_later, "removal of an archive", &path).await });
    match received {
        Err(error) if *error.kind() != ErrorKind::InvalidRequest => Err(guest.explained(call, error).await),
        received => received,
    }
}

/// A path for an archive in the sandbox.
async fn file(guest: &Guest, call: &Call) -> Result<String> {
    Ok(format!("{}/{}.tar", guest.scratch(call).await?, uuid::Uuid::now_v7().simple()))
}

fn as_root(argv: &[&str]) -> Vec<String> {
    as_user("0", &Default::default(), argv.iter().map(|word| (*word).to_owned()).collect())
}

/// Runs a command that does not fail by itself; returns its exit code and what it said, in one line.
async fn run(guest: &Guest, call: &Call, what: &str, argv: Vec<String>) -> Result<(i32, String)> {
    let limit = call.remaining().saturating_sub(MARGIN).min(PACK_LIMIT);
    match guest.toolbox.execute(call, what, &argv, limit).await {
        Ok(done) => match not_become(what, &done.result) {
            Some(error) => Err(error),
            None => Ok((done.exit_code, done.result.split_whitespace().collect::<Vec<_>>().join(" "))),
        },
        Err(error) => Err(guest.explained(call, error).await),
    }
}

fn no_tar(what: &str) -> Error {
    Error::unsupported(format!("{what}: the image has no tar")).hint("use an image that has tar and head")
}
