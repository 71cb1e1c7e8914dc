//! The environment of a SWE-smith task: the published image, a directory of ours that stands for it, or what the
//! repository's manifest describes.
//!
//! `environments/<repository key>/` holds a `Dockerfile` with its context, and may hold an `environment.toml` with
//! `workdir`, `test_command`, `timeout_sec`, `parser` (only `pytest`) and `[resources]` (`cpus`, `memory_mb`, `disk_mb`).
//! It stands for the image. `environments/swesmith_env_manifests.json` holds manifests: one that names the published image
//! is for backends that cannot have that; any other stands for it.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox_bench_core::Resources;

use crate::dockerfile;
use crate::fingerprint;
use crate::harbor::Section;
use crate::limits::Limits;
use crate::problem::{Fault, excerpt};
use crate::row::Context;
use crate::task::{Environment, FileSet, ImageSpec};
use crate::tree::Tree;

use super::recipe::{self, Manifest};

pub(super) const SETTINGS: &str = "environment.toml";

/// An environment and what it says about running tests.
pub(super) struct Found {
    pub(super) environment: Environment,
    pub(super) test_command: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) resources: Resources,
}

/// Finds the environment of a repository.
pub(super) fn find(key: &str, image_name: &str, context: &Context<'_>) -> Result<Found, Fault> {
    for &environments in context.environments {
        let place = environments.join(key);
        if place.is_dir() {
            return directory(&place, None, context.limits)
                .map_err(|fault| Fault::new(format!("environment {}: {}", place.display(), fault.what), fault.remedy));
        }
        let file = if environments.is_file() { environments.to_owned() } else { environments.join(recipe::FILE) };
        if file.is_file()
            && let Some(manifest) = recipe::find(&file, key)?
        {
            return described(key, image_name, &manifest, &file, context);
        }
    }
    published(key, image_name, context.limits)
}

/// What a manifest describes, behind the images if it names one.
fn described(
    key: &str,
    image_name: &str,
    manifest: &Manifest,
    file: &Path,
    context: &Context<'_>,
) -> Result<Found, Fault> {
    let place = manifest.directory(key, file, super::TEST_COMMAND, context.cache)?;
    let mut found = directory(&place, Some(key), context.limits)?;
    if let Some(image) = &manifest.docker_image {
        let images = published(key, if image_name.is_empty() { image } else { image_name }, context.limits)?;
        let Environment { image, mut alternatives, .. } = images.environment;
        alternatives.push(found.environment.image);
        found.environment = environment(image, alternatives, found.environment.workdir, context.limits)?;
    }
    Ok(found)
}

/// The environment in a directory, which was made from the manifest of the repository `manifest`, if from any.
fn directory(place: &Path, manifest: Option<&str>, limits: &Limits) -> Result<Found, Fault> {
    let tree = Tree::read(place, limits)?;
    if !tree.has_file("Dockerfile") {
        return Err(Fault::new("there is no Dockerfile", "add one, or remove the directory"));
    }
    let table = if tree.has_file(SETTINGS) {
        let text = tree.text(SETTINGS, &mut Vec::new())?;
        text.parse().map_err(|error: toml::de::Error| {
            Fault::new(format!("{SETTINGS}: {}", error.message()), "correct the TOML")
        })?
    } else {
        toml::Table::new()
    };
    let settings = Section::root(&table);
    if settings.text("parser")?.is_some_and(|parser| parser != "pytest") {
        return Err(settings.wrong("parser", "\"pytest\""));
    }
    let timeout = match settings.number("timeout_sec")? {
        Some(seconds) if seconds > 0.0 => Duration::try_from_secs_f64(seconds).ok(),
        Some(_) => return Err(settings.wrong("timeout_sec", "a positive number of seconds")),
        None => None,
    };
    let recipe = dockerfile::parse(&tree.text("Dockerfile", &mut Vec::new())?);
    let image = ImageSpec::Dockerfile {
        manifest: manifest.map(str::to_owned),
        context: FileSet { root: PathBuf::from(place), exclude: vec![SETTINGS.to_owned()] },
        dockerfile: "Dockerfile".to_owned(),
        recipe,
    };
    Ok(Found {
        environment: environment(image, Vec::new(), settings.text("workdir")?, limits)?,
        test_command: settings.text("test_command")?,
        timeout,
        resources: resources(&settings)?,
    })
}

fn resources(settings: &Section<'_>) -> Result<Resources, Fault> {
    let Some(section) = settings.section("resources")? else { return Ok(Resources::default()) };
    let positive = |key: &str, value: Option<f64>| match value {
        Some(number) if number <= 0.0 => Err(section.wrong(key, "a positive number")),
        other => Ok(other),
    };
    let whole = |key: &str| -> Result<Option<u64>, Fault> {
        Ok(positive(key, section.integer(key)?.map(|number| number as f64))?.map(|number| number as u64))
    };
    Ok(Resources {
        cpus: positive("cpus", section.number("cpus")?)?,
        memory_mb: whole("memory_mb")?,
        disk_mb: whole("disk_mb")?,
        ..Resources::default()
    })
}

/// The image named by the row, and the names under which it may also have been published.
fn published(key: &str, image_name: &str, limits: &Limits) -> Result<Found, Fault> {
    let mut names = Vec::new();
    if !image_name.is_empty() {
        names.push(image_name.to_owned());
    }
    if let Some((owner, repository)) = key.split_once("__") {
        for publisher in ["swebench", "jyangballin"] {
            names.push(format!("{publisher}/swesmith.x86_64.{owner}_1776_{repository}").to_lowercase());
        }
    }
    let first = names.first().cloned().unwrap_or_default();
    if first.is_empty() || first.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Fault::new(format!("the image_name {} cannot be one", excerpt(&first)), "correct it"));
    }
    let others = names.into_iter().skip(1).filter(|name| *name != first).map(ImageSpec::Image).collect();
    Ok(Found {
        environment: environment(ImageSpec::Image(first.clone()), others, None, limits)?,
        test_command: None,
        timeout: None,
        resources: Resources::default(),
    })
}

fn environment(
    image: ImageSpec,
    alternatives: Vec<ImageSpec>,
    workdir: Option<String>,
    limits: &Limits,
) -> Result<Environment, Fault> {
    let env = BTreeMap::new();
    let images = iter::once(&image).chain(&alternatives);
    Ok(Environment {
        fingerprint: fingerprint::of_environment(images, None, &env, workdir.as_deref(), limits)?,
        image,
        alternatives,
        // Images are large, and environments are built with many packages.
        build_timeout: Duration::from_secs(1800),
        env,
        workdir,
        files: None,
        healthcheck: None,
    })
}
