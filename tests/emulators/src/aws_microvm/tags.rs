//! Tags of images.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Aws;
use super::error::{ApiError, Kind, Result};
use super::request::typed;
use super::routes::Ask;

/// Tags of one resource.
const MOST: usize = 50;

impl Aws {
    pub(super) fn list_tags(&self, ask: &Ask) -> Result<Value> {
        let tags = self.tags(ask, |tags| tags.clone())?;
        Ok(json!({ "Tags": tags }))
    }

    pub(super) fn tag(&self, ask: &Ask) -> Result<Value> {
        let new: BTreeMap<String, String> = typed(&ask.body["Tags"])?;
        self.tags(ask, |tags| {
            let mut all = tags.clone();
            all.extend(new);
            if all.len() > MOST {
                return Err(ApiError::new(Kind::InvalidParameter, format!("A resource has at most {MOST} tags")));
            }
            *tags = all;
            Ok(Value::Null)
        })?
    }

    pub(super) fn untag(&self, ask: &Ask) -> Result<Value> {
        let keys: Vec<String> = ask.query.get("tagKeys").map(typed).transpose()?.unwrap_or_default();
        self.tags(ask, |tags| tags.retain(|key, _| !keys.contains(key)))?;
        Ok(Value::Null)
    }

    fn tags<T>(&self, ask: &Ask, work: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> Result<T> {
        let invalid = |error: ApiError| ApiError { kind: Kind::InvalidParameter, ..error };
        let name = self.options.image_name(ask.label(0)).map_err(invalid)?;
        Ok(work(&mut self.world().image_mut(&name, ask.label(0))?.tags))
    }
}
