//! Atomics, locks and epochs (only this module imports them), and the root pointer that writers replace.
//!
//! Two builds of the tests, `--cfg loom` and `--cfg shuttle`, replace atomics and locks by those of the tool's
//! scheduler, and epochs by a simple grace period (`sync/grace.rs`). Reference counts and buckets of tables are those
//! of std in all builds: no other thread of a model can observe their intermediate states.

#[cfg(not(any(loom, shuttle)))]
mod garbage;
pub(crate) mod table;
pub(crate) mod text;

pub(crate) use mqttcore_slab::{self as slab, prefetch};

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::PoisonError;

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
pub(crate) use std::thread::yield_now;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use crossbeam_epoch::{Atomic, Guard, Owned, Shared, is_pinned, unprotected};
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

/// Locks a mutex whose data is always consistent, so that the lock of a thread that panicked may be used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pins of a thread between two attempts to advance the epoch: the interval that crossbeam uses.
#[cfg(not(any(loom, shuttle)))]
const PINS_A_LOOK: u32 = 128;

/// Pins the calling thread: values that it loads under the guard stay alive until the guard is dropped.
///
/// Some pins advance the epoch. Writers free what becomes reclaimable then, see [`free_what_is_over`].
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub(crate) fn pin() -> Guard {
    let guard = crossbeam_epoch::pin();
    garbage::pass_on_noted();
    guard
}

/// Frees reclaimable memory. For writers, which need the memory again soon.
#[inline]
pub(crate) fn free_what_is_over() {
    #[cfg(not(any(loom, shuttle)))]
    garbage::free();
}

/// Tries to advance the epoch. Moves the thread's recent deferrals into a bag of 2 KB, even if there are few.
#[inline]
pub(crate) fn end_epoch() {
    #[cfg(not(any(loom, shuttle)))]
    pin().flush();
}

/// Tries to advance the epoch without a bag, and frees reclaimable memory.
pub(crate) fn reclaim() {
    #[cfg(not(any(loom, shuttle)))]
    (0..PINS_A_LOOK).for_each(|_| drop(pin()));
    free_what_is_over();
}

/// Memory that no later pin can reach, with the function that frees it.
#[derive(Clone, Copy)]
pub(crate) struct Garbage {
    data: NonNull<()>,
    free: unsafe fn(NonNull<()>),
}

// SAFETY: whoever makes one gives up what it points to, for any thread to free.
unsafe impl Send for Garbage {}

impl Garbage {
    /// # Safety
    ///
    /// `free` may be called once with `data`, on any thread, when all pins of before are gone; nobody else frees it.
    pub(crate) const unsafe fn new(data: NonNull<()>, free: unsafe fn(NonNull<()>)) -> Self {
        Self { data, free }
    }

    /// Frees the memory; its grace period must be over.
    fn free(self) {
        // SAFETY: the contract of `new`: each value comes here once, from a deferral through the garbage
        // list.
        unsafe { (self.free)(self.data) };
    }

    /// Called when the grace period is over.
    fn is_over(self) {
        #[cfg(not(any(loom, shuttle)))]
        garbage::push(self);
        #[cfg(any(loom, shuttle))]
        self.free();
    }

    /// Defers freeing until the grace period is over.
    pub(crate) fn defer(self, guard: &Guard) {
        // SAFETY: the contract of `new`; garbage is `Send`, and owns what it points to.
        unsafe { guard.defer_unchecked(move || self.is_over()) };
    }
}

/// Number of set bits, by one instruction if the processor has it; a portable x86-64 build checks this at run time.
#[inline]
pub(crate) fn ones(bits: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(target_feature = "popcnt"), not(miri)))]
    if std::arch::is_x86_feature_detected!("popcnt") {
        let count: usize;
        // SAFETY: the processor has the instruction, which reads one register and writes another.
        unsafe {
            std::arch::asm!(
                "popcnt {count}, {bits}",
                bits = in(reg) bits,
                count = lateout(reg) count,
                options(pure, nomem, nostack)
            );
        }
        return count;
    }
    bits.count_ones() as usize
}

/// Counts heap bytes that wait for a grace period. The count outlives its owner while bytes are counted.
pub(crate) struct GarbageCounter(NonNull<AtomicUsize>);

/// Bytes that are counted in a [`GarbageCounter`] until this value is dropped.
pub(crate) struct CountedBytes {
    /// The counted bytes, plus one while the counter has its owner.
    count: NonNull<AtomicUsize>,
    bytes: usize,
}

