//! Everything that a trial may place in its sandbox, packed and digested before its clock starts: its manifest.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use globset::GlobBuilder;
use sandbox_bench_core::{Error, Input, InputEntry, Result, Stage, Tag};
use sandbox_bench_datasets::task::{FileSet, RecipeStep, Solution, Task, Verifier};

use super::context::{Context, Trial};
use super::freshness::{HOME, MARKER};
use crate::environment::{Setup, fill_templates};
use crate::pack::{Member, PackCache, is_plain, walk};
use crate::recording::Step;
use crate::solver::Solver;

/// The inputs of a trial, by use.
pub struct Materials {
    /// Placed in every sandbox first: the instruction and the marker of this trial.
    pub first: Vec<Input>,
    /// Context files of the recipe, by the position of their COPY step.
    pub copies: BTreeMap<usize, Input>,
    /// Files for the working directory of an image without a Dockerfile.
    pub files: Option<Input>,
    /// The script that installs the solver's tools.
    pub install: Option<Input>,
    /// The solver's own material.
    pub solver: Vec<Input>,
    /// The verifier's material.
    pub tests: Vec<Input>,
}

impl Materials {
    /// Packs what `trial` needs, for the unit of work `tag`.
    ///
    /// # Errors
    /// A file cannot be read, a COPY names nothing, or a variable wants a host variable that is not set.
    pub fn gather(context: &Context, trial: &Trial, tag: &Tag) -> Result<Self> {
        let (task, setup) = (trial.task.as_ref(), trial.setup.as_ref());
        check_variables(context, task, setup)?;
        let packs = &context.packs;
        let marker = Input::bytes("marker", MARKER, Stage::Setup, 0o644, format!("{tag}\n"));
        let instruction = Input::bytes(
            "instruction",
            &format!("{HOME}/TASK.md"),
            Stage::Setup,
            0o644,
            task.instruction.clone().into_bytes(),
        );
        let files = match (&task.environment.files, &setup.workdir) {
            (Some(files), Some(workdir)) => Some(packs.tree("environment", files, workdir, Stage::Setup)?),
            _ => None,
        };
        let mut first = vec![instruction, marker];
        if let Some(bytes) = trial.key.variant.input_bytes {
            first.push(packs.filler(bytes, &format!("{HOME}/payload"))?);
        }
        Ok(Self {
            first,
            copies: copies(packs, setup)?,
            files,
            install: setup
                .install
                .clone()
                .map(|script| Input::bytes("solver set-up", &format!("{HOME}/setup"), Stage::Setup, 0o755, script)),
            solver: solver(context, trial)?,
            tests: tests(packs, task)?,
        })
    }

    /// The manifest: every input, without its bytes.
    #[must_use]
    pub fn manifest(&self) -> Vec<InputEntry> {
        let setup = self.first.iter().chain(self.copies.values()).chain(&self.files).chain(&self.install);
        let all = setup.chain(&self.solver).chain(&self.tests);
        all.map(|input| input.entry.clone()).collect()
    }
}

/// Tries all templates that the trial will fill: what is not set must be known before a sandbox costs anything.
fn check_variables(context: &Context, task: &Task, setup: &Setup) -> Result<()> {
    let verifier = match &task.verifier {
        Verifier::Harbor { env, .. } => Some(env),
        Verifier::TerminalBench1 { .. } | Verifier::SweSmith(_) => None,
    };
    let solution = match (&context.solver, &task.solution) {
        (Solver::Gold, Some(Solution::Script { env, .. })) => Some(env),
        _ => None,
    };
    for env in [Some(&setup.env), verifier, solution].into_iter().flatten() {
        fill_templates(env).map_err(Error::invalid)?;
    }
    Ok(())
}

fn solver(context: &Context, trial: &Trial) -> Result<Vec<Input>> {
    Ok(match (&context.solver, &trial.task.solution) {
        (Solver::Gold, Some(Solution::Script { files, destination, .. })) => {
            vec![context.packs.tree("solution", files, destination, Stage::Solve)?]
        }
        (Solver::Command { script, .. }, _) => {
            vec![Input::bytes("solver", &format!("{HOME}/solver"), Stage::Solve, 0o755, script.clone())]
        }
        (Solver::Replay(replay), _) => {
            let steps = replay.steps(&trial.key.dataset, &trial.task.id).map(|one| one.steps.as_slice());
            let puts = steps.unwrap_or_default().iter().filter_map(|step| match step {
                Step::Put(put) => Some(put.input()),
                Step::Run(_) => None,
            });
            puts.collect::<anyhow::Result<_>>().map_err(|error| Error::invalid(format!("recording: {error:#}")))?
        }
        _ => Vec::new(),
    })
}

fn tests(packs: &PackCache, task: &Task) -> Result<Vec<Input>> {
    match &task.verifier {
        Verifier::Harbor { tests, .. } => Ok(vec![packs.tree("tests", tests, "/tests", Stage::Verify)?]),
        Verifier::TerminalBench1 { tests, script, .. } => {
            let mut inputs = Vec::new();
            if tests.root.is_dir() {
                inputs.push(packs.tree("tests", tests, "/tests", Stage::Verify)?);
            }
            let text = std::fs::read(script)
                .map_err(|e| Error::invalid(format!("cannot read {}", script.display())).because(e))?;
            inputs.push(Input::bytes("run-tests", "/tests/run-tests.sh", Stage::Verify, 0o755, text));
            Ok(inputs)
        }
        Verifier::SweSmith(_) => Ok(Vec::new()),
    }
}

