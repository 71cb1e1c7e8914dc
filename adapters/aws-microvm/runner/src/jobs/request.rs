//! The body of `POST /v1/jobs`, and the process that it asks for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::output::Keep;
use crate::files;
use crate::image;
use crate::refusal::{Answer, Refusal};
use crate::settings::OWN_PREFIX;
use crate::sys;
use crate::users::{self, Account};

/// Longest time of a command: as long as a MicroVM can live.
const MAX_TIMEOUT_MS: u64 = 28_800_000;
const MAX_GRACE_MS: u64 = 60_000;
const MAX_OUTPUT: u64 = 256 << 20;
const MAX_STDIN: usize = 1 << 20;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a client asks for. Unknown members are ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct JobRequest {
    pub(crate) job_id: String,
    argv: Option<Vec<String>>,
    command: Option<String>,
    shell: Option<String>,
    #[serde(default)]
    login: bool,
    cwd: Option<String>,
    #[serde(default)]
    mkdir_cwd: bool,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    clear_env: bool,
    user: Option<Name>,
    group: Option<Name>,
    stdin_b64: Option<String>,
    /// A file that becomes stdin, and is removed once it is open.
    stdin_path: Option<String>,
    timeout_ms: u64,
    #[serde(default = "default_grace")]
    kill_grace_ms: u64,
    #[serde(default = "default_output")]
    max_output_bytes: u64,
    #[serde(default)]
    pub(crate) keep: Keep,
}

fn default_grace() -> u64 {
    2000
}

fn default_output() -> u64 {
    16 << 20
}

/// A name, or a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(u32),
}

impl Name {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }
}

/// What a command reads.
pub(crate) enum Stdin {
    Nothing,
    Bytes(Vec<u8>),
    File(File),
}

/// A request that was checked, and its process, not yet started.
pub(crate) struct Prepared {
    pub(crate) command: Command,
    pub(crate) stdin: Stdin,
    pub(crate) timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) max_output: u64,
}

impl JobRequest {
    /// Checks the request and prepares its process.
    ///
    /// # Errors
    /// 400: `bad_request`, `unknown_user`, `no_such_directory`; 413 for too much stdin.
    pub(crate) fn prepare(&self) -> Answer<Prepared> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if self.job_id.is_empty() || self.job_id.len() > 64 || !self.job_id.bytes().all(legal) {
            return Err(Refusal::bad("job_id is not 1 to 64 characters of A-Z a-z 0-9 _ -"));
        }
        bounded("timeout_ms", self.timeout_ms, 1..=MAX_TIMEOUT_MS)?;
        bounded("kill_grace_ms", self.kill_grace_ms, 0..=MAX_GRACE_MS)?;
        bounded("max_output_bytes", self.max_output_bytes, 1..=MAX_OUTPUT)?;
        let argv = self.argv()?;
        let odd =
            |(name, value): (&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
        if argv.iter().any(|word| word.contains('\0')) || self.env.iter().any(odd) {
            return Err(Refusal::bad("arguments and variables cannot hold NUL bytes, nor names of variables a `=`"));
        }
        let group = self.group.as_ref().map(Name::text);
        let asked = self.user.as_ref().map(Name::text).or_else(image::user);
        // An image without /etc/passwd can still run commands as the user that it starts with.
        let own = sys::own_uid();
        let account = users::account(asked.as_deref().unwrap_or(&own.to_string()), group.as_deref())?;
        let becomes = asked.is_some() || group.is_some();
        if becomes && account.uid != own && own != 0 {
            return Err(Refusal::bad("only a runner that is root can become another user"));
        }
        let (program, arguments) = argv.split_first().ok_or_else(|| Refusal::bad("argv is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(self.variables(&account));
        if let Some(directory) = &self.cwd {
            command.current_dir(self.directory(directory)?);
        }
        sys::isolate(&mut command, (becomes && own == 0).then_some(&account));
        Ok(Prepared {
            command,
            stdin: self.stdin()?,
            timeout: Duration::from_millis(self.timeout_ms),
            grace: Duration::from_millis(self.kill_grace_ms),
            max_output: self.max_output_bytes,
        })
    }

    fn argv(&self) -> Answer<Vec<String>> {
        match (&self.argv, &self.command) {
            (Some(argv), None) if argv.first().is_some_and(|program| !program.is_empty()) => Ok(argv.clone()),
            (None, Some(command)) => {
                let shell = self.shell.clone().unwrap_or_else(|| "/bin/sh".to_owned());
                let flag = if self.login { "-lc" } else { "-c" };
                Ok(vec![shell, flag.to_owned(), command.clone()])
            }
            _ => Err(Refusal::bad("exactly one of argv (with a program) and command is needed")),
        }
    }

    /// The image's variables without our own, who the user is, and over them the request's.
    fn variables(&self, account: &Account) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if !self.clear_env {
            all.extend(std::env::vars_os().filter_map(|(name, value)| {
                let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
                (!name.starts_with(OWN_PREFIX)).then_some((name, value))
            }));
            let name = account.name.clone().unwrap_or_else(|| account.uid.to_string());
            all.insert("HOME".to_owned(), account.home.clone());
            all.insert("USER".to_owned(), name.clone());
            all.insert("LOGNAME".to_owned(), name);
        }
        all.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
        all.extend(self.env.clone());
        all
    }

    fn directory<'a>(&self, path: &'a str) -> Answer<&'a Path> {
        if !path.starts_with('/') || path.contains('\0') {
            return Err(Refusal::bad(format!("cwd {path:?} is not an absolute path")));
        }
        if self.mkdir_cwd {
            fs::create_dir_all(path).map_err(|e| Refusal::of_file(path, &e))?;
        }
        if !Path::new(path).is_dir() {
            return Err(Refusal::named("no_such_directory", format!("no such directory: {path}")));
        }
        Ok(Path::new(path))
    }

    fn stdin(&self) -> Answer<Stdin> {
        match (&self.stdin_b64, &self.stdin_path) {
            (None, None) => Ok(Stdin::Nothing),
            (Some(text), None) => {
                let bytes = STANDARD.decode(text).map_err(|_| Refusal::bad("stdin_b64 is not base64"))?;
                if bytes.len() > MAX_STDIN {
                    return Err(Refusal::too_large(MAX_STDIN as u64));
                }
                Ok(Stdin::Bytes(bytes))
            }
            (None, Some(path)) => {
                let failed = |e| Refusal::of_file(path, &e);
                let file = File::open(files::absolute(path)?).map_err(failed)?;
                fs::remove_file(path).map_err(failed)?;
                Ok(Stdin::File(file))
            }
            (Some(_), Some(_)) => Err(Refusal::bad("only one of stdin_b64 and stdin_path can be given")),
        }
    }
}

fn bounded(name: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Answer<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Refusal::bad(format!("{name} is not from {} to {}", range.start(), range.end())))
}
