//! SHA-256 digests, the names of content in manifests and evidence.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:<64 hex digits>`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest and length of everything that `reader` yields, in bounded memory.
    ///
    /// # Errors
    /// What reading fails with.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = Hasher::default();
        let size = io::copy(&mut reader, &mut hasher)?;
        Ok((hasher.finish(), size))
    }

    /// The 64 hex digits alone.
    #[must_use]
    pub fn hex(&self) -> String {
        let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
        let mut hex = String::with_capacity(64);
        for byte in self.0 {
            hex.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        hex
    }

    /// The first `n` (at most 64) hex digits, for names.
    #[must_use]
    pub fn short(&self, n: usize) -> String {
        self.hex().chars().take(n).collect()
    }
}

/// An incremental digest; write to it, then [`Hasher::finish`].
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl io::Write for Hasher {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.update(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not `sha256:<64 hex digits>`.
#[derive(Debug, thiserror::Error)]
#[error("not a digest of the form sha256:<64 hex digits>: {0:?}")]
pub struct InvalidDigest(String);

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidDigest(text.chars().take(80).collect());
        let hex = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let mut out = [0u8; 32];
        if hex.len() != 64 {
            return Err(invalid());
        }
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            match (pair.first().copied().and_then(digit), pair.get(1).copied().and_then(digit)) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => return Err(invalid()),
            }
        }
        Ok(Self(out))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn known_value_round_trips() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert_eq!(Digest::of_reader(&b"abc"[..]).unwrap(), (digest, 3));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "sha256:", "sha256:xyz", "md5:00", &"g".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
