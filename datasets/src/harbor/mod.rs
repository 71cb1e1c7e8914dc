//! Harbor task directories (TerminalBench 2), also those that come out of the archives of task rows.

mod config;
mod fields;
mod instruction;
mod network;
mod selection;

use std::iter;
use std::path::{Path, PathBuf};

use config::Config;
pub(crate) use fields::Section;
pub(crate) use instruction::clean as clean_instruction;
use sandbox_bench_core::{Digest, Requirement};
use selection::Selection;

use crate::cache::{Cache, Kind};
use crate::dockerfile;
use crate::fingerprint;
use crate::ignore::IgnoreRules;
use crate::limits::Limits;
use crate::normalize;
use crate::problem::Fault;
use crate::task::{Environment, Family, FileSet, ImageSpec, Solution, Task, Timeouts, Users, Verifier};
use crate::tree::Tree;

/// Where tasks work when neither they nor their image say.
pub(crate) const DEFAULT_WORKDIR: &str = "/workspace";

/// What is known of a task from outside of its directory.
pub(crate) struct Given<'a> {
    /// Its id in the data set.
    pub(crate) id: &'a str,
    /// An instruction that takes the place of `instruction.md`.
    pub(crate) instruction: Option<String>,
    /// Its default working directory.
    pub(crate) default_workdir: &'a str,
}

