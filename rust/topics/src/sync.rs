//! The only import of atomics, reference counts, locks and epochs, and the one pointer that writers replace.
//!
//! Two builds of the tests, `--cfg loom` and `--cfg shuttle`, put the scheduler of that tool under the atomics and
//! locks, and the plainest grace period there is in the place of the epochs. Reference counts and `OnceLock` are
//! std's in all builds: no step of theirs is open to another thread of a model.

pub(crate) mod pool;

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::PoisonError;

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
pub(crate) use std::sync::{Arc, OnceLock};
pub(crate) use std::thread::yield_now;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use crossbeam_epoch::{Atomic, Guard, Owned, Shared, is_pinned, pin, unprotected};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize},
};

#[cfg(any(loom, shuttle))]
mod grace;
#[cfg(any(loom, shuttle))]
pub(crate) use grace::{Atomic, Guard, Owned, Shared, is_pinned, pin, unprotected};
#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize},
};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, AtomicUsize},
};

/// Locks a mutex whose data is consistent at every moment, so that a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the processor for the cache line at an address that will be read soon. A hint: any address will do.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program could see, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}

/// The heap bytes that wait for a grace period. The count outlives its owner while some do.
pub(crate) struct Ledger(NonNull<AtomicUsize>);

/// Bytes that are booked in a ledger until they are settled.
pub(crate) struct Debt {
    /// The bytes that are booked, plus one while the ledger has its owner.
    count: NonNull<AtomicUsize>,
    bytes: usize,
}

// SAFETY: the count is atomic, and freed by whoever takes the last of it.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}
// SAFETY: as above.
unsafe impl Send for Debt {}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(AtomicUsize::new(1)))))
    }

    fn count(&self) -> &AtomicUsize {
        // SAFETY: the owner's one is still counted.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.count().load(Relaxed) - 1 // ORDERING: a count that orders nothing.
    }

    /// Books bytes that somebody will settle.
    pub(crate) fn charge(&self, bytes: usize) -> Debt {
        // ORDERING: Relaxed: the owner's one keeps the count from ending meanwhile.
        self.count().fetch_add(bytes, Relaxed);
        Debt {
            count: self.0,
            bytes,
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // The owner's one is settled as a debt is.
        drop(Debt {
            count: self.0,
            bytes: 1,
        });
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        // SAFETY: this debt is still counted, or nothing was booked and the owner's one is.
        let count = unsafe { self.count.as_ref() };
        // ORDERING: AcqRel: who takes the last of it frees the count behind everybody else's use.
        if self.bytes > 0 && count.fetch_sub(self.bytes, AcqRel) == self.bytes {
            // SAFETY: made by `Ledger::new`, and nobody is left who could use it.
            drop(unsafe { Box::from_raw(self.count.as_ptr()) });
        }
    }
}

/// One pointer to an immutable value: read without a lock, replaced by compare-and-set.
pub(crate) struct Root<T>(Atomic<T>);

/// A value that was replaced: its reader may be anybody who pinned before.
#[must_use = "the value leaks"]
pub(crate) struct Unlinked<'g, T> {
    value: Shared<'g, T>,
    guard: &'g Guard,
}

impl<T: Send + Sync + 'static> Unlinked<'_, T> {
    /// Destroys the value after a grace period, and runs `also` on whichever thread ends that.
    pub(crate) fn destroy_with(self, also: impl FnOnce() + Send + 'static) {
        let value = self.value.as_raw();
        // SAFETY: the value was unlinked by `replace`, which made the only token for it; later pins do not reach it.
        // `T` is `Send`, and so is `also`; both own what they use.
        unsafe {
            self.guard.defer_unchecked(move || {
                destroy(value.cast_mut());
                also();
            });
        }
    }
}

/// Puts a value into memory of its own.
fn place<T>(value: T) -> *mut T {
    const { assert!(align_of::<T>() <= pool::ALIGNMENT && size_of::<T>() > 0) }
    let place = pool::allocate(size_of::<T>()).cast::<T>();
    // SAFETY: the memory is large and aligned enough, and nobody else knows it.
    unsafe { place.write(value) };
    place.as_ptr()
}

/// # Safety
///
/// `value` came from [`place`], is not null, and nobody uses it any more.
unsafe fn destroy<T>(value: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        value.drop_in_place();
        pool::release(NonNull::new_unchecked(value).cast(), size_of::<T>());
    }
}

impl<T: Send + Sync + 'static> Root<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Atomic::from(place(value).cast_const()))
    }

    /// Returns the current value, alive as long as the pin.
    #[inline]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> &'g T {
        // ORDERING: Acquire pairs with the release of `replace`: the value is complete when seen.
        let current = self.0.load(Acquire, guard);
        // SAFETY: the pointer is never null, comes from `place`, and is destroyed only through the epoch after it
        // was unlinked, which waits for `guard`.
        unsafe { current.deref() }
    }

    /// Puts `new` in the place of `current`; `None` when another value is there by now.
    ///
    /// `current` was loaded under `guard`, so its address cannot have been reused: there is no ABA.
    pub(crate) fn replace<'g>(
        &self,
        current: &T,
        new: T,
        guard: &'g Guard,
    ) -> Option<Unlinked<'g, T>> {
        let expected = Shared::from(std::ptr::from_ref(current));
        let new = place(new);
        // ORDERING: release publishes the new value, acquire orders what the loser reads next.
        let exchanged = self.0.compare_exchange(
            expected,
            Shared::from(new.cast_const()),
            AcqRel,
            Acquire,
            guard,
        );
        if exchanged.is_err() {
            // SAFETY: placed above, and nobody else saw it.
            unsafe { destroy(new) };
            return None;
        }
        Some(Unlinked {
            value: expected,
            guard,
        })
    }

    /// Pins the current value.
    #[inline]
    pub(crate) fn pinned(&self) -> Pinned<'_, T> {
        let guard = pin();
        let value = std::ptr::from_ref(self.load(&guard));
        Pinned {
            value,
            _guard: guard,
            root: PhantomData,
        }
    }

    /// Returns the value under exclusive access.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes readers and writers; the pointer is never null and owned by the root.
        unsafe { self.0.load(Acquire, unprotected()).deref_mut() }
    }
}

impl<T> Drop for Root<T> {
    fn drop(&mut self) {
        // SAFETY: `&mut self` excludes readers and writers; the pointer is never null and owned by the root.
        unsafe {
            let last = self.0.load(Acquire, unprotected());
            destroy(last.as_raw().cast_mut());
        }
    }
}

/// A value that a pin keeps alive. It stays on its thread, because the pin does.
pub(crate) struct Pinned<'r, T> {
    value: *const T,
    /// Keeps `value` alive; nobody may repin it.
    _guard: Guard,
    root: PhantomData<&'r Root<T>>,
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: loaded under the guard, which lives as long as `self` and is never repinned.
        unsafe { &*self.value }
    }
}
