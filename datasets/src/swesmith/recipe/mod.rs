//! Per-repository manifests: what a repository needs to run its tests, as data.
//!
//! A manifest becomes an environment directory (a Dockerfile with its context, and `environment.toml`) in the cache, so
//! that a backend which builds images builds it, and any other replays it: there is one way for both kinds of environment.
//!
//! Source of the form: the manifest file of code-sandbox-bench (`swesmith_env_manifests.json`). Ours adds `archive`,
//! `repository`, `test_command` and `timeout_sec`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sandbox_bench_core::Digest;
use serde::Deserialize;

use crate::cache::{Cache, Kind};
use crate::fingerprint::Parts;
use crate::problem::{Fault, excerpt};

/// Name of a manifest file in a directory of environments.
pub(super) const FILE: &str = "swesmith_env_manifests.json";

/// Largest manifest file: the one of the published set, with 66 repositories, is far below a mebibyte.
const MAX_FILE: u64 = 64 << 20;

/// Where the scripts lie in the sandbox.
const SCRIPTS: &str = "/opt/sandbox-bench/recipe";
const VENV: &str = "/opt/testbed-venv";
const FILES: [(&str, &str); 3] = [
    ("packages.sh", include_str!("packages.sh")),
    ("python.sh", include_str!("python.sh")),
    ("source.sh", include_str!("source.sh")),
];

/// Commands that installing from a repository takes for granted.
const REPOSITORY_TOOLS: &str = "git patch tar gzip gcc make";
const ARCHIVE_TOOLS: &str = "tar gzip";

/// A manifest file. Entries are read one by one, so that a wrong one does not take the others with it.
#[derive(Deserialize)]
struct Manifests {
    repos: BTreeMap<String, serde_json::Value>,
}

/// What a repository needs. Keys that are not known are passed over: authors note more than is needed.
#[derive(Debug, Deserialize)]
pub(super) struct Manifest {
    owner: Option<String>,
    repo: Option<String>,
    commit: Option<String>,
    /// The published image, if there is one.
    pub(super) docker_image: Option<String>,
    python_version: String,
    #[serde(default)]
    system_packages: Vec<String>,
    #[serde(default)]
    pre_install_pip: Vec<String>,
    #[serde(default)]
    install_cmds: Vec<String>,
    #[serde(default)]
    extra_pip: Vec<String>,
    #[serde(default)]
    pre_verify_cmds: Vec<String>,
    resources: Option<Resources>,
    /// URL of the repository; without it, that of `owner` and `repo` on GitHub.
    repository: Option<String>,
    /// A source release beside the manifest file, in place of the repository.
    archive: Option<Archive>,
    test_command: Option<String>,
    timeout_sec: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Resources {
    cpu: Option<f64>,
    #[serde(rename = "memoryGb")]
    memory_gb: Option<f64>,
    #[serde(rename = "diskGb")]
    disk_gb: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Archive {
    file: String,
    sha256: String,
}

/// The manifest of the repository `key` in a manifest file.
pub(super) fn find(file: &Path, key: &str) -> Result<Option<Manifest>, Fault> {
    let failed = |error: io::Error| Fault::io("read", file, &error);
    let mut text = Vec::new();
    File::open(file).map_err(failed)?.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?;
    let wrong = |what: String| Fault::new(what, "correct the manifest file");
    let mut manifests: Manifests = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("{} is no manifest file: {error}", file.display())))?;
    let Some(entry) = manifests.repos.remove(key) else { return Ok(None) };
    let manifest = serde_json::from_value(entry);
    manifest.map(Some).map_err(|error| wrong(format!("{}: {key}: {error}", file.display())))
}

impl Manifest {
    /// The environment directory of the repository `key`, whose manifest stands in `file`. `test_command` is the command of
    /// manifests that name none.
    pub(super) fn directory(
        &self,
        key: &str,
        file: &Path,
        test_command: &str,
        cache: &Cache,
    ) -> Result<PathBuf, Fault> {
        let dockerfile = self.dockerfile(key)?;
        let settings = self.settings(test_command)?;
        let archive = self.archive.as_ref().map(|archive| archive.path(file)).transpose()?;
        let mut parts = Parts::default();
        parts.text(&dockerfile);
        parts.text(&settings);
        parts.text(self.archive.as_ref().map_or("", |archive| archive.sha256.as_str()));
        FILES.iter().for_each(|(_, script)| parts.text(script));
        cache.directory(Kind::Environment, &parts.0.finish(), |place| {
            let write = |name: &str, content: &str| {
                fs::write(place.join(name), content).map_err(|error| Fault::io("write", &place.join(name), &error))
            };
            if let (Some(archive), Some(from)) = (&self.archive, &archive) {
                archive.copy(from, &place.join(&archive.file))?;
            }
            let scripts = place.join("recipe");
            fs::create_dir(&scripts).map_err(|error| Fault::io("make", &scripts, &error))?;
            for (name, script) in FILES {
                write(&format!("recipe/{name}"), script)?;
            }
            write("Dockerfile", &dockerfile)?;
            write(super::environment::SETTINGS, &settings)
        })
    }