/// One input for each COPY step of the recipe.
fn copies(packs: &PackCache, setup: &Setup) -> Result<BTreeMap<usize, Input>> {
    let mut inputs = BTreeMap::new();
    let Some((recipe, context)) = &setup.replay else { return Ok(inputs) };
    let mut workdir = "/".to_owned();
    for (position, step) in recipe.steps.iter().enumerate() {
        match step {
            RecipeStep::Workdir(directory) => workdir.clone_from(directory),
            RecipeStep::Copy { sources, destination, line } => {
                let target = absolute(&workdir, destination);
                let key = format!("copy\0{}\0{line}\0{sources:?}\0{target}", context.root.display());
                let input = packs.members(&key, &format!("COPY of line {line}"), "/", Stage::Setup, || {
                    copied(context, sources, &target)
                })?;
                inputs.insert(position, input);
            }
            RecipeStep::Run { .. } | RecipeStep::Env { .. } | RecipeStep::User(_) => {}
        }
    }
    Ok(inputs)
}

/// `path`, taken relative to `workdir` unless it is absolute. A trailing slash stays: it means "a directory".
fn absolute(workdir: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", workdir.trim_end_matches('/')) }
}

/// The members that a COPY brings, with their paths from the root of the sandbox. Docker's rules: a directory brings
/// its content; a file goes into the destination if that ends with a slash or there are several sources.
fn copied(context: &FileSet, sources: &[String], target: &str) -> io::Result<Vec<Member>> {
    let mut found = Vec::new();
    for source in sources {
        let matches = matching(context, source)?;
        if matches.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("COPY {source}: nothing of that name")));
        }
        found.extend(matches);
    }
    let base = PathBuf::from(target.trim_start_matches('/'));
    let into = target.ends_with('/') || target.ends_with("/.") || found.len() > 1;
    let mut members = Vec::new();
    for path in found {
        let host = context.root.join(&path);
        if std::fs::symlink_metadata(&host)?.is_dir() {
            let mut inner = Vec::new();
            walk(&host, Path::new(""), &mut inner)?;
            members.extend(inner.into_iter().map(|m| Member { source: m.source, path: base.join(m.path) }));
        } else if let (true, Some(name)) = (into, path.file_name()) {
            members.push(Member { source: host, path: base.join(name) });
        } else {
            members.push(Member { source: host, path: base.clone() });
        }
    }
    Ok(members)
}

/// Paths of the context that a COPY source names, in name order. Globs match one level, as in Docker.
fn matching(context: &FileSet, source: &str) -> io::Result<Vec<PathBuf>> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("COPY {source}: {why}"));
    let source = source.trim_start_matches('/');
    let source = source.strip_prefix("./").unwrap_or(source);
    let path = Path::new(if source.is_empty() { "." } else { source });
    if !is_plain(path) {
        return Err(refused("outside the context"));
    }
    if !source.contains(['*', '?', '[']) {
        let there = std::fs::symlink_metadata(context.root.join(path)).is_ok();
        return Ok(if there { vec![path.to_owned()] } else { Vec::new() });
    }
    let glob = GlobBuilder::new(source).literal_separator(true).build().map_err(|e| refused(&e.to_string()))?;
    let matcher = glob.compile_matcher();
    let mut all = Vec::new();
    walk(&context.root, Path::new(""), &mut all)?;
    Ok(all.into_iter().map(|member| member.path).filter(|path| matcher.is_match(path)).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    fn names(sources: &[&str], target: &str) -> io::Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("data/deep")).unwrap();
        for file in ["a.txt", "b.txt", "data/one", "data/deep/two"] {
            fs::write(dir.path().join(file), file).unwrap();
        }
        let set = FileSet { root: dir.path().to_owned(), exclude: Vec::new() };
        let sources: Vec<String> = sources.iter().map(|s| (*s).to_owned()).collect();
        copied(&set, &sources, target).map(|m| m.into_iter().map(|m| m.path.display().to_string()).collect())
    }

    #[test]
    fn copy_follows_dockers_rules() {
        assert_eq!(names(&["a.txt"], "/w/c.txt").unwrap(), ["w/c.txt"]);
        assert_eq!(names(&["a.txt"], "/w/").unwrap(), ["w/a.txt"]);
        assert_eq!(names(&["a.txt", "b.txt"], "/w").unwrap(), ["w/a.txt", "w/b.txt"]);
        assert_eq!(names(&["*.txt"], "/w/").unwrap(), ["w/a.txt", "w/b.txt"]);
        assert_eq!(names(&["data"], "/w").unwrap(), ["w/deep", "w/deep/two", "w/one"]);
        assert_eq!(names(&["data/"], "/w/").unwrap(), ["w/deep", "w/deep/two", "w/one"]);
        assert_eq!(names(&["."], "/w").unwrap().len(), 6);
    }

    #[test]
    fn copy_of_nothing_or_of_the_outside_is_an_error() {
        assert!(names(&["missing"], "/w").is_err());
        assert!(names(&["../x"], "/w").is_err());
        assert!(names(&["*.none"], "/w/").is_err());
    }
}
