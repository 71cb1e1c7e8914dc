//! Inputs into a container and files out of it, as tar streams over the engine's archive requests.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bollard::query_parameters::{DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use futures_util::StreamExt;
use sandbox_bench_core::{Call, Downloaded, Error, ErrorKind, Input, Payload, Result, UploadProof, Uploaded};
use tar::EntryType;
use tokio::io::AsyncWriteExt;

use crate::client::{Engine, bounded, short};
use crate::tarstream::{self, Chunks};
use crate::{error, observe};

/// Places all inputs with one request.
pub(crate) async fn upload(engine: &Engine, call: &Call, container: &str, inputs: &[Input]) -> Result<Uploaded> {
    for input in inputs {
        relative(&input.entry.destination)?;
    }
    if inputs.is_empty() {
        return Ok(Uploaded { bytes: 0, proof: UploadProof::Acknowledged });
    }
    let what = format!("container {}: upload", short(container));
    let inputs = inputs.to_vec();
    let (task, stream) = tarstream::tar(call.meter.clone(), move |builder| write_inputs(builder, &inputs));
    let options = UploadToContainerOptionsBuilder::new().path("/").no_overwrite_dir_non_dir("true").build();
    call.meter.api_call();
    let request = engine.docker.upload_to_container(container, Some(options), bollard::body_try_stream(stream));
    let answer = bounded(call, &what, request).await?;
    let bytes = bounded(call, &what, task.finish()).await??;
    answer.map_err(|e| lost(container, error::map(&what, e)))?;
    Ok(Uploaded { bytes, proof: UploadProof::Acknowledged })
}

/// Streams `from` into the host file `to`, which is removed again if it does not become complete.
pub(crate) async fn download(
    engine: &Engine,
    call: &Call,
    container: &str,
    from: &str,
    (to, limit): (&Path, u64),
) -> Result<Downloaded> {
    let what = format!("container {}: download of {from}", short(container));
    let done = bounded(call, &what, stream_down(engine, call, (container, from), (to, limit), &what)).await;
    let done = done.and_then(|result| result);
    if done.is_err() {
        // Best effort: the error at hand says more than a failure to clean up.
        let _ = tokio::fs::remove_file(to).await;
    }
    done
}

async fn stream_down(
    engine: &Engine,
    call: &Call,
    (container, from): (&str, &str),
    (to, limit): (&Path, u64),
    what: &str,
) -> Result<Downloaded> {
    relative(from)?;
    let on_host = |e: io::Error| Error::invalid(format!("cannot write {}", to.display())).because(e);
    let options = DownloadFromContainerOptionsBuilder::new().path(from).build();
    call.meter.api_call();
    let mut stream = engine.docker.download_from_container(container, Some(options));
    let mut file = None;
    let mut bytes = 0u64;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|e| missing(lost(container, error::map(what, e))))?;
        let file = match &mut file {
            Some(file) => file,
            None => file.insert(tokio::fs::File::create(to).await.map_err(on_host)?),
        };
        bytes += chunk.len() as u64;
        call.meter.received(chunk.len() as u64);
        if bytes > limit {
            return Err(Error::invalid(format!("{what}: more than the limit of {limit} bytes")));
        }
        file.write_all(&chunk).await.map_err(on_host)?;
    }
    match &mut file {
        Some(file) => file.flush().await.map_err(on_host)?,
        None => return Err(Error::new(ErrorKind::Transport, format!("{what}: the engine sent nothing"))),
    }
    Ok(Downloaded { bytes })
}

/// The content of one small file in the sandbox; none if there is no such file, or it is larger than the limit.
pub(crate) async fn read(
    engine: &Engine,
    call: &Call,
    container: &str,
    (path, limit): (&str, usize),
) -> Result<Option<Vec<u8>>> {
    let what = format!("container {}: read of {path}", short(container));
    let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
    call.meter.api_call();
    let mut stream = engine.docker.download_from_container(container, Some(options));
    let archive = bounded(call, &what, async {
        let mut archive = Vec::new();
        while let Some(chunk) = stream.next().await {
            archive.extend_from_slice(&chunk.map_err(|e| lost(container, error::map(&what, e)))?);
            if archive.len() > limit {
                return Ok::<_, Error>(Vec::new());
            }
        }
        Ok(archive)
    });
    let archive = match archive.await? {
        Err(e) if *e.kind() == ErrorKind::NotFound => return Ok(None),
        archive => archive?,
    };
    let mut archive = tar::Archive::new(archive.as_slice());
    let first = archive.entries().ok().and_then(|mut entries| entries.next()?.ok());
    let mut content = Vec::new();
    Ok(first.and_then(|mut entry| entry.read_to_end(&mut content).ok()).map(|_| content))
}

