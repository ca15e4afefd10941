//! Threads that report their panics to the code that started them.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use thiserror::Error;

use crate::message;

/// A thread or task has panicked: a bug.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{place} panicked: {text}")]
pub struct Panicked {
    /// The name of the thread or of the task.
    pub place: Arc<str>,
    /// The message of the panic.
    pub text: Arc<str>,
}

impl Panicked {
    /// Converts a panic that was caught in `place`.
    pub fn new(place: &str, panic: &(dyn Any + Send)) -> Self {
        Self {
            place: place.into(),
            text: message(panic).into(),
        }
    }
}

/// Starts a thread of this name. If it panics, it calls `on_panic` and ends.
///
/// # Errors
///
/// The system cannot start a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    on_panic: impl FnOnce(Panicked) -> T + Send + 'static,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let place: Arc<str> = name.into();
    let guarded = move || {
        let run = || {
            may_panic(&place);
            run()
        };
        // Shared state is behind locks, and all users accept a poisoned lock.
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| on_panic(Panicked::new(&place, &*panic)))
    };
    Builder::new().name(name.into()).spawn(guarded)
}

/// Panics if a test has requested it; does nothing without the feature `faults`.
#[doc(hidden)]
pub fn may_panic(place: &str) {
    #[cfg(feature = "faults")]
    crate::asked::panic_if_asked(place);
    let _ = place;
}
