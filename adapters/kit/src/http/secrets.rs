//! Credentials that a service repeats in what it says.
//!
//! Refusals are quoted in errors, logs and evidence. Every credential that was put into a header by this process is
//! overwritten in them.

use std::sync::{PoisonError, RwLock};

use secrecy::{ExposeSecret, SecretString};

/// What takes the place of a credential.
const HIDDEN: &[u8] = b"[secret]";
/// Shorter ones are not looked for: they would be found everywhere.
const SHORTEST: usize = 6;

static KNOWN: RwLock<Vec<SecretString>> = RwLock::new(Vec::new());

/// Remembers a credential for as long as the process lives.
pub(super) fn remember(secret: &SecretString) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let text = secret.expose_secret().trim();
    if text.len() >= SHORTEST && known.iter().all(|other| other.expose_secret() != text) {
        known.push(SecretString::from(text));
    }
}

/// `text` with every known credential overwritten.
pub(super) fn hide(text: Vec<u8>) -> Vec<u8> {
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    known.iter().fold(text, |text, secret| replace(text, secret.expose_secret().as_bytes()))
}

fn replace(text: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    if !text.windows(secret.len()).any(|part| part == secret) {
        return text;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_slice();
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(secret) {
            out.extend_from_slice(HIDDEN);
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_credential_is_overwritten_wherever_it_stands() {
        remember(&SecretString::from(" abc-123-xyz "));
        remember(&SecretString::from("bad"));
        let hidden = hide(b"abc-123-xyz: bad header Bearer abc-123-xyzabc-123-xyz seen".to_vec());
        assert_eq!(String::from_utf8_lossy(&hidden), "[secret]: bad header Bearer [secret][secret] seen");
    }
}
