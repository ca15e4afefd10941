//! Allocates memory for blocks and versions; freed pieces are cached in lists of the thread, by size class.
//!
//! A commit frees as many blocks as it allocates, and of the same few sizes, but in bursts, when an epoch ends. The
//! lists hold a whole burst. If the lists of a thread hold more than [`MOST_BYTES`], all of them return to the chunks:
//! a tree that grows frees sizes that it no longer needs, and other sizes can then use their spans. The lists of a
//! thread that ends return, too. A lock protects the chunks; a commit takes it now and then, as it would take a lock of
//! the system's allocator.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard};

use crate::chunks::Chunks;
use crate::fork::lock;
use crate::prefetch;

/// Alignment of every piece, in bytes.
pub const ALIGNMENT: usize = 16;

/// Largest size, that of a full HAMT block, for which size classes are [`ALIGNMENT`] bytes apart.
pub(crate) const FINE_BYTES: usize = 33 * ALIGNMENT;

/// Distance in bytes of the larger size classes. Pieces above the largest class are not cached.
const COARSE_STEP: usize = 128;
const COARSE_BYTES: usize = FINE_BYTES + 12 * COARSE_STEP;

const FINE_CLASSES: usize = FINE_BYTES / ALIGNMENT;
pub(crate) const CLASSES: usize = FINE_CLASSES + (COARSE_BYTES - FINE_BYTES) / COARSE_STEP;

/// Maximum number of bytes in the lists of one thread.
const MOST_BYTES: usize = 512 << 10;

/// Bytes that an empty list takes from the chunks at once.
const REFILL_BYTES: usize = 1024;

/// Whether pieces come from lists. Under Miri each piece is a separate allocation, so that Miri finds uses after
/// release, unless `--cfg pooled` is set (`make miri` runs both).
const IS_POOLED: bool = cfg!(any(not(miri), pooled));

/// The first piece of a list; each piece holds the address of the next.
type Free = Cell<*mut u8>;

/// Number of chunks that use small pages.
const SMALL_PAGED: usize = 2;

/// The chunks from which the lists of all threads are filled.
pub(crate) static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks::new(SMALL_PAGED));

