//! Row files in JSON: one object per line, or one array of objects. Rows are found by position and read one at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::problem::Fault;

/// How rows are laid out in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One per line; blank lines count for nothing.
    Lines,
    /// The elements of one array.
    Array,
}

impl Layout {
    /// What a row's number counts, for messages.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Lines => "line",
            Self::Array => "element",
        }
    }
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Line or element, from 1.
    pub(crate) number: u64,
}

/// Reads rows one after another into one buffer that is used again for each.
pub(crate) struct Rows<R> {
    reader: R,
    layout: Layout,
    limit: u64,
    offset: u64,
    number: u64,
    buffer: Vec<u8>,
    ended: bool,
}

/// A fault at a row of this number.
pub(crate) type RowFault = (u64, Fault);

impl<R: BufRead> Rows<R> {
    pub(crate) fn new(reader: R, layout: Layout, limit: u64) -> Self {
        Self { reader, layout, limit, offset: 0, number: 0, buffer: Vec::new(), ended: false }
    }

    /// The text of the row found last.
    pub(crate) fn text(&self) -> &[u8] {
        &self.buffer
    }

    /// Finds the next row. After a fault of the layout there are no more rows; after an oversized line there are.
    pub(crate) fn advance(&mut self) -> Option<Result<Position, RowFault>> {
        if self.ended {
            return None;
        }
        let found = match self.layout {
            Layout::Lines => self.next_line(),
            Layout::Array => self.next_element(),
        };
        match found {
            Ok(None) => {
                self.ended = true;
                None
            }
            Ok(Some(position)) => Some(Ok(position)),
            Err(fault) => Some(Err((self.number, fault))),
        }
    }

