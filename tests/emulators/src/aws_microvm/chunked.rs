//! Bodies in the `aws-chunked` coding: sizes in hex, signatures after them, checksums at the end.
//!
//! Neither the signatures of chunks nor checksums in trailers are checked: the head is signed.

use bytes::Bytes;

/// The content; `None` if it is not in this form to its end.
pub(super) fn decode(mut body: &[u8]) -> Option<Bytes> {
    let mut content = Vec::new();
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n")?;
        let line = std::str::from_utf8(body.get(..end)?).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
        body = body.get(end + 2..)?;
        if size == 0 {
            return Some(content.into());
        }
        content.extend_from_slice(body.get(..size)?);
        body = body.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together_and_cut_ones_refused() {
        let body = b"4;chunk-signature=ab\r\nabcd\r\n2\r\nef\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        assert_eq!(decode(body), Some(Bytes::from("abcdef")));
        for cut in 1..38 {
            assert_eq!(body.get(..cut).and_then(decode), None, "{cut}");
        }
        assert_eq!(decode(b"ffffffffffffffff\r\nab\r\n"), None);
    }
}
