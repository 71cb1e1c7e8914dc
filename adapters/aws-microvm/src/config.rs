//! What a user may set.

use std::path::PathBuf;

use sandbox_bench_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Image of sandboxes that ask for the backend's general base.
const BASE_IMAGE: &str = "python:3.12-slim";
/// What that image has, of the commands that recipes may need.
const BASE_COMMANDS: [&str; 1] = ["python3"];
/// The longest that a MicroVM lives, in seconds.
pub(crate) const LONGEST: u64 = 28_800;

/// Settings of the backend. All are optional; what is not set here is read from the environment (the README names the
/// variables), and credentials from there and the vendor's own files alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AwsMicrovmConfig {
    /// Region of everything, such as `us-east-1`.
    pub region: Option<String>,
    /// Address of the service, where it is not the vendor's.
    pub endpoint_url: Option<String>,
    /// Address of S3, where it is not the vendor's.
    pub s3_endpoint_url: Option<String>,
    /// Address under which the endpoints of all MicroVMs are reached, where it is not their own.
    pub data_plane_url: Option<String>,
    /// Bucket for build contexts, in the same region.
    pub bucket: Option<String>,
    /// What the keys of build contexts begin with.
    pub prefix: Option<String>,
    /// Role that the service assumes to build images.
    pub build_role_arn: Option<String>,
    /// Role that MicroVMs have. Every command can then use it: leave it out for benchmarks.
    pub execution_role_arn: Option<String>,
    /// The operating system under an image. Default: the vendor's `al2023-1` of the region.
    pub base_image_arn: Option<String>,
    /// The runner, built for the MicroVM's architecture. Without one, image builds compile it from its sources.
    pub runner: Option<PathBuf>,
    /// Architecture of MicroVMs.
    pub architecture: Option<Architecture>,
    /// What must cover the resources that are asked for.
    pub sizing: Sizing,
    /// Image of sandboxes that ask for the backend's general base.
    pub base_image: Option<String>,
    /// Commands that the base has, of those that environment recipes may need.
    pub base_commands: Vec<String>,
    /// Port of the runner in a MicroVM.
    pub port: Option<u16>,
    /// Life of an access token, in minutes: 1 to 60. It is renewed before it ends.
    pub auth_token_minutes: Option<u32>,
    /// Seconds without traffic after which a MicroVM that nobody holds is ended: 60 or more.
    pub max_idle_seconds: Option<u32>,
    /// Network connectors for traffic to MicroVMs; empty: the service's own.
    pub ingress_connectors: Vec<String>,
    /// Network connectors for traffic from MicroVMs; empty: the service's own, which reaches the internet.
    pub egress_connectors: Vec<String>,
    /// A connector into a network without a way out: with it, sandboxes without network can be had.
    pub no_network_connector: Option<String>,
    /// CloudWatch log group of MicroVMs; needs an execution role.
    pub log_group: Option<String>,
    /// Memory that the account may have allocated at one time, in GB: what that allows is the default concurrency.
    pub account_memory_gb: Option<u32>,
    /// Most MicroVMs at one time.
    pub max_concurrency: Option<u32>,
    /// What client tokens begin with.
    pub client_token_prefix: Option<String>,
}

impl Default for AwsMicrovmConfig {
    fn default() -> Self {
        Self {
            region: None,
            endpoint_url: None,
            s3_endpoint_url: None,
            data_plane_url: None,
            bucket: None,
            prefix: None,
            build_role_arn: None,
            execution_role_arn: None,
            base_image_arn: None,
            runner: None,
            architecture: None,
            sizing: Sizing::default(),
            base_image: None,
            base_commands: BASE_COMMANDS.map(str::to_owned).to_vec(),
            port: None,
            auth_token_minutes: None,
            max_idle_seconds: None,
            ingress_connectors: Vec::new(),
            egress_connectors: Vec::new(),
            no_network_connector: None,
            log_group: None,
            account_memory_gb: None,
            max_concurrency: None,
            client_token_prefix: None,
        }
    }
}

/// Architecture of MicroVMs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// The one that the service documents.
    #[default]
    Arm64,
    /// In the newest model of the service only; it may refuse it.
    #[serde(rename = "x86_64")]
    X86_64,
}

