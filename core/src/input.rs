//! Authorized inputs: a trial may place only what its manifest lists, and use only the secrets it was granted.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::resources::NetworkPolicy;

/// The stage of a trial. An input of `Setup` may enter at any time; those of `Solve` and `Verify` only in theirs, so that
/// tests and solutions are invisible outside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Before the solver: environment files and the instruction.
    Setup,
    /// The solver's own material: the gold solution, a command file.
    Solve,
    /// The verifier's material: tests.
    Verify,
}

/// What an input is, without its bytes: the line of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputEntry {
    /// What it is to the trial: `instruction`, `tests`, `solution`, …
    pub name: String,
    /// Digest of the payload bytes (of the tar stream, for a tree).
    pub digest: Digest,
    /// Size of the payload in bytes.
    pub size: u64,
    /// Absolute path in the sandbox: of the file, or of the directory that a tree is merged into.
    pub destination: String,
    /// The stage in which it may be placed.
    pub stage: Stage,
}

/// An input with its bytes. The authorization layer compares them with the manifest line when they are placed.
#[derive(Debug, Clone)]
pub struct Input {
    /// The manifest line.
    pub entry: InputEntry,
    /// The bytes, or where they are on the host.
    pub payload: Payload,
}

/// The bytes of an input.
#[derive(Debug, Clone)]
pub enum Payload {
    /// One small file, in memory.
    Bytes {
        /// Content.
        bytes: Bytes,
        /// Permission bits.
        mode: u32,
    },
    /// One file on the host.
    File {
        /// Host path.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// An uncompressed tar file on the host, merged into the destination directory. Modes, symbolic links and empty
    /// directories are kept; owners are not: everything belongs to root.
    Tree {
        /// Host path of the tar file.
        tar: PathBuf,
    },
}

impl Input {
    /// Whether the bytes are those that the manifest line promises. Reads all of them.
    ///
    /// # Errors
    /// A host file cannot be read.
    pub fn is_intact(&self) -> std::io::Result<bool> {
        let (digest, size) = match &self.payload {
            Payload::Bytes { bytes, .. } => (Digest::of(bytes), bytes.len() as u64),
            Payload::File { path, .. } | Payload::Tree { tar: path } => Digest::of_reader(std::fs::File::open(path)?)?,
        };
        Ok(digest == self.entry.digest && size == self.entry.size)
    }

    /// A small file given as bytes.
    #[must_use]
    pub fn bytes(name: &str, destination: &str, stage: Stage, mode: u32, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            entry: InputEntry {
                name: name.to_owned(),
                digest: Digest::of(&bytes),
                size: bytes.len() as u64,
                destination: destination.to_owned(),
                stage,
            },
            payload: Payload::Bytes { bytes, mode },
        }
    }

    /// A tree given as an uncompressed tar file on the host. Reads the whole file to digest it.
    ///
    /// # Errors
    /// The tar file cannot be read.
    pub fn tree(name: &str, destination: &str, stage: Stage, tar: impl Into<PathBuf>) -> Result<Self> {
        let tar = tar.into();
        let (digest, size) = std::fs::File::open(&tar)
            .and_then(Digest::of_reader)
            .map_err(|e| Error::invalid(format!("input {name}: cannot read {}", tar.display())).because(e))?;
        let entry = InputEntry { name: name.to_owned(), digest, size, destination: destination.to_owned(), stage };
        Ok(Self { entry, payload: Payload::Tree { tar } })
    }
}

/// Everything that one unit of work may place, use and reach.
///
/// The default grants nothing.
#[derive(Clone)]
pub struct Grants {
    /// The inputs, by manifest line.
    pub inputs: Vec<InputEntry>,
    /// Secrets by name. Manifests and evidence hold the names alone.
    pub secrets: BTreeMap<String, SecretString>,
    /// What the sandbox may reach.
    pub network: NetworkPolicy,
    /// The largest single payload that may be placed, in bytes.
    pub max_input_bytes: Option<u64>,
}

impl Default for Grants {
    fn default() -> Self {
        Self { inputs: Vec::new(), secrets: BTreeMap::new(), network: NetworkPolicy::NoNetwork, max_input_bytes: None }
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants")
            .field("inputs", &self.inputs)
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .field("network", &self.network)
            .field("max_input_bytes", &self.max_input_bytes)
            .finish()
    }
}

impl Grants {
    /// Checks that `entry` is listed, unchanged, for `stage`.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`], naming the input and the reason.
    pub fn authorize(&self, entry: &InputEntry, stage: Stage) -> Result<()> {
        let denied = |why: String| Err(Error::new(ErrorKind::Denied, format!("input {} denied: {why}", entry.name)));
        if self.max_input_bytes.is_some_and(|max| entry.size > max) {
            return denied(format!("{} bytes exceed the limit of {}", entry.size, self.max_input_bytes.unwrap_or(0)));
        }
        if entry.stage != Stage::Setup && entry.stage != stage {
            return denied(format!("it belongs to the stage {:?}, not {stage:?}", entry.stage));
        }
        if !self.inputs.contains(entry) {
            return denied(format!("the manifest does not list these bytes for {}", entry.destination));
        }
        Ok(())
    }

    /// The secret of this name.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if it was not granted.
    pub fn secret(&self, name: &str) -> Result<&SecretString> {
        self.secrets
            .get(name)
            .ok_or_else(|| Error::new(ErrorKind::Denied, format!("secret {name} denied: it was not granted")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_listed_bytes_in_their_stage_are_authorized() {
        let tests = Input::bytes("tests", "/tests/test.sh", Stage::Verify, 0o755, "exit 0").entry;
        let grants = Grants { inputs: vec![tests.clone()], ..Grants::default() };
        assert!(grants.authorize(&tests, Stage::Verify).is_ok());
        assert_eq!(*grants.authorize(&tests, Stage::Solve).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(*grants.authorize(&tests, Stage::Setup).unwrap_err().kind(), ErrorKind::Denied);
        let changed = Input::bytes("tests", "/tests/test.sh", Stage::Verify, 0o755, "exit 1").entry;
        assert_eq!(*grants.authorize(&changed, Stage::Verify).unwrap_err().kind(), ErrorKind::Denied);
        let elsewhere = InputEntry { destination: "/etc/passwd".into(), ..tests };
        assert_eq!(*grants.authorize(&elsewhere, Stage::Verify).unwrap_err().kind(), ErrorKind::Denied);
    }

    #[test]
    fn debug_output_names_secrets_but_does_not_show_them() {
        let mut grants = Grants::default();
        grants.secrets.insert("API_KEY".into(), SecretString::from("hunter2"));
        let shown = format!("{grants:?}");
        assert!(shown.contains("API_KEY") && !shown.contains("hunter2"));
    }
}
