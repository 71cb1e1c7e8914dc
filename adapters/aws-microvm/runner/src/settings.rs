//! What the image's environment sets. Defaults are those of a MicroVM.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Variables with this prefix are the runner's own: no command sees them.
pub(crate) const OWN_PREFIX: &str = "SANDBOX_";
const FALLBACK: &str = "/tmp/sandbox-runner";

/// Settings of the process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `SANDBOX_RUNNER_API_ADDRESS`: where the API listens.
    pub(crate) api: SocketAddr,
    /// `SANDBOX_RUNNER_HOOKS_ADDRESS`: where the hooks listen.
    pub(crate) hooks: SocketAddr,
    /// `SANDBOX_RUNNER_TOKEN_REQUIRED`: `0` serves the API without a token until the hook `run` brings one.
    pub(crate) token_required: bool,
    /// `SANDBOX_RUNNER_STATE_DIRECTORY`: where output of commands and half-received files are kept.
    state: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings; `variable` reads one variable.
    ///
    /// # Errors
    /// Names the variable whose value cannot be used.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let address = |name: &str, default: &str| {
            let text = variable(name).unwrap_or_else(|| default.to_owned());
            text.parse().map_err(|_| format!("{name}: {text:?} is not an address with a port, such as {default}"))
        };
        let token_required = match variable("SANDBOX_RUNNER_TOKEN_REQUIRED").as_deref() {
            None | Some("" | "1") => true,
            Some("0") => false,
            Some(other) => return Err(format!("SANDBOX_RUNNER_TOKEN_REQUIRED: {other:?} is neither 0 nor 1")),
        };
        Ok(Self {
            api: address("SANDBOX_RUNNER_API_ADDRESS", "0.0.0.0:8080")?,
            hooks: address("SANDBOX_RUNNER_HOOKS_ADDRESS", "0.0.0.0:9000")?,
            token_required,
            state: variable("SANDBOX_RUNNER_STATE_DIRECTORY").filter(|text| !text.is_empty()).map(PathBuf::from),
        })
    }

    /// The state directory, made, which only the runner's user may enter. Without a setting: below `/var/lib`, or `/tmp`
    /// where that cannot be written.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn state_directory(&self) -> Result<PathBuf, String> {
        let make = |path: PathBuf| {
            fs::create_dir_all(&path)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
                .map(|()| path.clone())
                .map_err(|e| format!("cannot make the directory {}: {e}", path.display()))
        };
        match &self.state {
            Some(path) => make(path.clone()),
            None => make("/var/lib/sandbox-runner".into()).or_else(|_| make(FALLBACK.into())),
        }
    }
}
