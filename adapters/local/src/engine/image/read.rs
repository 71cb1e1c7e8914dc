//! Finds out what an image source contains, without unpacking it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::oci::{self, Config, Index, Manifest, Saved};
use super::unpack::{compression, decompress};
use super::{Blob, Check, ImageConfig, Plan};

/// Largest JSON document that is read.
const MAX_DOCUMENT: u64 = 8 << 20;
/// Indexes may point to indexes, but not for ever.
const MAX_NESTING: usize = 4;

/// Reads the table of contents of an image source: an OCI layout directory or an archive file.
///
/// A compressed archive is decompressed into a file below `scratch`, which must live until the plan is carried out.
pub(crate) fn plan(source: &Path, scratch: &Path) -> io::Result<Plan> {
    if source.is_dir() {
        return oci_image(&Store::Directory(source.to_owned()));
    }
    let mut file = File::open(source)?;
    let mut start = [0; 4];
    let read = file.read(&mut start)?;
    let plain = match compression(start.get(..read).unwrap_or_default()) {
        None => source.to_owned(),
        Some(_) => {
            let path = scratch.join("decompressed.tar");
            file.seek(SeekFrom::Start(0))?;
            io::copy(&mut decompress(file)?, &mut File::create(&path)?)?;
            path
        }
    };
    let store = Store::archive(&plain)?;
    if store.find("oci-layout").is_ok() && store.find("index.json").is_ok() {
        oci_image(&store)
    } else if store.find("manifest.json").is_ok() {
        saved_image(&store)
    } else {
        root_archive(&plain)
    }
}

/// Named blobs: files of a directory, or members of an uncompressed tar archive.
enum Store {
    Directory(PathBuf),
    Archive { file: PathBuf, members: HashMap<String, Member> },
}

enum Member {
    Data { offset: u64, size: u64 },
    Link(String),
}

impl Store {
    fn archive(file: &Path) -> io::Result<Store> {
        let mut archive = tar::Archive::new(File::open(file)?);
        let mut members = HashMap::new();
        for entry in archive.entries_with_seek()? {
            let entry = entry?;
            let path = entry.path()?.to_string_lossy().into_owned();
            let kind = entry.header().entry_type();
            let member = match entry.link_name()? {
                Some(target) if kind.is_symlink() || kind.is_hard_link() => {
                    let base = Path::new(&path).parent().unwrap_or(Path::new(""));
                    let base = if kind.is_symlink() { base } else { Path::new("") };
                    Member::Link(normal(&base.join(target)))
                }
                _ => Member::Data { offset: entry.raw_file_position(), size: entry.size() },
            };
            members.insert(normal(Path::new(&path)), member);
        }
        Ok(Store::Archive { file: file.to_owned(), members })
    }

    fn find(&self, name: &str) -> io::Result<Blob> {
        let absent = || invalid(format!("the image has no member {name}"));
        let (file, offset, size) = match self {
            Store::Directory(root) => {
                let file = root.join(name);
                let size = fs::metadata(&file).map_err(|_| absent())?.len();
                (file, 0, size)
            }
            Store::Archive { file, members } => {
                let name = normal(Path::new(name));
                // `docker save` of old engines stores a repeated layer as a link to the first.
                let member = match members.get(&name) {
                    Some(Member::Link(target)) => members.get(target),
                    other => other,
                };
                match member {
                    Some(Member::Data { offset, size }) => (file.clone(), *offset, *size),
                    _ => return Err(absent()),
                }
            }
        };
        Ok(Blob { file, offset, size, check: Check::Nothing })
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let blob = self.find(name)?;
        if blob.size > MAX_DOCUMENT {
            return Err(invalid(format!("{name} has {} bytes, which no such document needs", blob.size)));
        }
        let mut file = File::open(&blob.file)?;
        file.seek(SeekFrom::Start(blob.offset))?;
        let mut bytes = Vec::new();
        file.take(blob.size).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn json<T: DeserializeOwned>(&self, name: &str) -> io::Result<T> {
        parse(name, &self.read(name)?)
    }

    /// A document of an OCI layout by digest, verified.
    fn document<T: DeserializeOwned>(&self, digest: &str) -> io::Result<T> {
        let name = blob_name(digest)?;
        let bytes = self.read(&name)?;
        if format!("sha256:{}", hex(&bytes)) != digest {
            return Err(invalid(format!("{name} does not have the digest that is its name: the image is damaged")));
        }
        parse(&name, &bytes)
    }
}

fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(|error| invalid(format!("{name}: {error}")))
}

/// Without `.` and with `..` resolved as far as it goes; members are only ever looked up, never opened by this name.
fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            std::path::Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => drop(parts.pop()),
            _ => {}
        }
    }
    parts.join("/")
}

fn blob_name(digest: &str) -> io::Result<String> {
    let hex = oci::sha256(digest).ok_or_else(|| invalid(format!("{digest:?} is not a SHA-256 digest")))?;
    Ok(format!("blobs/sha256/{hex}"))
}

fn oci_image(store: &Store) -> io::Result<Plan> {
    let architecture = oci::architecture();
    let mut index: Index = store.json("index.json")?;
    for _ in 0..MAX_NESTING {
        let chosen = index
            .choose(architecture)
            .ok_or_else(|| invalid(format!("the image has no variant for linux/{architecture}")))?;
        if chosen.is_index() {
            index = store.document(&chosen.digest)?;
            continue;
        }
        let manifest: Manifest = store.document(&chosen.digest)?;
        let config: Config = store.document(&manifest.config.digest)?;
        let layers = manifest.layers.iter().map(|layer| {
            let mut blob = store.find(&blob_name(&layer.digest)?)?;
            blob.check = Check::Stored(layer.sha256().unwrap_or_default().to_owned());
            Ok(blob)
        });
        return Ok(Plan {
            identity: chosen.digest.clone(),
            config: config.settings(),
            layers: layers.collect::<io::Result<_>>()?,
        });
    }
    Err(invalid("indexes point to indexes without end"))
}

fn saved_image(store: &Store) -> io::Result<Plan> {
    let images: Vec<Saved> = store.json("manifest.json")?;
    let image = match images.as_slice() {
        [image] => image,
        _ => return Err(invalid(format!("the archive holds {} images; save exactly one", images.len()))),
    };
    let document = store.read(&image.config)?;
    let config: Config = parse(&image.config, &document)?;
    let digests = &config.rootfs.diff_ids;
    if digests.len() != image.layers.len() {
        return Err(invalid(format!("{} layers but {} digests", image.layers.len(), digests.len())));
    }
    let layers = image.layers.iter().zip(digests).map(|(layer, digest)| {
        let mut blob = store.find(layer)?;
        let digest = oci::sha256(digest).ok_or_else(|| invalid(format!("{digest:?} is not a SHA-256 digest")))?;
        blob.check = Check::Content(digest.to_owned());
        Ok(blob)
    });
    Ok(Plan {
        identity: format!("sha256:{}", hex(&document)),
        config: config.settings(),
        layers: layers.collect::<io::Result<_>>()?,
    })
}

/// `docker export`, or any archive of a root directory.
fn root_archive(file: &Path) -> io::Result<Plan> {
    let mut hash = Sha256::new();
    let size = io::copy(&mut File::open(file)?, &mut HashWriter(&mut hash))?;
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let layer = Blob { file: file.to_owned(), offset: 0, size, check: Check::Nothing };
    Ok(Plan { identity: format!("sha256:{digest}"), config: ImageConfig::default(), layers: vec![layer] })
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}
