//! Gzip decoding that reads to the end: all members, with checksum and length checked.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// Decodes gzip data of any number of members. Zero bytes after the last member are padding; any other byte there is
/// an error, as are a missing trailer and a wrong checksum.
pub(crate) struct Gunzip<R> {
    state: State<R>,
}

enum State<R> {
    Member(GzDecoder<R>),
    Done,
}

impl<R: BufRead> Gunzip<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { state: State::Member(GzDecoder::new(inner)) }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            let State::Member(decoder) = &mut self.state else { return Ok(0) };
            let read = decoder.read(buf)?;
            if read > 0 {
                return Ok(read);
            }
            let State::Member(decoder) = std::mem::replace(&mut self.state, State::Done) else { return Ok(0) };
            let mut rest = decoder.into_inner();
            if rest.fill_buf()?.first() == Some(&0x1f) {
                self.state = State::Member(GzDecoder::new(rest));
            } else {
                only_zeros(rest)?;
            }
        }
    }
}

/// Reads to the end.
///
/// # Errors
/// When there is a byte that is not zero.
pub(crate) fn only_zeros(mut rest: impl BufRead) -> io::Result<()> {
    loop {
        let chunk = rest.fill_buf()?;
        if chunk.is_empty() {
            return Ok(());
        }
        if chunk.iter().any(|&byte| byte != 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there is other data after its end"));
        }
        let length = chunk.len();
        rest.consume(length);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn gunzip(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Gunzip::new(data).read_to_end(&mut out).map(|_| out)
    }

    #[test]
    fn all_members_are_read() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(gunzip(&two).unwrap(), b"one two");
    }

    #[test]
    fn zero_padding_is_fine_and_garbage_is_not() {
        let mut data = gzip(b"x");
        data.extend([0; 700]);
        assert_eq!(gunzip(&data).unwrap(), b"x");
        data.push(b'!');
        assert!(gunzip(&data).is_err());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let data = gzip(&b"some text that compresses, some text that compresses".repeat(20));
        for end in 0..data.len() {
            assert!(gunzip(&data[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_wrong_checksum_is_an_error() {
        let mut data = gzip(b"abc");
        let crc = data.len() - 8;
        data[crc] ^= 1;
        assert!(gunzip(&data).is_err());
    }
}
