//! Takes a command's output out of a stream that also carries the backend's words and the wrapper's marks.
//!
//! A stream is: the backend's own text if it could not start the command; the opening mark; the command's output; the
//! closing mark; what background processes wrote later. Marks are `RS FRAME < info RS LF` and `RS FRAME > info RS LF`
//! (see `run.sh`); the frame text is random, so that no output can hold one by accident.

/// Record separator, the first and last byte of each mark.
const RS: u8 = 0x1e;
/// Most bytes kept of the backend's own text, and of the text inside a mark.
const TEXT_LIMIT: usize = 16 << 10;

/// The parser of one stream. It holds back at most one mark's length of output.
#[derive(Debug)]
pub(crate) struct Frames {
    opening: Vec<u8>,
    closing: Vec<u8>,
    state: State,
    held: Vec<u8>,
    /// What came before the opening mark: the backend's own text.
    pub(crate) before: Vec<u8>,
    info: Vec<u8>,
    opened: Option<String>,
    closed: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    OpeningInfo,
    OpeningEnd,
    Inside,
    ClosingInfo,
    After,
}

impl Frames {
    /// A parser for the marks of `frame`.
    pub(crate) fn new(frame: &str) -> Self {
        let mark = |kind: u8| [&[RS], frame.as_bytes(), &[kind]].concat();
        Self {
            opening: mark(b'<'),
            closing: mark(b'>'),
            state: State::Before,
            held: Vec::new(),
            before: Vec::new(),
            info: Vec::new(),
            opened: None,
            closed: None,
        }
    }

    /// Text of the opening mark, once it is there: the command was started.
    pub(crate) fn opened(&self) -> Option<&str> {
        self.opened.as_deref()
    }

    /// Text of the closing mark, once it is there: the command's own output is complete.
    pub(crate) fn closed(&self) -> Option<&str> {
        self.closed.as_deref()
    }

    /// Takes a chunk; `deliver` gets what belongs to the command.
    pub(crate) fn push(&mut self, chunk: &[u8], mut deliver: impl FnMut(&[u8])) {
        let joined;
        let mut rest = if self.held.is_empty() {
            chunk
        } else {
            joined = [std::mem::take(&mut self.held).as_slice(), chunk].concat();
            joined.as_slice()
        };
        while !rest.is_empty() {
            rest = match self.state {
                State::Before | State::Inside => self.text(rest, &mut deliver),
                State::OpeningInfo | State::ClosingInfo => self.info(rest),
                State::OpeningEnd => {
                    self.state = State::Inside;
                    rest.strip_prefix(b"\n").unwrap_or(rest)
                }
                State::After => &[],
            };
        }
    }

    /// The stream is over; delivers what was held back in vain.
    pub(crate) fn finish(&mut self, mut deliver: impl FnMut(&[u8])) {
        let held = std::mem::take(&mut self.held);
        self.pass(&held, &mut deliver);
    }

    fn text<'a>(&mut self, bytes: &'a [u8], deliver: &mut impl FnMut(&[u8])) -> &'a [u8] {
        let (mark, next) = match self.state {
            State::Before => (&self.opening, State::OpeningInfo),
            _ => (&self.closing, State::ClosingInfo),
        };
        match find(bytes, mark) {
            Found::Whole(at) => {
                let after = bytes.get(at + mark.len()..).unwrap_or_default();
                self.pass(bytes.get(..at).unwrap_or_default(), deliver);
                self.state = next;
                after
            }
            Found::Maybe(at) => {
                let (text, tail) = bytes.split_at(at);
                self.pass(text, deliver);
                self.held = tail.to_vec();
                &[]
            }
        }
    }

    fn pass(&mut self, bytes: &[u8], deliver: &mut impl FnMut(&[u8])) {
        match self.state {
            State::Before => append(&mut self.before, bytes),
            State::Inside if !bytes.is_empty() => deliver(bytes),
            _ => {}
        }
    }

    fn info<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = bytes.iter().position(|b| *b == RS) else {
            append(&mut self.info, bytes);
            return &[];
        };
        append(&mut self.info, bytes.get(..end).unwrap_or_default());
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.info)).into_owned();
        if self.state == State::OpeningInfo {
            self.opened = Some(text);
            self.state = State::OpeningEnd;
        } else {
            self.closed = Some(text);
            self.state = State::After;
        }
        bytes.get(end + 1..).unwrap_or_default()
    }
}

