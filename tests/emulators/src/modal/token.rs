//! Tokens in the form of JWTs: clients read when they expire, and only the emulator that made one can check it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

#[derive(Serialize, Deserialize)]
struct Claims {
    /// What it is for.
    sub: String,
    /// Seconds since the epoch.
    exp: u64,
}

/// Makes tokens and knows its own again.
pub(super) struct Signer(Uuid);

impl Default for Signer {
    fn default() -> Signer {
        Signer(Uuid::new_v4())
    }
}

impl Signer {
    /// A token for this purpose; without a life it has expired.
    pub(super) fn issue(&self, purpose: &str, life: Duration) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let exp = if life.is_zero() { 0 } else { (now + life).as_secs() };
        let claims = serde_json::json!(Claims { sub: purpose.to_owned(), exp }).to_string();
        let signed = format!("{}.{}", encode(br#"{"alg":"HS256","typ":"JWT"}"#), encode(claims.as_bytes()));
        let signature = self.sign(&signed);
        format!("{signed}.{signature}")
    }

    /// What a token is for, while it is valid.
    pub(super) fn purpose(&self, token: &str) -> Option<String> {
        let (signed, signature) = token.rsplit_once('.')?;
        let payload = URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?;
        let claims: Claims = serde_json::from_slice(&payload).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        (self.sign(signed) == signature && now < claims.exp).then_some(claims.sub)
    }

    fn sign(&self, text: &str) -> String {
        encode(&Sha256::new().chain_update(self.0).chain_update(text).finalize())
    }
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_an_own_and_valid_token_is_known() {
        let signer = Signer::default();
        let token = signer.issue("ta-1", Duration::from_secs(60));
        assert_eq!(signer.purpose(&token).unwrap(), "ta-1");
        assert_eq!(Signer::default().purpose(&token), None, "another signer");
        assert_eq!(signer.purpose(&signer.issue("ta-1", Duration::ZERO)), None, "expired");
        for bad in ["", "a.b", "a.b.c", &token.replace('.', "")] {
            assert_eq!(signer.purpose(bad), None, "{bad}");
        }
    }
}
