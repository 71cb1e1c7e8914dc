//! What adapters share because the contract asks the same of all of them, and backends differ only in how bytes travel.
//!
//! * [`guest`]: running a command under a small wrapper, so that its end, its exit code, its resource use and its whole
//!   process tree are known whatever carries its output;
//! * [`archive`]: inputs and (feature `context`) build contexts as one tar stream, and tar streams into host files, in
//!   bounded memory;
//! * [`wait`]: every wait ends by the call's deadline or cancellation;
//! * [`http`] (feature `http`): a client for JSON over HTTP whose answers are bounded and whose errors say what may be
//!   repeated.
//!
//! It knows no vendor and holds no policy: retries, rate limits and grants belong to the layers of the core.

pub mod archive;
pub mod guest;
#[cfg(feature = "http")]
pub mod http;
pub mod wait;
