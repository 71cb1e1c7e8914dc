//! Operations on images, their versions and builds, and on the images that AWS keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Aws;
use super::arn::MANAGED_IMAGE;
use super::builds::Trouble;
use super::clock::seconds;
use super::error::{ApiError, Kind, Result};
use super::hooks::HookPlan;
use super::image::{BuildPlan, BuildState, Image, ImageState, version_name};
use super::page::page;
use super::request::{BuildSettings, typed};
use super::routes::Ask;
use super::size::{SIZES_MIB, Size};
use crate::machine::Saved;

/// When the managed image and its versions appeared: the day on which the service was announced.
const LAUNCHED: i64 = 1_782_086_400;
/// Versions of the managed image.
const MANAGED_VERSIONS: [&str; 2] = ["1", "0"];

impl Aws {
    pub(super) fn create_image(self: &Arc<Self>, ask: &Ask) -> Result<Value> {
        let (document, plan) = self.build_plan(ask)?;
        let text = |name: &str| ask.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        let tags: BTreeMap<String, String> = match ask.body.get("tags") {
            Some(tags) if !tags.is_null() => typed(tags)?,
            _ => BTreeMap::new(),
        };
        let mut world = self.world();
        if let Some(made) = world.replays.find(ask.operation.name, &ask.body)? {
            // The image may have been deleted since; then the token is as good as a name that is taken.
            let image = world.images.get(&made).ok_or_else(|| taken(&made))?;
            let first = image.versions.values().next().ok_or_else(|| taken(&made))?;
            return Ok(image.created(first));
        }
        if world.images.contains_key(&name) {
            return Err(taken(&name));
        }
        if world.images.len() >= self.options.quotas.images {
            return Err(ApiError::new(Kind::Quota, "The maximum number of MicroVM images has been reached."));
        }
        self.check_build_quota(&world, &plan)?;
        let number = world.next_number();
        let mut image = Image::new(number, self.options.image_arn(&name), name.clone(), tags);
        let version = image.add_version(document, plan);
        let made = image.versions.get(&version).map(|version| image.created(version)).unwrap_or_default();
        world.images.insert(name.clone(), image);
        world.replays.note(ask.operation.name, &ask.body, &name);
        drop(world);
        self.emulation.tasks.spawn(Arc::clone(self).build(name, version, Trouble::of(&ask.flags)));
        Ok(made)
    }

    pub(super) fn update_image(self: &Arc<Self>, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let (document, plan) = self.build_plan(ask)?;
        let mut world = self.world();
        let replayed = world.replays.find(ask.operation.name, &ask.body)?;
        if let Some(made) = replayed {
            let image = world.image(&name, ask.label(0))?;
            return Ok(image.updated(image.version(&made)?));
        }
        self.check_build_quota(&world, &plan)?;
        let image = world.image_mut(&name, ask.label(0))?;
        check_idle(image)?;
        if image.versions.len() >= self.options.quotas.versions {
            return Err(ApiError::new(
                Kind::Quota,
                "The maximum number of versions of the MicroVM image has been reached.",
            ));
        }
        (image.state, image.updated_at) = (ImageState::Updating, Timestamp::now());
        let version = image.add_version(document, plan);
        let made = image.versions.get(&version).map(|version| image.updated(version)).unwrap_or_default();
        world.replays.note(ask.operation.name, &ask.body, &version_name(version));
        drop(world);
        self.emulation.tasks.spawn(Arc::clone(self).build(name, version, Trouble::of(&ask.flags)));
        Ok(made)
    }

    pub(super) fn get_image(&self, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        Ok(self.world().image(&name, ask.label(0))?.view())
    }

    pub(super) fn list_images(&self, ask: &Ask) -> Result<Value> {
        let filter = ask.query.get("nameFilter").and_then(Value::as_str).unwrap_or_default().to_owned();
        let world = self.world();
        let mut images: Vec<&Image> = world.images.values().collect();
        images.sort_by_key(|image| image.number);
        let entries = images.into_iter().map(|image| (image.number, image.summary()));
        page("images", &ask.query, entries, |item| item["name"].as_str().is_some_and(|name| name.contains(&filter)))
    }

