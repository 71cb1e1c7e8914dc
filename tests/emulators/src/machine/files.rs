//! Files of a machine, streamed.

use std::io;

use bytes::Bytes;
use futures_util::{Stream as ByteStream, StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Command, End, Event, Machine, MachineError};

impl Machine {
    /// Unpacks a tar stream below `target`, which is created with its parents. Everything belongs to root or `owner`.
    ///
    /// # Errors
    /// Members that leave `target`, or what the file system refuses. What came before them stays.
    pub async fn write_tar(
        &self,
        target: &str,
        owner: Option<(u32, u32)>,
        tar: impl AsyncRead + Unpin + Send,
    ) -> Result<u64, MachineError> {
        Ok(self.sandbox.write_tar(target, owner, tar).await?)
    }

    /// Writes `path` as a tar stream whose names begin with the last part of `path`.
    ///
    /// # Errors
    /// `path` does not exist.
    pub async fn read_tar(&self, path: &str, to: impl AsyncWrite + Unpin + Send) -> Result<u64, MachineError> {
        Ok(self.sandbox.read_tar(path, u64::MAX, to).await?)
    }

    /// Writes a file as it arrives, with its parent directories (0755), truncating an existing one and keeping its mode;
    /// a new one has 0644. Returns its size.
    ///
    /// # Errors
    /// The file system refuses, or the bytes end with an error; what was written stays.
    pub async fn write_file<E: std::fmt::Display>(
        &self,
        path: &str,
        mut bytes: impl ByteStream<Item = Result<Bytes, E>> + Unpin + Send,
    ) -> Result<u64, MachineError> {
        let script = r#"umask 022; mkdir -p -- "$(dirname -- "$1")" && exec cat > "$1""#;
        let command =
            Command { stdin: true, user: self.tool_user(), ..Command::new(["/bin/sh", "-c", script, "write", path]) };
        let running = self.start(command)?;
        let input = running.input();
        let send = async {
            let mut sent = 0;
            while let Some(part) = bytes.next().await {
                let part = part.map_err(|error| io::Error::other(error.to_string()))?;
                if !input.send(&part).await {
                    break;
                }
                sent += part.len() as u64;
            }
            input.end();
            Ok::<_, MachineError>(sent)
        };
        let finish = async { running.output().await.map_err(MachineError::from) };
        let (sent, (outcome, _, stderr)) = tokio::try_join!(send, finish)?;
        match outcome.end {
            End::Exited(0) => Ok(sent),
            _ => Err(MachineError::Failed {
                what: format!("writing {path}"),
                why: String::from_utf8_lossy(&stderr).trim().to_owned(),
            }),
        }
    }

    /// The bytes of a file as they are read. Large files are not held in memory.
    ///
    /// # Errors
    /// [`MachineError::NoFile`] if there is no such file; a stream that fails half-way ends with an error.
    pub async fn read_file(
        &self,
        path: &str,
    ) -> Result<impl ByteStream<Item = io::Result<Bytes>> + Send + use<>, MachineError> {
        if self.tool(r#"test -f "$1""#, &[path]).await.is_err() {
            return Err(MachineError::NoFile(path.to_owned()));
        }
        let command = Command { output_cap: usize::MAX, user: self.tool_user(), ..Command::new(["cat", "--", path]) };
        let running = self.start(command)?;
        Ok(stream::unfold(running, |mut running| async move {
            loop {
                match running.next().await {
                    Ok(Some(Event::Output(_, bytes))) => return Some((Ok(Bytes::from(bytes)), running)),
                    Ok(Some(Event::Omitted(..))) => {}
                    Ok(None) => return None,
                    Err(error) => return Some((Err(io::Error::other(error)), running)),
                }
            }
        }))
    }
}
