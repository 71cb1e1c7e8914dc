//! Scripts written with Windows line ends, put right in a copy: the originals are never touched.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::problem::Fault;
use crate::tree::{Entry, EntryKind, Tree};

/// Files larger than this are not looked at: they are data, not scripts.
const MAX_SCRIPT: u64 = 16 << 20;

/// True if the file is a script whose line ends keep it from running: a `*.sh` with CRLF anywhere, or any file whose
/// `#!` line ends in CRLF.
pub(crate) fn needs(tree: &Tree, entry: &Entry) -> Result<bool, Fault> {
    if entry.kind != EntryKind::File || entry.link.is_some() {
        return Ok(false);
    }
    let path = tree.root.join(&entry.path);
    let failed = |error: io::Error| Fault::io("read", &path, &error);
    let file = File::open(&path).map_err(failed)?;
    if file.metadata().map_err(failed)?.len() > MAX_SCRIPT {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    if entry.path.ends_with(".sh") {
        file.take(MAX_SCRIPT).read_to_end(&mut bytes).map_err(failed)?;
        return Ok(bytes.windows(2).any(|pair| pair == b"\r\n"));
    }
    // 256 bytes are the longest `#!` line that Linux reads.
    file.take(256).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes.starts_with(b"#!") && first_line(&bytes).ends_with(b"\r\n"))
}

/// The script with LF line ends.
pub(crate) fn converted(path: &str, bytes: &[u8]) -> Vec<u8> {
    let head = if path.ends_with(".sh") { bytes } else { first_line(bytes) };
    let tail = bytes.get(head.len()..).unwrap_or_default();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = head.iter().peekable();
    while let Some(&byte) = rest.next() {
        if !(byte == b'\r' && rest.peek() == Some(&&b'\n')) {
            out.push(byte);
        }
    }
    out.extend_from_slice(tail);
    out
}

fn first_line(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

/// Copies these entries (and the directories above them) into `destination`, putting the named scripts right.
pub(crate) fn copy<'a>(
    tree: &Tree,
    entries: impl Iterator<Item = &'a Entry>,
    scripts: &[String],
    destination: &Path,
) -> Result<(), Fault> {
    for entry in entries {
        let from = tree.root.join(&entry.path);
        let to = destination.join(&entry.path);
        let result = match (&entry.link, entry.kind) {
            (Some(target), _) => above(&to).and_then(|()| symlink(target, &to)),
            (None, EntryKind::Directory) => fs::create_dir_all(&to),
            (None, _) => above(&to).and_then(|()| fs::copy(&from, &to).map(|_| ())),
        };
        result.map_err(|error| Fault::io("copy", &from, &error))?;
        if scripts.contains(&entry.path) {
            let bytes = tree.bytes(&entry.path, MAX_SCRIPT)?;
            fs::write(&to, converted(&entry.path, &bytes)).map_err(|error| Fault::io("write", &to, &error))?;
        }
    }
    Ok(())
}

fn above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// The warning that a script was put right.
pub(crate) fn warning(path: &str) -> String {
    format!("normalized: crlf in {path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_scripts_are_converted_whole_and_others_in_their_first_line() {
        assert_eq!(
            converted("a.sh", b"#!/bin/sh\r\necho a\r\nprintf 'a\rb'\r\n"),
            b"#!/bin/sh\necho a\nprintf 'a\rb'\n"
        );
        assert_eq!(converted("a.py", b"#!/usr/bin/python3\r\nx = 1\r\n"), b"#!/usr/bin/python3\nx = 1\r\n");
        assert_eq!(converted("a.py", b"#!/x\r\n"), b"#!/x\n");
        assert_eq!(converted("a.sh", b""), b"");
    }
}
