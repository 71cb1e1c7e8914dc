//! Inputs into a sandbox and files out of it: each one archive, through stdin or stdout of a `tar` that runs as root. That is
//! how the vendor's guide moves directories. The file tool that the vendor puts into each sandbox knows neither owners, nor
//! modes, nor links.

use std::path::Path;
use std::time::Duration;

use futures_util::stream;
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Result, Stream, UploadProof, Uploaded};
use sandbox_bench_kit::archive;
use sandbox_bench_kit::wait::bounded;

use crate::guest::{Done, Launch, SAID_LIMIT, append, as_root, script};
use crate::live::Live;
use crate::output::{Event, Over};
use crate::router::Router;
use crate::stdin::{self, Fed};

const UNPACK: &str = include_str!("guest/unpack.sh");
const PACK: &str = include_str!("guest/pack.sh");
/// Exit codes of these scripts.
const MISSING: i32 = 120;
const NO_TAR: i32 = 121;
const TOO_LARGE: i32 = 122;
/// How long the end of unpacking is awaited when it took no more.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Places all inputs with one command.
pub(crate) async fn upload(router: &Router, call: &Call, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        archive::relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    let what = router.what("upload");
    let exec = start(router, call, script(UNPACK, &[])).await?;
    let inputs = inputs.to_vec();
    let (task, chunks) = archive::tar(call.meter.clone(), move |builder| archive::write_inputs(builder, &inputs));
    let sent = async {
        let mut live = Live::new(router, call, &exec);
        let mut fed = std::pin::pin!(stdin::feed(router, call, &exec, chunks));
        let mut done = Done::default();
        let mut given = None;
        loop {
            tokio::select! {
                fed = &mut fed, if given.is_none() => match fed {
                    // Half of an archive: `tar` waits for the rest until the command's limit.
                    Ok(Fed::Broken) => return Ok((Fed::Broken, done)),
                    Ok(fed) => given = Some(fed),
                    Err(over) => return Err(router.cut(&what, over)),
                },
                event = live.next() => match event {
                    Event::Output(_, bytes) => append(&mut done.stderr, &bytes, SAID_LIMIT),
                    Event::Exited => {}
                    Event::Over(Over::Complete(exit)) => {
                        done.code = exit.code();
                        break;
                    }
                    Event::Over(over) => return Err(router.cut(&what, over)),
                },
            }
        }
        let given = match given {
            Some(given) => given,
            // The end was seen before the answer to the last bytes.
            None => match tokio::time::timeout(END_LIMIT, fed).await {
                Ok(Ok(given)) => given,
                _ => Fed::Refused,
            },
        };
        Ok((given, done))
    };
    let sent = bounded(call, &what, sent).await?;
    // What is wrong with the inputs says more than that the transfer was given up for it.
    let bytes = bounded(call, &what, task.finish()).await??;
    let (fed, done) = sent?;
    let error = |kind, why: &str| Err(Error::new(kind, format!("{what}: {why}")));
    match (done.code, fed) {
        (0, Fed::All) => Ok(Uploaded { bytes, proof: UploadProof::Acknowledged }),
        (0, Fed::Refused | Fed::Broken) => error(ErrorKind::Unavailable, "it did not arrive whole"),
        (NO_TAR, _) => error(ErrorKind::Environment, "the image has no tar, which placing files needs"),
        _ if done.complaint().contains("No space left") => error(ErrorKind::Capacity, &done.complaint()),
        (code, _) => {
            error(ErrorKind::InvalidRequest, &format!("unpacking failed (exit code {code}): {}", done.complaint()))
        }
    }
}

