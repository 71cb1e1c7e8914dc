//! A connection from outside to a port inside.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Carries `input` to the port, and what it answers to `output`, until the port's side closes. The end of the input
/// closes one half of the connection, so that an answer to it still arrives.
pub(super) fn connect(input: BorrowedFd<'_>, output: OwnedFd, port: u16) -> io::Result<()> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    let (mut input, mut to) = (File::from(input.try_clone_to_owned()?), socket.try_clone()?);
    // It ends with the process if it still waits for input then.
    std::thread::spawn(move || {
        // What the port does not take any more shows in its answer.
        let _ = io::copy(&mut input, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    io::copy(&mut socket, &mut File::from(output)).map(drop)
}
