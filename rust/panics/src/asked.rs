//! Threads and tasks that panic because a test asks for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

static UNLUCKY: Mutex<Option<String>> = Mutex::new(None);

/// Has the next thread or task of this name, of whatever store or broker of this process, panic once as it begins.
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
