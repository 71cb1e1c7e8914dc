//! Packs the bundled data set into one archive that the library includes. The archive depends on nothing but the
//! names, contents and executable bits of the files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    let data = manifest.join("data/smoke");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", manifest.join("data").display());
    let mut archive = tar::Builder::new(File::create(out.join("smoke.tar"))?);
    if data.is_dir() {
        println!("cargo::rerun-if-changed={}", data.display());
        add(&mut archive, &data, Path::new("smoke"))?;
    }
    archive.into_inner()?.sync_all()
}

fn add(archive: &mut tar::Builder<File>, directory: &Path, inside: &Path) -> io::Result<()> {
    let mut names: Vec<_> =
        fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    for name in names {
        let (path, inside) = (directory.join(&name), inside.join(&name));
        let metadata = fs::metadata(&path)?;
        let mut header = tar::Header::new_ustar();
        header.set_mtime(0);
        if metadata.is_dir() {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o755);
            header.set_size(0);
            archive.append_data(&mut header, &inside, io::empty())?;
            add(archive, &path, &inside)?;
        } else {
            let executable = metadata.permissions().mode() & 0o100 != 0;
            header.set_mode(if executable { 0o755 } else { 0o644 });
            header.set_size(metadata.len());
            archive.append_data(&mut header, &inside, File::open(&path)?)?;
        }
    }
    Ok(())
}