/// Appends as much of `bytes` as the limit allows.
fn append(text: &mut Vec<u8>, bytes: &[u8]) {
    let room = TEXT_LIMIT.saturating_sub(text.len());
    text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
}

enum Found {
    /// The mark begins here.
    Whole(usize),
    /// There is no whole mark; what begins here may become one (at the end of the bytes: nothing can).
    Maybe(usize),
}

fn find(bytes: &[u8], mark: &[u8]) -> Found {
    let mut from = 0;
    while let Some(at) = bytes.iter().skip(from).position(|b| *b == RS).map(|n| n + from) {
        let tail = bytes.get(at..).unwrap_or_default();
        if tail.starts_with(mark) {
            return Found::Whole(at);
        }
        if mark.starts_with(tail) {
            return Found::Maybe(at);
        }
        from = at + 1;
    }
    Found::Maybe(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: &str = "0f5a";

    /// Everything delivered for a stream that arrives in pieces of these lengths.
    fn parse(stream: &[u8], pieces: &[usize]) -> (Frames, Vec<u8>) {
        let mut frames = Frames::new(FRAME);
        let mut out = Vec::new();
        let mut rest = stream;
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            frames.push(now, |bytes| out.extend_from_slice(bytes));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        frames.finish(|bytes| out.extend_from_slice(bytes));
        (frames, out)
    }

    /// Output rich in bytes of which marks are made.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(RS), Just(b'0'), Just(b'f'), Just(b'5'), Just(b'<'), any::<u8>()], 0..80)
            .prop_filter("holds a mark", |out| {
                !out.windows(6).any(|w| w.starts_with(&[RS]) && w.get(1..5) == Some(FRAME.as_bytes()))
            })
    }

    proptest! {
        #[test]
        fn output_arrives_unchanged_however_the_stream_is_cut(
            out in output(), later in output(), pieces in prop::collection::vec(1usize..9, 1..9),
        ) {
            let stream = [b"\x1e0f5a<12 1\x1e\n".as_slice(), &out, b"\x1e0f5a>code=0\x1e\n", &later].concat();
            let (frames, delivered) = parse(&stream, &pieces);
            prop_assert_eq!(delivered, out);
            prop_assert_eq!(frames.opened(), Some("12 1"));
            prop_assert_eq!(frames.closed(), Some("code=0"));
        }

        #[test]
        fn output_of_a_command_that_lost_its_wrapper_arrives_unchanged(
            out in output(), pieces in prop::collection::vec(1usize..9, 1..9),
        ) {
            let stream = [b"\x1e0f5a<12 1\x1e\n".as_slice(), &out].concat();
            let (frames, delivered) = parse(&stream, &pieces);
            prop_assert_eq!(delivered, out);
            prop_assert_eq!(frames.closed(), None);
        }

        #[test]
        fn the_words_of_the_engine_are_not_output(text in output(), pieces in prop::collection::vec(1usize..9, 1..9)) {
            let (frames, delivered) = parse(&text, &pieces);
            prop_assert!(delivered.is_empty());
            prop_assert_eq!(frames.opened(), None);
            prop_assert_eq!(frames.before, text);
        }

        #[test]
        fn any_stream_is_taken(stream in prop::collection::vec(any::<u8>(), 0..300), pieces in prop::collection::vec(1usize..99, 1..9)) {
            parse(&stream, &pieces);
        }
    }
}
