//! One build stage: its instructions turned into recipe steps.

use std::collections::BTreeMap;

use super::lines::{Heredoc, Instruction};
use super::words::{expand, expand_words};
use crate::task::{Recipe, RecipeStep, Unreplayable};

/// `PATH` of the common base images, for `ENV PATH=/x:$PATH` where the base's own value is not known.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The state after some instructions of a stage. `FROM stage` continues from a copy of it.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    recipe: Recipe,
    shell: Vec<String>,
    /// Variables known to substitution: ENV and ARG.
    variables: BTreeMap<String, String>,
    /// ARGs, which `RUN` sees in its environment as long as no ENV replaces them.
    args: BTreeMap<String, String>,
}

impl Stage {
    pub(super) fn new(from: String) -> Self {
        Self {
            recipe: Recipe { from, steps: Vec::new(), workdir: None, unsupported: None },
            shell: vec!["/bin/sh".to_owned(), "-c".to_owned()],
            variables: BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]),
            args: BTreeMap::new(),
        }
    }

    pub(super) fn into_recipe(self) -> Recipe {
        self.recipe
    }

    /// Notes why the stage cannot be replayed; the first reason stays.
    pub(super) fn unsupported(&mut self, line: u32, why: &str) {
        self.recipe.unsupported.get_or_insert_with(|| Unreplayable { line, why: why.to_owned() });
    }

    /// Adds one instruction. `globals` are the ARGs before the first FROM.
    pub(super) fn add(&mut self, instruction: &Instruction, escape: char, globals: &BTreeMap<String, String>) {
        if let Err(why) = self.step(instruction, escape, globals) {
            self.unsupported(instruction.line, &why);
        }
    }

    fn step(&mut self, given: &Instruction, escape: char, globals: &BTreeMap<String, String>) -> Result<(), String> {
        let rest = given.rest.as_str();
        match given.name.as_str() {
            "RUN" => self.run(given),
            "COPY" | "ADD" if !given.heredocs.is_empty() => {
                Err(format!("{} of a here-document is not supported", given.name))
            }
            "COPY" | "ADD" => self.copy(given, escape),
            "ENV" => self.env(rest, escape),
            "ARG" => self.arg(rest, escape, globals),
            "WORKDIR" => {
                let path = expand(rest, escape, &self.variables)?;
                let path = absolute(self.recipe.workdir.as_deref(), &path);
                self.recipe.workdir = Some(path.clone());
                self.recipe.steps.push(RecipeStep::Workdir(path));
                Ok(())
            }
            "USER" => {
                let user = expand(rest, escape, &self.variables)?;
                self.recipe.steps.push(RecipeStep::User(user));
                Ok(())
            }
            "SHELL" => {
                self.shell = json_words(rest).filter(|words| !words.is_empty()).ok_or("SHELL needs a JSON list")?;
                Ok(())
            }
            // They say how a container starts and what it is called; the task's commands are run by us.
            "CMD" | "ENTRYPOINT" | "EXPOSE" | "LABEL" | "STOPSIGNAL" | "MAINTAINER" | "HEALTHCHECK" | "VOLUME"
            | "ONBUILD" => Ok(()),
            other => Err(format!("the instruction {other} is not known")),
        }
    }

    fn run(&mut self, given: &Instruction) -> Result<(), String> {
        let mut rest = given.rest.as_str();
        while rest.starts_with("--") {
            let (flag, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            // A cache mount makes a build faster, and no other.
            if !is_cache_mount(flag) {
                return Err(format!("RUN {flag} is not supported"));
            }
            rest = after.trim_start();
        }
        let command = match json_words(rest) {
            Some(words) if !words.is_empty() => words,
            _ => self.shell.iter().cloned().chain([script(rest, &given.heredocs)?]).collect(),
        };
        let mut argv = Vec::new();
        if !self.args.is_empty() {
            argv.push("env".to_owned());
            argv.extend(self.args.iter().map(|(name, value)| format!("{name}={value}")));
        }
        argv.extend(command);
        self.recipe.steps.push(RecipeStep::Run { argv, line: given.line });
        Ok(())
    }

    fn copy(&mut self, given: &Instruction, escape: char) -> Result<(), String> {
        let mut rest = given.rest.as_str();
        while rest.starts_with("--") {
            let (flag, after) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let root = ["--chown=root", "--chown=root:root", "--chown=0", "--chown=0:0", "--link"].contains(&flag);
            if !root {
                let name = flag.split('=').next().unwrap_or(flag);
                return Err(format!("{} {name} is not supported", given.name));
            }
            rest = after.trim_start();
        }
        let words = match json_words(rest) {
            Some(words) => {
                words.iter().map(|word| expand(word, escape, &self.variables)).collect::<Result<Vec<_>, _>>()?
            }
            None => expand_words(rest, escape, &self.variables)?,
        };
        let Some((destination, sources)) = words.split_last().filter(|(_, sources)| !sources.is_empty()) else {
            return Err(format!("{} needs a source and a destination", given.name));
        };
        if given.name == "ADD" && sources.iter().any(|source| is_remote(source) || is_archive(source)) {
            return Err("ADD of a URL or an archive is not supported".to_owned());
        }
        let sources = sources.iter().map(|source| context_path(source)).collect::<Result<_, _>>()?;
        self.recipe.steps.push(RecipeStep::Copy { sources, destination: destination.clone(), line: given.line });
        Ok(())
    }

    fn env(&mut self, rest: &str, escape: char) -> Result<(), String> {
        let first = rest.split_whitespace().next().unwrap_or_default();
        let pairs: Vec<(String, String)> = if first.contains('=') {
            let words = expand_words(rest, escape, &self.variables)?;
            words
                .iter()
                .map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
                .collect::<Option<_>>()
                .ok_or("ENV needs NAME=value")?
        } else {
            let (name, value) = rest.split_once(char::is_whitespace).ok_or("ENV needs a value")?;
            vec![(name.to_owned(), expand(value.trim_start(), escape, &self.variables)?)]
        };
        for (name, value) in pairs {
            self.args.remove(&name);
            self.variables.insert(name.clone(), value.clone());
            self.recipe.steps.push(RecipeStep::Env { name, value });
        }
        Ok(())
    }

    fn arg(&mut self, rest: &str, escape: char, globals: &BTreeMap<String, String>) -> Result<(), String> {
        for word in expand_words(rest, escape, &self.variables)? {
            let (name, default) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.clone(), globals.get(&word).cloned()),
            };
            if default.is_none() && (name.starts_with("TARGET") || name.starts_with("BUILD")) {
                return Err(format!("ARG {name} is set by the builder, which is not supported"));
            }
            // An ENV of the same name keeps its value.
            let is_env = self.variables.contains_key(&name) && !self.args.contains_key(&name) && name != "PATH";
            if let (Some(value), false) = (default, is_env) {
                self.variables.insert(name.clone(), value.clone());
                self.args.insert(name, value);
            }
        }
        Ok(())
    }
}

