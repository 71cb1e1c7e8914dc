//! Image builds: a recipe's Dockerfile commands, really executed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Modal;
use super::account::Variables;
use super::images::{Content, Image, State};
use super::lifetime::scripted_end;
use super::mounts::ContextFile;
use super::proto::client::generic_result::GenericStatus;
use crate::Flags;
use crate::dockerfile::{self, Build, Dockerfile, Instruction};
use crate::machine::Source;

/// What an image is made from.
pub(super) struct Recipe {
    pub(super) dockerfile: String,
    /// Images by the names that `FROM` may use for them.
    pub(super) bases: BTreeMap<String, Source>,
    /// For `ARG`.
    pub(super) arguments: Variables,
    /// In the environment of every `RUN`.
    pub(super) variables: Variables,
    /// For `COPY`.
    pub(super) files: Vec<ContextFile>,
}

impl Recipe {
    /// The registry's image, if the recipe is nothing else.
    fn registry_image(&self) -> Option<String> {
        let parsed = Dockerfile::parse(&self.dockerfile).ok()?;
        match parsed.steps.as_slice() {
            [step] => match &step.instruction {
                Instruction::From { image, .. } if !self.bases.contains_key(image) => Some(image.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The files of the build context, as one archive.
    fn context(&self) -> std::io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for ContextFile { name, mode, data } in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(*mode);
            archive.append_data(&mut header, name.trim_start_matches('/'), data.as_slice())?;
        }
        archive.into_inner()
    }
}

impl Modal {
    /// Builds an image, as the fault script wants it.
    pub(super) async fn build(&self, image: &Image, recipe: Recipe, flags: &Flags) {
        tokio::time::sleep(self.emulation.timing.transition).await;
        if let Some(ms) = flags.value("slow-build") {
            image.log.line("Waiting for a builder");
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        let state = match flags.value("build-fails") {
            Some(status) => {
                image.log.line("Failed by the fault script");
                State::Failed(scripted_end(status, GenericStatus::Failure), "Failed by the fault script.".to_owned())
            }
            None => match self.execute(image, recipe).await {
                Ok(content) => State::Built(content),
                Err(why) => State::Failed(GenericStatus::Failure, why),
            },
        };
        image.settle(state);
        image.log.close();
    }

    async fn execute(&self, image: &Image, recipe: Recipe) -> Result<Content, String> {
        if let Some(reference) = recipe.registry_image() {
            image.log.line(&format!("Pulling {reference}"));
            return match self.emulation.machines.images().exists(&reference) {
                true => Ok(Content::Registry(reference)),
                false => Err(format!("Image build failed: {reference}: not found")),
            };
        }
        let context = recipe.context().map_err(|error| error.to_string())?;
        let build = Build {
            contexts: if recipe.files.is_empty() { &[] } else { std::slice::from_ref(&context) },
            bases: recipe.bases,
            arguments: recipe.arguments,
            variables: recipe.variables,
        };
        let saved = dockerfile::build(&self.emulation.machines, &recipe.dockerfile, build, &image.log).await;
        saved.map(Content::Saved).map_err(|error| format!("Image build failed: {error}"))
    }
}