/// Streams `from` into the host file `to`, which is not there if it does not become complete.
pub(crate) async fn download(
    router: &Router,
    call: &Call,
    from: &str,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let done = fetch(router, call, from, (to, limit)).await;
    if done.is_err() {
        // An older one would be taken for the result. The error at hand says more than a failure to remove it.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn fetch(router: &Router, call: &Call, from: &str, (to, limit): (&Path, u64)) -> Result<Downloaded> {
    let what = router.what(&format!("download of {from}"));
    let path = format!("/{}", archive::relative(from)?.display());
    let (parent, name) = match path.rsplit_once('/') {
        Some(("", "")) | None => ("/", "."),
        Some((parent, name)) => (parent, name),
    };
    let (parent, most) = (format!("{parent}/"), limit.to_string());
    let exec = start(router, call, script(PACK, &[&parent, name, &most])).await?;
    let live = Live::new(router, call, &exec);
    let chunks = stream::try_unfold((live, Vec::new()), |(mut live, mut said)| {
        let what = &what;
        async move {
            loop {
                match live.next().await {
                    Event::Output(Stream::Stdout, bytes) => return Ok(Some((bytes, (live, said)))),
                    Event::Output(Stream::Stderr, bytes) => append(&mut said, &bytes, SAID_LIMIT),
                    Event::Exited => {}
                    Event::Over(Over::Complete(exit)) => return packed(what, exit.code(), &said).map(|()| None),
                    Event::Over(over) => return Err(router.cut(what, over)),
                }
            }
        }
    });
    archive::receive(call, &what, chunks, (to, limit)).await
}

/// What the end of packing says.
fn packed(what: &str, code: i32, said: &[u8]) -> Result<()> {
    let error = |kind, why: &str| Err(Error::new(kind, format!("{what}: {why}")));
    match code {
        0 => Ok(()),
        MISSING => error(ErrorKind::NotFound, "there is no such path"),
        NO_TAR => error(ErrorKind::Environment, "the image has no tar, which taking files out needs"),
        TOO_LARGE => error(ErrorKind::InvalidRequest, "it is larger than the limit"),
        code => {
            let said = String::from_utf8_lossy(said);
            error(ErrorKind::Failed, &format!("packing failed (exit code {code}): {}", said.trim()))
        }
    }
}

/// Starts a command of ours that may be run twice without harm.
async fn start(router: &Router, call: &Call, argv: Vec<String>) -> Result<String> {
    let (argv, variables) = (as_root(argv), Default::default());
    let launch = Launch { argv, variables: &variables, limit: call.remaining(), piped: true };
    router.launch(call, launch).await.map_err(|error| match error.kind() {
        ErrorKind::Transport => Error::new(ErrorKind::Unavailable, "it did not begin").because(error),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    fn pack(arguments: &[&str]) -> (i32, Vec<u8>) {
        let argv = script(PACK, arguments);
        let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
        (output.status.code().unwrap(), output.stdout)
    }

    #[test]
    fn packing_says_what_is_missing_and_stops_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), vec![7; 100_000]).unwrap();
        let parent = dir.path().to_str().unwrap();
        let (code, whole) = pack(&[parent, "file", "1000000"]);
        assert_eq!(code, 0);
        let mut archive = tar::Archive::new(whole.as_slice());
        assert_eq!(archive.entries().unwrap().next().unwrap().unwrap().size(), 100_000);
        let (code, cut) = pack(&[parent, "file", "5000"]);
        assert!(cut.len() == 5001 && code != 0, "{code}, {} bytes", cut.len());
        assert_eq!(pack(&[parent, "missing", "5000"]).0, MISSING);
        assert_eq!(pack(&["/no-such-directory", "x", "5000"]).0, MISSING);
    }

    #[test]
    fn every_end_of_packing_but_one_is_an_error() {
        assert!(packed("x", 0, b"").is_ok());
        for (code, kind) in
            [(MISSING, ErrorKind::NotFound), (TOO_LARGE, ErrorKind::InvalidRequest), (2, ErrorKind::Failed)]
        {
            assert_eq!(*packed("x", code, b"words").unwrap_err().kind(), kind);
        }
    }
}
