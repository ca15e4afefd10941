//! Fault injection: panics that a test requests in a thread or task.

use std::sync::{Mutex, MutexGuard, PoisonError};

static UNLUCKY: Mutex<Option<String>> = Mutex::new(None);

/// Makes the next thread or task of this name panic once at its start. It may belong to any store or broker of this
/// process.
pub fn panic_in(place: &str) {
    *lock() = Some(place.to_owned());
}

pub(crate) fn panic_if_asked(place: &str) {
    let is_asked = lock().take_if(|unlucky| unlucky == place).is_some();
    assert!(!is_asked, "a test asked for it");
}

fn lock() -> MutexGuard<'static, Option<String>> {
    UNLUCKY.lock().unwrap_or_else(PoisonError::into_inner)
}
