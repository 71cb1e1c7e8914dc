//! Tar streams into and out of a sandbox.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::error::{EngineError, Result};
use super::job::{End, Outcome, Request, TransferFault};
use super::running::{Event, Running, Stream};
use super::sandbox::EngineSandbox;
use super::wire::CHUNK;

impl EngineSandbox {
    /// Unpacks a tar stream below `target`, which is created with its parents. Modes, times, symlinks and hard links
    /// are kept; everything belongs to root or to `owner`. Returns the bytes sent.
    ///
    /// # Errors
    /// [`EngineError::Transfer`] for members that would leave `target` or are neither file, directory nor link, and
    /// for what the file system refuses. What came before them stays.
    pub async fn write_tar(
        &self,
        target: &str,
        owner: Option<(u32, u32)>,
        mut stream: impl AsyncRead + Unpin + Send,
    ) -> Result<u64> {
        let mut job = self.transfer(&Request::Unpack { target: target.to_owned(), owner })?;
        let input = job.input();
        let send = async {
            let mut buffer = vec![0; CHUNK];
            let mut sent = 0;
            loop {
                let read = stream.read(&mut buffer).await.map_err(EngineError::io("tar stream"))?;
                let bytes = buffer.get(..read).unwrap_or_default();
                if read == 0 || !input.send(bytes).await {
                    break;
                }
                sent += read as u64;
            }
            input.end();
            Ok::<_, EngineError>(sent)
        };
        let receive = async {
            while job.next().await?.is_some() {}
            Ok(())
        };
        let (sent, ()) = tokio::try_join!(send, receive)?;
        finished(&job.outcome().await?)?;
        Ok(sent)
    }

    /// Writes `path` as a tar stream whose names begin with the last component of `path`. Symlinks are kept as
    /// such, also `path` itself; sockets, pipes and devices are left out. Returns the bytes written.
    ///
    /// # Errors
    /// [`EngineError::Transfer`] if `path` does not exist or the stream would be longer than `max_bytes`.
    pub async fn read_tar(&self, path: &str, max_bytes: u64, mut to: impl AsyncWrite + Unpin + Send) -> Result<u64> {
        let mut job = self.transfer(&Request::Pack { path: path.to_owned(), max_bytes })?;
        let mut written = 0;
        while let Some(event) = job.next().await? {
            if let Event::Output(Stream::Stdout, bytes) = event {
                to.write_all(&bytes).await.map_err(EngineError::io("tar stream"))?;
                written += bytes.len() as u64;
            }
        }
        to.flush().await.map_err(EngineError::io("tar stream"))?;
        finished(&job.outcome().await?)?;
        Ok(written)
    }

    fn transfer(&self, request: &Request) -> Result<Running> {
        let channel = self.inner.open(request)?;
        Ok(Running::new(Arc::clone(&self.inner), channel, None))
    }
}

fn finished(outcome: &Outcome) -> Result<()> {
    match &outcome.end {
        End::Exited(0) => Ok(()),
        End::TransferFailed(why) => Err(EngineError::Transfer(why.clone())),
        End::NotStarted(why) => Err(EngineError::Transfer(TransferFault::Refused(why.to_string()))),
        End::Exited(_) | End::Signalled(_) => {
            let why = "the transfer was killed in the sandbox".to_owned();
            Err(EngineError::Transfer(TransferFault::Refused(why)))
        }
    }
}
