//! Bodies of requests, read strictly, and the rules for their values.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::error::{ApiError, Result};
use super::options::Limits;

/// Megabytes of memory that come with each processor.
pub(super) const MEMORY_PER_VCPU: u32 = 2048;
/// Milliseconds that a session lives if the request does not say.
pub(super) const DEFAULT_TIMEOUT: u64 = 300_000;
/// Milliseconds: what extends a session must be at least this long.
const SHORTEST_EXTENSION: u64 = 1_000;
/// Milliseconds: a command's limit must be at least this long.
const SHORTEST_COMMAND: u64 = 100;
/// Milliseconds: a snapshot that expires lives at least a day and at most ten years (Python client 0.10.0).
const EXPIRATIONS: std::ops::RangeInclusive<u64> = 86_400_000..=315_360_000_000;
/// Fields that may be null: null resets them.
const NULLABLE: [&str; 2] = ["networkId", "keepLastSnapshots"];
const REGIONS: [&str; 19] = [
    "iad1", "sfo1", "cle1", "cdg1", "fra1", "arn1", "sin1", "pdx1", "lhr1", "icn1", "bom1", "cpt1", "dub1", "gru1",
    "hkg1", "syd1", "yul1", "hnd1", "kix1",
];

/// Reads a JSON object; an empty body is an empty object. Keys that start with `__` are private and ignored.
///
/// # Errors
/// A violation for anything that the type does not list, and for fields that the type shares with other operations but
/// that are `foreign` to this one.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8], foreign: &[&str]) -> Result<T> {
    let invalid = |why: &dyn std::fmt::Display| ApiError::violation(format!("Invalid request: {why}."));
    let value = if body.is_empty() { Ok(Value::Object(Map::new())) } else { serde_json::from_slice(body) };
    let Value::Object(mut fields) = value.map_err(|error: serde_json::Error| invalid(&error))? else {
        return Err(invalid(&"the body should be an object"));
    };
    fields.retain(|key, _| !key.starts_with("__"));
    for (key, value) in &fields {
        if foreign.contains(&key.as_str()) {
            return Err(invalid(&format!("should NOT have additional property `{key}`")));
        }
        if value.is_null() && !NULLABLE.contains(&key.as_str()) {
            return Err(invalid(&format!("`{key}` should not be null")));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| invalid(&error))
}

/// A field that tells null from absence.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// What can be said of a sandbox when it is made, forked or changed. Each operation takes a part of it: the others are
/// in [`NOT_AT_CREATE`], [`NOT_AT_FORK`], [`NOT_AT_UPDATE`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Settings {
    pub(super) project_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) source: Option<Source>,
    pub(super) image: Option<String>,
    pub(super) runtime: Option<String>,
    /// Milliseconds.
    pub(super) timeout: Option<u64>,
    pub(super) resources: Option<Resources>,
    pub(super) ports: Option<Vec<u16>>,
    pub(super) persistent: Option<bool>,
    pub(super) env: Option<BTreeMap<String, String>>,
    pub(super) tags: Option<BTreeMap<String, String>>,
    pub(super) network_policy: Option<Value>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) network_id: Option<Option<String>>,
    /// Milliseconds; 0 is never.
    pub(super) snapshot_expiration: Option<u64>,
    #[serde(default, deserialize_with = "nullable")]
    pub(super) keep_last_snapshots: Option<Option<Retention>>,
    pub(super) current_snapshot_id: Option<String>,
    pub(super) region: Option<String>,
    pub(super) failover_regions: Option<Vec<String>>,
    /// Drives by the path they are mounted at. There are no drives here, so only an empty map passes.
    pub(super) mounts: Option<Map<String, Value>>,
}

pub(super) const NOT_AT_CREATE: &[&str] = &["currentSnapshotId"];
pub(super) const NOT_AT_FORK: &[&str] = &["currentSnapshotId", "projectId", "runtime", "source"];
pub(super) const NOT_AT_UPDATE: &[&str] = &["name", "image", "projectId", "runtime", "source"];

