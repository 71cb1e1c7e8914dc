//! Running code that panics on broken input, without the panic being seen.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use crate::problem::Fault;

thread_local! {
    /// True while this thread runs guarded code.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Runs `read`; a panic in it becomes the fault that `broken` makes. Nothing of it is printed: to the user, a broken
/// file is a fault like any other.
pub(super) fn guarded<T>(read: impl FnOnce() -> Result<T, Fault>, broken: impl FnOnce() -> Fault) -> Result<T, Fault> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                before(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(outer);
    result.unwrap_or_else(|_| Err(broken()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::panic)]
    fn a_panic_becomes_a_fault() {
        let fault = || Fault::new("broken", "fetch it again");
        assert_eq!(guarded::<()>(|| panic!("no"), fault), Err(fault()));
        assert_eq!(guarded(|| Ok(1), fault), Ok(1));
        assert!(!GUARDED.get());
    }
}
