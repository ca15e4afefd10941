//! A simple grace period instead of crossbeam's epochs, for builds with loom or shuttle.
//!
//! A deferred function runs when the last pin ends that existed when it was deferred. No correct implementation of
//! epochs may run it earlier, so a history without a use after free here has none with any implementation. The
//! correctness of crossbeam-epoch is tested by its own loom tests and by runs of these tests with Miri.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

pub(crate) use crossbeam_epoch::{Owned, Shared};

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicUsize};
#[cfg(shuttle)]
use shuttle::sync::atomic::{AtomicPtr, AtomicUsize};

/// A pointer that the scheduler observes; like crossbeam's, without tag bits.
pub(crate) struct Atomic<T>(AtomicPtr<T>);

/// Result of a failed exchange.
pub(crate) struct ExchangeError<'g, T, P> {
    pub(crate) current: Shared<'g, T>,
    pub(crate) new: P,
}

/// A pointer that can be stored in an [`Atomic`].
pub(crate) trait Pointer<T> {
    fn into_raw(self) -> *mut T;

    /// # Safety
    ///
    /// `raw` comes from `into_raw`, once.
    unsafe fn from_raw(raw: *mut T) -> Self;
}

impl<T> Pointer<T> for Owned<T> {
    fn into_raw(self) -> *mut T {
        Box::into_raw(self.into_box())
    }

    unsafe fn from_raw(raw: *mut T) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Box::from_raw(raw) }.into()
    }
}

impl<T> Pointer<T> for Shared<'_, T> {
    fn into_raw(self) -> *mut T {
        self.as_raw().cast_mut()
    }

    unsafe fn from_raw(raw: *mut T) -> Self {
        Self::from(raw.cast_const())
    }
}

impl<T> Atomic<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Box::new(value))))
    }

    pub(crate) fn null() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn load<'g>(&self, order: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared::from(self.0.load(order).cast_const())
    }

    pub(crate) fn compare_exchange<'g, P: Pointer<T>>(
        &self,
        current: Shared<'_, T>,
        new: P,
        success: Ordering,
        failure: Ordering,
        _: &'g Guard,
    ) -> Result<Shared<'g, T>, ExchangeError<'g, T, P>> {
        let (expected, new) = (current.as_raw().cast_mut(), new.into_raw());
        match self.0.compare_exchange(expected, new, success, failure) {
            Ok(_) => Ok(Shared::from(new.cast_const())),
            Err(current) => Err(ExchangeError {
                current: Shared::from(current.cast_const()),
                // SAFETY: the pointer was not stored, so it is still ours alone.
                new: unsafe { P::from_raw(new) },
            }),
        }
    }

    /// # Safety
    ///
    /// Nobody else has the pointer.
    pub(crate) unsafe fn try_into_owned(self) -> Option<Owned<T>> {
        let raw = self.0.load(Ordering::Relaxed);
        // SAFETY: the caller's contract; what is stored comes from a box.
        (!raw.is_null()).then(|| unsafe { Owned::from_raw(raw) })
    }
}

impl<T> From<*const T> for Atomic<T> {
    fn from(raw: *const T) -> Self {
        Self(AtomicPtr::new(raw.cast_mut()))
    }
}

/// Pins, and the memory that waits for them.
struct Pins {
    next: u64,
    pinned: BTreeSet<u64>,
    waiting: Vec<Waiting>,
}

/// The pins that it waits for, and the function to run then.
type Waiting = (BTreeSet<u64>, Box<dyn FnOnce()>);

thread_local! {
    /// All threads of a model are coroutines of one thread. Empty between two runs of a model. The scheduler does not
    /// observe it; it observes [`step`], which every use calls first.
    static PINS: RefCell<Pins> = const { RefCell::new(Pins {
        next: 0,
        pinned: BTreeSet::new(),
        waiting: Vec::new(),
    }) };
}

#[cfg(loom)]
loom::lazy_static! {
    static ref STEPS: AtomicUsize = AtomicUsize::new(0);
}

#[cfg(shuttle)]
shuttle::lazy_static! {
    static ref STEPS: AtomicUsize = AtomicUsize::new(0);
}

/// Orders one use of [`PINS`] after all earlier ones, as the fences of an epoch do.
fn step() {
    STEPS.fetch_add(1, Ordering::AcqRel);
}

/// Keeps alive the values that its thread reads.
pub(crate) struct Guard {
    number: u64,
    /// Stays on its thread, like crossbeam's.
    life: PhantomData<*mut ()>,
}

/// Always true, so that no writer of a model waits for readers: such a wait would only test the scheduler.
pub(crate) fn is_pinned() -> bool {
    true
}

/// Pins the calling thread; several pins of one thread are counted separately.
pub(crate) fn pin() -> Guard {
    step();
    let number = PINS.with_borrow_mut(|pins| {
        pins.next += 1;
        pins.pinned.insert(pins.next);
        pins.next
    });
    Guard {
        number,
        life: PhantomData,
    }
}

/// A guard for code that no other thread can interfere with.
struct UnprotectedGuard(Guard);

// SAFETY: it is never dropped and nothing is deferred by it, so it does nothing.
unsafe impl Sync for UnprotectedGuard {}

/// # Safety
///
/// No other thread uses what is loaded under this guard, and nothing is deferred by it.
pub(crate) unsafe fn unprotected() -> &'static Guard {
    static NOBODY: UnprotectedGuard = UnprotectedGuard(Guard {
        number: 0,
        life: PhantomData,
    });
    &NOBODY.0
}

impl Guard {
    pub(crate) fn defer<F: FnOnce() + 'static>(&self, run: F) {
        step();
        PINS.with_borrow_mut(|pins| {
            debug_assert!(pins.pinned.contains(&self.number));
            let pinned = pins.pinned.clone();
            pins.waiting.push((pinned, Box::new(run)));
        });
    }

    /// # Safety
    ///
    /// `run` may run after every pin of this moment is gone, on any thread.
    pub(crate) unsafe fn defer_unchecked<F: FnOnce() + 'static>(&self, run: F) {
        self.defer(run);
    }

    /// # Safety
    ///
    /// The caller unlinked the value and is alone to destroy it.
    pub(crate) unsafe fn defer_destroy<T>(&self, value: Shared<'_, T>) {
        let raw = value.as_raw().cast_mut().cast::<()>();
        let destroy: unsafe fn(*mut ()) = destroy::<T>;
        // SAFETY: the caller's contract.
        self.defer(move || unsafe { destroy(raw) });
    }
}

/// # Safety
///
/// `raw` comes from a box of `T`, and nobody else has it.
unsafe fn destroy<T>(raw: *mut ()) {
    // SAFETY: the caller's contract.
    drop(unsafe { Box::from_raw(raw.cast::<T>()) });
}

impl Drop for Guard {
    fn drop(&mut self) {
        step();
        let due = PINS.with_borrow_mut(|pins| {
            pins.pinned.remove(&self.number);
            let is_due = |(waits_for, _): &mut Waiting| waits_for.is_disjoint(&pins.pinned);
            pins.waiting.extract_if(.., is_due).collect::<Vec<_>>()
        });
        for (_, run) in due {
            run();
        }
    }
}
