//! Ids as the vendor makes them. Clients tell the two kinds of sandboxes apart by the form of their ids.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Crockford's alphabet.
const BASE32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// `prefix-` and 22 letters and digits.
pub(super) fn new_id(prefix: &str) -> String {
    format!("{prefix}-{}", digits(Uuid::new_v4().as_u128(), BASE62, 22))
}

/// A ULID: 26 characters that begin with the time.
pub(super) fn ulid() -> String {
    let random = Uuid::new_v4().as_u128() >> 48;
    digits((now().as_millis() << 80) | random, BASE32, 26)
}

/// Seconds since the epoch, as timestamps on the wire.
pub(super) fn timestamp() -> f64 {
    now().as_secs_f64()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn digits(mut number: u128, alphabet: &[u8], count: usize) -> String {
    let base = alphabet.len() as u128;
    let mut digits = Vec::with_capacity(count);
    for _ in 0..count {
        digits.extend(alphabet.get((number % base) as usize).map(|digit| char::from(*digit)));
        number /= base;
    }
    digits.iter().rev().collect()
}

/// Whether an app or a sandbox may be called this.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_id =
        name.strip_prefix("ap-").is_some_and(|rest| rest.len() == 22 && rest.chars().all(char::is_alphanumeric));
    !name.is_empty() && name.len() <= 64 && name.chars().all(allowed) && !is_id
}
