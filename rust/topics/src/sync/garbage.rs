//! What is over: its grace period ended, and it waits for a writer that frees it.
//!
//! An epoch ends on whichever thread pins next, a reader's as well. Freeing hundreds of commits there would be the
//! longest match of all, and their blocks would land in the lists of a thread that makes none. So a deferral only
//! notes what is over, the pin that ran it passes the notes on, in one step and without a lock, and whoever commits
//! next frees all.

use std::cell::RefCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use super::Garbage;

/// Notes of one pin, first made: what four full bags of an epoch defer.
const NOTES: usize = 256;

/// Notes that a thread passed on, and those passed on before.
struct SharedGarbage {
    notes: Vec<Garbage>,
    next: *mut Self,
}

/// The notes of one thread, empty but while it pins.
struct GarbageList(RefCell<Vec<Garbage>>);

thread_local! {
    static NOTED: GarbageList = const { GarbageList(RefCell::new(Vec::new())) };
}

/// All notes that were passed on.
static PASSED: AtomicPtr<SharedGarbage> = AtomicPtr::new(ptr::null_mut());

impl Drop for GarbageList {
    fn drop(&mut self) {
        pass_on(self.0.take());
    }
}

/// Notes what nobody reaches any more. The thread is about to pin, or ends.
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

/// Passes on what the calling thread noted.
#[inline]
pub(super) fn pass_on_noted() {
    // A thread that ends passes its notes on by itself.
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
    // ORDERING: Release: who takes the notes sees them whole.
    while let Err(other) = PASSED.compare_exchange_weak(next, passed, Release, Relaxed) {
        next = other;
        // SAFETY: made above, and not passed on yet.
        unsafe { (*passed).next = next };
    }
}

/// Frees all that was passed on.
#[inline]
pub(super) fn free() {
    // ORDERING: Relaxed: a hint; what is missed is freed by the next.
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
