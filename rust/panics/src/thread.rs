//! Threads that report their panics: whoever starts one says what becomes of the rest without it.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use thiserror::Error;

use crate::message;

/// A thread or a task panicked: a fault of this software.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{place} panicked: {text}")]
pub struct Panicked {
    /// The name of the thread or of the task.
    pub place: Arc<str>,
    /// What it said.
    pub text: Arc<str>,
}

impl Panicked {
    /// What was caught in `place`.
    pub fn new(place: &str, panic: &(dyn Any + Send)) -> Self {
        Self {
            place: place.into(),
            text: message(panic).into(),
        }
    }
}

/// Starts a thread of this name. If it panics, `on_panic` is the last thing that it does.
///
/// # Errors
///
/// The system gives no thread.
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
        // What it shares is behind locks, and nobody takes a poisoned one for broken.
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| on_panic(Panicked::new(&place, &*panic)))
    };
    Builder::new().name(name.into()).spawn(guarded)
}

/// Panics if a test has asked for it; without the feature `faults` it does nothing.
#[doc(hidden)]
pub fn may_panic(place: &str) {
    #[cfg(feature = "faults")]
    crate::asked::panic_if_asked(place);
    let _ = place;
}
