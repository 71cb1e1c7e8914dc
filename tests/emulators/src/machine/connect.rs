//! Connections to a machine's ports.

use std::future::Future;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{Event, Machine, MachineError};

/// Bytes on their way in each direction.
const BUFFER: usize = 1 << 16;

impl Machine {
    /// A connection to a TCP port on the machine's loopback interface, and the work that must be done for it to carry
    /// bytes. It ends when either side closes it; so it does if nobody listens.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn connect(&self, port: u16) -> Result<(DuplexStream, impl Future<Output = ()> + Send + use<>), MachineError> {
        let mut running = self.sandbox.connect(port)?;
        let (near, far) = tokio::io::duplex(BUFFER);
        let carry = async move {
            let input = running.input();
            let (mut from, mut to) = tokio::io::split(far);
            let send = async {
                let mut buffer = vec![0; BUFFER];
                while let Ok(read @ 1..) = from.read(&mut buffer).await {
                    if !input.send(buffer.get(..read).unwrap_or_default()).await {
                        break;
                    }
                }
            };
            let receive = async {
                while let Ok(Some(Event::Output(_, bytes))) = running.next().await {
                    if to.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                () = send => {}
                () = receive => {}
            }
        };
        Ok((near, carry))
    }
}
