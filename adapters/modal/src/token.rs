//! When a JSON web token of the service ends. Its signature is the service's to check.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use tokio::time::Instant;

/// What a token that does not say is taken to be good for.
const UNSAID: Duration = Duration::from_secs(20 * 60);

#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
}

/// How long a token is still good for: zero if it has ended.
pub(crate) fn good_for(token: &str) -> Duration {
    let Some(end) = end(token) else { return UNSAID };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::try_from_secs_f64(end).unwrap_or_default().saturating_sub(now)
}

/// When it is to be replaced: after a little more than half of its time, as the Python client has it.
pub(crate) fn replace_at(token: &str) -> Instant {
    Instant::now() + good_for(token).mul_f64(0.55).min(UNSAID * 12)
}

/// The claim `exp`, in seconds since the epoch; none if there is none, or the text is no token.
fn end(token: &str) -> Option<f64> {
    let payload = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok()?.exp
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jwt(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn the_end_is_what_the_token_says() {
        assert_eq!(end(&jwt(r#"{"exp": 1893456000}"#)), Some(1_893_456_000.0));
        assert_eq!(good_for(&jwt(r#"{"exp": 1}"#)), Duration::ZERO);
        assert_eq!(good_for(&jwt(r#"{"exp": -5}"#)), Duration::ZERO);
        for silent in [jwt("{}"), jwt("[]"), "opaque".to_owned(), "a.b.c".to_owned(), String::new()] {
            assert_eq!(good_for(&silent), UNSAID, "{silent}");
        }
    }

    proptest! {
        #[test]
        fn any_token_is_read_without_a_panic(text in "[a-zA-Z0-9._=-]{0,60}", exp in any::<f64>()) {
            let _ = replace_at(&text);
            let _ = replace_at(&jwt(&format!("{{\"exp\": {exp:e}}}")));
        }
    }
}