/// What the shell is to run. A command that is nothing but a here-document is its body; in any other, the shell itself
/// reads the here-documents.
fn script(command: &str, heredocs: &[Heredoc]) -> Result<String, String> {
    match heredocs {
        [] => Ok(command.to_owned()),
        [only] if only.opener == command => match only.text() {
            text if text.starts_with("#!") => Err("a here-document with its own interpreter is not supported".into()),
            text => Ok(text),
        },
        several => Ok(format!("{command}\n{}", several.iter().map(Heredoc::for_shell).collect::<String>())),
    }
}

fn is_cache_mount(flag: &str) -> bool {
    flag.strip_prefix("--mount=").is_some_and(|options| options.split(',').any(|option| option == "type=cache"))
}

/// A JSON list of strings, if the text is one.
fn json_words(text: &str) -> Option<Vec<String>> {
    text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten()
}

fn is_remote(source: &str) -> bool {
    source.contains("://") || source.starts_with("git@")
}

fn is_archive(source: &str) -> bool {
    [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst"]
        .iter()
        .any(|ending| source.ends_with(ending))
}

/// A source relative to the context: a leading slash means the context, too.
fn context_path(source: &str) -> Result<String, String> {
    let mut parts = Vec::new();
    for part in source.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| format!("the source {source} is outside of the build context"))?;
            }
            part => parts.push(part),
        }
    }
    Ok(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

/// `path` seen from the working directory, without `.` and `..`.
fn absolute(workdir: Option<&str>, path: &str) -> String {
    let base = if path.starts_with('/') { "" } else { workdir.unwrap_or("/") };
    let mut parts: Vec<&str> = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
