//! The garbage list: memory whose grace period is over and that a writer frees.
//!
//! Deferred functions run on the thread that pins next, which may be a reader. Freeing the garbage of
//! hundreds of commits there would delay its match, and the blocks would go to the allocator lists of a
//! thread that allocates none. Therefore a deferral only adds the garbage to a list of its thread, the pin
//! that ran it passes the list on in one step without a lock, and the next commit frees it.

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use super::Garbage;

/// Initial capacity of a thread's list: the deferrals of four full bags of an epoch.
const NOTES: usize = 256;

/// A list that a thread passed on, and the lists that were passed on before.
struct SharedGarbage {
    notes: Vec<Garbage>,
    next: *mut Self,
}

/// The garbage of one thread; empty except while it pins.
struct ThreadGarbage(RefCell<Vec<Garbage>>);

thread_local! {
    static NOTED: ThreadGarbage = const { ThreadGarbage(RefCell::new(Vec::new())) };
}

/// All lists that were passed on.
static PASSED: AtomicPtr<SharedGarbage> = AtomicPtr::new(ptr::null_mut());

impl Drop for ThreadGarbage {
    fn drop(&mut self) {
        pass_on(self.0.take());
    }
}

/// Adds unreachable memory to the thread's list. The thread is about to pin, or ends.
pub(super) fn push(garbage: Garbage) {
    let is_noted = NOTED.try_with(|noted| {
        let mut notes = noted.0.borrow_mut();
        if notes.capacity() == 0 {
            notes.reserve(NOTES);
        }
        notes.push(garbage);
    });
    if is_noted.is_err() {
        garbage.free();
    }
}

/// Passes on the list of the calling thread.
#[inline]
pub(super) fn pass_on_noted() {
    // A thread that ends passes its list on itself.
    let _ = NOTED.try_with(|noted| {
        if !noted.0.borrow().is_empty() {
            pass_on(noted.0.take());
        }
    });
}

#[cold]
fn pass_on(notes: Vec<Garbage>) {
    if notes.is_empty() {
        return;
    }
    let mut next = PASSED.load(Relaxed);
    let passed = Box::into_raw(Box::new(SharedGarbage { notes, next }));
    // ORDERING: Release: a thread that takes the list sees it complete.
    while let Err(other) = PASSED.compare_exchange_weak(next, passed, Release, Relaxed) {
        next = other;
        // SAFETY: made above, and not passed on yet.
        unsafe { (*passed).next = next };
    }
}

/// Frees all memory in the lists that were passed on.
#[inline]
pub(super) fn free() {
    // ORDERING: Relaxed: a hint; the next call frees what this one misses.
    if !PASSED.load(Relaxed).is_null() {
        free_passed();
    }
}

#[cold]
fn free_passed() {
    // ORDERING: Acquire pairs with the release of `pass_on`.
    let mut next = NonNull::new(PASSED.swap(ptr::null_mut(), Acquire));
    while let Some(passed) = next {
        // SAFETY: made from a box by `pass_on`, and taken out of the list by this thread alone.
        let passed = unsafe { Box::from_raw(passed.as_ptr()) };
        passed.notes.iter().for_each(|garbage| garbage.free());
        next = NonNull::new(passed.next);
    }
}