/// What a sandbox starts from, if not from its image alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum Source {
    Git {
        url: String,
        depth: Option<u32>,
        revision: Option<String>,
        username: Option<String>,
        password: Option<String>,
    },
    Tarball {
        url: String,
    },
    Snapshot {
        snapshot_id: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resources {
    pub(super) vcpus: Option<u32>,
    /// Megabytes.
    pub(super) memory: Option<u32>,
}

/// Which snapshots of a sandbox are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Retention {
    pub(super) count: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expiration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delete_evicted: Option<bool>,
}

impl Settings {
    /// The rules that hold for values wherever they may stand.
    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        let plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        if self.name.as_ref().is_some_and(|name| name.is_empty() || !name.chars().all(plain)) {
            return Err(refuse("`name` should have letters, digits, `-` and `_` only"));
        }
        if self.timeout.is_some_and(|timeout| timeout == 0 || timeout > limits.session_ms) {
            return Err(refuse(format!("`timeout` should be <= {}", limits.session_ms)));
        }
        if self.ports.as_ref().is_some_and(|ports| ports.len() > 15) {
            return Err(refuse("`ports` should NOT have more than 15 items"));
        }
        if self.tags.as_ref().is_some_and(|tags| tags.len() > 5) {
            return Err(refuse("`tags` should NOT have more than 5 properties"));
        }
        if let Some(Resources { vcpus, memory }) = self.resources {
            let vcpus = vcpus.or(memory.map(|memory| memory / MEMORY_PER_VCPU)).unwrap_or(2);
            if !(vcpus == 1 || vcpus % 2 == 0 && (2..=limits.vcpus).contains(&vcpus)) {
                return Err(refuse(format!("`resources.vcpus` should be 1 or even and <= {}", limits.vcpus)));
            }
            if memory.is_some_and(|memory| memory != vcpus * MEMORY_PER_VCPU) {
                return Err(refuse(format!("`resources.memory` should be {}", vcpus * MEMORY_PER_VCPU)));
            }
        }
        if self.mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
            return Err(ApiError::not_found("Drive"));
        }
        let region = self.region.as_deref().unwrap_or(REGIONS[0]);
        let failover = self.failover_regions.iter().flatten().map(String::as_str);
        if let Some(unknown) = failover.clone().chain([region]).find(|name| !REGIONS.contains(name)) {
            return Err(refuse(format!("region `{unknown}` is unknown")));
        }
        if failover.clone().any(|name| name == region) {
            return Err(refuse("`failoverRegions` should not include `region`"));
        }
        if let Some(Some(retention)) = &self.keep_last_snapshots
            && !(1..=100).contains(&retention.count)
        {
            return Err(refuse("`keepLastSnapshots.count` should be 1 to 100"));
        }
        if matches!(self.source, Some(Source::Git { depth: Some(0), .. })) {
            return Err(refuse("`source.depth` should be >= 1"));
        }
        self.snapshot_expiration.map_or(Ok(()), |expiration| check_expiration("snapshotExpiration", expiration))
    }

    pub(super) fn vcpus(&self) -> Option<u32> {
        let resources = self.resources?;
        resources.vcpus.or(resources.memory.map(|memory| memory / MEMORY_PER_VCPU))
    }
}

/// Milliseconds; 0 is never.
pub(super) fn check_expiration(field: &str, expiration: u64) -> Result<()> {
    if expiration == 0 || EXPIRATIONS.contains(&expiration) {
        return Ok(());
    }
    Err(refuse(format!("`{field}` should be 0 or between {} and {}", EXPIRATIONS.start(), EXPIRATIONS.end())))
}

/// `POST .../cmd`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) command: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    pub(super) cwd: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) sudo: bool,
    #[serde(default)]
    pub(super) wait: bool,
    #[serde(default)]
    pub(super) logs: bool,
    /// Milliseconds.
    pub(super) timeout: Option<u64>,
    #[serde(default)]
    pub(super) attach_stdin: bool,
}

impl Exec {
    pub(super) fn check(&self) -> Result<()> {
        let texts = self.args.iter().chain(self.env.keys()).chain(self.env.values()).chain([&self.command]);
        if self.command.is_empty() || texts.into_iter().any(|text| text.contains('\0')) {
            return Err(refuse("`command` should not be empty, and nothing should hold NUL"));
        }
        if self.timeout.is_some_and(|timeout| timeout < SHORTEST_COMMAND) {
            return Err(refuse(format!("`timeout` should be >= {SHORTEST_COMMAND}")));
        }
        Ok(())
    }
}

