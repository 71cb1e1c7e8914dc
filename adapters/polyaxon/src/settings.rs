//! Where the installation is and who we are there, found as the official client 2.18.0 finds it: the environment wins
//! over the files under `~/.polyaxon`, and inside a run of the platform its token over both.

use std::path::{Path, PathBuf};

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sandbox_bench_core::{Error, ErrorKind, Result};
use sandbox_bench_kit::http::secret_header;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::config::PolyaxonConfig;

/// The official client's default.
const DEFAULT_HOST: &str = "http://localhost:8000";
/// The owner of an installation that knows no owners.
const DEFAULT_OWNER: &str = "default";
/// Where the platform mounts what a run of its own is given.
const CONTEXT_ROOT: &str = "/plx-context";
/// Most bytes of a configuration file that are read.
const FILE_LIMIT: u64 = 1 << 20;

/// What was found.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Address of the installation, without a slash at its end.
    pub(crate) host: String,
    /// Owner of the project. The team part of `org/team` is not part of paths.
    pub(crate) owner: String,
    /// The project.
    pub(crate) project: String,
    /// The user's name, if a file or variable tells.
    pub(crate) user: Option<String>,
    /// Headers of every request.
    pub(crate) headers: HeaderMap,
}

/// The environment and the file system, as far as they are looked at.
pub(crate) struct Places<'a> {
    /// Reads an environment variable.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The working directory.
    pub(crate) here: &'a Path,
}

impl Settings {
    /// Finds the settings. Reads files; sends nothing.
    ///
    /// # Errors
    /// `InvalidRequest` if there is no project or a value cannot be one; `Credentials` if the token cannot be sent.
    pub(crate) fn find(config: &PolyaxonConfig, places: &Places<'_>) -> Result<Self> {
        let variable = |name: &str| (places.variable)(name).filter(|value| !value.is_empty());
        let files = Files::new(places);
        let client: ClientFile = files.read(".client");
        let auth: AuthFile = files.read(".auth");
        let host = config.host.clone().or_else(|| variable("POLYAXON_HOST")).or(client.host);
        let host = host.unwrap_or_else(|| DEFAULT_HOST.to_owned()).trim_end_matches('/').to_owned();
        let (owner, project) = match &config.project {
            Some(text) => split(text)?,
            None => files.project(places.here).ok_or_else(|| {
                Error::invalid("polyaxon: no project is configured")
                    .hint("set `project = \"owner/project\"` for this backend, or run `polyaxon init -p PROJECT`")
            })?,
        };
        // What the platform mounts into a run of its own wins over all else, as it does for the official client.
        let root = variable("POLYAXON_CONTEXT_ROOT").unwrap_or_else(|| CONTEXT_ROOT.to_owned());
        let mounted: AuthFile = read(&Path::new(&root).join(".configs/.auth")).unwrap_or_default();
        let token = mounted.token.or_else(|| variable("POLYAXON_AUTH_TOKEN").map(SecretString::from)).or(auth.token);
        let scheme = variable("POLYAXON_AUTHENTICATION_TYPE").unwrap_or_else(|| "Token".to_owned());
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        headers.extend(token.map(|token| secret_header(AUTHORIZATION, &format!("{scheme} "), &token)).transpose()?);
        headers.extend(service_header(variable)?);
        Ok(Self { host, owner, project, user: variable("POLYAXON_AUTH_USERNAME").or(auth.user), headers })
    }
}

/// One extra header, if both its name and its value are set.
fn service_header(variable: impl Fn(&str) -> Option<String>) -> Result<Option<(HeaderName, HeaderValue)>> {
    let (Some(name), Some(value)) = (variable("POLYAXON_HEADER"), variable("POLYAXON_HEADER_SERVICE")) else {
        return Ok(None);
    };
    let name = HeaderName::try_from(name.replace('_', "-").to_ascii_lowercase())
        .map_err(|e| Error::invalid("POLYAXON_HEADER cannot be the name of a header").because(e))?;
    secret_header(name, "", &SecretString::from(value)).map(Some)
}

