//! The heap memory of blocks and versions: what a thread frees waits in its own lists for the next of that size.
//!
//! A commit frees as many blocks as it makes, and of the same few sizes, but in bursts, when an epoch ends. The
//! system's allocator keeps a handful of each size at hand and joins the rest; these lists keep all of a burst.
//! Memory beyond [`MOST_BYTES`] a thread goes back to the system, and so does the list of a thread that ends.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// Every piece of memory is aligned to this.
pub(crate) const ALIGNMENT: usize = 16;

/// What allocators of the malloc family keep in front of a piece: what is 8 bytes short of a multiple of 16 wastes none.
const SHORT: usize = 8;

/// The smallest piece.
const LEAST_BYTES: usize = 2 * ALIGNMENT - SHORT;

/// Sizes up to here, a full HAMT block, are told apart by [`ALIGNMENT`], ...
const FINE_BYTES: usize = LEAST_BYTES + 31 * ALIGNMENT;

/// ... and up to here by this many bytes; larger ones are no business of the lists.
const COARSE_STEP: usize = 128;
const COARSE_BYTES: usize = FINE_BYTES + 12 * COARSE_STEP;

const FINE_CLASSES: usize = 1 + (FINE_BYTES - LEAST_BYTES) / ALIGNMENT;
const CLASSES: usize = FINE_CLASSES + (COARSE_BYTES - FINE_BYTES) / COARSE_STEP;

/// The most that the lists of one thread hold.
const MOST_BYTES: usize = 2 << 20;

/// Under Miri each piece is allocated anew, so that it sees what is used after it was freed.
const IS_POOLED: bool = !cfg!(miri);

/// A piece in a list: its memory holds the address of the next.
type Free = Cell<*mut u8>;

struct Pool {
    heads: [Free; CLASSES],
    bytes: Cell<usize>,
}

thread_local! {
    static POOL: Pool = const {
        Pool {
            heads: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            bytes: Cell::new(0),
        }
    };
}

impl Pool {
    fn take(&self, class: usize, bytes: usize) -> Option<NonNull<u8>> {
        let head = NonNull::new(self.heads[class].get())?;
        // SAFETY: a piece in a list is free memory of this thread, large and aligned enough for an address, which
        // `put` wrote.
        let next = unsafe { head.cast::<*mut u8>().read() };
        self.heads[class].set(next);
        self.bytes.set(self.bytes.get() - bytes);
        Some(head)
    }

    /// Keeps a piece; `false` when the lists are full.
    fn put(&self, class: usize, bytes: usize, piece: NonNull<u8>) -> bool {
        let held = self.bytes.get() + bytes;
        if held > MOST_BYTES {
            return false;
        }
        self.bytes.set(held);
        // SAFETY: the piece was given up by its owner, and is large and aligned enough for an address.
        unsafe { piece.cast::<*mut u8>().write(self.heads[class].get()) };
        self.heads[class].set(piece.as_ptr());
        true
    }

    fn trim(&self) {
        for class in 0..CLASSES {
            let bytes = class_bytes(class);
            while let Some(piece) = self.take(class, bytes) {
                // SAFETY: the piece was allocated with the size of its class, and left its list.
                unsafe { dealloc(piece.as_ptr(), layout(bytes)) };
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

/// Returns how many bytes a piece of at least `bytes` takes.
#[inline]
pub(crate) const fn rounded(bytes: usize) -> usize {
    if bytes <= LEAST_BYTES {
        LEAST_BYTES
    } else if bytes > FINE_BYTES && bytes <= COARSE_BYTES {
        FINE_BYTES + (bytes - FINE_BYTES).next_multiple_of(COARSE_STEP)
    } else {
        (bytes + SHORT).next_multiple_of(ALIGNMENT) - SHORT
    }
}

/// The list of a rounded size; `None` for what is too large.
#[inline]
const fn class_of(rounded: usize) -> Option<usize> {
    if rounded > COARSE_BYTES {
        None
    } else if rounded <= FINE_BYTES {
        Some((rounded - LEAST_BYTES) / ALIGNMENT)
    } else {
        Some(FINE_CLASSES + (rounded - FINE_BYTES) / COARSE_STEP - 1)
    }
}

const fn class_bytes(class: usize) -> usize {
    if class < FINE_CLASSES {
        LEAST_BYTES + class * ALIGNMENT
    } else {
        FINE_BYTES + (class + 1 - FINE_CLASSES) * COARSE_STEP
    }
}

fn layout(rounded: usize) -> Layout {
    // INVARIANT: blocks and versions are far smaller than the address space.
    Layout::from_size_align(rounded, ALIGNMENT).expect("a piece of memory is small")
}

/// Returns memory of at least `bytes`, which are not 0; [`release`] takes it back.
#[inline]
pub(crate) fn allocate(bytes: usize) -> NonNull<u8> {
    let bytes = rounded(bytes);
    if let (true, Some(class)) = (IS_POOLED, class_of(bytes))
        && let Ok(Some(piece)) = POOL.try_with(|pool| pool.take(class, bytes))
    {
        return piece;
    }
    allocate_anew(bytes)
}

#[cold]
fn allocate_anew(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout's size is not 0.
    let piece = unsafe { alloc(layout) };
    NonNull::new(piece).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Takes memory back.
///
/// # Safety
///
/// `piece` came from [`allocate`] with the same `bytes`, on any thread, and nobody uses it any more.
#[inline]
pub(crate) unsafe fn release(piece: NonNull<u8>, bytes: usize) {
    let bytes = rounded(bytes);
    if let (true, Some(class)) = (IS_POOLED, class_of(bytes))
        && let Ok(true) = POOL.try_with(|pool| pool.put(class, bytes, piece))
    {
        return;
    }
    // SAFETY: the caller's promise; sizes that differ have the same rounded size or another layout.
    unsafe { dealloc(piece.as_ptr(), layout(bytes)) };
}

/// Gives what this thread's lists hold back to the system.
pub(crate) fn trim() {
    let _ = POOL.try_with(Pool::trim);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_the_class_of_its_rounded_size() {
        for bytes in 1..=COARSE_BYTES {
            let class = class_of(rounded(bytes)).unwrap();
            assert_eq!(class_bytes(class), rounded(bytes));
            assert!(rounded(bytes) >= bytes);
        }
        assert_eq!(class_of(rounded(COARSE_BYTES)), Some(CLASSES - 1));
        assert_eq!(class_of(rounded(COARSE_BYTES + 1)), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the lists are off under Miri")]
    fn what_is_released_is_given_again_until_it_is_trimmed() {
        let first = allocate(40);
        // SAFETY: allocated above, with the same size, and not used.
        unsafe { release(first, 40) };
        let second = allocate(33);
        assert_eq!(first, second);
        // SAFETY: as above.
        unsafe { release(second, 33) };

        trim();

        assert_eq!(POOL.with(|pool| pool.bytes.get()), 0);
    }

    #[test]
    fn large_pieces_pass_the_lists_by() {
        let before = POOL.with(|pool| pool.bytes.get());
        let piece = allocate(1 << 20);
        // SAFETY: allocated above, with the same size, and not used.
        unsafe { release(piece, 1 << 20) };
        assert_eq!(POOL.with(|pool| pool.bytes.get()), before);
    }
}
