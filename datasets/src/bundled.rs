//! The data set that comes with the program.

use std::path::PathBuf;

use sandbox_bench_core::Digest;

use crate::archive;
use crate::cache::{Cache, Kind};
use crate::dataset::BUNDLED;
use crate::limits::Limits;

/// `datasets/data/smoke` as a tar archive, packed by the build script.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/smoke.tar"));

/// Unpacks the bundled data set into the cache, if it is not there yet.
pub(crate) fn unpack(cache: &Cache) -> Result<PathBuf, String> {
    if PACKED.len() <= 1024 {
        return Err("this program was built without it".to_owned());
    }
    let unpacked = cache.directory(Kind::Bundled, &Digest::of(PACKED), |place| {
        archive::unpack(PACKED, PACKED.len() as u64, place, &Limits::default())
    });
    // Row ids are qualified by the directory of their file, so that has a name of its own.
    unpacked.map(|place| place.join(BUNDLED)).map_err(|fault| format!("{} ({})", fault.what, fault.remedy))
}
