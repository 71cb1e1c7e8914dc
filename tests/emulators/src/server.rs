//! Serves a vendor's router on a port of its own: HTTP/1.1, and HTTP/2 to clients that begin with it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

use crate::admin::{self, View};
use crate::emulation::Emulation;
use crate::faults::{Effect, Ending, Flags, cut, header_map};
use crate::machine::MachineError;
use crate::requests;
use crate::wire::{Breakage, Wire};

/// A connection without a request is closed after this, as a vendor's proxy does (70 s at Daytona).
const IDLE_LIMIT: Duration = Duration::from_secs(70);
/// Between two attempts to accept when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A bound port. First this, so that a vendor module knows its own address.
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds a port of the loopback interface; 0 is any free one.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn bind(port: u16) -> io::Result<Listener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Listener { listener, address })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts serving. `view` shows the vendor module's state, an object, at the admin route.
    pub fn serve(
        self,
        emulation: Arc<Emulation>,
        vendor: Router,
        view: impl Fn() -> Value + Send + Sync + 'static,
    ) -> Server {
        let view: View = Arc::new(view);
        let admin = admin::router(Arc::clone(&emulation), view);
        let base_url = self.base_url();
        let site = Site { emulation: Arc::clone(&emulation), vendor, admin };
        let accepting = tokio::spawn(accept(self.listener, site));
        Server { base_url, emulation, accepting }
    }
}

/// A running emulator. Dropping it ends its connections and tasks at once; the processes of its machines end with the
/// last owner of its [`Emulation`]. [`Server::shutdown`] also waits until they are gone and their files are removed.
pub struct Server {
    base_url: String,
    emulation: Arc<Emulation>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// What it records and what it can be told.
    pub fn emulation(&self) -> &Emulation {
        &self.emulation
    }

    /// Ends connections and tasks, and destroys all machines and everything saved from them.
    ///
    /// # Errors
    /// What could not be destroyed, or not within `limit`.
    pub async fn shutdown(self, limit: Duration) -> Result<(), MachineError> {
        self.accepting.abort();
        self.emulation.tasks.abort();
        let destroyed = tokio::time::timeout(limit, self.emulation.machines.destroy_all()).await;
        destroyed.unwrap_or_else(|_| Err(MachineError::Timeout { what: "destroying all machines".into(), limit }))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        self.emulation.tasks.abort();
    }
}

#[derive(Clone)]
struct Site {
    emulation: Arc<Emulation>,
    vendor: Router,
    admin: Router,
}

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped by the fault script")]
struct Dropped;

async fn accept(listener: TcpListener, site: Site) {
    // Owned here: they end when the accepting task is aborted.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let _ = stream.set_nodelay(true);
        let breakage = Breakage::default();
        let closed = breakage.closed();
        let streams = Streams(Arc::clone(&site.emulation));
        let io = TokioIo::new(Wire::new(stream, breakage.clone()));
        let site = site.clone();
        let service = service_fn(move |request| answer(site.clone(), breakage.clone(), request));
        connections.spawn(async move {
            let mut builder = auto::Builder::new(streams);
            builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_LIMIT);
            builder.http2().timer(TokioTimer::new());
            tokio::select! {
                // A client that goes away is nobody's error.
                _ = builder.serve_connection_with_upgrades(io, service) => {}
                () = closed.cancelled() => {}
            }
        });
    }
}

/// Starts what answers the requests of an HTTP/2 connection.
#[derive(Clone)]
struct Streams(Arc<Emulation>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.tasks.spawn(stream);
    }
}

async fn answer(site: Site, breakage: Breakage, request: Request<Incoming>) -> Result<Response<Body>, Dropped> {
    let request = request.map(Body::new);
    if request.uri().path().starts_with(admin::PREFIX) {
        return Ok(infallible(site.admin.oneshot(request).await));
    }
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let effects = site.emulation.faults.take(&method, &path, &query);
    let answer = afflicted(site.vendor, &breakage, request, effects).await;
    let status = answer.as_ref().ok().map(|response| response.status().as_u16());
    site.emulation.requests.record(requests::Request { method, path, query, status });
    answer
}

/// The vendor's answer, as the fault script leaves it.
async fn afflicted(
    vendor: Router,
    breakage: &Breakage,
    mut request: Request<Body>,
    effects: Vec<Effect>,
) -> Result<Response<Body>, Dropped> {
    let flags = effects.iter().filter_map(|effect| match effect {
        Effect::Flag { name, value } => Some((name.clone(), *value)),
        _ => None,
    });
    request.extensions_mut().insert(flags.collect::<Flags>());
    let (mut lose, mut late, mut ending) = (false, Duration::ZERO, None);
    for effect in effects {
        match effect {
            Effect::Delay { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
            Effect::Answer { status, headers, body } => return Ok(scripted(status, &headers, body)),
            Effect::Reset => {
                breakage.reset_at_close();
                breakage.close();
                return Err(Dropped);
            }
            Effect::LoseResponse => lose = true,
            Effect::LateResponse { ms } => late += Duration::from_millis(ms),
            Effect::Cut { after, ending: how } => ending = Some((after, how)),
            Effect::Flag { .. } => {}
        }
    }
    let response = infallible(vendor.oneshot(request).await);
    if !late.is_zero() {
        tokio::time::sleep(late).await;
    }
    match ending {
        _ if lose => {
            breakage.close();
            Err(Dropped)
        }
        Some((after, how)) => Ok(shortened(response, breakage, after, how)),
        None => Ok(response),
    }
}

fn shortened(response: Response<Body>, breakage: &Breakage, after: u64, ending: Ending) -> Response<Body> {
    if ending == Ending::Reset {
        breakage.reset_at_close();
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        breakage.cut_after_head(after);
        return response;
    }
    let (mut head, body) = response.into_parts();
    if ending == Ending::Clean {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    let broken = (ending != Ending::Clean).then(|| breakage.clone());
    Response::from_parts(head, cut(body, after, broken))
}

/// The script was checked when it was set.
fn scripted(status: u16, headers: &BTreeMap<String, String>, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().extend(header_map(headers).unwrap_or_default());
    response
}

fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