impl Architecture {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "arm64" | "aarch64" => Some(Self::Arm64),
            "x86_64" | "amd64" => Some(Self::X86_64),
            _ => None,
        }
    }

    /// As the kernel calls it.
    pub(crate) fn machine(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64",
            Self::X86_64 => "x86_64",
        }
    }

    /// As the service calls it.
    pub(crate) fn wire(self) -> &'static str {
        match self {
            Self::Arm64 => "ARM_64",
            Self::X86_64 => "X86_64",
        }
    }
}

/// A size has resources that are guaranteed and billed, and four times as many that it may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizing {
    /// What is guaranteed covers what is asked for.
    #[default]
    Baseline,
    /// What may be used covers it: cheaper, and like vendors that let sandboxes burst.
    Peak,
}

/// Settings with nothing left to look up.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) region: String,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) s3_endpoint_url: Option<String>,
    pub(crate) data_plane_url: Option<String>,
    pub(crate) bucket: Option<String>,
    pub(crate) prefix: String,
    pub(crate) build_role_arn: Option<String>,
    pub(crate) execution_role_arn: Option<String>,
    pub(crate) base_image_arn: String,
    pub(crate) runner: Option<PathBuf>,
    pub(crate) architecture: Architecture,
    pub(crate) sizing: Sizing,
    pub(crate) base_image: String,
    pub(crate) base_commands: Vec<String>,
    pub(crate) port: u16,
    pub(crate) token_minutes: u32,
    pub(crate) idle_seconds: u32,
    pub(crate) ingress: Vec<String>,
    pub(crate) egress: Vec<String>,
    pub(crate) no_network: Option<String>,
    pub(crate) log_group: Option<String>,
    pub(crate) concurrency: Option<u32>,
    pub(crate) account_memory_gb: u32,
    pub(crate) token_prefix: String,
}

