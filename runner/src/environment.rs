//! Decides, before anything is spent, how a task's environment is made on a backend — or why it cannot be.
//!
//! Faithful by default: the task's own image or Dockerfile where the backend can, else its recipe replayed on what the
//! configuration names in place of its image, or on the backend's general base. Where a task names several, all ways are kept, best first: that an image cannot be had shows
//! only when it is tried. Which way was taken is part of the evidence.

use std::collections::BTreeMap;

use bytes::Bytes;
use sandbox_bench_core::digest::Hasher;
use sandbox_bench_core::evidence::EnvironmentWay;
use sandbox_bench_core::{BackendInfo, Capabilities, Condition, Digest, NetworkPolicy, Requirement, Source};
use sandbox_bench_datasets::task::{Environment, FileSet, ImageSpec, Recipe, RecipeStep, Task};

use crate::bases::Bases;

/// Image that stands for "any Linux userland" on backends that start from images.
pub const GENERAL_IMAGE: &str = "debian:bookworm-slim";

/// Root, by number: an image without `/etc/passwd` has it too.
pub const ROOT: &str = "0";

/// How a task runs on one backend.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Which way was taken.
    pub way: EnvironmentWay,
    /// What a cold sandbox starts from.
    pub source: Source,
    /// The same, in words, for evidence.
    pub asked: String,
    /// Fingerprint of the prepared environment on this backend: the key of warm artifacts.
    pub fingerprint: Digest,
    /// The steps to replay in a cold sandbox, with their context.
    pub replay: Option<(Recipe, FileSet)>,
    /// Variables of every command.
    pub env: BTreeMap<String, String>,
    /// Working directory; none means the image's own.
    pub workdir: Option<String>,
    /// User of solver and verifier when the task names none; none means the image's own.
    pub user: Option<String>,
    /// A script of the user's that installs the solver's tools, run as root when all else is there.
    pub install: Option<Bytes>,
}

impl Setup {
    /// The same with a script that installs the solver's tools. It is part of the environment: another script, another warm
    /// artifact.
    #[must_use]
    pub fn installing(mut self, script: Option<&Bytes>) -> Self {
        if let Some(script) = script {
            let mut hasher = Hasher::default();
            hasher.update(self.fingerprint.to_string().as_bytes());
            hasher.update(Digest::of(script).to_string().as_bytes());
            self.fingerprint = hasher.finish();
            self.install = Some(script.clone());
        }
        self
    }
}

/// The ways for `task` on `backend`, best first; there is at least one. `bases` says what stands in for images there.
///
/// # Errors
/// Why the task is unavailable there, as a sentence for the user.
pub fn choose(task: &Task, backend: &BackendInfo, bases: &Bases) -> Result<Vec<Setup>, String> {
    check_requirements(task, backend)?;
    let environment = &task.environment;
    let best = setup(&environment.image, task, backend, bases);
    let others = environment.alternatives.iter().filter_map(|image| setup(image, task, backend, bases).ok());
    match best {
        Ok(best) => Ok(std::iter::once(best).chain(others).collect()),
        Err(why) => Some(others.collect::<Vec<_>>()).filter(|others| !others.is_empty()).ok_or(why),
    }
}

/// Why sandboxes of this condition cannot be had from a backend whatever the task is, as a sentence for the user; none if
/// they can, as far as that is known before anything is spent.
#[must_use]
pub fn condition_unavailable(condition: Condition, backend: &BackendInfo) -> Option<String> {
    let need = match condition {
        Condition::Resumed => Requirement::Resume,
        Condition::Cold | Condition::Warm | Condition::Reuse => return None,
    };
    let why = backend.capabilities.missing(&need)?;
    Some(format!("condition {condition} on {}: the backend {why}", backend.name))
}

