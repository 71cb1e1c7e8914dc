//! The sizes of MicroVMs, by the developer guide: of each, what is guaranteed and billed, and what it may use.

use sandbox_bench_core::{Error, Resources, Result};

use crate::config::Sizing;

/// A size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Size {
    /// Its name in requests: the guaranteed memory in MiB.
    pub(crate) memory_mb: u64,
    disk_mb: u64,
}

/// All sizes, smallest first.
const SIZES: [Size; 5] = [
    Size { memory_mb: 512, disk_mb: 8 << 10 },
    Size { memory_mb: 1024, disk_mb: 8 << 10 },
    Size { memory_mb: 2048, disk_mb: 8 << 10 },
    Size { memory_mb: 4096, disk_mb: 16 << 10 },
    Size { memory_mb: 8192, disk_mb: 32 << 10 },
];
/// The size of a sandbox that does not say.
const DEFAULT_MEMORY_MB: u64 = 2048;
/// What may be used is so many times what is guaranteed.
const BURST: u64 = 4;

impl Size {
    /// Guaranteed CPUs: one for each 2 GiB.
    pub(crate) fn cpus(self) -> f64 {
        self.memory_mb as f64 / 2048.0
    }

    /// What a sandbox of this size is granted.
    pub(crate) fn granted(self) -> Resources {
        Resources {
            cpus: Some(self.cpus()),
            memory_mb: Some(self.memory_mb),
            disk_mb: Some(self.disk_mb),
            ..Resources::default()
        }
    }

    /// The size of an image that says so many MiB.
    pub(crate) fn named(memory_mb: u64) -> Option<Self> {
        SIZES.into_iter().find(|size| size.memory_mb == memory_mb)
    }

    /// The smallest size that has what is asked for.
    ///
    /// # Errors
    /// `Unsupported` for what no size has, `InvalidRequest` for what is no number.
    pub(crate) fn fitting(asked: &Resources, sizing: Sizing) -> Result<Self> {
        if asked.gpus.is_some_and(|count| count > 0) {
            return Err(Error::unsupported("the aws-microvm backend does not hand out GPUs"));
        }
        if asked.cpus.is_some_and(|cpus| cpus.is_nan() || cpus <= 0.0) {
            return Err(Error::invalid(format!("a limit of {} CPUs is out of range", asked.cpus.unwrap_or_default())));
        }
        let times = if sizing == Sizing::Peak { BURST } else { 1 };
        let (memory, cpus) = match (asked.memory_mb, asked.cpus) {
            (None, None) => (DEFAULT_MEMORY_MB * times, 0.0),
            (memory, cpus) => (memory.unwrap_or(0), cpus.unwrap_or(0.0)),
        };
        let disk = asked.disk_mb.unwrap_or(0);
        let enough = |size: &Size| {
            size.memory_mb * times >= memory && size.cpus() * times as f64 >= cpus && size.disk_mb >= disk
        };
        SIZES.into_iter().find(enough).ok_or_else(|| {
            Error::unsupported(format!(
                "a sandbox of the aws-microvm backend has at most {} CPUs, {} MiB of memory and 32768 MiB of disk",
                4 * times,
                8192 * times
            ))
            .hint("`sizing = \"peak\"` counts what a MicroVM may use, not what it is guaranteed")
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sandbox_bench_core::ErrorKind;

    use super::*;

    #[test]
    fn the_smallest_size_that_has_enough_is_taken() {
        let size = |cpus, memory_mb, disk_mb, sizing| {
            let asked = Resources { cpus, memory_mb, disk_mb, ..Resources::default() };
            Size::fitting(&asked, sizing).map(|size| size.memory_mb)
        };
        let baseline = |cpus, memory, disk| size(cpus, memory, disk, Sizing::Baseline).unwrap();
        assert_eq!(baseline(None, None, None), 2048);
        assert_eq!([baseline(None, Some(512), None), baseline(None, Some(513), None)], [512, 1024]);
        assert_eq!([baseline(Some(1.0), None, None), baseline(Some(1.5), Some(100), None)], [2048, 4096]);
        assert_eq!(baseline(None, Some(512), Some(20_000)), 8192);
        assert_eq!(size(Some(4.0), Some(8192), None, Sizing::Peak).unwrap(), 2048);
        assert_eq!(size(None, None, None, Sizing::Peak).unwrap(), 2048);
        for (cpus, memory, disk) in [(Some(5.0), None, None), (None, Some(8193), None), (None, None, Some(40_000))] {
            let error = size(cpus, memory, disk, Sizing::Baseline).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::Unsupported);
        }
        assert_eq!(*size(Some(f64::NAN), None, None, Sizing::Peak).unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
}
