//! Trees as tar streams, in and out.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use axum::Json;
use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tar::{Archive, Builder, EntryType, Header};
use tokio::sync::mpsc;

use crate::files::absolute;
use crate::image::Changes;
use crate::receive;
use crate::refusal::{Answer, Refusal};

/// The last member of what is sent: an archive without it was cut.
pub(crate) const END: &str = ".sandbox-tar-end";
const CHUNK: usize = 64 << 10;
/// Chunks that may wait for the client.
const CHUNKS: usize = 8;

/// Query of `PUT /v1/tar`.
#[derive(Debug, Deserialize)]
pub(crate) struct Put {
    dest: String,
    /// An archive that is in the MicroVM already, instead of the body.
    from: Option<String>,
}

/// Unpacks the body, or the file `from`, below `dest`, once all of it is there and is what its digest promises.
pub(crate) async fn put(query: Put, headers: HeaderMap, body: Body, spool: &Path) -> Answer {
    let dest = absolute(&query.dest)?.to_path_buf();
    let gzip = names_gzip(&headers, CONTENT_ENCODING.as_str());
    let (source, received) = match &query.from {
        Some(from) => {
            let path = absolute(from)?;
            (File::open(path).map_err(|e| Refusal::of_file(from, &e))?, None)
        }
        None => {
            let spooled = receive::spool(&headers, body, spool).await?;
            (spooled.file.reopen().map_err(|e| Refusal::internal(e.to_string()))?, Some(spooled))
        }
    };
    let unpacked = tokio::task::spawn_blocking(move || {
        let reader: Box<dyn Read> = if gzip {
            Box::new(GzDecoder::new(io::BufReader::new(source)))
        } else {
            Box::new(io::BufReader::new(source))
        };
        unpack(reader, &dest)
    });
    let (entries, bytes) = unpacked.await.map_err(|e| Refusal::internal(e.to_string()))?.map_err(refused)?;
    drop(received);
    let answer: Value = json!({ "entries": entries, "bytes": bytes });
    Ok(Json(answer).into_response())
}

/// Only what the archive itself gets wrong is the client's to mend.
fn refused(error: io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::internal(error.to_string()),
        _ => Refusal::bad(error.to_string()),
    }
}

/// Unpacks an archive below `dest`: files, directories and links that stay there. Returns how many members there were, and
/// how many bytes of content.
fn unpack(source: impl Read, dest: &Path) -> io::Result<(u64, u64)> {
    fs::create_dir_all(dest)?;
    let dest = &dest.canonicalize()?;
    let mut archive = Archive::new(source);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    let (mut entries, mut bytes) = (0, 0);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let member = entry.path()?.into_owned();
        let odd = |why: &str| io::Error::new(io::ErrorKind::InvalidData, format!("member {}: {why}", member.display()));
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !member.components().all(plain) {
            return Err(odd("its name leads outside"));
        }
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse | EntryType::Directory => {}
            EntryType::Symlink => {
                let target = entry.link_name()?.ok_or_else(|| odd("a link without a target"))?;
                if !stays(dest, &member, &target) {
                    return Err(odd("a link that leads outside"));
                }
                replace_by_link(&dest.join(&member), dest)?;
            }
            EntryType::Link => {
                let target = entry.link_name()?.ok_or_else(|| odd("a link without a target"))?;
                if !target.components().all(plain) {
                    return Err(odd("a link that leads outside"));
                }
                replace_by_link(&dest.join(&member), dest)?;
            }
            _ => return Err(odd("neither a file, nor a directory, nor a link")),
        }
        entries += 1;
        bytes += entry.size();
        // It follows no link to outside, and replaces a file or link by a file.
        if !entry.unpack_in(dest)? {
            return Err(odd("its name leads outside"));
        }
    }
    Ok((entries, bytes))
}

/// Whether the symbolic link `member` with this target stays below `dest`, by its words.
fn stays(dest: &Path, member: &Path, target: &Path) -> bool {
    let base = if target.is_absolute() { PathBuf::new() } else { dest.join(member.parent().unwrap_or(Path::new(""))) };
    let mut place = PathBuf::from("/");
    for part in base.join(target).components() {
        match part {
            Component::Normal(part) => place.push(part),
            Component::ParentDir => drop(place.pop()),
            _ => {}
        }
    }
    place.starts_with(dest)
}

/// Makes room for a link where a file or link is. The library does so for files alone.
fn replace_by_link(path: &Path, dest: &Path) -> io::Result<()> {
    // Only where the parent is truly below the destination; else the library refuses the member.
    let inside = path.parent().and_then(|parent| parent.canonicalize().ok()).is_some_and(|real| real.starts_with(dest));
    match fs::symlink_metadata(path) {
        Ok(there) if inside && !there.is_dir() => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Query of `GET /v1/tar`; `exclude` may be repeated.
#[derive(Debug, Default)]
pub(crate) struct Get {
    path: String,
    exclude: Vec<PathBuf>,
}

impl Get {
    /// Reads the query's pairs.
    ///
    /// # Errors
    /// 400 without a path.
    pub(crate) fn read(pairs: Vec<(String, String)>) -> Answer<Self> {
        let mut query = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "path" => query.path = value,
                "exclude" if !value.is_empty() => query.exclude.push(value.into()),
                _ => {}
            }
        }
        absolute(&query.path)?;
        Ok(query)
    }
}

