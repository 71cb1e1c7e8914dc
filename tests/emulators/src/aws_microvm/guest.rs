//! HTTP to a program in a MicroVM.

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::machine::Machine;
use crate::tasks::Tasks;

/// Sends a request over a connection of its own. `None` if nobody listens, or what listens does not speak HTTP.
pub(super) async fn send(
    machine: &Machine,
    tasks: &Tasks,
    port: u16,
    request: Request<Body>,
) -> Option<Response<Body>> {
    let (stream, carry) = machine.connect(port).ok()?;
    tasks.spawn(carry);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tasks.spawn(async move {
        // How it ended shows in the answer.
        let _ = connection.await;
    });
    Some(sender.send_request(request).await.ok()?.map(Body::new))
}
