//! Network policies: what requests say, and what answers show.
//!
//! The two forms differ: a client that gets its own words back refuses the answer (measured with the official JavaScript
//! client 3.5.0), so everything is converted.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::{ApiError, Result};

/// Proxy headers that a canned response cannot set.
const MANAGED_HEADERS: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

/// A validated policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    /// The form of answers.
    pub(super) readback: Value,
    /// Nothing may be reached.
    pub(super) isolated: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy { readback: json!({ "mode": "allow-all" }), isolated: false }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mode {
    mode: String,
}

/// The form before hosts could carry rules; still documented.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Legacy {
    #[serde(rename = "mode")]
    _mode: String,
    allowed_domains: Option<Vec<String>>,
    #[serde(rename = "allowedCIDRs")]
    allowed_cidrs: Option<Vec<String>>,
    #[serde(rename = "deniedCIDRs")]
    denied_cidrs: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Custom {
    allow: Option<Allow>,
    subnets: Option<Subnets>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Allow {
    Hosts(Vec<String>),
    Rules(BTreeMap<String, Vec<Rule>>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subnets {
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(rename = "match")]
    matcher: Option<RequestMatcher>,
    transform: Option<Vec<Transform>>,
    #[serde(rename = "forwardURL")]
    forward_url: Option<String>,
    response: Option<Canned>,
}

#[derive(Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RequestMatcher {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Matcher>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query_string: Option<Vec<KeyValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<KeyValue>>,
}

#[derive(Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
struct KeyValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Matcher>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Matcher>,
}

