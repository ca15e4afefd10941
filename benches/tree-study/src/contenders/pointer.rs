//! Pointers that are read under a pin and replaced by compare-and-set, for contenders whose originals lean on a
//! garbage collector. Their garbage is collected apart from ours.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crossbeam_epoch::{Atomic, Collector, Guard, LocalHandle, Owned, Shared};

/// Retired bytes after which a writer pushes its garbage out, so that large nodes do not pile up.
const FLUSH_BYTES: usize = 1 << 20;

static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

thread_local! {
    static HANDLE: LocalHandle = COLLECTOR.register();
    static RETIRED_BYTES: Cell<usize> = const { Cell::new(0) };
}

#[inline]
pub(super) fn pin() -> Guard {
    HANDLE.with(LocalHandle::pin)
}

/// Frees all that waits, as far as no other thread is pinned.
pub(super) fn collect() {
    for _ in 0..256 {
        pin().flush();
    }
}

/// Counts what this thread retired, and pushes garbage out now and then.
pub(super) fn retired(bytes: usize) {
    let total = RETIRED_BYTES.get() + bytes;
    let is_due = total > FLUSH_BYTES;
    RETIRED_BYTES.set(if is_due { 0 } else { total });
    if is_due {
        (0..3).for_each(|_| pin().flush());
    }
}

/// The owner of one value, which it replaces as a whole.
pub(super) struct Slot<T>(Atomic<T>);

impl<T: Send + Sync + 'static> Slot<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Atomic::new(value))
    }

    #[inline]
    pub(super) fn load<'g>(&self, guard: &'g Guard) -> &'g T {
        // ORDERING: Acquire pairs with the release of `replace`.
        let current = self.0.load(Acquire, guard);
        // SAFETY: never null; destroyed only through the epoch after it was replaced, which waits for `guard`.
        unsafe { current.deref() }
    }

    /// Puts `new` in the place of `current`; answers whether `current` was still there.
    pub(super) fn replace(&self, current: &T, new: T, guard: &Guard) -> Result<(), T> {
        let expected = Shared::from(std::ptr::from_ref(current));
        // ORDERING: AcqRel: the new value is complete when it is seen.
        match self
            .0
            .compare_exchange(expected, Owned::new(new), AcqRel, Acquire, guard)
        {
            Ok(_) => {
                // SAFETY: this thread took `expected` out, so nobody else destroys it; readers are pinned.
                unsafe { guard.defer_destroy(expected) };
                Ok(())
            }
            Err(lost) => Err(*lost.new.into_box()),
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self` excludes readers and writers; the pointer is never null and owned by the slot.
        drop(unsafe { last.into_owned() });
    }
}

/// A pointer that many versions of a node share: its copy costs no count. Whoever unlinks it frees it.
pub(super) struct Link<T>(*const T);

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Link<T> {}

// SAFETY: a link is a shared reference that its tree keeps alive.
unsafe impl<T: Send + Sync> Send for Link<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Link<T> {}

impl<T: Send + Sync + 'static> Link<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }

    /// Reads what the link points to.
    ///
    /// # Safety
    ///
    /// The link was found in a node that was reachable after `guard` was pinned.
    #[inline]
    pub(super) unsafe fn read(self, _: &Guard) -> &T {
        // SAFETY: the caller's contract; freed only through the epoch or under exclusive access.
        unsafe { &*self.0 }
    }

    /// Frees it once no reader can see it any more.
    ///
    /// # Safety
    ///
    /// Nothing that readers or writers will reach holds this link any more, and it is retired once.
    pub(super) unsafe fn retire(self, guard: &Guard) {
        // SAFETY: the caller's contract.
        unsafe { guard.defer_destroy(Shared::from(self.0)) };
    }

    /// Takes the value back.
    ///
    /// # Safety
    ///
    /// Nobody else uses or frees the link, now or later.
    pub(super) unsafe fn take(self) -> T {
        // SAFETY: made by `Box` in `new`; the caller's contract.
        *unsafe { Box::from_raw(self.0.cast_mut()) }
    }
}