/// The file or tree at a path. Member names begin with the path's last component; what is excluded is named by absolute
/// paths, or relative to the path. The body breaks off if something cannot be read, and never looks whole then.
pub(crate) fn get(query: Get, headers: &HeaderMap) -> Answer {
    let root = absolute(&query.path)?.to_path_buf();
    fs::symlink_metadata(&root).map_err(|e| Refusal::of_reading(&query.path, &e))?;
    let excluded = query.exclude.iter().map(|path| root.join(path)).collect::<Vec<_>>();
    let gzip = names_gzip(headers, ACCEPT_ENCODING.as_str());
    let mut response = sent(gzip, "application/x-tar", move |to| pack(to, &root, &excluded));
    if gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// What was changed in this MicroVM since `since`, as a layer that an image build can apply.
pub(crate) fn changes(since: (i64, i64)) -> Answer {
    let changes = Changes::since(since).map_err(|e| Refusal::of_file("the image's index", &e))?;
    Ok(sent(true, "application/gzip", move |to| changes.write(to)))
}

/// Sends an archive that `write` writes on a thread of its own.
fn sent(gzip: bool, kind: &'static str, write: impl FnOnce(Sink) -> io::Result<Sink> + Send + 'static) -> Response {
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let chunks = Chunks { sender: sender.clone(), buffer: Vec::with_capacity(CHUNK) };
    tokio::task::spawn_blocking(move || {
        let sink = if gzip { Sink::Gzip(GzEncoder::new(chunks, Compression::fast())) } else { Sink::Plain(chunks) };
        if let Err(error) = write(sink).and_then(Sink::finish) {
            // The client may be gone, which is as good.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let body = stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    ([(CONTENT_TYPE, kind)], Body::from_stream(body)).into_response()
}

fn names_gzip(headers: &HeaderMap, name: &str) -> bool {
    let names =
        |value: &str| value.split(',').any(|word| word.split(';').next().is_some_and(|word| word.trim() == "gzip"));
    headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(names)
}

fn pack<W: Write>(to: W, root: &Path, excluded: &[PathBuf]) -> io::Result<W> {
    let mut packer = Packer::new(to);
    let name = PathBuf::from(root.file_name().unwrap_or(".".as_ref()));
    let mut waiting = vec![(root.to_path_buf(), name)];
    while let Some((path, name)) = waiting.pop() {
        if excluded.contains(&path) {
            continue;
        }
        let metadata = match fs::symlink_metadata(&path) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        packer.add(&path, &name, &metadata)?;
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                let entry = entry?;
                waiting.push((entry.path(), name.join(entry.file_name())));
            }
        }
    }
    packer.finish()
}

/// An archive that is being written.
pub(crate) struct Packer<W: Write>(Builder<W>);

impl<W: Write> Packer<W> {
    pub(crate) fn new(to: W) -> Self {
        let mut builder = Builder::new(to);
        builder.follow_symlinks(false);
        Self(builder)
    }

    /// Adds what is at `path`: a file, a link, or a directory without what is in it. Sockets, pipes and devices are never
    /// read.
    pub(crate) fn add(&mut self, path: &Path, name: &Path, metadata: &fs::Metadata) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_metadata(metadata);
        let kind = metadata.file_type();
        if kind.is_symlink() {
            header.set_size(0);
            self.0.append_link(&mut header, name, fs::read_link(path)?)
        } else if kind.is_dir() {
            header.set_size(0);
            self.0.append_data(&mut header, name, io::empty())
        } else if kind.is_file() {
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
            self.0.append_data(&mut header, name, Whole { file, left: metadata.size() })
        } else {
            Ok(())
        }
    }

    /// Adds a file of our own.
    pub(crate) fn text(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        self.0.append_data(&mut header, name, content)
    }

    /// Adds the mark of the end.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.text(END, b"")?;
        self.0.into_inner()
    }
}

/// As many bytes of a file as its header says; one that became shorter is an error.
struct Whole {
    file: File,
    left: u64,
}

impl Read for Whole {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read(buffer.get_mut(..want).unwrap_or_default())?;
        if count == 0 && want > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was read"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Where an archive goes.
enum Sink {
    Plain(Chunks),
    Gzip(GzEncoder<Chunks>),
}

impl Sink {
    fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut chunks) => chunks.flush(),
            Self::Gzip(encoder) => encoder.finish()?.flush(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(chunks) => chunks.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(chunks) => chunks.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }
}

/// Cuts what is written into chunks, and waits while the client is slow.
struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        let taken = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.sender.blocking_send(Ok(chunk.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