#[derive(Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
enum Matcher {
    Exact(String),
    StartsWith(String),
    Regex(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transform {
    headers: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Canned {
    status_code: u16,
    headers: Option<BTreeMap<String, String>>,
    body: Option<String>,
    content_type: Option<String>,
}

impl Policy {
    /// Reads the form of requests.
    ///
    /// # Errors
    /// A violation for a form that is not documented, `bad_request` for values that are refused.
    pub(super) fn parse(value: &Value) -> Result<Policy> {
        let unknown =
            |error: serde_json::Error| ApiError::violation(format!("Invalid request: `networkPolicy`: {error}"));
        match value.get("mode").and_then(Value::as_str) {
            Some("custom") => {
                let legacy: Legacy = serde_json::from_value(value.clone()).map_err(unknown)?;
                let subnets = Subnets { allow: legacy.allowed_cidrs, deny: legacy.denied_cidrs };
                Ok(custom(legacy.allowed_domains, Vec::new(), Vec::new(), Some(subnets)))
            }
            Some(_) => {
                let Mode { mode } = serde_json::from_value(value.clone()).map_err(unknown)?;
                match mode.as_str() {
                    "allow-all" => Ok(Policy::default()),
                    "deny-all" => Ok(Policy { readback: json!({ "mode": mode }), isolated: true }),
                    _ => {
                        Err(ApiError::violation(format!("Invalid request: `networkPolicy.mode` {mode:?} is unknown.")))
                    }
                }
            }
            None => {
                let policy: Custom = serde_json::from_value(value.clone()).map_err(unknown)?;
                match policy.allow {
                    Some(Allow::Rules(rules)) => with_rules(rules, policy.subnets),
                    Some(Allow::Hosts(hosts)) => Ok(custom(Some(hosts), Vec::new(), Vec::new(), policy.subnets)),
                    None => Ok(custom(None, Vec::new(), Vec::new(), policy.subnets)),
                }
            }
        }
    }
}

fn with_rules(rules: BTreeMap<String, Vec<Rule>>, subnets: Option<Subnets>) -> Result<Policy> {
    let (mut injections, mut forwards) = (Vec::new(), Vec::new());
    for (domain, rule) in rules.iter().flat_map(|(domain, rules)| rules.iter().map(move |rule| (domain, rule))) {
        let mut shown = Map::from_iter([("domain".to_owned(), json!(domain))]);
        if let Some(matcher) = &rule.matcher {
            shown.insert("match".to_owned(), serde_json::to_value(matcher).unwrap_or_default());
        }
        match (&rule.transform, &rule.forward_url, &rule.response) {
            (Some(transforms), None, None) => {
                let names = transforms.iter().filter_map(|transform| transform.headers.as_ref()).flat_map(|h| h.keys());
                shown.insert("headerNames".to_owned(), names.map(|name| json!(name)).collect());
                injections.push(Value::Object(shown));
            }
            (None, Some(url), None) => {
                shown.insert("forwardURL".to_owned(), json!(url));
                forwards.push(Value::Object(shown));
            }
            (None, None, Some(response)) => check_canned(response)?,
            _ => {
                return Err(ApiError::bad_request(format!(
                    "Invalid request: a rule of `{domain}` needs exactly one of `transform`, `forwardURL`, `response`."
                )));
            }
        }
    }
    Ok(custom(Some(rules.into_keys().collect()), injections, forwards, subnets))
}

fn check_canned(response: &Canned) -> Result<()> {
    let managed = |name: &String| MANAGED_HEADERS.contains(&name.to_ascii_lowercase().as_str());
    let wrong = match response {
        Canned { status_code, .. } if !(200..=599).contains(status_code) => "`statusCode` should be 200 to 599",
        Canned { body: Some(_), content_type: None, .. } => "`contentType` is required with `body`",
        Canned { headers: Some(headers), .. } if headers.keys().any(managed) => "`headers` sets a managed header",
        _ => return Ok(()),
    };
    Err(ApiError::bad_request(format!("Invalid request: `networkPolicy` response: {wrong}.")))
}

fn custom(
    domains: Option<Vec<String>>,
    injections: Vec<Value>,
    forwards: Vec<Value>,
    subnets: Option<Subnets>,
) -> Policy {
    let nothing = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
    let allowed = subnets.as_ref().map(|subnets| &subnets.allow);
    let isolated = nothing(&domains) && allowed.is_none_or(nothing);
    let mut shown = Map::from_iter([("mode".to_owned(), json!("custom"))]);
    let mut show = |key: &str, list: Option<Value>| {
        if let Some(list) = list {
            shown.insert(key.to_owned(), list);
        }
    };
    let rules = |rules: Vec<Value>| (!rules.is_empty()).then_some(Value::Array(rules));
    show("allowedDomains", domains.map(|list| json!(list)));
    show("injectionRules", rules(injections));
    show("forwardRules", rules(forwards));
    if let Some(Subnets { allow, deny }) = subnets {
        show("allowedCIDRs", allow.map(|list| json!(list)));
        show("deniedCIDRs", deny.map(|list| json!(list)));
    }
    Policy { readback: Value::Object(shown), isolated }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_documented_form_is_shown_in_the_form_of_answers() {
        let shown = |value: Value| Policy::parse(&value).unwrap().readback;
        assert_eq!(shown(json!({"mode": "deny-all"})), json!({"mode": "deny-all"}));
        assert_eq!(
            shown(json!({"allow": ["a.com", "*.b.com"], "subnets": {"deny": ["10.0.0.0/8"]}})),
            json!({"mode": "custom", "allowedDomains": ["a.com", "*.b.com"], "deniedCIDRs": ["10.0.0.0/8"]})
        );
        let rules = json!({"allow": {
            "*": [],
            "a.com": [{"match": {"path": {"startsWith": "/v1"}}, "transform": [{"headers": {"x-key": "secret"}}]}],
            "b.com": [{"forwardURL": "https://proxy"}],
        }});
        assert_eq!(
            shown(rules),
            json!({
                "mode": "custom",
                "allowedDomains": ["*", "a.com", "b.com"],
                "injectionRules": [
                    {"domain": "a.com", "match": {"path": {"startsWith": "/v1"}}, "headerNames": ["x-key"]},
                ],
                "forwardRules": [{"domain": "b.com", "forwardURL": "https://proxy"}],
            })
        );
        assert_eq!(
            shown(json!({"mode": "custom", "allowedDomains": ["a.com"]})),
            json!({"mode": "custom", "allowedDomains": ["a.com"]})
        );
    }

    #[test]
    fn only_what_allows_nothing_is_isolated() {
        let isolated = |value: Value| Policy::parse(&value).unwrap().isolated;
        assert!(isolated(json!({"mode": "deny-all"})));
        assert!(isolated(json!({"allow": []})));
        assert!(!isolated(json!({"mode": "allow-all"})));
        assert!(!isolated(json!({"allow": ["a.com"]})));
        assert!(!isolated(json!({"subnets": {"allow": ["10.0.0.0/8"]}})));
    }

    #[test]
    fn what_is_not_documented_is_a_violation() {
        for value in [
            json!({"mode": "default-allow"}),
            json!({"mode": "allow-all", "more": 1}),
            json!({"allowed": []}),
            json!({"allow": {"a.com": [{"rewrite": 1}]}}),
            json!("deny-all"),
        ] {
            assert!(Policy::parse(&value).unwrap_err().violation, "{value}");
        }
        let two = json!({"allow": {"a.com": [{"forwardURL": "u", "transform": []}]}});
        assert!(!Policy::parse(&two).unwrap_err().violation);
    }

    proptest! {
        #[test]
        fn every_answer_has_a_mode_that_clients_know(hosts in proptest::collection::vec("[a-z*.]{1,9}", 0..4)) {
            let policy = Policy::parse(&json!({"allow": hosts})).unwrap();
            prop_assert_eq!(&policy.readback["mode"], "custom");
            prop_assert_eq!(&policy.readback["allowedDomains"], &json!(hosts));
        }
    }
}
