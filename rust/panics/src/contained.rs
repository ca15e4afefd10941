//! Calls library code that may panic on damaged files, and converts the panic to an error.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::message;

thread_local! {
    /// Whether a panic on this thread will be converted to an error, and so is not printed.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the result of `run`, or the message of its panic. The panic does not unwind into the caller and prints
/// nothing. After a panic, values that `run` was using must not be used.
///
/// # Errors
///
/// The message of the panic.
pub fn contained<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_CONTAINED.get() {
                before(info);
            }
        }));
    });
    let was_contained = IS_CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(run));
    IS_CONTAINED.set(was_contained);
    done.map_err(|panic| message(&*panic).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_next_call_is_served() {
        assert_eq!(contained(|| 1), Ok(1));
        assert_eq!(
            contained(|| -> u8 { panic!("page {}", 7) }),
            Err("page 7".to_owned())
        );
        assert_eq!(contained(|| 2), Ok(2));
        assert!(!IS_CONTAINED.get());
    }
}