/// A missing container is a lost sandbox; a missing path stays what it is.
fn lost(container: &str, error: Error) -> Error {
    let text = error.to_string();
    if text.contains("No such container") || text.contains("no such container") {
        observe::lost(container).because(error)
    } else {
        error
    }
}

/// What lies below a file is not there; the engine calls such a path faulty.
fn missing(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidRequest if error.to_string().contains("not a directory") => {
            Error::new(ErrorKind::NotFound, "no such path in the sandbox").because(error)
        }
        _ => error,
    }
}

/// The path below the root that an absolute path in the sandbox names.
///
/// # Errors
/// `InvalidRequest` if it is not absolute or climbs with `..`.
fn relative(path: &str) -> Result<PathBuf> {
    let refused = |why: &str| Err(Error::invalid(format!("{path:?} cannot be a path in the sandbox: {why}")));
    if !path.starts_with('/') {
        return refused("it is not absolute");
    }
    if path.contains('\0') {
        return refused("it holds a NUL byte");
    }
    if path.split('/').any(|part| part == "..") {
        return refused("it climbs with ..");
    }
    Ok(path.split('/').filter(|part| !part.is_empty() && *part != ".").collect())
}

fn write_inputs(builder: &mut tar::Builder<Chunks>, inputs: &[Input]) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    inputs.iter().try_for_each(|input| {
        let to = relative(&input.entry.destination)?;
        let failed = |e: io::Error| Error::invalid(format!("input {}: cannot be sent", input.entry.name)).because(e);
        match &input.payload {
            Payload::Bytes { bytes, mode } => {
                let header = tarstream::header(EntryType::Regular, *mode, bytes.len() as u64, now);
                tarstream::append(builder, header, &to, bytes.as_ref()).map_err(failed)
            }
            Payload::File { path, mode } => File::open(path)
                .and_then(|file| {
                    let header = tarstream::header(EntryType::Regular, *mode, file.metadata()?.len(), now);
                    tarstream::append(builder, header, &to, file)
                })
                .map_err(failed),
            Payload::Tree { tar } => {
                let source = File::open(tar).map_err(failed)?;
                graft(builder, &to, io::BufReader::new(source)).map_err(failed)
            }
        }
    })
}

/// Copies all members of the archive `source` to below `to`. Members may be files, directories and links only, and
/// none may lie outside. The archive's own root is left out, because its mode would be put on a directory that may be
/// there already, such as `/tmp`; it is sent only when there is nothing else.
fn graft<W: io::Write>(builder: &mut tar::Builder<W>, to: &Path, source: impl io::Read) -> io::Result<()> {
    let mut members = 0u64;
    for entry in tar::Archive::new(source).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let member = entry.path()?.into_owned();
        let Some(path) = below(to, &member)? else { continue };
        members += 1;
        let header = |kind, size| -> io::Result<tar::Header> {
            let old = entry.header();
            Ok(tarstream::header(kind, old.mode()?, size, old.mtime()?))
        };
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let header = header(EntryType::Regular, entry.size())?;
                tarstream::append(builder, header, &path, &mut entry)?;
            }
            EntryType::Directory => tarstream::append(builder, header(kind, 0)?, &path, io::empty())?,
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name()?.ok_or_else(|| refused(&member, "a link without a target"))?;
                let target = match kind {
                    EntryType::Symlink => target.into_owned(),
                    _ => below(to, &target).ok().flatten().ok_or_else(|| refused(&member, "a hard link to outside"))?,
                };
                builder.append_link(&mut header(kind, 0)?, &path, target)?;
            }
            _ => return Err(refused(&member, "neither a file, nor a directory, nor a link")),
        }
    }
    if members == 0 && to.components().next().is_some() {
        tarstream::append(builder, tarstream::header(EntryType::Directory, 0o755, 0, 0), to, io::empty())?;
    }
    Ok(())
}

/// The place of an archive member below `to`; none for the archive's own root.
fn below(to: &Path, member: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = to.to_path_buf();
    for component in member.components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return Err(refused(member, "a name that leads outside")),
        }
    }
    Ok((path != to).then_some(path))
}

