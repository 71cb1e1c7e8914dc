//! What comes next of a command, wherever it comes from.

use bytes::Bytes;
use sandbox_bench_core::Stream;

use crate::live::Live;
use crate::router::{Exit, Gone};
use crate::spool::Spool;

/// What comes next of a command.
#[derive(Debug)]
pub(crate) enum Event {
    /// A piece of its output.
    Output(Stream, Bytes),
    /// Its own process has ended; more output may come. Told once.
    Exited,
    /// Nothing more, for ever.
    Over(Over),
}

/// Why nothing more comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Over {
    /// The command has ended, and all of its output was delivered.
    Complete(Exit),
    /// Its sandbox has ended.
    Gone(Gone),
    /// It cannot be asked any more.
    TransportLost,
}

/// The output of one command from its beginning.
pub(crate) enum Output<'a> {
    /// As the router streams it.
    Live(Live<'a>),
    /// As it stands in files.
    Spool(Box<Spool<'a>>),
}

impl Output<'_> {
    /// What comes next. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Event {
        match self {
            Self::Live(live) => live.next().await,
            Self::Spool(spool) => spool.next().await,
        }
    }

    /// True if nothing more comes.
    pub(crate) fn over(&self) -> bool {
        match self {
            Self::Live(live) => live.over(),
            Self::Spool(spool) => spool.over(),
        }
    }

    /// How the command's own process ended, once that is known.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self {
            Self::Live(live) => live.exit(),
            Self::Spool(spool) => spool.exit(),
        }
    }
}
