//! What a sandbox may use: compute, and the network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resources asked for or granted. A missing value means "the backend's default" when asked, "unknown" when granted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Resources {
    /// Virtual CPUs (hardware threads); fractions are allowed where the backend allows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Writable storage in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    /// Most processes and threads at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Number of GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// What the sandbox may reach over the network. It is part of the grant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "mode", content = "hosts")]
pub enum NetworkPolicy {
    /// Everything that the backend's network reaches.
    #[default]
    Public,
    /// Nothing but the sandbox itself (loopback works).
    NoNetwork,
    /// Only these host names, addresses and CIDR ranges.
    Allowlist(Vec<String>),
}

impl NetworkPolicy {
    /// True if a sandbox with the policy `asked` reaches nothing that this one does not.
    #[must_use]
    pub fn allows(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::Public, _) | (_, Self::NoNetwork) => true,
            (Self::Allowlist(granted), Self::Allowlist(asked)) => asked.iter().all(|host| granted.contains(host)),
            (Self::NoNetwork | Self::Allowlist(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NetworkPolicy::{Allowlist, NoNetwork, Public};

    #[test]
    fn a_grant_allows_what_is_narrower_and_nothing_wider() {
        let (one, two) = (Allowlist(vec!["a".into()]), Allowlist(vec!["a".into(), "b".into()]));
        assert!(Public.allows(&Public) && Public.allows(&NoNetwork) && Public.allows(&one));
        assert!(two.allows(&one) && two.allows(&NoNetwork) && NoNetwork.allows(&NoNetwork));
        assert!(!one.allows(&two) && !one.allows(&Public) && !NoNetwork.allows(&Public) && !NoNetwork.allows(&one));
    }
}
