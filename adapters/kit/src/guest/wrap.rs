//! A command under its wrapper.

use std::collections::BTreeMap;

use sandbox_bench_core::{Call, Error, ExecSpec, Result};

use super::kill::Mark;

const SCRIPT: &str = include_str!("run.sh");

/// A command under its wrapper: what to run, and how its output and its processes are known.
#[derive(Debug, Clone)]
pub struct Wrapped {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Random text of the marks in its output, for [`super::Streams::new`].
    pub frame: String,
    /// What its processes are known by.
    pub mark: Mark,
}

impl Wrapped {
    /// Wraps the command of `spec`. Directory, user, variables and stdin are the backend's to set.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(spec: &ExecSpec) -> Result<Self> {
        Self::watching(spec, !spec.keep_background)
    }

    /// As [`Wrapped::new`]; `watch`: whether to tell if the command left processes behind
    /// ([`super::Closed::nothing_left`]).
    ///
    /// # Errors
    /// As [`check`].
    pub fn watching(spec: &ExecSpec, watch: bool) -> Result<Self> {
        check(spec)?;
        let id = uuid::Uuid::now_v7();
        let [a, b, c, d, ..] = id.as_u128().to_le_bytes();
        let mark = Mark::new(u32::from_le_bytes([a, b, c, d]));
        let frame = id.simple().to_string();
        let watch = if watch { "1" } else { "0" };
        let blocks = mark.blocks.to_string();
        let wrapper = ["/bin/sh", "-c", SCRIPT, "sh", &frame, &blocks, watch].into_iter().map(str::to_owned);
        let argv = wrapper.chain(spec.argv.iter().cloned()).collect();
        Ok(Self { argv, frame, mark })
    }
}

/// Checks what the contract says about a command.
///
/// # Errors
/// `InvalidRequest`: no program, a NUL byte, a relative directory.
pub fn check(spec: &ExecSpec) -> Result<()> {
    if spec.argv.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("a command needs a program"));
    }
    if spec.argv.iter().chain(&spec.cwd).chain(&spec.user).any(|text| text.contains('\0')) {
        return Err(Error::invalid("a command's arguments, directory and user cannot hold NUL bytes"));
    }
    match spec.cwd.as_deref().filter(|cwd| !cwd.starts_with('/')) {
        Some(cwd) => Err(Error::invalid(format!("working directory {cwd:?} is not absolute"))),
        None => Ok(()),
    }
}

/// The environment variables of a command: those of its sandbox, and over them its own with the secrets filled in. Not to
/// be logged.
///
/// # Errors
/// `Denied` for a secret that was not granted; as [`check_variables`].
pub fn variables(call: &Call, sandbox: &BTreeMap<String, String>, spec: &ExecSpec) -> Result<BTreeMap<String, String>> {
    let mut all = sandbox.clone();
    all.extend(spec.resolved_env(call)?);
    check_variables(&all)?;
    Ok(all)
}

/// Checks that these can be environment variables.
///
/// # Errors
/// `InvalidRequest`, naming the variable.
pub fn check_variables(variables: &BTreeMap<String, String>) -> Result<()> {
    let odd =
        |(name, value): &(&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    match variables.iter().find(odd) {
        Some((name, _)) => Err(Error::invalid(format!("{name:?} cannot be an environment variable"))),
        None => Ok(()),
    }
}
