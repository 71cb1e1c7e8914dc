//! Bounds on what one data set may cost to read.

/// Limits that keep hostile or broken data from filling memory or disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes that one archive may unpack to, headers included.
    pub unpacked_bytes: u64,
    /// Most members of one archive, and most files of one task directory.
    pub members: u64,
    /// Most unpacked bytes per packed byte. Archives that unpack to less than 1 MiB are exempt: small texts of one
    /// repeated character are harmless.
    pub ratio: u64,
    /// Most bytes of one row of a row file.
    pub row_bytes: u64,
    /// How deep directories of directories are searched for tasks.
    pub depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unpacked_bytes: 1 << 30, members: 100_000, ratio: 200, row_bytes: 1 << 30, depth: 4 }
    }
}

impl Limits {
    /// The most bytes that an archive of `packed` bytes may unpack to.
    pub(crate) fn unpacked_for(&self, packed: u64) -> u64 {
        packed.saturating_mul(self.ratio).max(1 << 20).min(self.unpacked_bytes)
    }
}
