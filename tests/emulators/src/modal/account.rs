//! Apps, the environment, secrets.

use std::collections::BTreeMap;

use super::ids::{is_name, new_id};
use super::proto::client::secret_source::Source;
use super::proto::client::{
    AppGetOrCreateRequest, AppGetOrCreateResponse, EnvironmentGetOrCreateRequest, EnvironmentGetOrCreateResponse,
    EnvironmentMetadata, EnvironmentSettings, ObjectCreationType, SecretGetOrCreateRequest, SecretGetOrCreateResponse,
    SecretSource,
};
use super::status::{missing, violation};
use super::{Modal, Result};

/// Environment variables.
pub(super) type Variables = BTreeMap<String, String>;

impl Modal {
    /// Refuses an environment that does not exist.
    pub(super) fn check_environment(&self, name: &str) -> Result<()> {
        if name.is_empty() || name == self.options.environment { Ok(()) } else { Err(missing("Environment", name)) }
    }

    /// Refuses an app that does not exist.
    pub(super) fn check_app(&self, id: &str) -> Result<()> {
        let known = self.world().apps.values().any(|app| app == id);
        if known { Ok(()) } else { Err(missing("App", id)) }
    }

    pub(super) fn get_app(&self, asked: AppGetOrCreateRequest) -> Result<AppGetOrCreateResponse> {
        let creation = asked.object_creation_type();
        let AppGetOrCreateRequest { app_name, environment_name, .. } = asked;
        self.check_environment(&environment_name)?;
        if !is_name(&app_name) {
            return Err(violation(format!("{app_name:?} is no name for an app")));
        }
        let mut world = self.world();
        let app_id = match (world.apps.get(&app_name), creation) {
            (Some(id), ObjectCreationType::Unspecified | ObjectCreationType::CreateIfMissing) => id.clone(),
            (None, ObjectCreationType::CreateIfMissing) => {
                let id = new_id("ap");
                world.apps.insert(app_name, id.clone());
                id
            }
            (None, ObjectCreationType::Unspecified) => return Err(missing("App", &app_name)),
            (_, other) => return Err(violation(format!("an app is not made with {}", other.as_str_name()))),
        };
        Ok(AppGetOrCreateResponse { app_id })
    }

    pub(super) fn get_environment(
        &self,
        asked: &EnvironmentGetOrCreateRequest,
    ) -> Result<EnvironmentGetOrCreateResponse> {
        self.check_environment(&asked.deployment_name)?;
        let settings = EnvironmentSettings { image_builder_version: self.options.builder_version.clone() };
        Ok(EnvironmentGetOrCreateResponse {
            environment_id: "en-emulator".to_owned(),
            metadata: Some(EnvironmentMetadata { name: self.options.environment.clone(), settings: Some(settings) }),
        })
    }

    pub(super) fn get_secret(&self, asked: SecretGetOrCreateRequest) -> Result<SecretGetOrCreateResponse> {
        self.check_environment(&asked.environment_name)?;
        let creation = asked.object_creation_type();
        let SecretGetOrCreateRequest { deployment_name: name, env_dict, app_id, required_keys, .. } = asked;
        let variables: Variables = env_dict.into_iter().collect();
        check_variables(&variables)?;
        if creation == ObjectCreationType::AnonymousOwnedByApp {
            self.check_app(&app_id)?;
        }
        let mut world = self.world();
        let known = world.secret_names.get(&name).cloned();
        let secret_id = match (known, creation) {
            (Some(id), ObjectCreationType::Unspecified | ObjectCreationType::CreateIfMissing) => id,
            (None, ObjectCreationType::Unspecified) => return Err(missing("Secret", &name)),
            (_, ObjectCreationType::AnonymousOwnedByApp) => {
                let id = new_id("st");
                world.secrets.insert(id.clone(), variables);
                id
            }
            (_, ObjectCreationType::CreateIfMissing | ObjectCreationType::CreateOverwriteIfExists)
                if is_name(&name) =>
            {
                let id = new_id("st");
                world.secrets.insert(id.clone(), variables);
                world.secret_names.insert(name.clone(), id.clone());
                id
            }
            (_, other) => return Err(violation(format!("secret {name:?} is not made with {}", other.as_str_name()))),
        };
        let held = world.secrets.get(&secret_id);
        let lacking = required_keys.iter().find(|key| !held.is_some_and(|held| held.contains_key(*key)));
        match lacking {
            Some(key) => Err(tonic::Status::failed_precondition(format!("Secret is missing key(s): {key}"))),
            None => Ok(SecretGetOrCreateResponse { secret_id }),
        }
    }

    /// The variables of all sources together; later ones win, and named secrets, which come both ways, are first.
    pub(super) fn variables(&self, secret_ids: &[String], sources: Vec<SecretSource>) -> Result<Variables> {
        let mut all = Variables::new();
        for id in secret_ids {
            all.extend(self.secret(id)?);
        }
        for source in sources {
            match source.source {
                Some(Source::SecretId(id)) => all.extend(self.secret(&id)?),
                Some(Source::Env(map)) => all.extend(map.contents),
                None => return Err(violation("a secret source without a source")),
            }
        }
        check_variables(&all)?;
        Ok(all)
    }

    /// The variables of a secret.
    pub(super) fn secret(&self, id: &str) -> Result<Variables> {
        self.world().secrets.get(id).cloned().ok_or_else(|| missing("Secret", id))
    }
}

fn check_variables(variables: &Variables) -> Result<()> {
    let name_like = |key: &str| {
        let mut chars = key.chars();
        chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match variables.iter().find(|(key, value)| !name_like(key) || value.contains('\0')) {
        Some((key, _)) => Err(violation(format!("{key:?} cannot be an environment variable"))),
        None => Ok(()),
    }
}
