//! What the emulated organization is like.

use std::collections::BTreeSet;
use std::time::Duration;

/// What an API key may do beyond reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// `write:sandboxes`
    WriteSandboxes,
    /// `delete:sandboxes`
    DeleteSandboxes,
    /// `write:snapshots`
    WriteSnapshots,
    /// `delete:snapshots`
    DeleteSnapshots,
}

/// What the organization may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// vCPU of all running sandboxes.
    pub cpu: u64,
    /// GiB of all running sandboxes.
    pub memory: u64,
    /// GiB of all sandboxes, stopped ones included.
    pub disk: u64,
    /// vCPU of one.
    pub cpu_per_sandbox: u64,
    /// GiB of one.
    pub memory_per_sandbox: u64,
    /// GiB of one.
    pub disk_per_sandbox: u64,
    /// Snapshots of its own.
    pub snapshots: u64,
}

impl Default for Quota {
    /// The vendor's published second tier and maxima, and 30 snapshots.
    fn default() -> Quota {
        Quota {
            cpu: 100,
            memory: 200,
            disk: 300,
            cpu_per_sandbox: 4,
            memory_per_sandbox: 8,
            disk_per_sandbox: 10,
            snapshots: 30,
        }
    }
}

/// Calls in a fixed window, by counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// The window.
    pub window: Duration,
    /// `authenticated`: calls that have no counter of their own.
    pub authenticated: u64,
    /// `sandbox-create`
    pub sandbox_create: u64,
    /// `sandbox-lifecycle`
    pub sandbox_lifecycle: u64,
}

impl Default for RateLimits {
    /// The vendor's published first tier.
    fn default() -> RateLimits {
        RateLimits {
            window: Duration::from_secs(60),
            authenticated: 10_000,
            sandbox_create: 300,
            sandbox_lifecycle: 10_000,
        }
    }
}

/// Settings of the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaytonaOptions {
    /// The API key that is accepted.
    pub api_key: String,
    /// The JWT that is accepted, together with the header that names the organization.
    pub jwt: String,
    /// What the key may do. A JWT may do everything.
    pub permissions: BTreeSet<Permission>,
    /// Quotas.
    pub quota: Quota,
    /// Rate limits.
    pub rates: RateLimits,
    /// How long the intervals that the API counts in minutes take here.
    pub minute: Duration,
    /// How long `create` and `start` wait for the sandbox before they answer.
    pub start_wait: Duration,
    /// A log stream looks whether its command has ended after so much silence.
    pub log_silence: Duration,
}

impl Default for DaytonaOptions {
    fn default() -> DaytonaOptions {
        use Permission::{DeleteSandboxes, DeleteSnapshots, WriteSandboxes, WriteSnapshots};
        DaytonaOptions {
            api_key: "dtn_emulator".into(),
            jwt: "emulator.jwt".into(),
            permissions: [WriteSandboxes, DeleteSandboxes, WriteSnapshots, DeleteSnapshots].into(),
            quota: Quota::default(),
            rates: RateLimits::default(),
            minute: Duration::from_secs(60),
            start_wait: Duration::from_secs(30),
            log_silence: Duration::from_secs(1),
        }
    }
}