/// `POST .../cmd/{id}/kill`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kill {
    pub(super) signal: i32,
}

/// `POST .../cmd/{id}/stdin`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stdin {
    /// Base64.
    pub(super) data: Option<String>,
    /// Bytes that the client knows to have been taken.
    pub(super) offset: Option<u64>,
    #[serde(default)]
    pub(super) close: bool,
}

/// `POST .../extend-timeout`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extend {
    /// Milliseconds.
    pub(super) duration: u64,
}

impl Extend {
    pub(super) fn check(&self) -> Result<()> {
        if self.duration < SHORTEST_EXTENSION {
            return Err(refuse(format!("`duration` should be >= {SHORTEST_EXTENSION}")));
        }
        Ok(())
    }
}

/// `POST .../snapshot`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeSnapshot {
    /// Milliseconds; 0 is never.
    pub(super) expiration: Option<u64>,
}

/// `POST .../fs/read`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    pub(super) path: String,
    pub(super) cwd: Option<String>,
}

/// `POST .../fs/mkdir`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MakeDirectory {
    pub(super) path: String,
    pub(super) cwd: Option<String>,
    #[serde(default)]
    pub(super) recursive: bool,
}

/// A body that must be absent or `{}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

fn refuse(why: impl std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("Invalid request: {why}."))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn settings(value: Value) -> Result<Settings> {
        let settings: Settings = parse(&serde_json::to_vec(&value).unwrap(), NOT_AT_CREATE)?;
        settings.check(&Limits::default()).map(|()| settings)
    }

    #[test]
    fn the_bodies_of_the_official_clients_are_read() {
        let body = json!({"projectId": "prj_abc", "ports": [], "timeout": 600000, "resources": {"vcpus": 4}, "name": "tb-1",
            "persistent": false, "networkPolicy": {"mode": "allow-all"}, "env": {"DEF": "1"}, "tags": {"run": "r1"}});
        assert_eq!(settings(body).unwrap().vcpus(), Some(4));
        let warm = json!({"projectId": "p", "ports": [], "source": {"type": "snapshot", "snapshotId": "snap_1"}});
        let source = settings(warm).unwrap().source.unwrap();
        assert_eq!(source, Source::Snapshot { snapshot_id: "snap_1".to_owned() });
    }

    #[test]
    fn private_keys_are_ignored_and_other_unknown_ones_are_violations() {
        assert!(settings(json!({"__private": {"a": 1}})).is_ok());
        for body in [
            json!({"imageName": "x"}),
            json!({"currentSnapshotId": "snap_1"}),
            json!({"timeout": null}),
            json!({"timeout": "5m"}),
            json!({"source": {"type": "snapshot", "snapshotId": "s", "more": 1}}),
            json!([]),
        ] {
            assert!(settings(body.clone()).unwrap_err().violation, "{body}");
        }
    }

    #[test]
    fn null_resets_where_it_may_stand() {
        assert_eq!(settings(json!({"networkId": null})).unwrap().network_id, Some(None));
        assert_eq!(settings(json!({})).unwrap().network_id, None);
    }

    #[test]
    fn values_out_of_range_are_refused_without_blaming_the_client() {
        for body in [
            json!({"name": "a/b"}),
            json!({"name": ""}),
            json!({"timeout": 86_400_001}),
            json!({"ports": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}),
            json!({"resources": {"vcpus": 3}}),
            json!({"resources": {"vcpus": 16}}),
            json!({"resources": {"vcpus": 2, "memory": 2048}}),
            json!({"region": "mars1"}),
            json!({"region": "fra1", "failoverRegions": ["fra1"]}),
            json!({"tags": {"a": "", "b": "", "c": "", "d": "", "e": "", "f": ""}}),
            json!({"snapshotExpiration": 1000}),
            json!({"keepLastSnapshots": {"count": 0}}),
        ] {
            let error = settings(body.clone()).unwrap_err();
            assert_eq!((error.code, error.violation), ("bad_request", false), "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_answered(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse::<Settings>(&body, NOT_AT_CREATE).map(|settings| settings.check(&Limits::default()));
        }
    }
}
