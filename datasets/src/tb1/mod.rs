//! terminal-bench 1 task directories.

mod compose;
mod config;

use std::path::{Path, PathBuf};

use compose::Client;
use sandbox_bench_core::{Digest, Requirement};

use crate::cache::{Cache, Kind};
use crate::dockerfile;
use crate::fingerprint;
use crate::harbor::{DEFAULT_WORKDIR, clean_instruction};
use crate::limits::Limits;
use crate::normalize;
use crate::problem::Fault;
use crate::task::{
    Environment, Family, FileSet, ImageSpec, NetworkPlan, RecipeStep, Solution, Task, Timeouts, Users, Verifier,
};
use crate::tree::{Entry, Tree};

/// The harness sets no limit of its own for building; this is the one of the newer format.
const BUILD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

/// Loads the task in `directory`.
pub(crate) fn load(
    directory: &Path,
    id: &str,
    instruction: Option<String>,
    cache: &Cache,
    limits: &Limits,
) -> Result<Task, Fault> {
    let mut warnings = Vec::new();
    let tree = Tree::read(directory, limits)?;
    for needed in ["task.yaml", "docker-compose.yaml", "run-tests.sh"] {
        if !tree.has_file(needed) {
            return Err(Fault::new(format!("there is no {needed}"), "add it: terminal-bench 1 tasks need it"));
        }
    }
    let config = config::parse(&tree.text("task.yaml", &mut warnings)?)?;
    let client = compose::parse(&tree.text("docker-compose.yaml", &mut warnings)?, id)?;
    let digest = fingerprint::of_files(&tree, tree.files())?;
    let place = arranged(&tree, &digest, cache, &mut warnings)?;

    let has_script = tree.has_file("solution.sh");
    if !has_script && tree.has_file("solution.yaml") {
        warnings.push("solution.yaml needs a live terminal: there is no gold solution".to_owned());
    }
    let mut requires = Vec::new();
    if let Some(why) = &client.needs_compose {
        requires.push(Requirement::Other(why.clone()));
    }
    if config.run_tests_in_same_shell {
        requires.push(Requirement::Other("one shell for the solver and the tests".to_owned()));
    }
    warnings.extend(client.unused.iter().map(|key| format!("docker-compose.yaml: {key} is not used")));
    let environment = environment(&tree, &place.join("task"), client, limits, &mut warnings)?;
    let tests = place.join("tests");
    Ok(Task {
        id: id.to_owned(),
        family: Family::TerminalBench1,
        digest,
        instruction: clean_instruction(&instruction.unwrap_or_else(|| config.instruction.clone())),
        metadata: config.metadata(),
        environment,
        default_workdir: DEFAULT_WORKDIR.to_owned(),
        resources: Default::default(),
        network: NetworkPlan::default(),
        timeouts: Timeouts { solve: Some(config.max_agent_timeout_sec), verify: Some(config.max_test_timeout_sec) },
        users: Users::default(),
        solution: has_script.then(|| Solution::Script {
            files: FileSet { root: place.join("oracle"), exclude: Vec::new() },
            destination: "/oracle".to_owned(),
            entry: "solution.sh".to_owned(),
            env: Default::default(),
        }),
        verifier: Verifier::TerminalBench1 {
            script: tests.join("run-tests.sh"),
            tests: FileSet { root: tests, exclude: Vec::new() },
            parser: config.parser_name,
        },
        requires,
        warnings,
    })
}

/// The task's parts as they lie in a sandbox (`tests/`, `oracle/`), with line ends put right, and its build context
/// (`task/`) if that needed correction, too.
fn arranged(tree: &Tree, digest: &Digest, cache: &Cache, warnings: &mut Vec<String>) -> Result<PathBuf, Fault> {
    let mut scripts = Vec::new();
    for entry in &tree.entries {
        if normalize::needs(tree, entry)? {
            warnings.push(normalize::warning(&entry.path));
            scripts.push(entry.path.clone());
        }
    }
    cache.directory(Kind::TerminalBench1, digest, |place| {
        let named =
            |name: &str| tree.entries.iter().filter(move |entry: &&Entry| entry.path == name).collect::<Vec<_>>();
        let below = tree.entries.iter().filter(|entry| entry.path.starts_with("tests/"));
        // `tests/x` keeps its path, and so comes to lie in the same directory as the script.
        normalize::copy(tree, below, &scripts, place)?;
        normalize::copy(tree, named("run-tests.sh").into_iter(), &scripts, &place.join("tests"))?;
        normalize::copy(tree, named("solution.sh").into_iter(), &scripts, &place.join("oracle"))?;
        if !scripts.is_empty() {
            normalize::copy(tree, tree.entries.iter(), &scripts, &place.join("task"))?;
        }
        Ok(())
    })
}

fn environment(
    tree: &Tree,
    corrected: &Path,
    client: Client,
    limits: &Limits,
    warnings: &mut Vec<String>,
) -> Result<Environment, Fault> {
    let mut env = client.env;
    // run-tests.sh relies on it.
    env.entry("TEST_DIR".to_owned()).or_insert_with(|| "/tests".to_owned());
    let image = match (client.build, client.image) {
        (Some((context, dockerfile)), _) => {
            let path = if context.is_empty() { dockerfile.clone() } else { format!("{context}/{dockerfile}") };
            if !tree.has_file(&path) {
                return Err(Fault::new(format!("there is no {path}"), "add it, or correct docker-compose.yaml"));
            }
            let recipe = dockerfile::parse(&tree.text(&path, warnings)?);
            let copies_all = recipe.steps.iter().any(
                |step| matches!(step, RecipeStep::Copy { sources, .. } if sources.iter().any(|source| source == ".")),
            );
            if copies_all && context.is_empty() {
                warnings.push("the Dockerfile copies the whole task: the solver can see tests and solution".to_owned());
            }
            let root = if corrected.is_dir() { corrected } else { &tree.root };
            let context = FileSet { root: root.join(context), exclude: Vec::new() };
            ImageSpec::Dockerfile { manifest: None, context, dockerfile, recipe }
        }
        (None, Some(image)) => ImageSpec::Image(image),
        (None, None) => {
            return Err(Fault::new("the client service has neither build nor image", "correct docker-compose.yaml"));
        }
    };
    let fingerprint = fingerprint::of_environment([&image], None, &env, client.workdir.as_deref(), limits)?;
    Ok(Environment {
        image,
        alternatives: Vec::new(),
        fingerprint,
        build_timeout: BUILD_TIMEOUT,
        env,
        workdir: client.workdir,
        files: None,
        healthcheck: None,
    })
}
