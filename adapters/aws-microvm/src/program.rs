//! The runner that images are given: a program that is there, or its sources, which the image build then compiles.

use std::path::Path;

use sandbox_bench_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::config::Architecture;

/// Sources of the runner, by path in its crate.
const SOURCES: [(&str, &str); 19] = [
    ("Cargo.toml", include_str!("../runner/Cargo.toml")),
    ("src/api.rs", include_str!("../runner/src/api.rs")),
    ("src/archive.rs", include_str!("../runner/src/archive.rs")),
    ("src/boot.rs", include_str!("../runner/src/boot.rs")),
    ("src/files.rs", include_str!("../runner/src/files.rs")),
    ("src/hooks.rs", include_str!("../runner/src/hooks.rs")),
    ("src/image.rs", include_str!("../runner/src/image.rs")),
    ("src/jobs/children.rs", include_str!("../runner/src/jobs/children.rs")),
    ("src/jobs/job.rs", include_str!("../runner/src/jobs/job.rs")),
    ("src/jobs/mod.rs", include_str!("../runner/src/jobs/mod.rs")),
    ("src/jobs/output.rs", include_str!("../runner/src/jobs/output.rs")),
    ("src/jobs/request.rs", include_str!("../runner/src/jobs/request.rs")),
    ("src/main.rs", include_str!("../runner/src/main.rs")),
    ("src/receive.rs", include_str!("../runner/src/receive.rs")),
    ("src/refusal.rs", include_str!("../runner/src/refusal.rs")),
    ("src/settings.rs", include_str!("../runner/src/settings.rs")),
    ("src/sys.rs", include_str!("../runner/src/sys.rs")),
    ("src/users.rs", include_str!("../runner/src/users.rs")),
    ("README.md", include_str!("../runner/README.md")),
];
/// The workspace that the runner's manifest belongs to, and the versions of everything.
const WORKSPACE: &str = include_str!("../../../Cargo.toml");
const LOCK: &str = include_str!("../../../Cargo.lock");
/// Where the runner's crate is in the sources.
const MEMBER: &str = "runner";

/// What images are given.
#[derive(Debug)]
pub(crate) enum Program {
    /// A program for the MicroVM's architecture.
    Binary {
        /// The program.
        bytes: Vec<u8>,
        /// Its digest.
        digest: String,
    },
    /// The sources that this build of the adapter was made with.
    Sources,
}

impl Program {
    /// The program at `path`, else the sources.
    ///
    /// # Errors
    /// `InvalidRequest` if it cannot be read, or is not for `architecture`.
    pub(crate) fn find(path: Option<&Path>, architecture: Architecture) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Sources) };
        let shown = path.display();
        let bytes = std::fs::read(path)
            .map_err(|e| Error::invalid(format!("the runner {shown} cannot be read")).because(e).hint(HOW))?;
        match machine(&bytes) {
            Some(found) if found == architecture.machine() => {}
            found => {
                let found = found.unwrap_or("no Linux program of a known architecture");
                let wanted = architecture.machine();
                return Err(Error::invalid(format!("the runner {shown} is {found}; MicroVMs are {wanted}")).hint(HOW));
            }
        }
        let digest = hex(&Sha256::digest(&bytes));
        Ok(Self::Binary { bytes, digest })
    }

    /// What it is known by.
    pub(crate) fn digest(&self) -> String {
        match self {
            Self::Binary { digest, .. } => digest.clone(),
            Self::Sources => {
                let mut all = Sha256::new();
                for (path, text) in SOURCES.iter().chain(&[("lock", LOCK), ("workspace", WORKSPACE)]) {
                    all.update(path.as_bytes());
                    all.update([0]);
                    all.update(text.as_bytes());
                }
                hex(&all.finalize())
            }
        }
    }
}

const HOW: &str = "`adapters/aws-microvm/runner/build` makes it; AWS_MICROVM_RUNNER names it";

/// The sources as files that Cargo can build.
///
/// # Errors
/// `Failed` if this build was made of a workspace that is none.
pub(crate) fn sources() -> Result<Vec<(String, Vec<u8>)>> {
    let mut files =
        vec![("Cargo.toml".to_owned(), manifest()?.into_bytes()), ("Cargo.lock".to_owned(), LOCK.as_bytes().to_vec())];
    files.extend(SOURCES.map(|(path, text)| (format!("{MEMBER}/{path}"), text.as_bytes().to_vec())));
    Ok(files)
}

/// The manifest of a workspace of the runner alone.
fn manifest() -> Result<String> {
    let odd =
        |why: String| Error::new(sandbox_bench_core::ErrorKind::Failed, format!("the workspace's manifest: {why}"));
    let mut manifest: toml::Table = WORKSPACE.parse().map_err(|e: toml::de::Error| odd(e.to_string()))?;
    let workspace = manifest.get_mut("workspace").and_then(toml::Value::as_table_mut);
    let workspace = workspace.ok_or_else(|| odd("it is none".to_owned()))?;
    workspace.insert("members".to_owned(), toml::Value::Array(vec![MEMBER.into()]));
    workspace.remove("default-members");
    if let Some(dependencies) = workspace.get_mut("dependencies").and_then(toml::Value::as_table_mut) {
        dependencies.retain(|_, value| value.get("path").is_none());
    }
    Ok(manifest.to_string())
}

/// The architecture of an ELF program, little-endian, of 64 bits.
fn machine(bytes: &[u8]) -> Option<&'static str> {
    let head = bytes.get(..20)?;
    match (head.get(..6)?, head.get(18..20)?) {
        (b"\x7fELF\x02\x01", [183, 0]) => Some("aarch64"),
        (b"\x7fELF\x02\x01", [62, 0]) => Some("x86_64"),
        _ => None,
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_source_of_the_runner_is_there() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runner");
        let mut waiting = vec![root.join("src")];
        let mut found = BTreeSet::new();
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                waiting.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                found.insert(path.strip_prefix(&root).unwrap().display().to_string());
            }
        }
        let known: BTreeSet<String> =
            SOURCES.iter().map(|(path, _)| (*path).to_owned()).filter(|path| path.starts_with("src/")).collect();
        assert_eq!(known, found);
    }

    #[test]
    fn the_sources_are_a_workspace_of_their_own() {
        let manifest: toml::Table = manifest().unwrap().parse().unwrap();
        assert_eq!(manifest["workspace"]["members"].as_array().unwrap(), &["runner".into()]);
        assert!(manifest["workspace"]["dependencies"].get("sandbox-bench-core").is_none());
        assert!(manifest["workspace"]["dependencies"].get("axum").is_some());
    }

    #[test]
    fn a_program_for_another_machine_is_refused() {
        let own = std::env::current_exe().unwrap();
        let (fitting, other) = match std::env::consts::ARCH {
            "x86_64" => (Architecture::X86_64, Architecture::Arm64),
            _ => (Architecture::Arm64, Architecture::X86_64),
        };
        assert!(matches!(Program::find(Some(&own), fitting), Ok(Program::Binary { .. })));
        let error = Program::find(Some(&own), other).unwrap_err().to_string();
        assert!(error.contains(other.machine()) && error.contains(fitting.machine()), "{error}");
        assert!(Program::find(Some(Path::new("/dev/null")), fitting).is_err());
        assert!(Program::find(Some(Path::new("/no/such")), fitting).is_err());
    }
}
