//! AWS Lambda MicroVMs, API version 2025-09-09: the control plane, the endpoints of MicroVMs, and as much of S3 as uploads
//! of archives need. All on one port: a request is S3's if it is signed for S3, an endpoint's if its `Host` is that of an
//! endpoint, and the control plane's otherwise.
//!
//! An image's Dockerfile is really executed, and its program really runs in every MicroVM, behind the proxy. What the
//! emulator cannot do as the service does, what it had to decide, and its flags for fault scripts are listed in the
//! crate's README.

mod arn;
mod artifact;
mod builds;
mod chunked;
mod clock;
mod error;
mod guest;
mod hooks;
mod image;
mod images;
mod life;
mod microvm;
mod microvms;
mod operations;
mod options;
mod page;
mod program;
mod proxy;
mod rates;
mod request;
mod routes;
mod shape;
mod signature;
mod size;
mod storage;
mod tags;
mod tokens;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};

use self::rates::Limiter;
use self::storage::Storage;
use self::world::World;
use crate::{Emulation, Listener, Server};

pub use self::options::{AwsOptions, Quotas, Rates};

/// Longer than anything here lives.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The emulated account.
struct Aws {
    emulation: Arc<Emulation>,
    options: AwsOptions,
    storage: Storage,
    world: Mutex<World>,
    limiter: Limiter,
}

/// Serves the account on the listener's port.
pub fn start(listener: Listener, emulation: Arc<Emulation>, options: AwsOptions) -> Server {
    let aws = Arc::new(Aws {
        emulation: Arc::clone(&emulation),
        storage: Storage::with(&options.buckets),
        world: Mutex::default(),
        limiter: Limiter::new(options.quotas.rates),
        options,
    });
    let router = Router::new().fallback(routes::answer).with_state(Arc::clone(&aws));
    listener.serve(emulation, router, move || aws.view())
}

impl Aws {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long so many seconds of the API take here.
    fn seconds(&self, count: u64) -> Duration {
        self.options.second.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)).min(NEVER)
    }

    /// For the admin route. `operations` is what the sdk checks compare with the service model.
    fn view(&self) -> Value {
        let world = self.world();
        let text = |log: &crate::Log| String::from_utf8_lossy(&log.text()).into_owned();
        let versions = world.images.values().flat_map(|image| {
            image.versions.values().map(move |version| {
                let name = format!("{}:{}", image.name, image::version_name(version.number));
                (name, json!({ "log": text(&version.log) }))
            })
        });
        let versions: serde_json::Map<String, Value> = versions.collect();
        let microvms = world
            .microvms()
            .map(|microvm| (microvm.id.clone(), json!({ "state": microvm.state().word(), "log": text(&microvm.log) })));
        let microvms: serde_json::Map<String, Value> = microvms.collect();
        json!({
            "vendor": "aws-microvm",
            "images": versions,
            "microvms": microvms,
            "objects": self.storage.names(),
            "operations": operations::table(),
        })
    }
}
