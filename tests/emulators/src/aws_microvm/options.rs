//! The account that the emulator plays.

use std::collections::BTreeSet;
use std::time::Duration;

/// An account in one region, its credentials and its quotas.
#[derive(Clone, Debug)]
pub struct AwsOptions {
    /// Twelve digits.
    pub account: String,
    /// The region of endpoint, images and buckets.
    pub region: String,
    /// The access key that is accepted.
    pub access_key: String,
    /// Its secret: signatures are computed again with it.
    pub secret_key: String,
    /// Temporary credentials have it; then every request must carry it.
    pub session_token: Option<String>,
    /// What the account may use.
    pub quotas: Quotas,
    /// Names of the account's own network connectors. They lead nowhere: with one, a MicroVM has no network.
    pub connectors: BTreeSet<String>,
    /// Buckets that exist from the start.
    pub buckets: Vec<String>,
    /// How long a second of the API's intervals takes: idle times, durations, the minutes of tokens.
    pub second: Duration,
    /// How long after a MicroVM is `RUNNING` its endpoint still answers 502.
    pub endpoint_lag: Duration,
}

impl Default for AwsOptions {
    fn default() -> AwsOptions {
        AwsOptions {
            account: "123456789012".into(),
            region: "us-east-1".into(),
            access_key: "AKIAEMULATOREMULATOR".into(),
            secret_key: "emulator-secret".into(),
            session_token: None,
            quotas: Quotas::default(),
            connectors: BTreeSet::new(),
            buckets: Vec::new(),
            second: Duration::from_secs(1),
            endpoint_lag: Duration::from_millis(100),
        }
    }
}

impl AwsOptions {
    /// The ARN of a connector of the account.
    pub fn connector_arn(&self, name: &str) -> String {
        format!("arn:aws:lambda:{}:{}:network-connector:{name}", self.region, self.account)
    }
}

/// Quotas; the default is that of an established account as documented in August 2026.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// MiB that all MicroVMs may hold together, by the baseline of their size.
    pub memory_mib: u64,
    /// Images.
    pub images: usize,
    /// Versions of one image.
    pub versions: usize,
    /// Builds at one time.
    pub builds: usize,
    /// Calls per second of each operation that has a rate.
    pub rates: Rates,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas { memory_mib: 1024 << 10, images: 100, versions: 50, builds: 10, rates: Rates::default() }
    }
}

/// Calls per second.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// `RunMicrovm`.
    pub run: u32,
    /// `ResumeMicrovm`.
    pub resume: u32,
    /// `SuspendMicrovm`.
    pub suspend: u32,
    /// `TerminateMicrovm`.
    pub terminate: u32,
    /// `GetMicrovm`.
    pub get: u32,
    /// `CreateMicrovmAuthToken`.
    pub token: u32,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { run: 5, resume: 5, suspend: 2, terminate: 10, get: 100, token: 50 }
    }
}
