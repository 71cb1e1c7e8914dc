//! What the binary does for every vendor: options, start, address line, end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::emulation::Emulation;
use crate::faults::Script;
use crate::machine::{ImageTable, MachineOptions, Machines};
use crate::server::{Listener, Server};
use crate::timing::Timing;

/// Longest time to destroy everything at the end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);

/// Options of every emulator.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Port on the loopback interface; 0 is any free one
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Fault script (TOML)
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Where machines and unpacked images are kept; not an overlay. A temporary directory if not given
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// What an image reference stands for: a root directory, an OCI layout, or an archive of `docker save`.
    /// All others stand for the host's own programs
    #[arg(long = "image", value_name = "REFERENCE=PATH", value_parser = image)]
    pub images: Vec<(String, PathBuf)>,
    /// Image references (globs) that do not exist
    #[arg(long, value_name = "GLOB")]
    pub missing_image: Vec<String>,
    /// Let machines reach this host's network
    #[arg(long)]
    pub network: bool,
    /// Milliseconds that each state takes
    #[arg(long, value_name = "MS", default_value_t = 30)]
    pub transition: u64,
    /// Milliseconds by which lists lag behind
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pub list_lag: u64,
}

fn image(text: &str) -> Result<(String, PathBuf), String> {
    let (reference, path) = text.split_once('=').ok_or("must be REFERENCE=PATH")?;
    Ok((reference.into(), path.into()))
}

impl Options {
    /// An emulation as the options want it.
    ///
    /// # Errors
    /// A file that cannot be read, a script with mistakes, a machine that does not let us make sandboxes.
    pub async fn emulation(&self) -> anyhow::Result<Arc<Emulation>> {
        let images = ImageTable::new(BTreeMap::from_iter(self.images.clone()), &self.missing_image)?;
        let options =
            MachineOptions { state_dir: self.state.clone(), helper: None, images, host_network: self.network };
        let timing = Timing {
            transition: Duration::from_millis(self.transition),
            list_lag: Duration::from_millis(self.list_lag),
        };
        let emulation = Emulation::new(Machines::open(options).await?, timing);
        if let Some(path) = &self.faults {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            emulation.faults.set(text.parse::<Script>()?)?;
        }
        Ok(Arc::new(emulation))
    }

    /// Binds the port.
    ///
    /// # Errors
    /// It is taken.
    pub async fn listener(&self) -> anyhow::Result<Listener> {
        Listener::bind(self.port).await.with_context(|| format!("port {}", self.port))
    }
}

/// Prints the address and the variables that point a client at it, serves until SIGTERM, SIGINT or the end of standard
/// input, then destroys everything.
///
/// # Errors
/// What could not be destroyed.
pub async fn serve(server: Server, variables: &[(&str, String)]) -> anyhow::Result<()> {
    let mut said = format!("listening on {}\n", server.base_url());
    for (name, value) in variables {
        said += &format!("export {name}={value}\n");
    }
    // In one piece: a reader may leave once it has what it needs.
    std::io::stdout().lock().write_all(said.as_bytes()).context("the address cannot be printed")?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = input_closed() => {}
    }
    Ok(server.shutdown(SHUTDOWN_LIMIT).await?)
}

/// Whoever started us may hold our standard input open to say that it is still there. `/dev/null` says nothing.
async fn input_closed() {
    use std::os::unix::fs::FileTypeExt;
    let stdin = std::fs::metadata("/dev/stdin").map(|metadata| metadata.file_type());
    if !stdin.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) {
        std::future::pending::<()>().await;
    }
    let (mut stdin, mut buffer) = (tokio::io::stdin(), [0; 1024]);
    while stdin.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}
