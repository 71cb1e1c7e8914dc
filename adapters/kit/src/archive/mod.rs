//! Archives that go into a sandbox and come out of it, in bounded memory.

#[cfg(feature = "context")]
mod context;
mod inputs;
mod receive;
mod stream;

#[cfg(feature = "context")]
pub use context::write_context;
pub use inputs::{inputs_size, relative, write_inputs};
pub use receive::receive;
pub use stream::{Chunks, TarTask, append, header, stream, tar};
