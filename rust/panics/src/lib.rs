//! Panic handling for threads, tasks, and libraries that read damaged files.
//!
//! [`spawn`] starts a thread and reports its panic to a callback; [`caught`] returns the panic of a task as an error;
//! [`contained`] does so for library code. The crate starts nothing by itself and knows nothing of the broker.
//!
//! ```
//! use std::sync::mpsc::channel;
//!
//! let (report, reports) = channel();
//! let on_panic = move |panicked| report.send(panicked).expect("somebody listens");
//! let thread = mqttcore_panics::spawn("counter", on_panic, || panic!("at {}", 7))?;
//! thread.join().expect("the panic was caught");
//! assert_eq!(reports.recv().expect("a report").to_string(), "counter panicked: at 7");
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "faults")]
mod asked;
mod contained;
mod task;
mod thread;

use std::any::Any;

#[cfg(feature = "faults")]
pub use asked::panic_in;
pub use contained::contained;
pub use task::{caught, poll_caught};
pub use thread::{Panicked, may_panic, spawn};

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}