fn setup(image: &ImageSpec, task: &Task, backend: &BackendInfo, bases: &Bases) -> Result<Setup, String> {
    let capabilities = &backend.capabilities;
    let environment = &task.environment;
    let mut setup = match image {
        ImageSpec::Image(image) => from_image(image, capabilities, bases)?,
        ImageSpec::Dockerfile { manifest, context, dockerfile, recipe } => {
            if capabilities.dockerfile {
                let source = Source::Dockerfile {
                    context: context.root.clone(),
                    dockerfile: dockerfile.clone(),
                    fingerprint: environment.fingerprint.clone(),
                };
                let of = manifest.as_ref().map_or_else(String::new, |key| format!("manifest of {key}, "));
                let asked = format!("{of}Dockerfile {}", environment.fingerprint.short(12));
                plain(EnvironmentWay::Dockerfile, source, asked)
            } else {
                let of = manifest.as_ref().map_or_else(
                    || format!("recipe of {}", recipe.from),
                    |key| format!("manifest of {key}, recipe of {}", recipe.from),
                );
                let start = from_image(&recipe.from, capabilities, bases);
                from_recipe(recipe, context, &of, start)?
            }
        }
        ImageSpec::Base if capabilities.base => on_base(capabilities),
        ImageSpec::Base => from_image(GENERAL_IMAGE, capabilities, bases)?,
    };
    setup.env.extend(environment.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    setup.workdir = environment.workdir.clone().or(setup.workdir);
    if !matches!(setup.way, EnvironmentWay::Image | EnvironmentWay::Dockerfile) {
        setup.workdir.get_or_insert_with(|| task.default_workdir.clone());
        // A container without a USER of its own runs as root; the user that a stand-in logs in as need not be.
        if setup.user.is_none() && capabilities.root_user {
            setup.user = Some(ROOT.to_owned());
        }
    }
    setup.fingerprint = fingerprint(environment, &setup, backend);
    Ok(setup)
}

fn check_requirements(task: &Task, backend: &BackendInfo) -> Result<(), String> {
    let unavailable = |why: String| Err(format!("task {} on {}: the backend {why}", task.id, backend.name));
    let NetworkPolicyPlan { baseline, changes } = network(task);
    if changes {
        return Err(format!("task {}: needs a network policy that changes between phases", task.id));
    }
    let mut needs = task.requires.clone();
    needs.push(Requirement::Network(baseline));
    if [&task.users.solver, &task.users.verifier].into_iter().flatten().any(|user| user != "root" && user != "0") {
        needs.push(Requirement::NonRootUser);
    }
    for need in &needs {
        if let Requirement::Other(what) = need {
            return Err(format!("task {}: needs {what}, which no backend here offers", task.id));
        }
        if let Some(why) = backend.capabilities.missing(need) {
            return unavailable(why);
        }
    }
    if task.resources.gpus.is_some_and(|n| n > 0) {
        return unavailable("has no GPUs".into());
    }
    Ok(())
}

struct NetworkPolicyPlan {
    baseline: NetworkPolicy,
    changes: bool,
}

fn network(task: &Task) -> NetworkPolicyPlan {
    let plan = &task.network;
    NetworkPolicyPlan {
        baseline: plan.baseline.clone(),
        changes: plan.solve != plan.baseline || plan.verify != plan.baseline,
    }
}

fn plain(way: EnvironmentWay, source: Source, asked: String) -> Setup {
    Setup {
        way,
        source,
        asked,
        fingerprint: Digest::of(b""),
        replay: None,
        env: BTreeMap::new(),
        workdir: None,
        user: None,
        install: None,
    }
}

fn from_image(image: &str, capabilities: &Capabilities, bases: &Bases) -> Result<Setup, String> {
    let source = |image: &str| Source::Image(image.to_owned());
    match capabilities.missing(&Requirement::Image(image.to_owned())) {
        None => Ok(plain(EnvironmentWay::Image, source(image), image.to_owned())),
        Some(_) if let Some(stand_in) = bases.stand_in(image) => match stand_in {
            Bases::GENERAL if capabilities.base => Ok(on_base(capabilities)),
            Bases::GENERAL => Err(format!("{image} is mapped to the backend's base, and it has none")),
            stand_in => match capabilities.missing(&Requirement::Image(stand_in.to_owned())) {
                None => Ok(plain(EnvironmentWay::Recipe, source(stand_in), stand_in.to_owned())),
                Some(why) => Err(format!("{image} is mapped to {stand_in}, but the backend {why}")),
            },
        },
        Some(_) if capabilities.base => {
            check_base(image, capabilities)?;
            Ok(on_base(capabilities))
        }
        Some(why) => Err(format!("the backend {why}")),
    }
}

/// The recipe `of` something, replayed on what `start` says.
fn from_recipe(recipe: &Recipe, context: &FileSet, of: &str, start: Result<Setup, String>) -> Result<Setup, String> {
    if let Some(why) = &recipe.unsupported {
        return Err(format!("the backend cannot build a Dockerfile, and this one cannot be replayed: {why}"));
    }
    let mut setup = start?;
    setup.way = EnvironmentWay::Recipe;
    setup.asked = format!("{of} on {}", setup.asked);
    for step in &recipe.steps {
        match step {
            RecipeStep::Env { name, value } => {
                setup.env.insert(name.clone(), value.clone());
            }
            RecipeStep::User(user) => setup.user = Some(user.clone()),
            RecipeStep::Run { .. } | RecipeStep::Copy { .. } | RecipeStep::Workdir(_) => {}
        }
    }
    setup.workdir.clone_from(&recipe.workdir);
    setup.replay = Some((recipe.clone(), context.clone()));
    Ok(setup)
}

fn on_base(capabilities: &Capabilities) -> Setup {
    plain(EnvironmentWay::Recipe, Source::Base, capabilities.base_name.clone())
}

/// An image can be stood in for by a general base only if the base has the command that the image is named after.
fn check_base(image: &str, capabilities: &Capabilities) -> Result<(), String> {
    let name = image.rsplit('/').next().unwrap_or(image);
    let name = name.split([':', '@']).next().unwrap_or(name);
    let command = match name {
        "python" => "python3",
        "node" => "node",
        "golang" => "go",
        "rust" => "cargo",
        "ruby" => "ruby",
        "openjdk" | "eclipse-temurin" => "java",
        "gcc" => "gcc",
        "perl" => "perl",
        // Plain distributions promise nothing but a POSIX userland, which every base has.
        "alpine" | "busybox" | "debian" | "fedora" | "ubuntu" | "ubuntu-24-04" => return Ok(()),
        _ => {
            return Err(format!(
                "the backend cannot start from the image {image}, and nothing stands in for it ([recipes] of bench.toml \
                 may say what does)"
            ));
        }
    };
    if capabilities.base_commands.iter().any(|have| have == command) {
        return Ok(());
    }
    Err(format!("the backend cannot start from the image {image}, and its base has no {command}"))
}

fn fingerprint(environment: &Environment, setup: &Setup, backend: &BackendInfo) -> Digest {
    let mut hasher = Hasher::default();
    for part in [&environment.fingerprint.to_string(), &format!("{:?}", setup.way), &setup.asked, &backend.architecture]
    {
        hasher.update(part.as_bytes());
        hasher.update(b"\0");
    }
    hasher.finish()
}

/// Fills the templates `${NAME}` and `${NAME:-default}` from the host's environment. Only a value that is wholly a
/// template is one (Harbor's rule).
///
/// # Errors
/// A variable that is neither set nor has a default.
pub fn fill_templates(env: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    env.iter()
        .map(|(name, value)| {
            let Some(inner) = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) else {
                return Ok((name.clone(), value.clone()));
            };
            let (variable, default) = match inner.split_once(":-") {
                Some((variable, default)) => (variable, Some(default.to_owned())),
                None => (inner, None),
            };
            let valid = !variable.is_empty() && variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !valid {
                return Ok((name.clone(), value.clone()));
            }
            let set = std::env::var(variable).ok().filter(|v| !v.is_empty());
            set.or(default).map(|filled| (name.clone(), filled)).ok_or_else(|| {
                format!("the task's variable {name} wants the host variable {variable}, which is not set")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn caps(images: bool, base: bool) -> Capabilities {
        Capabilities {
            images,
            base,
            base_name: "host".into(),
            base_commands: vec!["python3".into()],
            ..Capabilities::default()
        }
    }

    #[test]
    fn an_image_is_taken_as_it_is_where_the_backend_can() {
        let setup = from_image("python:3.11-slim", &caps(true, true), &Bases::default()).unwrap();
        assert_eq!((setup.way, setup.source), (EnvironmentWay::Image, Source::Image("python:3.11-slim".into())));
    }

    #[test]
    fn a_base_stands_in_only_for_images_whose_command_it_has() {
        let caps = caps(false, true);
        let from_image = |image: &str, caps: &Capabilities| from_image(image, caps, &Bases::default());
        assert_eq!(from_image("docker.io/library/python:3.11-slim", &caps).unwrap().source, Source::Base);
        assert_eq!(from_image("debian:bookworm-slim", &caps).unwrap().source, Source::Base);
        assert!(from_image("node:20", &caps).unwrap_err().contains("no node"));
        assert!(from_image("example.org/team/special:1", &caps).is_err());
        assert!(from_image("debian:bookworm-slim", &self::caps(false, false)).is_err());
    }

    #[test]
    fn the_configuration_says_what_stands_in_for_an_image_that_the_backend_cannot_start_from() {
        let bases: Bases =
            toml::from_str("\"node:2*\" = \"node22\"\n\"example.org/*\" = \"base\"\n\"ruby:3\" = \"gone\"").unwrap();
        let caps = Capabilities { mapped_images: vec!["node22".into()], ..caps(false, true) };
        let node = from_image("node:20", &caps, &bases).unwrap();
        assert_eq!((node.way, node.source), (EnvironmentWay::Recipe, Source::Image("node22".into())));
        assert_eq!(from_image("example.org/team/special:1", &caps, &bases).unwrap().source, Source::Base);
        assert!(from_image("ruby:3", &caps, &bases).unwrap_err().contains("mapped to gone"));
        let own = Capabilities { images: true, ..caps };
        assert_eq!(
            from_image("node:20", &own, &bases).unwrap().way,
            EnvironmentWay::Image,
            "its own image is faithful"
        );
    }

    #[test]
    fn only_whole_values_are_templates() {
        let fill =
            |value: &str| fill_templates(&BTreeMap::from([("X".to_owned(), value.to_owned())])).map(|m| m["X"].clone());
        assert_eq!(fill("x${HOME}").unwrap(), "x${HOME}");
        assert_eq!(fill("${SANDBOX_BENCH_NOT_SET:-d}").unwrap(), "d");
        assert_eq!(fill("${SANDBOX_BENCH_NOT_SET:-}").unwrap(), "");
        assert_eq!(fill("${PATH}").unwrap(), std::env::var("PATH").unwrap());
        assert!(fill("${SANDBOX_BENCH_NOT_SET}").unwrap_err().contains("SANDBOX_BENCH_NOT_SET"));
    }
}
