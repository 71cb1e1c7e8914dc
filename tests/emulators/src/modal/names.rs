//! Names of images: `NAME:TAG`, with or without the environment before it.

use super::ids::{is_name, timestamp};
use super::proto::client::{
    ImageListTagsItem, ImageListTagsRequest, ImageListTagsResponse, ImagePublishRequest, ImagePublishResponse,
};
use super::status::{missing, violation};
use super::{Modal, Result};

/// An image that has a name.
pub(super) struct Named {
    image_id: String,
    created_at: f64,
}

impl Modal {
    pub(super) fn publish(&self, asked: &ImagePublishRequest) -> Result<ImagePublishResponse> {
        let name = self.image_name(&asked.tag)?;
        let image_id = self.image(&asked.image_id)?.id.clone();
        let named = Named { image_id: image_id.clone(), created_at: timestamp() };
        self.world().image_names.insert(name, named);
        Ok(ImagePublishResponse { image_id, revision_id: String::new() })
    }

    /// By name, a page at a time; the token is the last name of the page.
    pub(super) fn list_names(&self, asked: &ImageListTagsRequest) -> Result<ImageListTagsResponse> {
        self.check_environment(&asked.environment_name)?;
        let most = usize::try_from(asked.max_objects).unwrap_or(usize::MAX).clamp(1, self.options.page);
        let world = self.world();
        let matches = |(name, named): &(&String, &Named)| {
            name.starts_with(&asked.tag_prefix)
                && name.as_str() > asked.page_token.as_str()
                && (asked.image_id.is_empty() || asked.image_id == named.image_id)
        };
        let mut found = world.image_names.iter().filter(matches);
        let items: Vec<_> = found
            .by_ref()
            .take(most)
            .map(|(name, named)| ImageListTagsItem {
                tag: name.clone(),
                image_id: named.image_id.clone(),
                revision_id: String::new(),
                created_at: named.created_at,
                updated_at: named.created_at,
            })
            .collect();
        let more = found.next().is_some();
        let next_page_token = items.last().filter(|_| more).map(|item| item.tag.clone()).unwrap_or_default();
        Ok(ImageListTagsResponse { items, next_page_token, environment_name: self.options.environment.clone() })
    }

    pub(super) fn delete_name(&self, tag: &str) -> Result<()> {
        let name = self.image_name(tag)?;
        self.world().image_names.remove(&name).map(drop).ok_or_else(|| missing("Image", tag))
    }

    /// `NAME:TAG` of an environment that exists.
    fn image_name(&self, text: &str) -> Result<String> {
        let (environment, rest) = text.rsplit_once('/').unwrap_or(("", text));
        self.check_environment(environment)?;
        match rest.split_once(':') {
            Some((name, tag)) if is_name(name) && is_name(tag) && !name.starts_with("im-") => Ok(rest.to_owned()),
            _ => Err(violation(format!("{text:?} is no name for an image"))),
        }
    }
}
