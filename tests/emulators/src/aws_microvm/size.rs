//! Sizes of MicroVMs, as documented: a baseline that is billed and counted, and a peak that the guest sees.

use crate::machine::Limits;

/// MiB of an image that asks for none.
const DEFAULT_MIB: u64 = 2048;
/// What an image can ask for.
pub(super) const SIZES_MIB: [u64; 5] = [512, 1024, 2048, 4096, 8192];
/// The peak is so many times the baseline.
const BURST: u64 = 4;
/// Threads and processes of a machine.
const PIDS: u64 = 16_384;

/// The size of an image's MicroVMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Of the baseline.
    pub(super) mib: u64,
}

impl Size {
    /// `None` if there is no such size.
    pub(super) fn of(asked: Option<u64>) -> Option<Size> {
        let mib = asked.unwrap_or(DEFAULT_MIB);
        SIZES_MIB.contains(&mib).then_some(Size { mib })
    }

    /// Processors at the peak: one for each 2 GiB of it.
    fn peak_cpus(self) -> u64 {
        (self.mib * BURST / 2048).max(1)
    }

    /// Connections that the endpoint takes at one time: 8 at one processor, doubled with them.
    pub(super) fn connections(self) -> usize {
        self.peak_cpus() as usize * 8
    }

    pub(super) fn limits(self) -> Limits {
        Limits {
            memory: Some((self.mib * BURST) << 20),
            cpus: Some(self.peak_cpus() as f64),
            pids: Some(PIDS),
            ..Limits::default()
        }
    }
}
