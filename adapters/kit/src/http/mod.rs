//! A client for services that speak JSON over HTTP.
//!
//! It promises that every request is counted and ends by the call's deadline, that no answer is larger than was allowed,
//! that credentials appear in no error and no debug output, and that an error says what may be repeated: what never
//! reached the service is `Unavailable`, what may have taken effect is `Transport`. It repeats nothing itself.

mod answer;
mod lines;
mod secrets;
mod service;

pub use answer::{Refusal, ask, body, json, refused};
pub use lines::lines;
pub use service::{Effect, Service, secret_header, send};
