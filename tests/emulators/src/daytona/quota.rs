//! Quotas: what is used, and what is refused.

use super::failure::{Answer, Failure};
use super::options::Quota;
use super::record::{Record, Size};
use super::state::Holdings;

/// What counts against the organization's quota.
pub(super) fn usage(holdings: &Holdings) -> Size {
    let mut used = Size { cpu: 0, memory: 0, disk: 0 };
    for record in holdings.sandboxes.values().map(|sandbox| sandbox.record()) {
        if record.state.computes() {
            used.cpu += record.size.cpu;
            used.memory += record.size.memory;
        }
        used.disk += record.size.disk;
    }
    used
}

/// Snapshots that count against the quota.
pub(super) fn snapshots(holdings: &Holdings) -> u64 {
    holdings.snapshots.values().filter(|snapshot| !snapshot.general).count() as u64
}

/// Whether one sandbox or snapshot may be so large.
pub(super) fn check_size(quota: &Quota, size: Size) -> Answer<()> {
    let parts = [
        ("CPU", size.cpu, quota.cpu_per_sandbox),
        ("Memory", size.memory, quota.memory_per_sandbox),
        ("Disk", size.disk, quota.disk_per_sandbox),
    ];
    for (what, asked, most) in parts {
        if asked > most {
            let message = format!("{what} request {asked} exceeds maximum allowed per sandbox ({most}).");
            return Err(Failure::bad(message));
        }
    }
    Ok(())
}

/// Whether there is room for one more.
pub(super) fn check_total(quota: &Quota, holdings: &Holdings, more: Size) -> Answer<()> {
    let used = usage(holdings);
    let parts = [
        ("CPU", used.cpu + more.cpu, quota.cpu),
        ("memory", used.memory + more.memory, quota.memory),
        ("disk", used.disk + more.disk, quota.disk),
    ];
    for (what, total, most) in parts {
        if total > most {
            return Err(Failure::bad(format!("Total {what} limit exceeded. Maximum allowed: {most}.")));
        }
    }
    Ok(())
}

pub(super) fn check_snapshots(quota: &Quota, holdings: &Holdings) -> Answer<()> {
    if snapshots(holdings) >= quota.snapshots {
        return Err(Failure::bad(format!("Snapshot quota exceeded. Maximum allowed: {}", quota.snapshots)));
    }
    Ok(())
}

/// The part of the quota that starting this stopped sandbox takes.
pub(super) fn start_size(record: &Record) -> Size {
    Size { disk: 0, ..record.size }
}