fn chunks() -> MutexGuard<'static, Chunks> {
    lock(&CHUNKS)
}

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
    #[inline]
    fn take(&self, class: usize) -> Option<NonNull<u8>> {
        let head = NonNull::new(self.heads[class].get())?;
        // SAFETY: a piece in a list is free memory of this thread, large and aligned enough for an address, which
        // `put` wrote.
        let next = unsafe { head.cast::<*mut u8>().read() };
        prefetch(next);
        self.heads[class].set(next);
        self.bytes.set(self.bytes.get() - class_bytes(class));
        Some(head)
    }

    #[inline]
    fn put(&self, class: usize, piece: NonNull<u8>) {
        self.bytes.set(self.bytes.get() + class_bytes(class));
        // SAFETY: the piece was given up by its owner, and is large and aligned enough for an address.
        unsafe { piece.cast::<*mut u8>().write(self.heads[class].get()) };
        self.heads[class].set(piece.as_ptr());
    }

    /// Returns all lists to the chunks if they hold too much.
    #[inline]
    fn limit(&self) {
        if self.bytes.get() > MOST_BYTES {
            self.trim();
        }
    }

    /// Fills an empty list and takes one piece from it.
    #[cold]
    fn refill(&self, class: usize) -> NonNull<u8> {
        let mut chunks = chunks();
        for _ in 0..REFILL_BYTES / class_bytes(class) {
            self.put(class, chunks.take(class));
        }
        chunks.take(class)
    }

    #[cold]
    fn trim(&self) {
        let mut chunks = chunks();
        for class in 0..CLASSES {
            while let Some(piece) = self.take(class) {
                // SAFETY: a piece in a list came from the chunks with its class, and is not in use.
                unsafe { chunks.put(class, piece) };
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

/// Returns the size of the piece for `bytes`.
#[inline]
pub const fn rounded(bytes: usize) -> usize {
    if bytes > FINE_BYTES && bytes <= COARSE_BYTES {
        FINE_BYTES + (bytes - FINE_BYTES).next_multiple_of(COARSE_STEP)
    } else {
        bytes.next_multiple_of(ALIGNMENT)
    }
}

/// The size class for `bytes`, which must not be 0; `None` if they are too many for a class.
#[inline]
pub(crate) const fn class_of(bytes: usize) -> Option<usize> {
    if bytes <= FINE_BYTES {
        Some((bytes - 1) / ALIGNMENT)
    } else if bytes <= COARSE_BYTES {
        Some(FINE_CLASSES + (bytes - FINE_BYTES - 1) / COARSE_STEP)
    } else {
        None
    }
}

/// The piece size of each class in bytes.
static CLASS_BYTES: [usize; CLASSES] = {
    let (mut table, mut class, mut bytes) = ([0; CLASSES], 0, 0);
    while class < CLASSES {
        bytes += if class < FINE_CLASSES {
            ALIGNMENT
        } else {
            COARSE_STEP
        };
        table[class] = bytes;
        class += 1;
    }
    table
};

#[inline]
pub(crate) const fn class_bytes(class: usize) -> usize {
    CLASS_BYTES[class]
}

fn layout(rounded: usize) -> Layout {
    // INVARIANT: blocks and versions are far smaller than the address space.
    Layout::from_size_align(rounded, ALIGNMENT).expect("a piece of memory is small")
}

/// Returns memory of at least `bytes`, which must not be 0; [`release`] frees it.
#[inline]
pub fn allocate(bytes: usize) -> NonNull<u8> {
    let (true, Some(class)) = (IS_POOLED, class_of(bytes)) else {
        return allocate_apart(rounded(bytes));
    };
    let piece = POOL.try_with(|pool| {
        let piece = pool.take(class);
        piece.unwrap_or_else(|| pool.refill(class))
    });
    piece.unwrap_or_else(|_| chunks().take(class))
}

#[cold]
fn allocate_apart(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout's size is not 0.
    let piece = unsafe { alloc(layout) };
    NonNull::new(piece).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees memory.
///
/// # Safety
///
/// `piece` came from [`allocate`] with the same `bytes`, on any thread, and is no longer in use.
#[inline]
pub unsafe fn release(piece: NonNull<u8>, bytes: usize) {
    let (true, Some(class)) = (IS_POOLED, class_of(bytes)) else {
        // SAFETY: the caller's contract: with the same `bytes`, the layout is the same.
        return unsafe { dealloc(piece.as_ptr(), layout(rounded(bytes))) };
    };
    let kept = POOL.try_with(|pool| {
        pool.put(class, piece);
        pool.limit();
    });
    if kept.is_err() {
        // SAFETY: the caller's contract: the piece came from the chunks with this class, through a list or directly.
        unsafe { chunks().put(class, piece) };
    }
}

/// Returns the lists of this thread to the chunks, and the spare chunk to the system.
pub fn trim() {
    let _ = POOL.try_with(Pool::trim);
    chunks().trim();
}

/// Bytes of the pieces of all threads, including those in lists.
pub fn used_bytes() -> usize {
    chunks().used_bytes()
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn each_size_has_the_class_of_its_rounded_size() {
        for bytes in 1..=COARSE_BYTES {
            let class = class_of(bytes).unwrap();
            assert_eq!(class_of(rounded(bytes)), Some(class));
            assert_eq!(class_bytes(class), rounded(bytes));
            assert!(rounded(bytes) >= bytes);
        }
        assert_eq!(class_of(rounded(COARSE_BYTES)), Some(CLASSES - 1));
        assert_eq!(class_of(rounded(COARSE_BYTES + 1)), None);
    }

    #[test]
    #[cfg_attr(all(miri, not(pooled)), ignore = "the lists are off")]
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
    #[cfg_attr(all(miri, not(pooled)), ignore = "the lists are off")]
    fn lists_that_hold_too_much_go_back_with_all_sizes() {
        trim();
        let large = iter::repeat_n(FINE_BYTES, MOST_BYTES / FINE_BYTES + 1);
        let sizes = iter::once(ALIGNMENT).chain(large);
        let pieces: Vec<_> = sizes.map(|bytes| (allocate(bytes), bytes)).collect();

        for (piece, bytes) in pieces {
            // SAFETY: allocated above, with the same size, and not used.
            unsafe { release(piece, bytes) };
        }

        POOL.with(|pool| {
            assert!(pool.heads[0].get().is_null());
            assert!(pool.bytes.get() < MOST_BYTES / 100);
        });
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
