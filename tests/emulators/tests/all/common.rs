//! What the tests share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sandbox_bench_emulators::machine::{ImageTable, MachineOptions};
use sandbox_bench_emulators::{Emulation, Machines, Timing};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn machines() -> Machines {
    let images = ImageTable::new(BTreeMap::new(), &["missing*".into()]).unwrap();
    let helper = Some(env!("CARGO_BIN_EXE_sandbox-emulator").into());
    Machines::open(MachineOptions { helper, images, ..MachineOptions::default() }).await.unwrap()
}

pub(crate) async fn emulation() -> Arc<Emulation> {
    Arc::new(Emulation::new(machines().await, Timing::default()))
}
