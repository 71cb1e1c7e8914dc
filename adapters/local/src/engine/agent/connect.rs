//! A connection from outside to a port inside.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::engine::wire::CHUNK;

/// Carries `input` to the port, and what it answers to `output`, until the port's side closes. The end of the input
/// closes one half of the connection, so that an answer to it still arrives.
pub(super) fn connect(input: BorrowedFd<'_>, output: OwnedFd, port: u16) -> io::Result<()> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    let (mut input, mut to) = (File::from(input.try_clone_to_owned()?), socket.try_clone()?);
    // It ends with the process if it still waits for input then.
    std::thread::Builder::new().spawn(move || {
        // What the port does not take any more shows in its answer.
        let _ = carry(&mut input, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    })?;
    carry(&mut socket, &mut File::from(output))
}

/// Not `io::copy`: it would splice, and a splice that waits for the socket holds the lock of the pipe, at which the
/// agent would then wait with everything else that it serves.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            read => to.write_all(buffer.get(..read).unwrap_or_default())?,
        }
    }
}
