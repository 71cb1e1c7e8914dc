//! Archives that go into a sandbox and come out of it, in bounded memory.

mod inputs;
mod receive;
mod stream;

pub use inputs::{relative, write_inputs};
pub use receive::receive;
pub use stream::{Chunks, TarTask, append, header, stream, tar};