    fn next_line(&mut self) -> Result<Option<Position>, Fault> {
        loop {
            self.buffer.clear();
            let start = self.offset;
            let read = self
                .reader
                .by_ref()
                .take(self.limit.saturating_add(1))
                .read_until(b'\n', &mut self.buffer)
                .map_err(|error| self.failed(&error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.offset += read as u64;
            if read as u64 > self.limit && self.buffer.last() != Some(&b'\n') {
                self.skip_line()?;
                return Err(self.too_long());
            }
            if self.number == 1
                && self.buffer.starts_with(b"\xef\xbb\xbf")
                && let Some(mark) = self.buffer.get_mut(..3)
            {
                mark.fill(b' ');
            }
            if self.buffer.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Ok(Some(Position { offset: start, length: read as u64, number: self.number }));
            }
        }
    }

    fn skip_line(&mut self) -> Result<(), Fault> {
        self.buffer.clear();
        loop {
            let chunk = self.reader.fill_buf().map_err(|error| failed(&error))?;
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let length = end.map_or(chunk.len(), |at| at + 1);
            let done = end.is_some() || chunk.is_empty();
            self.reader.consume(length);
            self.offset += length as u64;
            if done {
                return Ok(());
            }
        }
    }

    fn next_element(&mut self) -> Result<Option<Position>, Fault> {
        let wrong = |what: &str| Fault::new(format!("the array is broken: {what}"), "correct the JSON");
        let opening = self.number == 0;
        self.number += 1;
        self.buffer.clear();
        let mut byte = self.significant()?;
        if opening {
            if byte != Some(b'[') {
                self.ended = true;
                return Err(wrong("it does not begin with ["));
            }
            byte = self.significant()?;
            if byte == Some(b']') {
                return Ok(None);
            }
        } else {
            match byte {
                Some(b',') => byte = self.significant()?,
                Some(b']') => return Ok(None),
                _ => {
                    self.ended = true;
                    return Err(wrong("there is no , or ] after an element"));
                }
            }
        }
        let start = self.offset - 1;
        let Some(first) = byte else {
            self.ended = true;
            return Err(wrong("it is cut off"));
        };
        self.buffer.push(first);
        if let Err(fault) = self.element(first) {
            self.ended = true;
            return Err(fault);
        }
        Ok(Some(Position { offset: start, length: self.buffer.len() as u64, number: self.number }))
    }

    /// Reads to the end of the object that `first` begins.
    fn element(&mut self, first: u8) -> Result<(), Fault> {
        if first != b'{' {
            return Err(Fault::new("an element is no object", "every element must be one row"));
        }
        let (mut depth, mut in_string, mut escaped) = (1u32, false, false);
        while depth > 0 {
            let Some(byte) = self.byte()? else {
                return Err(Fault::new("the array is broken: it is cut off", "fetch the file again"));
            };
            if self.buffer.len() as u64 >= self.limit {
                return Err(self.too_long());
            }
            self.buffer.push(byte);
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => depth = depth.saturating_add(1),
                b'}' | b']' if !in_string => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }

    /// The next byte that is neither blank nor part of a byte order mark.
    fn significant(&mut self) -> Result<Option<u8>, Fault> {
        loop {
            match self.byte()? {
                Some(0xef | 0xbb | 0xbf) if self.offset <= 3 => {}
                Some(byte) if byte.is_ascii_whitespace() => {}
                other => return Ok(other),
            }
        }
    }

    fn byte(&mut self) -> Result<Option<u8>, Fault> {
        let chunk = self.reader.fill_buf().map_err(|error| failed(&error))?;
        let Some(&byte) = chunk.first() else { return Ok(None) };
        self.reader.consume(1);
        self.offset += 1;
        Ok(Some(byte))
    }

    fn failed(&mut self, error: &io::Error) -> Fault {
        self.ended = true;
        failed(error)
    }

    fn too_long(&self) -> Fault {
        Fault::new(format!("the row is larger than {} bytes", self.limit), "make it smaller, or raise the limit")
    }
}

fn failed(error: &io::Error) -> Fault {
    Fault::new(format!("cannot be read: {error}"), "check the file system")
}

/// Reads the row at a position found earlier.
pub(crate) fn read(path: &Path, position: Position) -> Result<Vec<u8>, Fault> {
    let failed = |error: io::Error| Fault::io("read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    file.seek(SeekFrom::Start(position.offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    BufReader::new(file).take(position.length).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rows(text: &[u8], layout: Layout, limit: u64) -> Vec<Result<(Position, String), RowFault>> {
        let mut rows = Rows::new(text, layout, limit);
        let mut all = Vec::new();
        while let Some(found) = rows.advance() {
            all.push(found.map(|position| (position, String::from_utf8_lossy(rows.text()).trim().to_owned())));
        }
        all
    }

    fn texts(text: &[u8], layout: Layout) -> Vec<String> {
        rows(text, layout, 1000).into_iter().map(|row| row.unwrap().1).collect()
    }

    #[test]
    fn lines_are_found_with_their_numbers() {
        let found = rows(b"\xef\xbb\xbf{\"a\":1}\r\n\n  \n{\"b\":2}", Layout::Lines, 1000);
        let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
        assert_eq!(found[0].1, "{\"a\":1}");
        assert_eq!((found[1].0.number, found[1].0.offset, found[1].1.as_str()), (4, 16, "{\"b\":2}"));
    }

    #[test]
    fn an_oversized_line_costs_only_itself() {
        let found = rows(b"{}\n0123456789012345\n{ }\n", Layout::Lines, 8);
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].as_ref().unwrap_err().0, 2);
        assert_eq!(found[2].as_ref().unwrap().0.number, 3);
    }

    #[test]
    fn elements_are_found_whatever_their_strings_hold() {
        let text = br#"  [ {"a":"}]\"{"} , {"b":[{"c":[]}]}
        ,{}]  "#;
        assert_eq!(texts(text, Layout::Array), [r#"{"a":"}]\"{"}"#, r#"{"b":[{"c":[]}]}"#, "{}"]);
        assert_eq!(texts(b"\xef\xbb\xbf[]", Layout::Array), Vec::<String>::new());
    }

    #[test]
    fn a_broken_array_ends_with_one_fault() {
        for bad in [&b"{}"[..], b"", b"[", b"[{}", b"[{\"a\"", b"[{} {}]", b"[1]", b"[{},]"] {
            let found = rows(bad, Layout::Array, 1000);
            assert_eq!(found.iter().filter(|row| row.is_err()).count(), 1, "{bad:?}");
            assert!(found.last().unwrap().is_err());
        }
    }

    #[test]
    fn a_row_is_read_again_by_its_position() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.jsonl");
        std::fs::write(&path, b"{}\n{\"x\": 1}\n").unwrap();
        let position = rows(&std::fs::read(&path).unwrap(), Layout::Lines, 100)[1].as_ref().unwrap().0;
        assert_eq!(read(&path, position).unwrap(), b"{\"x\": 1}\n");
    }
}
