//! The cell of one topic's value: shared by all versions that have the topic, replaced in place.
//!
//! A cell is created with a value and loses it once. Then it stays empty: a writer that finds it in a version unlinks
//! it or replaces it by a new cell. So replacing a value copies no path, and a reader never finds none between the
//! old and the new value.

use std::ptr::NonNull;

use crate::sync::{AcqRel, Acquire, Atomic, Guard, Owned, Root, Shared};
use crate::tree::node::{TreeVersion, clear_with};
use crate::tree::word::{View, Word};

/// The value; null after it was removed.
#[repr(align(16))]
pub(crate) struct Cell<V>(Atomic<V>);

impl<V: Send + Sync + 'static> Cell<V> {
    fn new(value: V) -> Self {
        Self(Atomic::new(value))
    }

    /// Returns the value, unless it was removed; the pin keeps it alive.
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> Option<&'g V> {
        // ORDERING: Acquire pairs with the release of whoever stored the value.
        let value = self.0.load(Acquire, guard);
        // SAFETY: the value comes from `Owned` and is destroyed through the epoch only.
        unsafe { value.as_ref() }
    }

    /// Replaces the value and returns the previous one; returns `value` as an error if the cell has lost its value.
    pub(crate) fn replace<'g>(&self, value: V, guard: &'g Guard) -> Result<&'g V, V> {
        let mut new = Owned::new(value);
        // ORDERING: as in `load`.
        let mut current = self.0.load(Acquire, guard);
        while !current.is_null() {
            // ORDERING: release publishes the new value, acquire is for reading the old one.
            match self
                .0
                .compare_exchange(current, new, AcqRel, Acquire, guard)
            {
                // SAFETY: this thread unlinked `current`.
                Ok(_) => return Ok(unsafe { retire(current, guard) }),
                Err(lost) => (new, current) = (lost.new, lost.current),
            }
        }
        Err(*new.into_box())
    }

    /// Removes the value if `is_due` returns true for it; `None` also if another thread removed it.
    pub(crate) fn take_if<'g>(
        &self,
        is_due: impl Fn(&V) -> bool,
        guard: &'g Guard,
    ) -> Option<&'g V> {
        // ORDERING: as in `load`.
        let mut current = self.0.load(Acquire, guard);
        loop {
            // SAFETY: the value comes from `Owned` and is destroyed through the epoch only.
            let value = unsafe { current.as_ref() }?;
            if !is_due(value) {
                return None;
            }
            let gone = Shared::null();
            // ORDERING: acquire is for reading the old value, release orders the end of this cell behind it.
            match self
                .0
                .compare_exchange(current, gone, AcqRel, Acquire, guard)
            {
                // SAFETY: this thread unlinked `current`.
                Ok(_) => return Some(unsafe { retire(current, guard) }),
                Err(lost) => current = lost.current,
            }
        }
    }
}

impl<V> Drop for Cell<V> {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut self.0, Atomic::null());
        // SAFETY: `&mut self` excludes readers and writers, and the pointer is null or comes from `Owned`.
        drop(unsafe { last.try_into_owned() });
    }
}

/// Returns an unlinked value for as long as the pin, and destroys it later.
///
/// # Safety
///
/// The caller, and nobody else, unlinked `value`, which is not null.
unsafe fn retire<'g, V>(value: Shared<'g, V>, guard: &'g Guard) -> &'g V {
    // SAFETY: the caller's contract; the epoch keeps the value until the pin ends.
    unsafe {
        guard.defer_destroy(value);
        value.deref()
    }
}

/// Cells as words. All cells of a tree are of one type: that of the store that the tree belongs to.
impl<V: Send + Sync + 'static> Cell<V> {
    /// Makes a cell; no version links it yet.
    pub(crate) fn make<'g>(value: V) -> Word<'g> {
        Word::cell(NonNull::from(Box::leak(Box::new(Self::new(value)))).cast())
    }

    /// Returns the cell of a word that was reached under a pin, or just made.
    pub(crate) fn of(word: Word<'_>) -> Option<&Self> {
        match word.view() {
            // SAFETY: the cells of this tree are made by `make`, and destroyed through the epoch after they were
            // unlinked.
            View::Cell(cell) => Some(unsafe { cell.cast().as_ref() }),
            _ => None,
        }
    }

    /// Destroys a cell that the caller unlinked, or never linked, after a grace period.
    pub(crate) fn retire(word: Word<'_>, guard: &Guard) {
        let View::Cell(cell) = word.view() else {
            return;
        };
        let cell = Shared::from(cell.cast::<Self>().as_ptr().cast_const());
        // SAFETY: `make` leaked a box, which is what `Owned` is made of; the caller unlinked it, once.
        unsafe { guard.defer_destroy(cell) };
    }

    /// Empties a whole tree of these cells at once: no other thread uses it.
    pub(crate) fn clear_all(root: &mut Root<impl TreeVersion>) {
        clear_with(root, |word| {
            if let View::Cell(cell) = word.view() {
                // SAFETY: `make` leaked a box; the cell was reached from the last version, once.
                drop(unsafe { Box::from_raw(cell.cast::<Self>().as_ptr()) });
            }
        });
    }
}