/// The id of the task in `directory`: the name in `task.toml`, else the directory's own.
pub(crate) fn id(directory: &Path) -> String {
    let text = std::fs::read_to_string(directory.join("task.toml")).unwrap_or_default();
    config::name(&text)
        .unwrap_or_else(|| directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// Loads the task in `directory`.
pub(crate) fn load(directory: &Path, given: Given<'_>, cache: &Cache, limits: &Limits) -> Result<Task, Fault> {
    let mut warnings = Vec::new();
    let tree = Tree::read(directory, limits)?;
    if !tree.has_file("task.toml") {
        return Err(Fault::new("there is no task.toml", "add one, or remove the directory"));
    }
    let config = config::parse(&tree.text("task.toml", &mut warnings)?, &mut warnings)?;
    let selection = Selection::read(&tree)?;
    let digest = fingerprint::of_files(&tree, selection.package(&tree))?;
    let root = normalized_root(&tree, &digest, cache, &mut warnings)?;
    let parts = Parts { tree: &tree, root: &root, selection: &selection, config: &config };

    let instruction = parts.instruction(given.instruction, &mut warnings)?;
    let solution = parts.solution(&mut warnings)?;
    let verifier = parts.verifier()?;
    let requires = parts.requires();
    let environment = parts.environment(limits, &mut warnings)?;
    Ok(Task {
        id: given.id.to_owned(),
        family: Family::Harbor,
        digest,
        instruction,
        metadata: config.metadata.clone(),
        environment,
        default_workdir: given.default_workdir.to_owned(),
        resources: config.environment.resources.clone(),
        network: config.network.clone(),
        timeouts: Timeouts { solve: config.solve_timeout, verify: Some(config.verify_timeout) },
        users: Users { solver: config.solver_user.clone(), verifier: config.verifier_user.clone() },
        solution,
        verifier,
        requires,
        warnings,
    })
}

/// The directory to take files from: the task's own, or a copy with its scripts put right.
fn normalized_root(tree: &Tree, digest: &Digest, cache: &Cache, warnings: &mut Vec<String>) -> Result<PathBuf, Fault> {
    let parts = || tree.entries.iter().filter(|entry| selection::is_package_part(&entry.path));
    let mut scripts = Vec::new();
    for entry in parts() {
        if normalize::needs(tree, entry)? {
            warnings.push(normalize::warning(&entry.path));
            scripts.push(entry.path.clone());
        }
    }
    if scripts.is_empty() {
        return Ok(tree.root.clone());
    }
    cache.directory(Kind::Normalized, digest, |place| normalize::copy(tree, parts(), &scripts, place))
}

/// The parts of one task, while it is put together.
struct Parts<'a> {
    tree: &'a Tree,
    root: &'a Path,
    selection: &'a Selection,
    config: &'a Config,
}

impl Parts<'_> {
    fn file_set(&self, directory: &str) -> FileSet {
        FileSet { root: self.root.join(directory), exclude: self.selection.excluded_below(self.tree, directory) }
    }

    fn instruction(&self, given: Option<String>, warnings: &mut Vec<String>) -> Result<String, Fault> {
        if let Some(text) = given {
            return Ok(instruction::clean(&text));
        }
        let path = match self.config.steps.first() {
            Some(step) => format!("steps/{step}/instruction.md"),
            None => "instruction.md".to_owned(),
        };
        if !self.tree.has_file(&path) {
            return Err(Fault::new(format!("there is no {path}"), "write one: it tells the solver what to do"));
        }
        let text = instruction::clean(&self.tree.text(&path, warnings)?);
        if text.trim().is_empty() {
            return Err(Fault::new(format!("{path} is empty"), "write what the solver is to do"));
        }
        Ok(text)
    }

    fn solution(&self, warnings: &mut Vec<String>) -> Result<Option<Solution>, Fault> {
        if !self.tree.has_file("solution/solve.sh") {
            if self.tree.has_directory("solution") {
                warnings.push("solution/ has no solve.sh: there is no gold solution".to_owned());
            }
            return Ok(None);
        }
        self.require_included("solution/solve.sh")?;
        Ok(Some(Solution::Script {
            files: self.file_set("solution"),
            destination: "/solution".to_owned(),
            entry: "solve.sh".to_owned(),
            env: self.config.solution_env.clone(),
        }))
    }

    fn verifier(&self) -> Result<Verifier, Fault> {
        let step = self.config.steps.first();
        let mut candidates = Vec::new();
        for directory in step.map(|step| format!("steps/{step}/tests")).into_iter().chain(["tests".to_owned()]) {
            let scripts: &[&str] =
                if self.config.environment.windows { &["test.bat"] } else { &["test.sh", "test_outputs.py"] };
            candidates.extend(scripts.iter().map(|script| (directory.clone(), *script)));
        }
        let found = candidates.iter().find(|(directory, script)| self.tree.has_file(&format!("{directory}/{script}")));
        let (directory, script) = match found {
            Some((directory, script)) => {
                self.require_included(&format!("{directory}/{script}"))?;
                (directory.as_str(), *script)
            }
            // The image of a separate verifier brings its own tests.
            None if self.config.separate_verifier => ("tests", "test.sh"),
            None if self.config.environment.windows => {
                return Err(Fault::new("there is no tests/test.bat", "add it: without it nothing is verified"));
            }
            None => {
                let remedy = "add one of them: without it nothing is verified";
                return Err(Fault::new("there is neither tests/test.sh nor tests/test_outputs.py", remedy));
            }
        };
        Ok(Verifier::Harbor {
            tests: self.file_set(directory),
            script: script.to_owned(),
            env: self.config.verifier_env.clone(),
        })
    }

    fn require_included(&self, path: &str) -> Result<(), Fault> {
        if self.selection.excludes(path) {
            let remedy = "change the rule: the script is needed";
            return Err(Fault::new(format!("a .harborignore rule leaves out {path}"), remedy));
        }
        Ok(())
    }

    fn environment(&self, limits: &Limits, warnings: &mut Vec<String>) -> Result<Environment, Fault> {
        let given = &self.config.environment;
        let dockerfile = self.tree.has_file("environment/Dockerfile").then(|| self.dockerfile(warnings)).transpose()?;
        let has_files = self.tree.files_below("environment").next().is_some();
        let mut files = None;
        let mut alternatives = Vec::new();
        let image = match (given.image.clone(), dockerfile) {
            (Some(image), dockerfile) => {
                if dockerfile.is_none() && has_files && !self.has_compose() {
                    files = Some(self.file_set("environment"));
                }
                alternatives.extend(dockerfile);
                ImageSpec::Image(image)
            }
            (None, Some(dockerfile)) => dockerfile,
            (None, None) if self.tree.has_directory("environment") => {
                if !self.has_compose() {
                    warnings.push("environment/ has no Dockerfile: any base image is used".to_owned());
                }
                ImageSpec::Base
            }
            (None, None) => {
                let remedy = "add environment/Dockerfile, or set environment.docker_image";
                return Err(Fault::new("there is neither environment/ nor environment.docker_image", remedy));
            }
        };
        let images = iter::once(&image).chain(&alternatives);
        let fingerprint =
            fingerprint::of_environment(images, files.as_ref(), &given.env, given.workdir.as_deref(), limits)?;
        Ok(Environment {
            image,
            alternatives,
            fingerprint,
            build_timeout: given.build_timeout,
            env: given.env.clone(),
            workdir: given.workdir.clone(),
            files,
            healthcheck: given.healthcheck.clone(),
        })
    }

    fn dockerfile(&self, warnings: &mut Vec<String>) -> Result<ImageSpec, Fault> {
        let recipe = dockerfile::parse(&self.tree.text("environment/Dockerfile", warnings)?);
        let mut context = self.file_set("environment");
        if self.tree.has_file("environment/.dockerignore") {
            let rules = IgnoreRules::docker(&self.tree.text("environment/.dockerignore", warnings)?);
            let below =
                self.tree.files_below("environment").filter_map(|entry| entry.path.strip_prefix("environment/"));
            context
                .exclude
                .extend(below.filter(|path| *path != "Dockerfile" && rules.ignores(path, false)).map(str::to_owned));
        }
        Ok(ImageSpec::Dockerfile { manifest: None, context, dockerfile: "Dockerfile".to_owned(), recipe })
    }

    fn has_compose(&self) -> bool {
        self.tree.has_file("environment/docker-compose.yaml")
    }

    fn requires(&self) -> Vec<Requirement> {
        let config = self.config;
        let needs = [
            (self.has_compose(), "Docker Compose"),
            (config.environment.windows, "Windows containers"),
            (config.environment.resources.gpus.is_some(), "a GPU"),
            (config.environment.tpu, "a TPU"),
            (config.environment.mcp_servers, "MCP servers"),
            (config.separate_verifier, "a separate environment for the verifier"),
            (!config.steps.is_empty(), "several steps"),
            (config::widens(&config.network), "a network policy that widens while the sandbox runs"),
        ];
        needs.iter().filter(|(needed, _)| *needed).map(|(_, what)| Requirement::Other((*what).to_owned())).collect()
    }
}
