//! The environment of a SWE-smith task: the published image, or a directory of ours that stands for it.
//!
//! `environments/<repository key>/` holds a `Dockerfile` with its context, and may hold an `environment.toml` with
//! `workdir`, `test_command`, `timeout_sec` and `parser` (only `pytest`).

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dockerfile;
use crate::fingerprint;
use crate::harbor::Section;
use crate::limits::Limits;
use crate::problem::{Fault, excerpt};
use crate::row::Context;
use crate::task::{Environment, FileSet, ImageSpec};
use crate::tree::Tree;

const SETTINGS: &str = "environment.toml";

/// An environment and what it says about running tests.
pub(super) struct Found {
    pub(super) environment: Environment,
    pub(super) test_command: Option<String>,
    pub(super) timeout: Option<Duration>,
}

/// Finds the environment of a repository.
pub(super) fn find(key: &str, image_name: &str, context: &Context<'_>) -> Result<Found, Fault> {
    let place = context.environments.iter().map(|directory| directory.join(key)).find(|place| place.is_dir());
    match place {
        Some(place) => local(&place, context.limits)
            .map_err(|fault| Fault::new(format!("environment {}: {}", place.display(), fault.what), fault.remedy)),
        None => published(key, image_name, context.limits),
    }
}

fn local(place: &Path, limits: &Limits) -> Result<Found, Fault> {
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
        context: FileSet { root: PathBuf::from(place), exclude: vec![SETTINGS.to_owned()] },
        dockerfile: "Dockerfile".to_owned(),
        recipe,
    };
    Ok(Found {
        environment: environment(image, Vec::new(), settings.text("workdir")?, limits)?,
        test_command: settings.text("test_command")?,
        timeout,
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
