//! Build contexts: archives as the service wants them, a ZIP file with `Dockerfile` at its root.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use sandbox_bench_core::{Error, ErrorKind, Result};
use sandbox_bench_kit::archive;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::dockerfile::OURS;
use crate::program::{self, Program};

const DOCKERFILE: &str = "Dockerfile";

/// A build context on the host's disk.
pub(crate) struct Context {
    pub(crate) file: NamedTempFile,
    pub(crate) digest: String,
}

/// The context of a Dockerfile, with the runner. `own` is the task's own context: a directory, and the path of its Dockerfile
/// there, of which `.dockerignore` has been obeyed. Blocks.
///
/// # Errors
/// `InvalidRequest`, naming what cannot be read.
pub(crate) fn write(dockerfile: &str, program: &Program, own: Option<(&Path, &str)>) -> Result<Context> {
    let mut zip = new()?;
    text(&mut zip, DOCKERFILE, dockerfile.as_bytes(), 0o644).map_err(odd)?;
    match program {
        Program::Binary { bytes, .. } => {
            // Small as it is: not worth the time to compress it.
            let options = options(0o755).compression_method(CompressionMethod::Stored);
            zip.start_file(format!("{OURS}/runner"), options).map_err(odd)?;
            zip.write_all(bytes).map_err(|e| odd(e.into()))?;
        }
        Program::Sources => {
            for (path, content) in program::sources()? {
                text(&mut zip, &format!("{OURS}/source/{path}"), &content, 0o644).map_err(odd)?;
            }
        }
    }
    if let Some((directory, name)) = own {
        let on_host = |e: io::Error| Error::invalid("the build context cannot be packed").because(e);
        let mut packed = tar::Builder::new(BufWriter::new(tempfile::tempfile().map_err(on_host)?));
        archive::write_context(&mut packed, directory, name)?;
        let mut packed = packed.into_inner().and_then(|writer| Ok(writer.into_inner()?)).map_err(on_host)?;
        packed.rewind().map_err(on_host)?;
        copy(&mut zip, packed).map_err(odd)?;
    }
    finish(zip)
}

/// The context `base` with a layer under the name `name` and another Dockerfile, which `edit` makes of the old one. Blocks.
///
/// # Errors
/// `Failed` if it is no context of ours.
pub(crate) fn with_layer(
    base: &Path,
    (name, layer): (&str, &Path),
    edit: impl FnOnce(&str) -> Option<String>,
) -> Result<Context> {
    let foreign = || Error::new(ErrorKind::Failed, "the image was not built by sandbox-bench: it cannot be built upon");
    let open = |path: &Path| File::open(path).map(BufReader::new).map_err(|e| odd(e.into()));
    let mut old = ZipArchive::new(open(base)?).map_err(odd)?;
    let mut dockerfile = String::new();
    old.by_name(DOCKERFILE).map_err(|_| foreign())?.read_to_string(&mut dockerfile).map_err(|e| odd(e.into()))?;
    let dockerfile = edit(&dockerfile).ok_or_else(foreign)?;
    let mut zip = new()?;
    text(&mut zip, DOCKERFILE, dockerfile.as_bytes(), 0o644).map_err(odd)?;
    for index in 0..old.len() {
        let member = old.by_index_raw(index).map_err(odd)?;
        if member.name().map_err(odd)? != DOCKERFILE {
            zip.raw_copy_file(member).map_err(odd)?;
        }
    }
    // It is compressed already.
    let options = options(0o644).compression_method(CompressionMethod::Stored).large_file(true);
    zip.start_file(format!("{OURS}/{name}"), options).map_err(odd)?;
    io::copy(&mut open(layer)?, &mut zip).map_err(|e| odd(e.into()))?;
    finish(zip)
}

type Writer = ZipWriter<BufWriter<NamedTempFile>>;

fn new() -> Result<Writer> {
    NamedTempFile::new().map(|file| ZipWriter::new(BufWriter::new(file))).map_err(|e| odd(e.into()))
}

fn odd(error: zip::result::ZipError) -> Error {
    Error::invalid("the build context cannot be written").because(error)
}

fn options(mode: u32) -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).unix_permissions(mode)
}

fn text(zip: &mut Writer, name: &str, content: &[u8], mode: u32) -> zip::result::ZipResult<()> {
    zip.start_file(name, options(mode))?;
    Ok(zip.write_all(content)?)
}

