//! Images: content-addressed recipes, saved files, and what is known of both.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;
use tonic::codegen::BoxStream;

use super::build::Recipe;
use super::ids::{new_id, timestamp};
use super::mounts::ContextFile;
use super::proto::client::generic_result::GenericStatus;
use super::proto::client::{
    FileDescriptor, GenericResult, Image as Definition, ImageFromIdResponse, ImageGetOrCreateRequest,
    ImageGetOrCreateResponse, ImageJoinStreamingRequest, ImageJoinStreamingResponse, ImageMetadata, TaskLogs,
};
use super::status::{internal, missing, violation};
use super::{Modal, Result};
use crate::machine::{Saved, Source};
use crate::{Flags, Log};

/// Builder versions that official clients know and that need nothing in the image.
const BUILDERS: [&str; 3] = ["2025.06", "2026.10", "PREVIEW"];

/// An image. It can be used once it is built.
pub(super) struct Image {
    pub(super) id: String,
    pub(super) log: Arc<Log>,
    state: watch::Sender<State>,
    /// Files that were saved may have an end.
    expires: Option<Instant>,
}

/// Where an image is on its way.
#[derive(Clone, Debug)]
pub(super) enum State {
    Building,
    Built(Content),
    Failed(GenericStatus, String),
}

/// What machines start from.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// As the machines' image table knows it.
    Registry(String),
    Saved(Arc<Saved>),
}

impl Content {
    pub(super) fn source(&self) -> Source {
        match self {
            Content::Registry(reference) => Source::Image(reference.clone()),
            Content::Saved(saved) => Source::Saved(Arc::clone(saved)),
        }
    }
}

impl Image {
    fn new(state: State, expires: Option<Instant>) -> Arc<Image> {
        Arc::new(Image { id: new_id("im"), log: Arc::default(), state: watch::Sender::new(state), expires })
    }

    pub(super) fn settle(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Unset while it is built.
    fn result(&self) -> Option<GenericResult> {
        let (status, exception) = match &*self.state.borrow() {
            State::Building => return None,
            State::Built(_) => (GenericStatus::Success, String::new()),
            State::Failed(status, why) => (*status, why.clone()),
        };
        Some(GenericResult { status: status.into(), exception, exitcode: 0 })
    }

    /// What it holds, if it is built.
    pub(super) fn content(&self) -> Result<Content> {
        match &*self.state.borrow() {
            State::Built(content) => Ok(content.clone()),
            _ => Err(Status::failed_precondition(format!("Image {:?} is not built", self.id))),
        }
    }

    async fn settled(&self) {
        // The sender lives as long as we do.
        let _ = self.state.subscribe().wait_for(|state| !matches!(state, State::Building)).await;
    }

    fn metadata(&self, builder: &str) -> ImageMetadata {
        let workdir = match &*self.state.borrow() {
            State::Built(Content::Saved(saved)) => saved.workdir(),
            _ => None,
        };
        ImageMetadata { workdir, image_builder_version: Some(builder.to_owned()) }
    }
}

impl Modal {
    /// The image, while it exists.
    pub(super) fn image(&self, id: &str) -> Result<Arc<Image>> {
        let image = self.world().images.get(id).cloned();
        let alive = |image: &Arc<Image>| image.expires.is_none_or(|at| Instant::now() < at);
        image.filter(alive).ok_or_else(|| missing("Image", id))
    }

    pub(super) fn image_from_id(&self, id: &str) -> Result<ImageFromIdResponse> {
        let image = self.image(id)?;
        let metadata = image.metadata(&self.options.builder_version);
        Ok(ImageFromIdResponse { image_id: image.id.clone(), metadata: Some(metadata) })
    }

    /// Files of a sandbox become an image.
    pub(super) fn add_saved(&self, saved: Arc<Saved>, life: Option<Duration>) -> String {
        let expires = life.and_then(|life| Instant::now().checked_add(life));
        let image = Image::new(State::Built(Content::Saved(saved)), expires);
        image.log.close();
        let id = image.id.clone();
        self.world().images.insert(id.clone(), image);
        id
    }

    pub(super) async fn delete_image(&self, id: &str) -> Result<()> {
        let image = self.image(id)?;
        let from_it: Vec<_> = {
            let mut world = self.world();
            world.images.remove(id);
            world.recipes.retain(|_, of| of != id);
            world.sandboxes.iter().filter(|sandbox| sandbox.definition.image_id == id).cloned().collect()
        };
        for sandbox in from_it {
            // What starts from it still needs its files; how the start ends does not matter here.
            let _ = sandbox.machine().await;
        }
        match image.content() {
            Ok(Content::Saved(saved)) => self.emulation.machines.delete_saved(&saved).await.map_err(internal),
            _ => Ok(()),
        }
    }

