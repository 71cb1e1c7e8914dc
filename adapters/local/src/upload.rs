//! Inputs as tar streams.

use std::path::{Component, Path};
use std::pin::Pin;

use jiff::Timestamp;
use sandbox_bench_core::{Error, ErrorKind, Input, Payload, Result, UploadProof, Uploaded};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::engine::EngineSandbox;

/// Members of a tar archive are padded to this many bytes.
const BLOCK: u64 = 512;

type Stream = Pin<Box<dyn AsyncRead + Send>>;

/// Places inputs in their order: files that follow each other in one transfer, each tree in one of its own.
pub(crate) async fn place(sandbox: &EngineSandbox, inputs: &[Input]) -> Result<Uploaded> {
    let mut bytes = 0;
    for group in inputs.chunk_by(|a, b| !is_tree(a) && !is_tree(b)) {
        bytes += match group {
            [Input { entry, payload: Payload::Tree { tar } }] => {
                member_name(&entry.destination)?;
                let file = tokio::fs::File::open(tar).await.map_err(|error| unreadable(&entry.name, error))?;
                sandbox.write_tar(&entry.destination, None, file).await?
            }
            files => sandbox.write_tar("/", None, archive(files).await?).await?,
        };
    }
    Ok(Uploaded { bytes, proof: UploadProof::Acknowledged })
}

fn is_tree(input: &Input) -> bool {
    matches!(input.payload, Payload::Tree { .. })
}

/// The destination as the name of a member of an archive of `/`.
fn member_name(destination: &str) -> Result<&str> {
    let path = Path::new(destination);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || destination.contains('\0') {
        return Err(Error::invalid(format!("local: destination {destination:?} is not an absolute path without `..`")));
    }
    Ok(destination.trim_start_matches('/'))
}

/// One archive of all the files, read from the host as it is sent.
async fn archive(files: &[Input]) -> Result<Stream> {
    let mut stream: Stream = Box::pin(tokio::io::empty());
    for Input { entry, payload } in files {
        let name = member_name(&entry.destination)?;
        let (mode, size, content): (_, _, Stream) = match payload {
            Payload::Bytes { bytes, mode } => {
                (*mode, bytes.len() as u64, Box::pin(std::io::Cursor::new(bytes.clone())))
            }
            Payload::File { path, mode } => {
                let file = tokio::fs::File::open(path).await.map_err(|error| unreadable(&entry.name, error))?;
                let size = file.metadata().await.map_err(|error| unreadable(&entry.name, error))?.len();
                (*mode, size, Box::pin(file.take(size)))
            }
            // Trees are archives already.
            Payload::Tree { .. } => continue,
        };
        let header = header(name, mode, size)
            .map_err(|error| Error::invalid(format!("local: destination {:?}", entry.destination)).because(error))?;
        let padding = vec![0; (size.next_multiple_of(BLOCK) - size) as usize];
        stream =
            Box::pin(stream.chain(std::io::Cursor::new(header)).chain(content).chain(std::io::Cursor::new(padding)));
    }
    let end = vec![0; 2 * BLOCK as usize];
    Ok(Box::pin(stream.chain(std::io::Cursor::new(end))))
}

/// The header blocks of one file, with an extra member before it if the name is long.
fn header(name: &str, mode: u32, size: u64) -> std::io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode & 0o7777);
    header.set_size(size);
    header.set_mtime(Timestamp::now().as_second().max(0) as u64);
    header.set_entry_type(tar::EntryType::Regular);
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_data(&mut header, name, std::io::empty())?;
    Ok(std::mem::take(builder.get_mut()))
}

fn unreadable(name: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("local: input {name} cannot be read")).because(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;

    use sandbox_bench_core::{Input, Stage};

    use super::*;

    #[tokio::test]
    async fn files_become_an_archive_that_tar_reads() {
        let long = format!("/{}/file", "d".repeat(150));
        let inputs = [
            Input::bytes("a", "/w/a.txt", Stage::Setup, 0o640, "hello"),
            Input::bytes("b", &long, Stage::Setup, 0o755, vec![7; 513]),
            Input::bytes("c", "/empty", Stage::Setup, 0o644, ""),
        ];
        let mut bytes = Vec::new();
        archive(&inputs).await.unwrap().read_to_end(&mut bytes).await.unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            seen.push((entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), content.len()));
        }
        let expected =
            [("w/a.txt".to_owned(), 0o640, 5), (long[1..].to_owned(), 0o755, 513), ("empty".to_owned(), 0o644, 0)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn destinations_that_are_relative_or_climb_are_refused() {
        for bad in ["", "a", "../a", "/a/../b", "/a\0b"] {
            assert!(member_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(member_name("/tests/test.sh").unwrap(), "tests/test.sh");
    }
}
