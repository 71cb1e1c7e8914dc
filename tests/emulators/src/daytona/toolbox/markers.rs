//! Logs of session commands: each line begins with a marker that names its stream.

use bytes::Bytes;
use serde::Serialize;

use crate::machine::Stream;

const STDOUT: [u8; 3] = [1, 1, 1];
const STDERR: [u8; 3] = [2, 2, 2];

/// Cuts a stream into lines and marks them, as the daemon's shell does: NUL bytes disappear, and a last line gets the
/// newline that it lacks.
pub(super) struct Marker {
    marker: [u8; 3],
    line: Vec<u8>,
}

impl Marker {
    pub(super) fn new(stream: Stream) -> Marker {
        Marker { marker: if stream == Stream::Stdout { STDOUT } else { STDERR }, line: Vec::new() }
    }

    /// The lines that are complete now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.line.retain(|byte| *byte != 0);
                lines.extend(self.marker);
                lines.append(&mut self.line);
            }
        }
        lines
    }

    /// The line that was not complete.
    pub(super) fn end(&mut self) -> Vec<u8> {
        if self.line.is_empty() { Vec::new() } else { self.push(b"\n") }
    }
}

/// A log as answers show it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Split {
    pub(super) output: String,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Takes the streams apart; `output` keeps the markers.
pub(super) fn split(log: &[u8]) -> Split {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        if let Some(line) = line.strip_prefix(&STDERR) {
            stderr.extend(line);
        } else {
            stdout.extend(line.strip_prefix(&STDOUT).unwrap_or(line));
        }
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Split { output: text(log), stdout: text(&stdout), stderr: text(&stderr) }
}

/// Without markers.
pub(super) fn plain(log: &[u8]) -> Bytes {
    let line = |line: &[u8]| {
        line.strip_prefix(&STDERR).or_else(|| line.strip_prefix(&STDOUT)).map_or_else(|| line.to_vec(), <[u8]>::to_vec)
    };
    log.split_inclusive(|byte| *byte == b'\n').flat_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_marked_and_taken_apart_again() {
        let (mut out, mut err) = (Marker::new(Stream::Stdout), Marker::new(Stream::Stderr));
        let mut log = out.push(b"a\nb");
        log.extend(err.push(b"x\0y\n"));
        log.extend(out.push(b"c\nlast"));
        log.extend(out.end());
        log.extend(err.end());
        assert_eq!(log, b"\x01\x01\x01a\n\x02\x02\x02xy\n\x01\x01\x01bc\n\x01\x01\x01last\n");
        let parts = split(&log);
        assert_eq!((parts.stdout.as_str(), parts.stderr.as_str()), ("a\nbc\nlast\n", "xy\n"));
        assert_eq!(plain(&log), "a\nxy\nbc\nlast\n");
    }
}
