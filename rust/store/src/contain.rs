//! Runs code of a library that panics at damaged files: its panic becomes an error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// A panic on this thread is expected, and told by whoever contains it.
    static IS_CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Returns what `run` returns, or the message of its panic, which reaches neither the caller nor
/// standard error. What `run` was working on must not be used after a panic.
pub(crate) fn contained<T>(run: impl FnOnce() -> T) -> Result<T, String> {
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
    done.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
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