// SAFETY: the count is atomic, and freed by whoever takes the last of it.
unsafe impl Send for GarbageCounter {}
// SAFETY: as above.
unsafe impl Sync for GarbageCounter {}
// SAFETY: as above.
unsafe impl Send for CountedBytes {}

impl GarbageCounter {
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

    /// Counts bytes until the result is dropped.
    pub(crate) fn charge(&self, bytes: usize) -> CountedBytes {
        // ORDERING: Relaxed: the owner's one keeps the count from ending meanwhile.
        self.count().fetch_add(bytes, Relaxed);
        CountedBytes {
            count: self.0,
            bytes,
        }
    }
}

impl Drop for GarbageCounter {
    fn drop(&mut self) {
        // The owner's one is subtracted as counted bytes are.
        drop(CountedBytes {
            count: self.0,
            bytes: 1,
        });
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        // SAFETY: these bytes are still counted, or there are none and the owner's one is.
        let count = unsafe { self.count.as_ref() };
        // ORDERING: AcqRel: who takes the last of it frees the count behind everybody else's use.
        if self.bytes > 0 && count.fetch_sub(self.bytes, AcqRel) == self.bytes {
            // SAFETY: made by `GarbageCounter::new`, and nobody is left who could use it.
            drop(unsafe { Box::from_raw(self.count.as_ptr()) });
        }
    }
}

/// One pointer to an immutable value: read without a lock, replaced by compare-and-set.
pub(crate) struct Root<T>(Atomic<T>);

/// A replaced value; threads that pinned earlier may still read it.
#[must_use = "the value leaks"]
pub(crate) struct Unlinked<'g, T> {
    value: Shared<'g, T>,
    guard: &'g Guard,
}

impl<T: Send + Sync + 'static> Unlinked<'_, T> {
    /// Destroys the value and frees `also` after a grace period.
    pub(crate) fn destroy_with(self, also: Option<Garbage>) {
        // SAFETY: the pointer is never null.
        let data = unsafe { NonNull::new_unchecked(self.value.as_raw().cast_mut().cast()) };
        // SAFETY: the value was unlinked by `replace`, which made the only token for it; later pins do not reach it,
        // and any thread may destroy a `Send` value. Three words go into the epoch's own lists as they are.
        unsafe {
            self.guard.defer_unchecked(move || {
                Garbage::new(data, destroy::<T>).is_over();
                also.into_iter().for_each(Garbage::is_over);
            });
        }
    }
}

/// Moves a value to the heap.
fn place<T>(value: T) -> NonNull<T> {
    const { assert!(align_of::<T>() <= slab::ALIGNMENT && size_of::<T>() > 0) }
    let place = slab::allocate(size_of::<T>()).cast::<T>();
    // SAFETY: the memory is large and aligned enough, and nobody else knows it.
    unsafe { place.write(value) };
    place
}

/// # Safety
///
/// `value` came from [`place`] for a `T`, and nobody uses it any more.
unsafe fn destroy<T>(value: NonNull<()>) {
    // SAFETY: the caller's contract.
    unsafe {
        value.cast::<T>().drop_in_place();
        slab::release(value.cast(), size_of::<T>());
    }
}

impl<T: Send + Sync + 'static> Root<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Atomic::from(place(value).as_ptr().cast_const()))
    }

    /// Returns the current value; the pin keeps it alive.
    #[inline]
    pub(crate) fn load<'g>(&'g self, guard: &'g Guard) -> &'g T {
        // ORDERING: Acquire pairs with the release of `replace`: the value is complete when seen.
        let current = self.0.load(Acquire, guard);
        // SAFETY: the pointer is never null, comes from `place`, and is destroyed only through the epoch after it
        // was unlinked, which waits for `guard`.
        unsafe { current.deref() }
    }

    /// Replaces `current` by `new`; returns `None` if another value is there now.
    ///
    /// `current` was loaded under `guard`, so its address cannot have been reused: there is no ABA problem.
    pub(crate) fn replace<'g>(
        &self,
        current: &T,
        new: T,
        guard: &'g Guard,
    ) -> Option<Unlinked<'g, T>> {
        let expected = Shared::from(std::ptr::from_ref(current));
        let new = place(new).as_ptr();
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
            unsafe { destroy::<T>(NonNull::new_unchecked(new.cast())) };
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
            destroy::<T>(NonNull::new_unchecked(last.as_raw().cast_mut().cast()));
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
