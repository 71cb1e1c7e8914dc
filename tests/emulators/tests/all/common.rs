//! What the tests share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::{Emulation, Machines, Timing};
use tempfile::TempDir;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

fn options() -> MachineOptions {
    let images = ImageTable::new(BTreeMap::new(), &["missing*".into()]).unwrap();
    let helper = Some(env!("CARGO_BIN_EXE_sandbox-emulator").into());
    MachineOptions { helper, images, ..MachineOptions::default() }
}

pub(crate) async fn machines() -> Machines {
    Machines::open(options()).await.unwrap()
}

pub(crate) async fn machines_in(state: &Path) -> Machines {
    Machines::open(MachineOptions { state_dir: Some(state.into()), ..options() }).await.unwrap()
}

pub(crate) async fn emulation() -> Arc<Emulation> {
    Arc::new(Emulation::new(machines().await, Timing::default()))
}

pub(crate) async fn emulation_in(state: &Path) -> Arc<Emulation> {
    Arc::new(Emulation::new(machines_in(state).await, Timing::default()))
}

/// Somewhere that is not an overlay file system, also when the tests run in a container.
pub(crate) fn scratch() -> TempDir {
    let usual = if Path::new("/.dockerenv").exists() { "/dev/shm" } else { "/var/tmp" };
    let parent = std::env::var_os("TEST_STATE_DIR").map_or_else(|| PathBuf::from(usual), PathBuf::from);
    tempfile::Builder::new().prefix("sandbox-emulator-test-").tempdir_in(parent).unwrap()
}
