//! [`Emulation`]: what one emulated vendor has.

use crate::faults::Faults;
use crate::machine::Machines;
use crate::requests::Requests;
use crate::tasks::Tasks;
use crate::timing::Timing;
use crate::violations::Violations;

/// The common state of one emulator. Vendor modules hold it in an `Arc`.
pub struct Emulation {
    /// Malformed requests.
    pub violations: Violations,
    /// The fault script.
    pub faults: Faults,
    /// Answered requests.
    pub requests: Requests,
    /// Sandboxes that execute.
    pub machines: Machines,
    /// Delays.
    pub timing: Timing,
    /// Background tasks; they end with the server.
    pub tasks: Tasks,
}

impl Emulation {
    /// An emulation without faults.
    pub fn new(machines: Machines, timing: Timing) -> Emulation {
        Emulation {
            violations: Violations::default(),
            faults: Faults::default(),
            requests: Requests::default(),
            machines,
            timing,
            tasks: Tasks::default(),
        }
    }
}