/// Copies an archive of the task's context. What would take the place of our own files is left out: the Dockerfile, whose text
/// ours begins with, and `.dockerignore`, which has been obeyed and does not know our files.
fn copy(zip: &mut Writer, source: impl Read) -> zip::result::ZipResult<()> {
    for entry in tar::Archive::new(BufReader::new(source)).entries()? {
        let mut entry = entry?;
        let path: PathBuf = entry.path()?.components().collect();
        let top = path.to_str().is_some_and(|path| [DOCKERFILE, ".dockerignore"].contains(&path));
        if top || path.as_os_str().is_empty() || path.starts_with(OURS) {
            continue;
        }
        let name =
            path.to_str().ok_or_else(|| io::Error::other(format!("{}: its name is no UTF-8", path.display())))?;
        let mode = entry.header().mode()? & 0o7777;
        match entry.header().entry_type() {
            tar::EntryType::Directory => zip.add_directory(name, options(mode))?,
            tar::EntryType::Symlink => {
                let target = entry.link_name()?.unwrap_or_default().to_string_lossy().into_owned();
                zip.add_symlink(name, target, options(0o777))?;
            }
            _ => {
                zip.start_file(name, options(mode).large_file(entry.size() > u64::from(u32::MAX)))?;
                io::copy(&mut entry, zip)?;
            }
        }
    }
    Ok(())
}

fn finish(zip: Writer) -> Result<Context> {
    let writer = zip.finish().map_err(odd)?;
    let file = writer.into_inner().map_err(|e| odd(io::Error::other(e.to_string()).into()))?;
    let mut digest = Sha256::new();
    let mut reader = File::open(file.path()).map_err(|e| odd(e.into()))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match reader.read(&mut buffer).map_err(|e| odd(e.into()))? {
            0 => break,
            count => digest.update(buffer.get(..count).unwrap_or_default()),
        }
    }
    Ok(Context { file, digest: program::hex(&digest.finalize()) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(path: &Path) -> Vec<(String, u32)> {
        let mut zip = ZipArchive::new(File::open(path).unwrap()).unwrap();
        (0..zip.len())
            .map(|at| {
                let file = zip.by_index(at).unwrap();
                (file.name().unwrap().into_owned(), file.unix_mode().unwrap())
            })
            .collect()
    }

    #[test]
    fn a_context_holds_what_is_ours_and_the_tasks_own_files() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("run.sh");
        fs::write(&script, "echo").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
        symlink("run.sh", dir.path().join("link")).unwrap();
        fs::write(dir.path().join("Dockerfile"), "FROM own").unwrap();
        fs::write(dir.path().join(".dockerignore"), "secret\n").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        let program = Program::Binary { bytes: b"ELF".to_vec(), digest: String::new() };
        let context = write("FROM ours", &program, Some((dir.path(), "Dockerfile"))).unwrap();
        let mut found = names(context.file.path());
        found.sort();
        let expected = [
            (".sandbox-bench-context/runner", 0o100_755),
            ("Dockerfile", 0o100_644),
            ("link", 0o120_777),
            ("run.sh", 0o100_750),
        ];
        assert_eq!(found, expected.map(|(name, mode)| (name.to_owned(), mode)));
        let again = write("FROM ours", &program, Some((dir.path(), "Dockerfile"))).unwrap();
        assert_eq!(context.digest, again.digest, "the same context is the same file");

        fs::write(dir.path().join("layer"), "layer").unwrap();
        let layered = with_layer(context.file.path(), ("layer-1", &dir.path().join("layer")), |text| {
            Some(format!("{text} and more"))
        })
        .unwrap();
        let mut zip = ZipArchive::new(File::open(layered.file.path()).unwrap()).unwrap();
        let mut read = |name: &str| {
            let mut text = String::new();
            zip.by_name(name).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(read("Dockerfile"), "FROM ours and more");
        assert_eq!((read("run.sh").as_str(), read(".sandbox-bench-context/layer-1").as_str()), ("echo", "layer"));
        let foreign = with_layer(context.file.path(), ("l", &dir.path().join("layer")), |_| None);
        assert_eq!(*foreign.err().unwrap().kind(), ErrorKind::Failed);
    }
}