impl AwsMicrovmConfig {
    /// With what the environment says where the configuration says nothing. `variable` reads an environment variable.
    ///
    /// # Errors
    /// `InvalidRequest`, naming what cannot be used.
    pub(crate) fn resolved(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let read =
            |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|value| !value.trim().is_empty()));
        let or = |set: &Option<String>, names: &[&str]| set.clone().or_else(|| read(names));
        let number = |set: Option<u32>, name: &str, default: u32, range: std::ops::RangeInclusive<u32>| {
            let odd = || Error::invalid(format!("{name} is not a number from {} to {}", range.start(), range.end()));
            let found = match (set, read(&[name])) {
                (Some(set), _) => set,
                (None, Some(text)) => text.trim().parse().map_err(|_| odd())?,
                (None, None) => default,
            };
            if range.contains(&found) { Ok(found) } else { Err(odd()) }
        };
        let list = |set: &[String], name: &str| match (set, read(&[name])) {
            ([], Some(text)) => {
                text.split(',').map(|arn| arn.trim().to_owned()).filter(|arn| !arn.is_empty()).collect()
            }
            (set, _) => set.to_vec(),
        };
        let region = or(&self.region, &["AWS_REGION", "AWS_DEFAULT_REGION"]).ok_or_else(|| {
            Error::invalid("no region for AWS Lambda MicroVMs").hint("set AWS_REGION, such as us-east-1")
        })?;
        let architecture = match (self.architecture, read(&["AWS_MICROVM_ARCH"])) {
            (Some(set), _) => set,
            (None, Some(text)) => Architecture::parse(text.trim())
                .ok_or_else(|| Error::invalid(format!("AWS_MICROVM_ARCH: {text:?} is neither arm64 nor x86_64")))?,
            (None, None) => Architecture::default(),
        };
        let port = number(self.port.map(u32::from), "AWS_MICROVM_PORT", 8080, 1..=65_535)?;
        let concurrency = match (self.max_concurrency, read(&["AWS_MICROVM_MAX_CONCURRENCY"])) {
            (None, None) => None,
            (set, _) => Some(number(set, "AWS_MICROVM_MAX_CONCURRENCY", 1, 1..=100_000)?),
        };
        let all = ["AWS_ENDPOINT_URL_LAMBDA_MICROVMS", "AWS_ENDPOINT_URL"];
        Ok(Settings {
            endpoint_url: or(&self.endpoint_url, &all),
            s3_endpoint_url: or(&self.s3_endpoint_url, &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]),
            data_plane_url: or(&self.data_plane_url, &["AWS_MICROVM_DATA_PLANE_URL"]),
            bucket: or(&self.bucket, &["AWS_MICROVM_ARTIFACT_BUCKET"]),
            prefix: or(&self.prefix, &["AWS_MICROVM_ARTIFACT_PREFIX"])
                .map_or_else(|| "sandbox-bench".to_owned(), |prefix| prefix.trim_matches('/').to_owned()),
            build_role_arn: or(&self.build_role_arn, &["AWS_MICROVM_BUILD_ROLE_ARN"]),
            execution_role_arn: or(&self.execution_role_arn, &["AWS_MICROVM_EXECUTION_ROLE_ARN"]),
            base_image_arn: or(&self.base_image_arn, &["AWS_MICROVM_BASE_IMAGE_ARN"])
                .unwrap_or_else(|| format!("arn:aws:lambda:{region}:aws:microvm-image:al2023-1")),
            runner: self.runner.clone().or_else(|| read(&["AWS_MICROVM_RUNNER"]).map(PathBuf::from)),
            architecture,
            sizing: self.sizing,
            base_image: self.base_image.clone().unwrap_or_else(|| BASE_IMAGE.to_owned()),
            base_commands: self.base_commands.clone(),
            port: u16::try_from(port).unwrap_or(8080),
            token_minutes: number(self.auth_token_minutes, "AWS_MICROVM_AUTH_TOKEN_MINUTES", 60, 1..=60)?,
            idle_seconds: number(self.max_idle_seconds, "AWS_MICROVM_MAX_IDLE_DURATION_SECONDS", 300, 60..=28_800)?,
            ingress: list(&self.ingress_connectors, "AWS_MICROVM_INGRESS_CONNECTORS"),
            egress: list(&self.egress_connectors, "AWS_MICROVM_EGRESS_CONNECTORS"),
            no_network: or(&self.no_network_connector, &["AWS_MICROVM_NO_NETWORK_CONNECTOR"]),
            log_group: or(&self.log_group, &["AWS_MICROVM_LOG_GROUP"]),
            concurrency,
            account_memory_gb: number(self.account_memory_gb, "AWS_MICROVM_ACCOUNT_MEMORY_GB", 4, 1..=100_000)?,
            token_prefix: or(&self.client_token_prefix, &["AWS_MICROVM_CLIENT_TOKEN_PREFIX"]).unwrap_or_default(),
            region,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(config: &AwsMicrovmConfig, variables: &[(&str, &str)]) -> Result<Settings> {
        config.resolved(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn what_is_configured_wins_over_the_environment() {
        let config = AwsMicrovmConfig { bucket: Some("mine".into()), ..AwsMicrovmConfig::default() };
        let variables = [
            ("AWS_REGION", "us-east-2"),
            ("AWS_MICROVM_ARTIFACT_BUCKET", "other"),
            ("AWS_MICROVM_BUILD_ROLE_ARN", "arn:role"),
            ("AWS_MICROVM_ARCH", "x86_64"),
            ("AWS_MICROVM_EGRESS_CONNECTORS", "arn:a, arn:b,"),
            ("AWS_MICROVM_PORT", " "),
        ];
        let settings = resolved(&config, &variables).unwrap();
        assert_eq!((settings.bucket.as_deref(), settings.build_role_arn.as_deref()), (Some("mine"), Some("arn:role")));
        assert_eq!((settings.architecture, settings.port), (Architecture::X86_64, 8080));
        assert_eq!(settings.egress, ["arn:a", "arn:b"]);
        assert_eq!(settings.base_image_arn, "arn:aws:lambda:us-east-2:aws:microvm-image:al2023-1");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let error = |name: &str, value: &str| {
            let variables = [("AWS_REGION", "r"), (name, value)];
            resolved(&AwsMicrovmConfig::default(), &variables).unwrap_err().to_string()
        };
        for (name, value) in [
            ("AWS_MICROVM_ARCH", "riscv"),
            ("AWS_MICROVM_AUTH_TOKEN_MINUTES", "61"),
            ("AWS_MICROVM_MAX_IDLE_DURATION_SECONDS", "59"),
            ("AWS_MICROVM_PORT", "0"),
        ] {
            assert!(error(name, value).contains(name), "{}", error(name, value));
        }
        let none = resolved(&AwsMicrovmConfig::default(), &[]).unwrap_err();
        assert!(none.to_string().contains("AWS_REGION"), "{none}");
        assert!(serde_json::from_str::<AwsMicrovmConfig>(r#"{"secret_access_key":"x"}"#).is_err());
    }
}
