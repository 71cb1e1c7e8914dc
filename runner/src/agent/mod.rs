//! A solver that is a model: a tool loop driven from the host against any OpenAI-compatible chat-completions endpoint.
//!
//! * [`settings`]: which gateway, which models, which limits, what they cost;
//! * [`gateway`], [`stream`], [`wire`]: one question, one answer, whatever the network does;
//! * [`tools`]: what the model may do, and reading its calls;
//! * [`turns`]: the loop, which ends in one of the [`sandbox_bench_core::AgentEnd`]s;
//! * [`trajectory`]: what is kept of it.
//!
//! What it promises: the key stays in this process. It is part of the requests' headers and of nothing else; where a
//! gateway sends it back, it is overwritten before anybody reads the answer. The model sees the instruction, the working
//! directory and what its tools say. Every question is bounded in time, bytes and repetitions, and a cancelled run
//! waits for none.

pub mod gateway;
pub mod prices;
pub mod settings;
mod stream;
pub mod tools;
pub mod trajectory;
pub mod turns;
mod wire;

pub use gateway::GatewayError;
pub use settings::Agent;