/// `owner/project`, `org/team/project` or `project`.
fn split(text: &str) -> Result<(String, String)> {
    let mut parts = text.split('/');
    let parts = (parts.next(), parts.next(), parts.next(), parts.next());
    let (owner, project) = match parts {
        (Some(project), None, ..) => (DEFAULT_OWNER, project),
        (Some(owner), Some(project), None, _) => (owner, project),
        (Some(owner), Some(team), Some(project), None) if !team.is_empty() => (owner, project),
        _ => ("", ""),
    };
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let named = |name: &str| (1..=128).contains(&name.len()) && name.chars().all(word);
    if named(owner) && named(project) {
        return Ok((owner.to_owned(), project.to_owned()));
    }
    Err(Error::invalid(format!("polyaxon: {text:?} cannot be a project: expected owner/project")))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClientFile {
    #[serde(rename = "POLYAXON_HOST")]
    host: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AuthFile {
    #[serde(rename = "POLYAXON_AUTH_TOKEN")]
    token: Option<SecretString>,
    #[serde(rename = "POLYAXON_AUTH_USERNAME")]
    user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HomeFile {
    #[serde(rename = "POLYAXON_HOME")]
    home: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProjectFile {
    owner: Option<String>,
    name: Option<String>,
}

/// The official client's files.
struct Files {
    root: Option<PathBuf>,
}

impl Files {
    /// `POLYAXON_HOME` or the user's home; a file `.home` there leads elsewhere. None with `POLYAXON_NO_CONFIG`.
    fn new(places: &Places<'_>) -> Self {
        let variable = |name: &str| (places.variable)(name).filter(|value| !value.is_empty());
        let truthy = |text: String| ["1", "true", "yes", "on"].contains(&text.to_ascii_lowercase().as_str());
        if variable("POLYAXON_NO_CONFIG").is_some_and(truthy) {
            return Self { root: None };
        }
        let named = variable("POLYAXON_HOME").map(PathBuf::from);
        let home = variable("HOME").map(PathBuf::from);
        let led = || read::<HomeFile>(&home.as_ref()?.join(".polyaxon/.home")).unwrap_or_default().home;
        Self { root: named.or_else(led).or(home.clone()) }
    }

    /// The file of this name; nothing set if it is not there or is not one.
    fn read<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        self.root.as_ref().and_then(|root| read(&root.join(".polyaxon").join(name))).unwrap_or_default()
    }

    /// The project of the working directory, else the one last used.
    fn project(&self, here: &Path) -> Option<(String, String)> {
        self.root.as_ref()?;
        let local = read::<ProjectFile>(&here.join(".polyaxon/.project"));
        let remembered = || self.read::<ProjectFile>(".project");
        let named = |file: ProjectFile| {
            let owner = file.owner.unwrap_or_else(|| DEFAULT_OWNER.to_owned());
            split(&format!("{owner}/{}", file.name?)).ok()
        };
        local.and_then(named).or_else(|| named(remembered()))
    }
}

/// JSON and YAML alike.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    if std::fs::metadata(path).ok()?.len() > FILE_LIMIT {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let read = serde_saphyr::from_str(&text);
    if read.is_err() {
        // Not the error itself: it may quote the file.
        tracing::warn!(path = %path.display(), "this file of the polyaxon client cannot be read and is ignored");
    }
    read.ok()
}

/// The error of a host that refuses us.
pub(crate) fn unknown_identity(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Credentials => error.hint("set POLYAXON_AUTH_TOKEN, or run `polyaxon login`"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use super::*;

    fn find(config: &PolyaxonConfig, home: &Path, variables: &[(&str, &str)]) -> Result<Settings> {
        let mut all = HashMap::from([("HOME", home.to_str().unwrap())]);
        all.extend(variables.iter().copied());
        let variable = |name: &str| all.get(name).map(|value| (*value).to_owned());
        Settings::find(config, &Places { variable: &variable, here: &home.join("work") })
    }

    fn write(home: &Path, name: &str, text: &str) {
        std::fs::create_dir_all(home.join(".polyaxon")).unwrap();
        std::fs::write(home.join(".polyaxon").join(name), text).unwrap();
    }

    fn project(text: &str) -> PolyaxonConfig {
        PolyaxonConfig { project: Some(text.to_owned()), ..PolyaxonConfig::default() }
    }

    #[test]
    fn the_option_wins_over_the_environment_and_that_over_files() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), ".client", r#"{"POLYAXON_HOST": "https://file/", "client_header": {}}"#);
        write(home.path(), ".auth", r#"{"POLYAXON_AUTH_TOKEN": "of-the-file", "POLYAXON_AUTH_USERNAME": "ada"}"#);
        write(home.path(), ".project", r#"{"uuid": "x", "owner": "acme", "name": "bench"}"#);
        let found = find(&PolyaxonConfig::default(), home.path(), &[]).unwrap();
        assert_eq!(
            (found.host.as_str(), found.owner.as_str(), found.project.as_str()),
            ("https://file", "acme", "bench")
        );
        assert_eq!(found.user.as_deref(), Some("ada"));
        assert_eq!(found.headers[AUTHORIZATION], "Token of-the-file");
        let environment = [("POLYAXON_HOST", "https://env"), ("POLYAXON_AUTH_TOKEN", "of-env")];
        let found = find(&project("acme/team/other"), home.path(), &environment).unwrap();
        assert_eq!(
            (found.host.as_str(), found.owner.as_str(), found.project.as_str()),
            ("https://env", "acme", "other")
        );
        assert_eq!(found.headers[AUTHORIZATION], "Token of-env");
        let config = PolyaxonConfig { host: Some("http://option".into()), ..project("mine") };
        let found = find(&config, home.path(), &environment).unwrap();
        assert_eq!((found.host.as_str(), found.owner.as_str()), ("http://option", "default"));
    }

    #[test]
    fn what_the_platform_mounts_into_its_runs_wins() {
        let (home, context) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(context.path().join(".configs")).unwrap();
        std::fs::write(context.path().join(".configs/.auth"), r#"{"POLYAXON_AUTH_TOKEN": "of-the-run"}"#).unwrap();
        let root = context.path().to_str().unwrap();
        let found =
            find(&project("p"), home.path(), &[("POLYAXON_CONTEXT_ROOT", root), ("POLYAXON_AUTH_TOKEN", "env")]);
        assert_eq!(found.unwrap().headers[AUTHORIZATION], "Token of-the-run");
    }

    #[test]
    fn a_home_file_leads_elsewhere_and_files_can_be_switched_off() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(home.path(), ".home", &format!("POLYAXON_HOME: {}\n", other.path().display()));
        write(other.path(), ".client", r#"{"POLYAXON_HOST": "https://other"}"#);
        assert_eq!(find(&project("p"), home.path(), &[]).unwrap().host, "https://other");
        let off = find(&project("p"), home.path(), &[("POLYAXON_NO_CONFIG", "true")]).unwrap();
        assert_eq!(off.host, DEFAULT_HOST);
    }

    #[test]
    fn without_a_project_the_error_says_what_to_do_and_no_token_is_shown() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), ".auth", "{ broken");
        let error = find(&PolyaxonConfig::default(), home.path(), &[]).unwrap_err();
        assert!(error.to_string().contains("owner/project"), "{error}");
        for bad in ["", "a/b/c/d", "a//b", "a b", "../x", "a/"] {
            assert_eq!(*find(&project(bad), home.path(), &[]).unwrap_err().kind(), ErrorKind::InvalidRequest, "{bad}");
        }
        let found = find(&project("p"), home.path(), &[("POLYAXON_AUTH_TOKEN", "hunter2")]).unwrap();
        assert!(!format!("{found:?}").contains("hunter2"));
    }
}
