//! The archive that an image is built from.

use std::io::{Cursor, Read};

/// The Dockerfile's place in it.
const DOCKERFILE: &str = "Dockerfile";
/// Largest size of all of its files.
const LIMIT: u64 = 1 << 30;
/// Of files that the archive gives no mode.
const MODE: u32 = 0o644;

/// Why an archive cannot be built from; the words are the service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Invalid,
    NoDockerfile,
    TooLarge,
}

impl Unfit {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Unfit::Invalid => "ARCHIVE_INVALID",
            Unfit::NoDockerfile => "ARCHIVE_DOCKERFILE_NOT_FOUND",
            Unfit::TooLarge => "DISK_STORAGE_FULL",
        }
    }
}

/// What is in an archive: the text of its Dockerfile, and everything as a tar file.
#[derive(Debug)]
pub(super) struct Artifact {
    pub(super) dockerfile: String,
    pub(super) context: Vec<u8>,
}

impl Artifact {
    /// Reads a zip file; modes of files are kept.
    pub(super) fn read(bytes: &[u8]) -> Result<Artifact, Unfit> {
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|_| Unfit::Invalid)?;
        let (mut dockerfile, mut left) = (None, LIMIT);
        let mut context = tar::Builder::new(Vec::new());
        for at in 0..archive.len() {
            let entry = archive.by_index(at).map_err(|_| Unfit::Invalid)?;
            let name = entry.enclosed_name().ok_or(Unfit::Invalid)?;
            let (directory, mode) = (entry.is_dir(), entry.unix_mode());
            let mut content = Vec::new();
            entry.take(left + 1).read_to_end(&mut content).map_err(|_| Unfit::Invalid)?;
            left = left.checked_sub(content.len() as u64).ok_or(Unfit::TooLarge)?;
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(mode.unwrap_or(if directory { 0o755 } else { MODE }) & 0o7777);
            match mode.unwrap_or_default() & 0o170_000 {
                0o120_000 => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    let target = String::from_utf8(content).map_err(|_| Unfit::Invalid)?;
                    context.append_link(&mut header, &name, target).map_err(|_| Unfit::Invalid)?;
                    continue;
                }
                _ if directory => header.set_entry_type(tar::EntryType::Directory),
                _ => {}
            }
            context.append_data(&mut header, &name, content.as_slice()).map_err(|_| Unfit::Invalid)?;
            if name.as_os_str() == DOCKERFILE {
                dockerfile = Some(String::from_utf8(content).map_err(|_| Unfit::Invalid)?);
            }
        }
        let dockerfile = dockerfile.ok_or(Unfit::NoDockerfile)?;
        Ok(Artifact { dockerfile, context: context.into_inner().map_err(|_| Unfit::Invalid)? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use proptest::prelude::*;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(names: &[(&str, u32)]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, mode) in names {
            zip.start_file(*name, SimpleFileOptions::default().unix_permissions(*mode)).unwrap();
            zip.write_all(b"FROM x\n").unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn names_and_modes_arrive_in_the_context() {
        let artifact = Artifact::read(&archive(&[("Dockerfile", 0o644), ("bin/run", 0o755)])).unwrap();
        assert_eq!(artifact.dockerfile, "FROM x\n");
        let mut tar = tar::Archive::new(artifact.context.as_slice());
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap())
        });
        assert_eq!(entries.collect::<Vec<_>>(), [("Dockerfile".into(), 0o644), ("bin/run".into(), 0o755)]);
    }

    #[test]
    fn what_is_no_such_archive_says_why() {
        assert_eq!(Artifact::read(b"no zip").unwrap_err(), Unfit::Invalid);
        assert_eq!(Artifact::read(&archive(&[("sub/Dockerfile", 0o644)])).unwrap_err(), Unfit::NoDockerfile);
        assert_eq!(Artifact::read(&archive(&[("../Dockerfile", 0o644)])).unwrap_err(), Unfit::Invalid);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0usize..150, byte in any::<u8>()) {
            let mut bytes = archive(&[("Dockerfile", 0o644)]);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let _ = Artifact::read(&bytes);
        }
    }
}
