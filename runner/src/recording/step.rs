//! One step, and what is expected of it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandbox_bench_core::{Digest, ExecSpec, Input, Stage};
use serde::{Deserialize, Serialize};

/// Runs a script by bash where it is there, else by sh. The script is the next argument.
const SHELL: &str = r#"if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; else exec sh -c "$0"; fi"#;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Step {
    /// Run a command.
    Run(Run),
    /// Place a file, as root.
    Put(Put),
}

/// A command: a script, or a program with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// A script for bash, or sh where there is no bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// A program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Text for stdin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Working directory; none means the task's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables, over those of the task.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Time limit in seconds; none means what is left of the solver's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The exit code that it had. What is missing, here and below, is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Digest of its standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Digest>,
    /// Digest of its standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Digest>,
}

/// A file to place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Put {
    /// Absolute path.
    pub path: String,
    /// Content, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Content that is no text, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// True if it is to be executable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

impl Step {
    /// Whether it can be run.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Run(run) => run.check(),
            Self::Put(put) => put.content().map(drop),
        }
    }
}

impl Run {
    /// A script.
    #[must_use]
    pub fn script(script: &str) -> Self {
        Self { script: Some(script.to_owned()), ..Self::default() }
    }

    /// A program with its arguments.
    #[must_use]
    pub fn argv<const N: usize>(argv: [&str; N]) -> Self {
        Self { argv: argv.map(str::to_owned).into(), ..Self::default() }
    }

    fn check(&self) -> anyhow::Result<()> {
        match (&self.script, self.argv.as_slice()) {
            (Some(_), [_, ..]) => bail!("it has both `script` and `argv`; one of them is needed"),
            (None, []) => bail!("it has neither `script` nor `argv`; one of them is needed"),
            _ => {}
        }
        let words = self.script.iter().chain(&self.argv).chain(self.env.keys()).chain(self.env.values());
        if words.chain(&self.cwd).any(|word| word.contains('\0')) {
            bail!("a NUL byte cannot be part of a command");
        }
        if self.timeout_seconds == Some(0) {
            bail!("`timeout_seconds` must be at least 1");
        }
        Ok(())
    }

    /// The command, which may take `left` at most.
    #[must_use]
    pub fn spec(&self, left: Duration) -> ExecSpec {
        let mut spec = match &self.script {
            Some(script) => ExecSpec::new(["sh", "-c", SHELL, script]),
            None => ExecSpec::new(self.argv.clone()),
        };
        spec.stdin = self.stdin.clone().map(Bytes::from);
        spec.cwd.clone_from(&self.cwd);
        spec.env.clone_from(&self.env);
        spec.timeout = self.timeout_seconds.map_or(left, |seconds| left.min(Duration::from_secs(seconds)));
        spec
    }
}

impl Put {
    /// A file with this content.
    #[must_use]
    pub fn new(path: &str, content: &[u8], executable: bool) -> Self {
        let (text, base64) = match std::str::from_utf8(content) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(content))),
        };
        Self { path: path.to_owned(), text, base64, executable }
    }

    fn content(&self) -> anyhow::Result<Bytes> {
        if !self.path.starts_with('/') || self.path.split('/').any(|part| part == "..") || self.path.contains('\0') {
            bail!("`path` must be absolute and without `..`, not {:?}", self.path);
        }
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(Bytes::from(text.clone())),
            (None, Some(encoded)) => Ok(STANDARD.decode(encoded).context("`base64` is not base64")?.into()),
            _ => bail!("it needs one of `text` and `base64`"),
        }
    }

    /// The file as an input of the solver's stage.
    ///
    /// # Errors
    /// Its path or content is not valid.
    pub fn input(&self) -> anyhow::Result<Input> {
        let mode = if self.executable { 0o755 } else { 0o644 };
        Ok(Input::bytes("recorded file", &self.path, Stage::Solve, mode, self.content()?))
    }
}
