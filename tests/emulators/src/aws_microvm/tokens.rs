//! Tokens for endpoints: minted here, checked by the proxy.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;

use super::request::PortSpecification;

/// Tokens that are remembered at most; those that expire first go first.
const KEPT: usize = 10_000;

/// What a token lets its holder do.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) microvm: String,
    pub(super) ports: Vec<PortSpecification>,
    pub(super) expires: Instant,
}

/// All tokens, by what they look like.
#[derive(Default)]
pub(super) struct Grants(HashMap<String, Grant>);

impl Grants {
    pub(super) fn mint(&mut self, grant: Grant) -> String {
        if self.0.len() >= KEPT {
            let first = self.0.iter().min_by_key(|(_, grant)| grant.expires).map(|(token, _)| token.clone());
            self.0.retain(|token, _| Some(token) != first.as_ref());
        }
        let token = sealed();
        self.0.insert(token.clone(), grant);
        token
    }

    /// It is as if it had expired.
    pub(super) fn revoke(&mut self, token: &str) {
        self.0.remove(token);
    }

    pub(super) fn find(&self, token: &str) -> Option<&Grant> {
        self.0.get(token)
    }
}

/// Looks like an encrypted JSON web token: five parts, of which the first can be read and says nothing.
fn sealed() -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "dir", "enc": "A256GCM" }).to_string());
    let random = |parts: usize| {
        let bytes: Vec<u8> = (0..parts).flat_map(|_| *Uuid::new_v4().as_bytes()).collect();
        URL_SAFE_NO_PAD.encode(bytes)
    };
    format!("{header}..{}.{}.{}", random(1), random(16), random(1))
}

/// Whether a text has the form of a token, whoever made it.
pub(super) fn is_token(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 5
        && parts.first().is_some_and(|header| URL_SAFE_NO_PAD.decode(header).is_ok_and(|bytes| !bytes.is_empty()))
}