fn refused(member: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("member {} of the tree: {why}", member.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// What arrives: name, kind, mode, link target, content.
    type Member = (String, EntryType, u32, Option<String>, Vec<u8>);

    fn grafted(to: &str, source: &[u8]) -> io::Result<Vec<Member>> {
        let mut builder = tar::Builder::new(Vec::new());
        graft(&mut builder, Path::new(to), source)?;
        let out = builder.into_inner()?;
        tar::Archive::new(out.as_slice())
            .entries()?
            .map(|entry| {
                let mut entry = entry?;
                let mut content = Vec::new();
                io::Read::read_to_end(&mut entry, &mut content)?;
                let header = entry.header();
                assert_eq!((header.uid()?, header.gid()?), (0, 0));
                let link = entry.link_name()?.map(|link| link.display().to_string());
                let name = entry.path()?.display().to_string();
                Ok((name, header.entry_type(), header.mode()?, link, content))
            })
            .collect()
    }

    fn tree(members: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, mode, text) in members {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_uid(1000);
            header.set_gid(1000);
            header.set_size(0);
            match kind {
                EntryType::Symlink | EntryType::Link => builder.append_link(&mut header, name, text).unwrap(),
                _ => {
                    header.set_size(text.len() as u64);
                    builder.append_data(&mut header, name, text.as_bytes()).unwrap();
                }
            }
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_tree_moves_below_its_destination_with_modes_links_and_empty_directories() {
        let source = tree(&[
            ("./", EntryType::Directory, 0o700, ""),
            ("./bin/", EntryType::Directory, 0o750, ""),
            ("./bin/run", EntryType::Regular, 0o4755, "#!/bin/sh"),
            ("./link", EntryType::Symlink, 0o777, "../else/where"),
            ("./hard", EntryType::Link, 0o644, "bin/run"),
        ]);
        let strings = |(n, k, m, l, c): Member| (n, k, m, l, String::from_utf8(c).unwrap());
        let out: Vec<_> = grafted("srv/app", &source).unwrap().into_iter().map(strings).collect();
        let line = |n: &str, k, m, l: Option<&str>, c: &str| (n.to_owned(), k, m, l.map(str::to_owned), c.to_owned());
        assert_eq!(
            out,
            [
                line("srv/app/bin", EntryType::Directory, 0o750, None, ""),
                line("srv/app/bin/run", EntryType::Regular, 0o4755, None, "#!/bin/sh"),
                line("srv/app/link", EntryType::Symlink, 0o777, Some("../else/where"), ""),
                line("srv/app/hard", EntryType::Link, 0o644, Some("srv/app/bin/run"), ""),
            ]
        );
    }

    #[test]
    fn an_empty_tree_still_makes_its_destination() {
        let out = grafted("empty", &tree(&[("./", EntryType::Directory, 0o700, "")])).unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].0, "empty");
        assert!(grafted("", &tree(&[])).unwrap().is_empty());
    }

    #[test]
    fn devices_and_ways_out_are_refused() {
        for (name, kind, target) in [
            ("null", EntryType::Char, ""),
            ("pipe", EntryType::Fifo, ""),
            ("hard", EntryType::Link, "../../etc/shadow"),
            ("hard", EntryType::Link, "/etc/shadow"),
        ] {
            let error = grafted("srv", &tree(&[(name, kind, 0o644, target)])).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(below(Path::new("srv"), Path::new("../x")).is_err());
        assert!(below(Path::new("srv"), Path::new("/x")).is_err());
    }

    #[test]
    fn destinations_are_absolute_and_do_not_climb() {
        assert_eq!(relative("/a//b/./c/").unwrap(), Path::new("a/b/c"));
        assert_eq!(relative("/").unwrap(), Path::new(""));
        for bad in ["", "a", "/a/../b", "/..", "/a\0b"] {
            assert_eq!(*relative(bad).unwrap_err().kind(), ErrorKind::InvalidRequest, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn long_names_and_any_content_survive(name in "[a-z/]{1,300}", content in prop::collection::vec(any::<u8>(), 0..2000)) {
            let name: String = name.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            prop_assume!(!name.is_empty());
            let mut builder = tar::Builder::new(Vec::new());
            let header = tarstream::header(EntryType::Regular, 0o640, content.len() as u64, 1);
            tarstream::append(&mut builder, header, Path::new(&name), content.as_slice()).unwrap();
            let out = grafted("d", &builder.into_inner().unwrap()).unwrap();
            prop_assert_eq!(out, [(format!("d/{name}"), EntryType::Regular, 0o640, None, content)]);
        }

        #[test]
        fn a_damaged_tree_never_panics(source in prop::collection::vec(any::<u8>(), 0..3000), flip in any::<(prop::sample::Index, u8)>()) {
            let _ = grafted("d", &source);
            let mut tree = tree(&[("a", EntryType::Regular, 0o644, "x"), ("b", EntryType::Symlink, 0o777, "a")]);
            let at = flip.0.index(tree.len());
            tree[at] ^= flip.1;
            let _ = grafted("d", &tree);
        }
    }
}
