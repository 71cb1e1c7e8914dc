//! The two output streams of one command on their way to the caller's sink, and the facts that its wrapper reports.

use std::time::Duration;

use sandbox_bench_core::{HeadTail, OutputSink, Stream, StreamReport};

use super::frames::Frames;

/// Splits, bounds and delivers.
pub struct Streams<'a> {
    sink: &'a dyn OutputSink,
    stdout: Channel,
    stderr: Channel,
}

struct Channel {
    frames: Frames,
    bound: HeadTail,
}

/// What the wrapper said when it started the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// Its pid in the sandbox.
    pub pid: u32,
    /// Whether it could put the mark on itself.
    pub marked: bool,
}

/// What the wrapper said when the command had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The exit code by the shell's convention.
    pub code: i32,
    /// How long the command ran, by the guest's clock of 10 ms steps.
    pub guest_time: Option<Duration>,
    /// Whether the sandbox's memory limit killed a process meanwhile; none if the sandbox does not say.
    pub out_of_memory: Option<bool>,
    /// Whether the sandbox has no process that it did not have before the command. False if nobody watched.
    pub nothing_left: bool,
    /// What the sandbox has used so far.
    pub usage: Usage,
}

/// What a sandbox has used, by its own control group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in microseconds.
    pub cpu_us: Option<u64>,
    /// Highest memory use in bytes.
    pub peak_memory_bytes: Option<u64>,
}

impl<'a> Streams<'a> {
    /// Streams with the marks of `frame`, of which at most `limit` bytes each are delivered.
    pub fn new(frame: &str, limit: u64, sink: &'a dyn OutputSink) -> Self {
        let channel = || Channel { frames: Frames::new(frame), bound: HeadTail::new(limit) };
        Self { sink, stdout: channel(), stderr: channel() }
    }

    /// Takes what the backend sent of one stream.
    pub fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let channel = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let Channel { frames, bound } = channel;
        frames.push(bytes, |part| bound.push(part, |now| self.sink.write(stream, now)));
    }

    /// Once the command was started: what its wrapper said.
    pub fn opened(&self) -> Option<Opened> {
        let mut words = self.stderr.frames.opened()?.split(' ');
        Some(Opened { pid: words.next()?.parse().ok()?, marked: words.next() == Some("1") })
    }

    /// Once both streams are complete: what the wrapper said.
    pub fn closed(&self) -> Option<Closed> {
        self.stdout.frames.closed()?;
        parse_closed(self.stderr.frames.closed()?)
    }

    /// The backend's own words, which came instead of the command's output.
    pub fn foreign_text(&self) -> String {
        let words = [self.stdout.frames.before.as_slice(), self.stderr.frames.before.as_slice()].concat();
        String::from_utf8_lossy(&words).into_owned()
    }

    /// Delivers what was held back and reports on stdout and stderr.
    pub fn finish(self) -> (StreamReport, StreamReport) {
        let sink = self.sink;
        let finish = |stream, channel: Channel| {
            let Channel { mut frames, mut bound } = channel;
            frames.finish(|part| bound.push(part, |now| sink.write(stream, now)));
            bound.finish(|part| sink.write(stream, part))
        };
        (finish(Stream::Stdout, self.stdout), finish(Stream::Stderr, self.stderr))
    }
}

/// Reads `code=0 start=12.30 end=12.34 kills=0/0 peak=… cpu_us=… cpu_ns=… same=1`. A missing or odd code makes the
/// whole report void: then the backend alone knows the code.
fn parse_closed(text: &str) -> Option<Closed> {
    let field = |name: &str| text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let guest_time = || hundredths(field("end")?)?.checked_sub(hundredths(field("start")?)?);
    let kills = || {
        let (before, after) = field("kills")?.split_once('/')?;
        Some(after.parse::<u64>().ok()? > before.parse::<u64>().ok()?)
    };
    Some(Closed {
        code: field("code")?.parse().ok().filter(|code| (0..=255).contains(code))?,
        guest_time: guest_time().map(|hundredths| Duration::from_millis(hundredths * 10)),
        out_of_memory: kills(),
        nothing_left: field("same") == Some("1"),
        usage: Usage {
            cpu_us: number("cpu_us").or_else(|| number("cpu_ns").map(|ns| ns / 1000)),
            peak_memory_bytes: number("peak"),
        },
    })
}

/// `/proc/uptime` writes seconds with two decimals.
fn hundredths(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    if fraction.len() != 2 {
        return None;
    }
    seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(fraction.parse().ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use sandbox_bench_core::TailSink;

    use super::*;

    #[test]
    fn a_full_report_is_read() {
        let text = "code=7 start=12.30 end=13.05 kills=1/2 peak=4096 cpu_us= cpu_ns=5000 same=1";
        let closed = parse_closed(text).unwrap();
        assert_eq!(closed.code, 7);
        assert_eq!(closed.guest_time, Some(Duration::from_millis(750)));
        assert_eq!(closed.out_of_memory, Some(true));
        assert!(closed.nothing_left);
        assert_eq!(closed.usage, Usage { cpu_us: Some(5), peak_memory_bytes: Some(4096) });
    }

    #[test]
    fn what_the_sandbox_does_not_say_is_unknown_and_never_zero() {
        let closed = parse_closed("code=0 start= end= kills=/ peak= cpu_us= cpu_ns= same=").unwrap();
        assert_eq!((closed.guest_time, closed.out_of_memory, closed.usage), (None, None, Usage::default()));
        assert!(!closed.nothing_left);
        for void in ["", "code=", "code=x", "code=256", "code=-1", "start=1.00"] {
            assert_eq!(parse_closed(void), None, "{void}");
        }
    }

    #[test]
    fn streams_stay_apart_and_end_only_together() {
        let sink = TailSink::new(100);
        let mut streams = Streams::new("F", 1000, &sink);
        streams.take(Stream::Stderr, b"\x1eF<12 1\x1e\noops");
        assert_eq!(streams.opened(), Some(Opened { pid: 12, marked: true }));
        streams.take(Stream::Stderr, b"\x1eF>code=3 \x1e\n");
        assert_eq!(streams.closed(), None, "stdout may still be on its way");
        streams.take(Stream::Stdout, b"\x1eF<\x1e\nhello\x1eF>\x1e\nlater");
        assert_eq!(streams.closed().unwrap().code, 3);
        let (stdout, stderr) = streams.finish();
        assert_eq!((stdout.delivered_bytes, stderr.delivered_bytes), (5, 4));
        assert_eq!((sink.text(Stream::Stdout), sink.text(Stream::Stderr)), ("hello".into(), "oops".into()));
    }

    proptest! {
        #[test]
        fn any_report_is_read_without_a_panic(text in "[a-z=0-9. /_]{0,80}") {
            let _ = parse_closed(&text);
        }
    }
}