    fn dockerfile(&self, key: &str) -> Result<String, Fault> {
        let wrong = |what: String| Fault::new(format!("the manifest of {key}: {what}"), "correct the manifest");
        let version = &self.python_version;
        if !version.starts_with(|c: char| c.is_ascii_digit())
            || version.contains(|c: char| c != '.' && !c.is_ascii_digit())
        {
            return Err(wrong(format!("python_version is {}, but must be like 3.10", excerpt(version))));
        }
        // Three parts name a patch release, and images and interpreters go by two.
        let version = version.split('.').take(2).collect::<Vec<_>>().join(".");
        let script = |name: &str, arguments: &[&str]| {
            run(["sh", &format!("{SCRIPTS}/{name}")].into_iter().chain(arguments.iter().copied()))
        };
        let tools = if self.archive.is_some() { ARCHIVE_TOOLS } else { REPOSITORY_TOOLS };
        let packages: Vec<&str> = [tools].into_iter().chain(self.system_packages.iter().map(String::as_str)).collect();
        let mut lines = vec![
            format!("FROM python:{version}-slim"),
            "ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1".to_owned(),
            format!("COPY recipe {SCRIPTS}"),
            script("packages.sh", &packages),
            script("python.sh", &[&version, VENV]),
            format!("ENV VIRTUAL_ENV={VENV} PATH={VENV}/bin:$PATH"),
            format!("WORKDIR {}", super::WORKDIR),
        ];
        match &self.archive {
            Some(Archive { file, .. }) => {
                lines.push(format!("COPY {file} /tmp/"));
                lines.push(script("source.sh", &["archive", &format!("/tmp/{file}")]));
            }
            None => {
                let commit = self.commit.as_deref().unwrap_or_default();
                if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return Err(wrong("without an archive it needs a commit of 40 hexadecimal digits".to_owned()));
                }
                let url = match (&self.repository, &self.owner, &self.repo) {
                    (Some(url), _, _) => url.clone(),
                    (None, Some(owner), Some(repo)) => format!("https://github.com/{owner}/{repo}"),
                    _ => return Err(wrong("it needs owner and repo, or repository, or an archive".to_owned())),
                };
                lines.push(script("source.sh", &["commit", &url, commit]));
            }
        }
        let pip = |packages: &[String]| {
            let install = ["python", "-m", "pip", "install"].into_iter();
            (!packages.is_empty()).then(|| run(install.chain(packages.iter().map(String::as_str))))
        };
        lines.extend(pip(&self.pre_install_pip));
        lines.extend(self.install_cmds.iter().map(|command| run(["/bin/sh", "-c", command].into_iter())));
        lines.extend(pip(&self.extra_pip));
        if let Some(line) = lines.iter().find(|line| line.contains("<<")) {
            // Builders look for here-documents in every form of RUN.
            return Err(wrong(format!("here-documents are not supported: {}", excerpt(line))));
        }
        Ok(lines.join("\n") + "\n")
    }

    /// `environment.toml`.
    fn settings(&self, test_command: &str) -> Result<String, Fault> {
        let mut table = toml::Table::new();
        table.insert("workdir".to_owned(), super::WORKDIR.into());
        let command = self.test_command.as_deref();
        if command.is_some() || !self.pre_verify_cmds.is_empty() {
            let commands = self.pre_verify_cmds.iter().map(String::as_str).chain([command.unwrap_or(test_command)]);
            table.insert("test_command".to_owned(), commands.collect::<Vec<_>>().join("\n").into());
        }
        if let Some(seconds) = self.timeout_sec {
            table.insert("timeout_sec".to_owned(), seconds.into());
        }
        if let Some(Resources { cpu, memory_gb, disk_gb }) = self.resources {
            let mut resources = toml::Table::new();
            let mebibytes = |gigabytes: f64| (gigabytes * 1024.0).round();
            let given = [("cpus", cpu), ("memory_mb", memory_gb.map(mebibytes)), ("disk_mb", disk_gb.map(mebibytes))];
            for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                resources.insert(name.to_owned(), value.into());
            }
            table.insert("resources".to_owned(), resources.into());
        }
        toml::to_string(&table)
            .map_err(|error| Fault::new(format!("the manifest cannot be used: {error}"), "correct it"))
    }
}

