//! The only import of atomics, reference counts, locks and epochs, and the one pointer that writers replace.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::PoisonError;

use crossbeam_epoch::{Atomic, Owned, Shared};

pub(crate) use crossbeam_epoch::{Guard, pin};
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Locks a mutex whose data is consistent at every moment, so that a panic elsewhere does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One pointer to an immutable value: read without a lock, replaced by compare-and-set.
pub(crate) struct Root<T>(Atomic<T>);

impl<T: Send + Sync + 'static> Root<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Atomic::new(value))
    }

    /// Returns the current value, alive as long as the pin.
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> &'g T {
        // ORDERING: Acquire pairs with the release of `replace`: the value is complete when seen.
        let current = self.0.load(Acquire, guard);
        // SAFETY: the pointer is never null, comes from `Owned`, and is destroyed only through the epoch after it
        // was unlinked, which waits for `guard`.
        unsafe { current.deref() }
    }

    /// Puts `new` in the place of `current`, unless another value is there by now.
    ///
    /// `current` was loaded under `guard`, so its address cannot have been reused: there is no ABA.
    pub(crate) fn replace(&self, current: &T, new: T, guard: &Guard) -> Result<(), T> {
        let expected = Shared::from(std::ptr::from_ref(current));
        // ORDERING: release publishes the new value, acquire orders what the loser reads next.
        match self
            .0
            .compare_exchange(expected, Owned::new(new), AcqRel, Acquire, guard)
        {
            Ok(_) => {
                // SAFETY: this thread unlinked `expected`, nobody else destroys it, and readers are pinned.
                unsafe { guard.defer_destroy(expected) };
                Ok(())
            }
            Err(lost) => Err(*lost.new.into_box()),
        }
    }

    /// Pins the current value.
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
        unsafe {
            self.0
                .load(Acquire, crossbeam_epoch::unprotected())
                .deref_mut()
        }
    }
}

impl<T> Drop for Root<T> {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self` excludes readers and writers; the pointer is never null and owned by the root.
        drop(unsafe { last.into_owned() });
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

    fn deref(&self) -> &T {
        // SAFETY: loaded under the guard, which lives as long as `self` and is never repinned.
        unsafe { &*self.value }
    }
}
