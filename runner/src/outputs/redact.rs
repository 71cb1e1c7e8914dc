//! Keeps forwarded secrets out of the evidence: their values are overwritten by asterisks of the same length, so that
//! sizes and offsets stay true.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

/// Shorter values are left alone: they occur everywhere by chance, and are no secrets.
const SHORTEST: usize = 6;

/// The values to overwrite. Cheap to clone.
#[derive(Clone, Default)]
pub struct Secrets {
    values: Arc<[Box<[u8]>]>,
}

impl Secrets {
    /// Overwrites these values; those shorter than six bytes are left alone.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let long = values.into_iter().filter(|value| value.len() >= SHORTEST);
        Self { values: long.map(|value| value.as_bytes().into()).collect() }
    }

    /// Bytes that may be the beginning of a value that is not there as a whole yet.
    fn overlap(&self) -> usize {
        self.values.iter().map(|value| value.len()).max().map_or(0, |longest| longest - 1)
    }

    fn overwrite(&self, bytes: &mut [u8]) {
        for value in self.values.iter() {
            let mut from = 0;
            while let Some(at) = bytes.get(from..).and_then(|rest| find(rest, value)) {
                if let Some(found) = bytes.get_mut(from + at..from + at + value.len()) {
                    found.fill(b'*');
                }
                from += at + value.len();
            }
        }
    }

    /// `text` with the values overwritten.
    #[must_use]
    pub fn hidden(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.overwrite(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Overwrites the values in a file, in place and in bounded memory.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn overwrite_file(&self, path: &Path) -> io::Result<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut window = Window::new(self.clone());
        let mut chunk = vec![0; 64 << 10];
        let (mut read_at, mut write_at) = (0, 0);
        loop {
            file.seek(SeekFrom::Start(read_at))?;
            let count = file.read(&mut chunk)?;
            read_at += count as u64;
            let ready = if count == 0 { window.finish() } else { window.push(chunk.get(..count).unwrap_or_default()) };
            file.seek(SeekFrom::Start(write_at))?;
            file.write_all(&ready)?;
            write_at += ready.len() as u64;
            if count == 0 {
                return file.flush();
            }
        }
    }
}

fn find(bytes: &[u8], value: &[u8]) -> Option<usize> {
    bytes.windows(value.len()).position(|window| window == value)
}

/// Overwrites values in a stream, also where they lie across two chunks.
pub struct Window {
    secrets: Secrets,
    held: Vec<u8>,
}

impl Window {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// Takes a chunk and returns what is ready.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(chunk);
        self.secrets.overwrite(&mut self.held);
        let rest = self.held.split_off(self.held.len().saturating_sub(self.secrets.overlap()));
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_value_survives_however_the_stream_is_cut(
            parts in prop::collection::vec(prop_oneof![Just("s3cr3t-value".to_owned()), "[a-z]{0,9}"], 0..12),
            cut in 1usize..9,
        ) {
            let text = parts.concat();
            let mut window = Window::new(Secrets::new(["s3cr3t-value", "tiny"]));
            let mut out = Vec::new();
            for chunk in text.as_bytes().chunks(cut) {
                out.extend(window.push(chunk));
            }
            out.extend(window.finish());
            let out = String::from_utf8(out).unwrap();
            prop_assert_eq!(&out, &text.replace("s3cr3t-value", "************"));

            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &text).unwrap();
            Secrets::new(["s3cr3t-value"]).overwrite_file(file.path()).unwrap();
            prop_assert_eq!(std::fs::read_to_string(file.path()).unwrap(), out);
        }
    }

    #[test]
    fn a_value_across_the_file_chunks_is_overwritten() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("{}s3cr3t-value{}", "x".repeat((64 << 10) - 5), "y".repeat(100));
        std::fs::write(file.path(), &text).unwrap();
        Secrets::new(["s3cr3t-value"]).overwrite_file(file.path()).unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), text.replace("s3cr3t-value", "************"));
    }
}