    pub(super) fn delete_image(self: &Arc<Self>, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let mut world = self.world();
        let in_use = world.in_use(&self.options.image_arn(&name), None);
        let image = world.image_mut(&name, ask.label(0))?;
        if image.state.busy() {
            return Err(ApiError::invalid("Cannot delete MicroVM image in its current state"));
        }
        if in_use {
            return Err(ApiError::invalid("Cannot delete microvm image with running microvms."));
        }
        let answer = json!({ "imageIdentifier": image.arn, "state": ImageState::Deleting.word() });
        if ask.flags.has("delete-ignored") {
            return Ok(answer);
        }
        image.state = ImageState::Deleting;
        let saved: Vec<Arc<Saved>> = image.versions.values().filter_map(|version| version.saved.clone()).collect();
        drop(world);
        let aws = Arc::clone(self);
        self.emulation.tasks.spawn(async move {
            tokio::time::sleep(aws.emulation.timing.transition).await;
            aws.forget(saved).await;
            aws.world().images.remove(&name);
        });
        Ok(answer)
    }

    pub(super) fn get_version(&self, ask: &Ask) -> Result<Value> {
        self.with_version(ask, |image, version| image.version_view(version))
    }

    pub(super) fn list_versions(&self, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let world = self.world();
        let image = world.image(&name, ask.label(0))?;
        let entries = image.versions.values().map(|version| (u64::from(version.number), image.version_view(version)));
        page(&format!("versions of {name}"), &ask.query, entries, |_| true)
    }

    pub(super) fn update_version(&self, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let active = ask.body.get("status").and_then(Value::as_str) == Some("ACTIVE");
        let mut world = self.world();
        let version = world.image_mut(&name, ask.label(0))?.version_mut(ask.label(1))?;
        if version.state != BuildState::Successful {
            return Err(ApiError::conflict("The MicroVM image version is not in state: SUCCESSFUL"));
        }
        (version.active, version.updated_at) = (active, Timestamp::now());
        drop(world);
        self.get_version(ask)
    }

    pub(super) fn delete_version(self: &Arc<Self>, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let mut world = self.world();
        let in_use = world.in_use(&self.options.image_arn(&name), Some(ask.label(1)));
        let image = world.image_mut(&name, ask.label(0))?;
        let number = image.version(ask.label(1))?.number;
        check_idle(image)?;
        if image.versions.len() == 1 {
            return Err(ApiError::invalid("This is the last version. Please delete the entire image"));
        }
        if in_use {
            return Err(ApiError::invalid("Cannot delete microvm image with running microvms."));
        }
        image.state = ImageState::Updating;
        let answer = json!({ "imageIdentifier": image.arn, "imageVersion": version_name(number), "state": "DELETING" });
        drop(world);
        let aws = Arc::clone(self);
        self.emulation.tasks.spawn(async move {
            tokio::time::sleep(aws.emulation.timing.transition).await;
            let removed = aws.world().images.get_mut(&name).and_then(|image| image.versions.remove(&number));
            aws.forget(removed.and_then(|version| version.saved)).await;
            if let Some(image) = aws.world().images.get_mut(&name) {
                (image.state, image.updated_at) = (ImageState::Updated, Timestamp::now());
            }
        });
        Ok(answer)
    }

    pub(super) fn list_builds(&self, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let world = self.world();
        let image = world.image(&name, ask.label(0))?;
        let version = image.version(ask.label(1))?;
        let entries =
            version.builds.iter().enumerate().map(|(at, build)| (at as u64 + 1, image.build_view(version, build)));
        let wanted = ["architecture", "chipset", "chipsetGeneration"];
        page(&format!("builds of {name} {}", ask.label(1)), &ask.query, entries, |item| {
            wanted.iter().all(|name| ask.query.get(*name).is_none_or(|value| item[*name] == *value))
        })
    }

