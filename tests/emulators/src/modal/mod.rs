//! Modal Sandboxes, as the official clients of November 2026 speak to them: Python 1.6.4 and JavaScript 0.11.1, both with
//! "V2" sandboxes. Two gRPC services on one plaintext port: the **control plane** (apps, images, sandboxes) and the
//! **task command router**, where commands run and files are moved.
//!
//! A **sandbox** is a machine of the local engine that starts from an **image**; an image is a registry reference, the
//! result of Dockerfile commands, or the files of a sandbox that were saved. What had to be decided without the vendor's
//! word, what differs from the vendor, and the flags for fault scripts are listed in the crate's README.

mod account;
mod build;
mod codec;
mod control;
mod create;
mod fs_tool;
mod gate;
mod ids;
mod images;
mod lifetime;
mod listing;
mod mounts;
mod names;
mod options;
mod output;
mod probe;
mod process;
pub mod proto;
mod router;
mod sandbox;
mod status;
mod stdin;
mod token;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::middleware;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tonic::Status;
use tonic::service::Routes;

use self::images::Image;
use self::proto::client::modal_client_server::ModalClientServer;
use self::proto::task_command_router::task_command_router_server::TaskCommandRouterServer;
use self::sandbox::Sandbox;
use self::token::Signer;
use crate::{Emulation, Listener, Server};

pub use self::codec::Strict;
pub use self::options::ModalOptions;

/// Bytes of the largest message, as the official clients have it.
const MESSAGE_LIMIT: usize = 100 << 20;

/// The emulated workspace.
struct Modal {
    emulation: Arc<Emulation>,
    options: ModalOptions,
    /// Both services are here.
    address: String,
    signer: Signer,
    world: Mutex<World>,
}

/// What the workspace holds.
#[derive(Default)]
struct World {
    /// Ids by name.
    apps: BTreeMap<String, String>,
    /// Environment variables by secret id.
    secrets: BTreeMap<String, BTreeMap<String, String>>,
    /// Secret ids by name.
    secret_names: BTreeMap<String, String>,
    /// By id.
    images: BTreeMap<String, Arc<Image>>,
    /// The image that a recipe made, by the recipe's hash.
    recipes: HashMap<[u8; 32], String>,
    /// In the order of their creation, also those that have ended.
    sandboxes: Vec<Arc<Sandbox>>,
    /// The sandbox that a request made, by the request's idempotency key.
    creations: HashMap<String, String>,
    /// Named images, by `NAME:TAG`.
    image_names: BTreeMap<String, names::Named>,
    /// Files of build contexts, by their digests.
    files: HashMap<String, Arc<Vec<u8>>>,
    /// Build contexts, by id.
    mounts: HashMap<String, Vec<mounts::ContextFile>>,
    /// The image that a snapshot request made, by task and snapshot id.
    snapshots: HashMap<(String, String), String>,
}

type Result<T> = std::result::Result<T, Status>;

/// Serves the workspace on the listener's port.
pub fn start(listener: Listener, emulation: Arc<Emulation>, options: ModalOptions) -> Server {
    let modal = Arc::new(Modal {
        emulation: Arc::clone(&emulation),
        options,
        address: listener.base_url(),
        signer: Signer::default(),
        world: Mutex::default(),
    });
    let control = ModalClientServer::new(control::Control(Arc::clone(&modal)));
    let router = TaskCommandRouterServer::new(router::Router(Arc::clone(&modal)));
    let services = Routes::new(control.max_decoding_message_size(MESSAGE_LIMIT))
        .add_service(router.max_decoding_message_size(MESSAGE_LIMIT))
        .into_axum_router()
        .layer(middleware::from_fn_with_state(Arc::clone(&modal), gate::pass));
    listener.serve(emulation, services, move || modal.view())
}

impl Modal {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work to its end even if the client goes away, as a service does.
    async fn to_the_end<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let (done, result) = oneshot::channel();
        self.emulation.tasks.spawn(async move {
            // Nobody may be waiting any more.
            let _ = done.send(work.await);
        });
        result.await.map_err(|_| Status::unavailable("shutting down"))?
    }

    /// For the admin route.
    fn view(&self) -> Value {
        let world = self.world();
        let sandboxes: Vec<Value> = world.sandboxes.iter().map(|sandbox| sandbox.view()).collect();
        let images: Vec<&String> = world.images.keys().collect();
        json!({ "vendor": "modal", "apps": world.apps, "images": images, "sandboxes": sandboxes })
    }
}
