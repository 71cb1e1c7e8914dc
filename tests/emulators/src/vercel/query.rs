//! Query strings.

use axum::http::Uri;

use super::error::{ApiError, Result};

/// The parameters of a request, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// # Errors
    /// A violation for what is no query string.
    pub(super) fn of(uri: &Uri) -> Result<Query> {
        let pairs = axum::extract::Query::try_from_uri(uri);
        pairs.map(|axum::extract::Query(pairs)| Query(pairs)).map_err(|error| ApiError::violation(error.to_string()))
    }

    /// The first of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// False if absent.
    ///
    /// # Errors
    /// A violation for anything but `true` and `false`.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.get(name) {
            Some("true") => Ok(true),
            None | Some("false") => Ok(false),
            Some(_) => Err(ApiError::violation(format!("Invalid request: `{name}` should be boolean."))),
        }
    }

    /// Parameters are known by name, or private, which begin with `__`; each stands once.
    ///
    /// # Errors
    /// A violation that names the parameter.
    pub(super) fn only(&self, known: &[&str]) -> Result<()> {
        let unknown = |name: &str| {
            let always = ["teamId", "slug"].contains(&name) || name.starts_with("__");
            !always && !known.contains(&name)
        };
        for (at, (name, _)) in self.0.iter().enumerate() {
            let again = self.0.iter().skip(at + 1).any(|(other, _)| other == name);
            if unknown(name) || again {
                return Err(ApiError::violation(format!("Invalid request: should NOT have query parameter `{name}`.")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn query(text: &str) -> Query {
        Query::of(&format!("/?{text}").parse().unwrap()).unwrap()
    }

    #[test]
    fn only_known_and_private_parameters_pass() {
        let query = query("teamId=t&project=p&__includeSystemRoutes=true&tags=run%3Ar1");
        query.only(&["project", "tags"]).unwrap();
        assert_eq!(query.get("tags"), Some("run:r1"));
        assert!(query.only(&["project"]).unwrap_err().violation);
        assert!(self::query("tags=a%3Ab&tags=c%3Ad").only(&["tags"]).unwrap_err().violation);
        assert!(self::query("resume=yes").flag("resume").unwrap_err().violation);
    }
}