    pub(super) fn get_build(&self, ask: &Ask) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let world = self.world();
        let image = world.image(&name, ask.label(0))?;
        let version = image.version(ask.label(1))?;
        let build = version.builds.iter().find(|build| build.is(ask.label(2)));
        let build = build.ok_or_else(|| ApiError::not_found(format!("Build not found: {}", ask.label(2))))?;
        let mut view = image.build_view(version, build);
        view["snapshotBuild"] = build.snapshot.clone().unwrap_or_default();
        Ok(view)
    }

    pub(super) fn list_managed(&self, ask: &Ask) -> Result<Value> {
        let item = json!({
            "imageArn": self.options.managed_image_arn(),
            "createdAt": launched(),
            "updatedAt": launched(),
        });
        page("managed images", &ask.query, std::iter::once((1, item)), |_| true)
    }

    pub(super) fn list_managed_versions(&self, ask: &Ask) -> Result<Value> {
        if self.options.image_name(ask.label(0))? != MANAGED_IMAGE {
            return Err(ApiError::not_found(format!("MicroVMImage not found for MicroVMImageID: {}", ask.label(0))));
        }
        let entries = MANAGED_VERSIONS.iter().enumerate().map(|(at, version)| {
            let item = json!({
                "imageArn": self.options.managed_image_arn(),
                "imageVersion": version,
                "status": "AVAILABLE",
                "supportedCpuConfigurations": [{ "architecture": "ARM_64" }, { "architecture": "X86_64" }],
                "createdAt": launched(),
                "updatedAt": launched(),
            });
            (at as u64 + 1, item)
        });
        page("managed versions", &ask.query, entries, |_| true)
    }

    fn with_version(&self, ask: &Ask, view: impl Fn(&Image, &super::image::Version) -> Value) -> Result<Value> {
        let name = self.options.image_name(ask.label(0))?;
        let world = self.world();
        let image = world.image(&name, ask.label(0))?;
        Ok(view(image, image.version(ask.label(1))?))
    }

    async fn forget(&self, saved: impl IntoIterator<Item = Arc<Saved>>) {
        for saved in saved {
            // What would not go stays known to the machines, which remove it at the end.
            let _ = self.emulation.machines.delete_saved(&saved).await;
        }
    }

    /// The settings of a build, checked for what the shapes do not say.
    fn build_plan(&self, ask: &Ask) -> Result<(Map<String, Value>, BuildPlan)> {
        let settings: BuildSettings = typed(&ask.body)?;
        let document = ask.body.as_object().cloned().unwrap_or_default();
        if settings.base_image_arn != self.options.managed_image_arn() {
            let what = format!("MicroVMImage not found for MicroVMImageID: {}", settings.base_image_arn);
            return Err(ApiError::not_found(what));
        }
        if let Some(version) = &settings.base_image_version
            && !MANAGED_VERSIONS.contains(&version.trim_end_matches(".0"))
        {
            return Err(ApiError::not_found(format!("Base image version not found: {version}")));
        }
        let address = settings.code_artifact.uri.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
        let Some((bucket, key)) = address.filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty()) else {
            return Err(ApiError::invalid("Code artifact URI must be of the form s3://bucket/key"));
        };
        let mib = settings.resources.as_deref().and_then(<[_]>::first).map(|one| one.minimum_memory_in_mib);
        let size = Size::of(mib)
            .ok_or_else(|| ApiError::invalid(format!("minimumMemoryInMiB must be one of {SIZES_MIB:?}")))?;
        let egress = self.options.egress(settings.egress_network_connectors.as_deref())?;
        let architecture = settings.cpu_configurations.as_deref().and_then(<[_]>::first);
        let plan = BuildPlan {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            size,
            hooks: HookPlan::of(settings.hooks.as_ref())?,
            env: settings.environment_variables.unwrap_or_default(),
            architecture: architecture.map_or_else(|| "ARM_64".to_owned(), |one| one.architecture.clone()),
            offline: self.options.isolates(&egress),
        };
        Ok((document, plan))
    }

    fn check_build_quota(&self, world: &super::world::World, plan: &BuildPlan) -> Result<()> {
        if world.builds() >= self.options.quotas.builds {
            return Err(ApiError::new(Kind::Quota, "The maximum number of concurrent image builds has been reached."));
        }
        self.check_memory(world, plan.size)
    }
}

fn taken(name: &str) -> ApiError {
    ApiError::invalid(format!("A MicroVM image with the name '{name}' already exists in this account"))
}

fn check_idle(image: &Image) -> Result<()> {
    if image.state.busy() {
        return Err(ApiError::conflict(format!("MicroVM image is already in state: {}", image.state.word())));
    }
    Ok(())
}

fn launched() -> Value {
    Timestamp::from_second(LAUNCHED).map(seconds).unwrap_or_default()
}
