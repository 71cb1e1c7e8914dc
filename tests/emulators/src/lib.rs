//! Emulators of the vendors' wire protocols.
//!
//! They are **strict** (what a vendor would not accept gets the vendor's error and is recorded as a violation),
//! **stateful** (states take time, lists lag, quotas and expiry hold) and **really executing**: each emulated sandbox is
//! a sandbox of the `local` engine. The vendors' own clients are their judges (`tests/sdk`).
//!
//! The common part, used by every vendor module:
//! * [`Emulation`]: what one emulated vendor has: violations, faults, recorded requests, machines, timing, tasks;
//! * [`Server`]: serves a router on a port of its own, with the fault script around it and the admin routes beside it;
//! * [`Machines`], [`Machine`]: sandboxes that execute; [`dockerfile`]: image builds by replay.

mod admin;
mod emulation;
mod log;
mod recent;
mod requests;
mod server;
mod tasks;
mod timing;
mod violations;
mod wire;

pub mod aws_microvm;
pub mod cli;
pub mod daytona;
pub mod dockerfile;
pub mod faults;
pub mod machine;
pub mod modal;
pub mod polyaxon;
pub mod template;
pub mod vercel;

pub use self::emulation::Emulation;
pub use self::faults::{Faults, Flags};
pub use self::log::Log;
pub use self::machine::{Machine, MachineError, Machines};
pub use self::requests::{Request, Requests};
pub use self::server::{Listener, Server};
pub use self::tasks::Tasks;
pub use self::timing::Timing;
pub use self::violations::{Violation, Violations};
