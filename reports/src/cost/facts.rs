//! Names under which adapters report what bears on cost. All values are decimal numbers, as text.

/// What the backend charges for the sandbox, in US dollars.
pub const COST_USD: &str = "cost_usd";
/// How long the backend bills the sandbox, in seconds.
pub const RUNNING_SECONDS: &str = "running_seconds";
/// CPU time that the backend bills, in vCPU-seconds.
pub const BILLED_VCPU_SECONDS: &str = "billed_vcpu_seconds";
/// Memory that the backend bills, in GiB-seconds.
pub const BILLED_GIB_SECONDS: &str = "billed_gib_seconds";
/// Bytes that left the sandbox by the network and are billed.
pub const EGRESS_BYTES: &str = "egress_bytes";
/// Size of the memory snapshot that the sandbox was started from, in bytes.
pub const SNAPSHOT_BYTES: &str = "snapshot_bytes";