    pub(super) fn get_image(
        self: &Arc<Self>,
        asked: ImageGetOrCreateRequest,
        flags: &Flags,
    ) -> Result<ImageGetOrCreateResponse> {
        self.check_app(&asked.app_id)?;
        if !BUILDERS.contains(&asked.builder_version.as_str()) {
            return Err(Status::invalid_argument(format!(
                "Image builder version {:?} not supported",
                asked.builder_version
            )));
        }
        let definition = asked.image.ok_or_else(|| violation("image is missing"))?;
        let hash = hash(&definition, &asked.builder_version);
        let recipe = self.recipe(definition)?;
        if !asked.force_build && !asked.ignore_cache {
            let known = self.world().recipes.get(&hash).cloned();
            // What failed is built anew.
            let usable = known.and_then(|id| self.image(&id).ok());
            if let Some(image) = usable.filter(|image| !matches!(&*image.state.borrow(), State::Failed(..))) {
                return Ok(self.built(&image));
            }
        }
        let image = Image::new(State::Building, None);
        {
            let mut world = self.world();
            world.images.insert(image.id.clone(), Arc::clone(&image));
            world.recipes.insert(hash, image.id.clone());
        }
        let response = self.built(&image);
        let (modal, flags) = (Arc::clone(self), flags.clone());
        self.emulation.tasks.spawn(async move { modal.build(&image, recipe, &flags).await });
        Ok(response)
    }

    fn built(&self, image: &Image) -> ImageGetOrCreateResponse {
        let result = image.result();
        let metadata = result.as_ref().map(|_| image.metadata(&self.options.builder_version));
        ImageGetOrCreateResponse { image_id: image.id.clone(), result, metadata }
    }

    /// Resolves what a definition names.
    fn recipe(&self, definition: Definition) -> Result<Recipe> {
        let mut files = match definition.context_mount_id.as_str() {
            "" => Vec::new(),
            id => self.mount(id)?,
        };
        files.extend(definition.context_files.into_iter().map(|file| ContextFile {
            name: file.filename,
            mode: 0o644,
            data: Arc::new(file.data),
        }));
        if definition.gpu_config.is_some_and(|gpu| gpu.count > 0) {
            return Err(Status::invalid_argument("no image is built with a GPU here"));
        }
        if definition.dockerfile_commands.is_empty() {
            return Err(violation("an image without dockerfile_commands"));
        }
        let mut bases = std::collections::BTreeMap::new();
        for base in definition.base_images {
            bases.insert(base.docker_tag, self.image(&base.image_id)?.content()?.source());
        }
        let variables = self.variables(&definition.secret_ids, Vec::new())?;
        Ok(Recipe {
            dockerfile: definition.dockerfile_commands.join("\n"),
            bases,
            arguments: definition.build_args.into_iter().collect(),
            variables,
            files,
        })
    }

    /// The log of a build from an entry on, then its result; or the end of the stream when the time is over.
    pub(super) fn join_build(
        &self,
        asked: &ImageJoinStreamingRequest,
    ) -> Result<BoxStream<ImageJoinStreamingResponse>> {
        let image = self.image(&asked.image_id)?;
        if !(asked.timeout.is_finite() && asked.timeout >= 0.0) {
            return Err(violation(format!("timeout {}", asked.timeout)));
        }
        let from = match asked.last_entry_id.as_str() {
            "" => 0,
            entry => entry.parse().map_err(|_| violation(format!("{entry:?} is no entry of this build")))?,
        };
        let finished = image.result().is_some();
        let from = if finished && !asked.include_logs_for_finished { usize::MAX } else { from };
        let until = Instant::now() + Duration::from_secs_f32(asked.timeout);
        let builder = self.options.builder_version.clone();
        let steps = stream::unfold(Some(from), move |from| {
            let (image, builder) = (Arc::clone(&image), builder.clone());
            async move {
                let from = from?;
                let step = async {
                    let text = image.log.after(from).await;
                    if !text.is_empty() {
                        let next = from + text.len();
                        return (entry(&text, next), Some(next));
                    }
                    image.settled().await;
                    let metadata = Some(image.metadata(&builder));
                    let response = ImageJoinStreamingResponse {
                        result: image.result(),
                        metadata,
                        eof: true,
                        ..Default::default()
                    };
                    (response, None)
                };
                let (response, next) = tokio::time::timeout_at(until, step).await.ok()?;
                Some((Ok(response), next))
            }
        });
        Ok(steps.boxed())
    }
}

fn entry(text: &[u8], end: usize) -> ImageJoinStreamingResponse {
    let log = TaskLogs {
        data: String::from_utf8_lossy(text).into_owned(),
        timestamp: timestamp(),
        file_descriptor: FileDescriptor::Stdout.into(),
    };
    ImageJoinStreamingResponse { task_logs: vec![log], entry_id: end.to_string(), ..Default::default() }
}

/// Equal definitions make the same image, whatever the order of their build arguments.
fn hash(definition: &Definition, builder: &str) -> [u8; 32] {
    let mut arguments: Vec<_> = definition.build_args.iter().collect();
    arguments.sort();
    let rest = Definition { build_args: std::collections::HashMap::new(), ..definition.clone() };
    let text = format!("{builder}\n{arguments:?}\n");
    Sha256::new().chain_update(text).chain_update(rest.encode_to_vec()).finalize().into()
}