impl Archive {
    /// Where it lies: beside the manifest file.
    fn path(&self, manifests: &Path) -> Result<PathBuf, Fault> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        if self.file.is_empty() || self.file.starts_with(['.', '-']) || !self.file.chars().all(plain) {
            let what = format!("the archive {} cannot be a file name", excerpt(&self.file));
            return Err(Fault::new(what, "name a file beside the manifest file"));
        }
        Ok(manifests.parent().unwrap_or(Path::new("")).join(&self.file))
    }

    /// Copies it, if its digest is right.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), Fault> {
        fs::copy(from, to).map_err(|error| {
            let what = format!("the archive {} cannot be copied: {error}", from.display());
            Fault::new(what, "put the source release there")
        })?;
        let digest = File::open(to).and_then(Digest::of_reader);
        let (digest, _) = digest.map_err(|error| Fault::io("read", to, &error))?;
        if digest.hex().eq_ignore_ascii_case(&self.sha256) {
            return Ok(());
        }
        let what = format!("{} has the sha256 {}, not {}", from.display(), digest.hex(), excerpt(&self.sha256));
        Err(Fault::new(what, "fetch it again, or correct the manifest"))
    }
}

/// `RUN` of an argument vector: nothing in it has a meaning to the builder.
fn run<'a>(argv: impl Iterator<Item = &'a str>) -> String {
    format!("RUN {}", serde_json::Value::from(argv.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::dockerfile;
    use crate::task::RecipeStep;

    const KEY: &str = "owner__repo.12345678";

    fn manifest(entry: serde_json::Value) -> Manifest {
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn a_published_entry_becomes_a_dockerfile_that_can_be_replayed() {
        let text = manifest(json!({
            "owner": "owner", "repo": "repo", "commit": "0123456789abcdef0123456789abcdef01234567",
            "mirror": "swesmith/owner__repo.12345678", "task_count": 3, "python_version": "3.10.4", "notes": "x",
            "system_packages": ["gcc-c++"], "pre_install_pip": ["wheel<1"], "extra_pip": ["attrs==23.1"],
            "install_cmds": ["pip install -e '.[dev]' && echo \"$HOME\""],
        }))
        .dockerfile(KEY)
        .unwrap();
        let recipe = dockerfile::parse(&text);
        assert_eq!((recipe.from.as_str(), &recipe.unsupported), ("python:3.10-slim", &None));
        assert_eq!(recipe.workdir.as_deref(), Some("/testbed"));
        let commands: Vec<String> = recipe
            .steps
            .iter()
            .filter_map(|step| match step {
                RecipeStep::Run { argv, .. } => Some(argv.join(" ")),
                _ => None,
            })
            .collect();
        let scripts = "sh /opt/sandbox-bench/recipe";
        assert_eq!(
            commands,
            [
                format!("{scripts}/packages.sh git patch tar gzip gcc make gcc-c++"),
                format!("{scripts}/python.sh 3.10 /opt/testbed-venv"),
                format!(
                    "{scripts}/source.sh commit https://github.com/owner/repo \
                     0123456789abcdef0123456789abcdef01234567"
                ),
                "python -m pip install wheel<1".to_owned(),
                "/bin/sh -c pip install -e '.[dev]' && echo \"$HOME\"".to_owned(),
                "python -m pip install attrs==23.1".to_owned(),
            ]
        );
    }

    #[test]
    fn commands_before_the_tests_limits_and_resources_become_settings() {
        let settings = manifest(json!({
            "python_version": "3.11", "pre_verify_cmds": ["export A=1"], "timeout_sec": 90,
            "resources": {"cpu": 2, "memoryGb": 1.5},
        }))
        .settings("pytest -v")
        .unwrap();
        let settings: toml::Table = settings.parse().unwrap();
        assert_eq!(settings["test_command"].as_str(), Some("export A=1\npytest -v"));
        assert_eq!(settings["resources"]["memory_mb"].as_float(), Some(1536.0));
    }

    #[test]
    fn what_is_missing_or_would_not_reach_the_shell_is_refused() {
        for (entry, says) in [
            (json!({"python_version": "3.11; x", "commit": ""}), "python_version"),
            (json!({"python_version": "3.11"}), "commit of 40"),
            (json!({"python_version": "3.11", "commit": "0".repeat(40)}), "owner and repo"),
            (
                json!({"python_version": "3.11", "commit": "0".repeat(40), "repository": "x", "install_cmds": ["cat <<E"]}),
                "here-documents",
            ),
        ] {
            let fault = manifest(entry).dockerfile(KEY).unwrap_err();
            assert!(fault.what.contains(says), "{}", fault.what);
        }
        let archive = Archive { file: "../x.tar.gz".into(), sha256: String::new() };
        assert!(archive.path(Path::new("/m/file.json")).is_err());
    }
}
