//! Signature Version 4: parsed, checked for its scope, and computed again.
//!
//! After AWS's public description of the algorithm ("Create a signed AWS API request", IAM User Guide). The path is
//! encoded twice for every service but S3, which is also what the official clients do.

use axum::http::{HeaderMap, HeaderName, Method, Uri};
use hmac::{Hmac, KeyInit, Mac};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use super::options::AwsOptions;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";
const SESSION_TOKEN: &str = "x-amz-security-token";
/// What S3 clients say about the body in place of its digest.
pub(super) const CONTENT_DIGEST: &str = "x-amz-content-sha256";
/// By how much a client's clock may differ.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// What stays as it is in a path that is encoded once more.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Why a request is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Distrust {
    /// It is not signed at all, or not in this form.
    Missing,
    /// The key, or the session, is not the account's.
    Unrecognized,
    /// It is signed, but wrongly.
    Invalid(String),
}

/// The service that a request is signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Lambda,
    S3,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::Lambda => "lambda",
            Service::S3 => "s3",
        }
    }
}

/// The service that an `authorization` header names; `None` if it names none that is emulated.
pub(super) fn claimed_service(headers: &HeaderMap) -> Option<Service> {
    let claims = Claims::of(headers.get("authorization")?.to_str().ok()?)?;
    [Service::Lambda, Service::S3].into_iter().find(|service| service.name() == claims.service)
}

/// What an `authorization` header says.
struct Claims<'a> {
    key: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
    signed: &'a str,
    signature: &'a str,
}

impl Claims<'_> {
    fn of(header: &str) -> Option<Claims<'_>> {
        let parts = header.strip_prefix(ALGORITHM)?.trim();
        let field =
            |name: &str| parts.split(',').map(str::trim).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let mut scope = field("Credential")?.split('/');
        let (key, date, region, service) = (scope.next()?, scope.next()?, scope.next()?, scope.next()?);
        let ended = scope.next() == Some("aws4_request") && scope.next().is_none();
        let (signed, signature) = (field("SignedHeaders")?, field("Signature")?);
        ended.then_some(Claims { key, date, region, service, signed, signature })
    }
}

/// Checks the signature of a request whose body has this digest: lower-case hex, or what the client said in place of it.
pub(super) fn verify(
    options: &AwsOptions,
    service: Service,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    digest: &str,
) -> Result<(), Distrust> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let claims = header("authorization").and_then(Claims::of).ok_or(Distrust::Missing)?;
    if claims.key != options.access_key || header(SESSION_TOKEN) != options.session_token.as_deref() {
        return Err(Distrust::Unrecognized);
    }
    let invalid = |why: String| Err(Distrust::Invalid(why));
    if claims.region != options.region {
        return invalid(format!("Credential should be scoped to a valid region. {:?} is not", claims.region));
    }
    if claims.service != service.name() {
        return invalid(format!("Credential should be scoped to correct service: '{}'.", service.name()));
    }
    let time = header(DATE).unwrap_or_default();
    let signed_at = Timestamp::strptime("%Y%m%dT%H%M%S%z", time.replace('Z', "+0000"));
    let Ok(signed_at) = signed_at else {
        return invalid(format!("Date in {DATE} is not in the basic ISO 8601 form: {time:?}"));
    };
    if Timestamp::now().duration_since(signed_at).abs() > SKEW {
        return invalid(format!("Signature expired: {time} is now more than 5 minutes away"));
    }
    if !time.starts_with(claims.date) {
        return invalid(format!("Date in Credential scope does not match YYYYMMDD from {DATE}"));
    }
    let names: Vec<&str> = claims.signed.split(';').collect();
    let required = ["host", DATE].into_iter().chain(options.session_token.as_ref().map(|_| SESSION_TOKEN));
    let forgotten = required.into_iter().find(|name| !names.contains(name));
    if let Some(name) = forgotten {
        return invalid(format!("'{name}' must be a 'SignedHeader' in the AWS Authorization."));
    }
    let canonical = canonical_request(service, method, uri, headers, &names, digest);
    let scope = format!("{}/{}/{}/aws4_request", claims.date, claims.region, claims.service);
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let secret = format!("AWS4{}", options.secret_key);
    let key = [claims.date, claims.region, claims.service, "aws4_request"]
        .into_iter()
        .fold(secret.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    if hex(&mac(&key, text.as_bytes())) != claims.signature {
        return invalid("The request signature we calculated does not match the signature you provided.".into());
    }
    Ok(())
}

fn canonical_request(
    service: Service,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    names: &[&str],
    digest: &str,
) -> String {
    let path = match service {
        Service::S3 => uri.path().to_owned(),
        Service::Lambda => utf8_percent_encode(uri.path(), PATH).to_string(),
    };
    let mut query: Vec<(&str, &str)> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    query.sort_unstable();
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let lines: String = names.iter().map(|name| format!("{name}:{}\n", values(headers, name))).collect();
    format!("{method}\n{path}\n{}\n{lines}\n{}\n{digest}", query.join("&"), names.join(";"))
}

/// All values of a header, with runs of spaces made one.
fn values(headers: &HeaderMap, name: &str) -> String {
    let Ok(name) = HeaderName::try_from(name) else { return String::new() };
    let values = headers.get_all(name).iter().map(|value| {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    values.collect::<Vec<_>>().join(",")
}

/// Lower-case hex of a body's SHA-256.
pub(super) fn digest(body: &[u8]) -> String {
    hex(&Sha256::digest(body))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_header_makes_it_panic_or_believe(
            start in "(AWS4-HMAC-SHA256 )?",
            parts in "(Credential=[A-Z/0-9a-z_]{0,40}|SignedHeaders=[a-z;-]{0,20}|Signature=[0-9a-f]{0,64}|[ -~]{0,20})(,[ -~]{0,30}){0,4}",
        ) {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("{start}{parts}").parse().unwrap());
            let uri = "/2025-09-09/microvms?a&b=c".parse().unwrap();
            let believed = verify(&AwsOptions::default(), Service::Lambda, &Method::GET, &uri, &headers, &digest(b""));
            prop_assert!(believed.is_err());
            claimed_service(&headers);
        }
    }

    /// "GET vanilla with query" of AWS's published test suite for Signature Version 4 (`get-vanilla-query-order-key-case`).
    #[test]
    fn the_published_example_has_the_published_signature() {
        let options = AwsOptions {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            ..AwsOptions::default()
        };
        let uri: Uri = "/?Param2=value2&Param1=value1".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("host", "example.amazonaws.com".parse().unwrap());
        headers.insert(DATE, "20150830T123600Z".parse().unwrap());
        let canonical = canonical_request(Service::Lambda, &Method::GET, &uri, &headers, &["host", DATE], &digest(b""));
        let text = format!(
            "{ALGORITHM}\n20150830T123600Z\n20150830/us-east-1/service/aws4_request\n{}",
            hex(&Sha256::digest(canonical))
        );
        let key = ["20150830", "us-east-1", "service", "aws4_request"]
            .into_iter()
            .fold(format!("AWS4{}", options.secret_key).into_bytes(), |key, part| mac(&key, part.as_bytes()));
        let expected = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500";
        assert_eq!(hex(&mac(&key, text.as_bytes())), expected);
    }
}
