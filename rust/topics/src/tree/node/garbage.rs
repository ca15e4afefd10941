//! Frees blocks: retired ones after a grace period, and all blocks of a dropped tree.

use std::ptr::NonNull;
use std::slice;

use smallvec::SmallVec;

use super::block::{BlockMemory, GroupCursor, WORD_BYTES};
use super::edit::Size;
use super::word::{View, Word};
use crate::sync::{CountedBytes, Garbage, GarbageCounter, Root, slab};

/// Bytes that an epoch needs for one deferral: 4 words in a list of 64 with a head, which writers close half
/// full.
const DEFERRAL_BYTES: usize = 72;

/// Blocks that wait for their grace period: a small pointer.
pub(super) struct GarbageList(NonNull<GarbageListHead>);

/// The header before the words of a list.
struct GarbageListHead {
    counted: CountedBytes,
    count: usize,
}

impl GarbageList {
    /// Creates a list of blocks of `blocks` bytes that no later pin can reach. Counts all bytes that wait with them:
    /// the list, a version of `version` bytes, and the overhead of the epoch.
    pub(super) fn new(
        words: &[Word<'_>],
        garbage: &GarbageCounter,
        (blocks, version): (usize, usize),
    ) -> Self {
        let own = Self::bytes(words.len());
        let head = slab::allocate(own).cast::<GarbageListHead>();
        let rest = slab::rounded(version) + slab::rounded(own) + DEFERRAL_BYTES;
        let counted = garbage.charge(blocks + rest);
        // SAFETY: the memory holds the head and behind it the words, and nobody else knows it. Only the lifetime of
        // the words changes; the list frees the blocks when no pin needs them any more.
        unsafe {
            head.write(GarbageListHead {
                counted,
                count: words.len(),
            });
            let target = head.add(1).cast::<Word<'_>>();
            target.copy_from_nonoverlapping(NonNull::from(words).cast(), words.len());
        }
        Self(head)
    }

    fn bytes(count: usize) -> usize {
        size_of::<GarbageListHead>() + count * WORD_BYTES
    }

    /// Turns the list into garbage. Any thread may free it: blocks belong to no thread, and only cursors have drop
    /// code.
    pub(super) fn into_garbage(self) -> Garbage {
        // SAFETY: the list owns its blocks, and this pointer is the only one to it.
        unsafe { Garbage::new(self.0.cast(), Self::free) }
    }

    /// # Safety
    ///
    /// `list` is that of `into_garbage`, and the grace period of its blocks is over.
    unsafe fn free(list: NonNull<()>) {
        let head = list.cast::<GarbageListHead>();
        // SAFETY: written by `new`, and read out once.
        let GarbageListHead { counted, count } = unsafe { head.read() };
        // SAFETY: `new` wrote `count` words behind the head.
        let words =
            unsafe { slice::from_raw_parts(head.add(1).cast::<Word<'static>>().as_ptr(), count) };
        // The headers of the blocks have their sizes, and may not be in the processor's cache any more.
        for word in words {
            word.prefetch_head();
        }
        for word in words {
            // SAFETY: the grace period is over, and each block is in one list only.
            unsafe { free(*word) };
        }
        // SAFETY: allocated by `new` with these bytes; nobody else knows it.
        unsafe { slab::release(head.cast(), Self::bytes(count)) };
        drop(counted);
    }
}

/// Frees the block or cursor of `word`.
///
/// # Safety
///
/// Nobody reaches it any more, and nobody else frees it.
unsafe fn free(word: Word<'_>) {
    if let View::Cell(cursor) = word.view() {
        // SAFETY: the cells that are freed here are made by `Edit::make_group_cursor`; the rest is the
        // caller's contract.
        unsafe { cursor.cast::<GroupCursor>().drop_in_place() };
    }
    if let Some(BlockMemory { start, bytes, .. }) = word.memory() {
        // SAFETY: blocks are allocated with the size in their header, cursors with that of their type.
        unsafe { slab::release(start, bytes) };
    }
}

/// Frees everything that `roots` reach, cells with `free_cell`. Uses a list instead of recursion.
///
/// # Safety
///
/// Nobody else reaches any of it, now or later.
unsafe fn free_all(roots: &[Word<'_>], mut free_cell: impl FnMut(Word<'_>)) {
    let mut pending = roots.to_vec();
    while let Some(word) = pending.pop() {
        if let View::Cell(_) = word.view() {
            free_cell(word);
        } else {
            pending.extend_from_slice(word.children());
            // SAFETY: the caller's contract; each block has one parent, so it is visited once.
            unsafe { free(word) };
        }
    }
}

/// A state of a tree. All states of a [`Root`] except the last one are retired block by block.
pub(crate) trait TreeVersion: Send + Sync + 'static {
    fn empty() -> Self;

    /// The root words of the state.
    fn roots(&self) -> SmallVec<[Word<'_>; 5]>;
}

/// Frees a tree whose cells are cursors, at once: no other thread uses it.
pub(crate) fn clear(root: &mut Root<impl TreeVersion>) {
    // SAFETY: cursors are freed as blocks are, under the contract of `clear_with`.
    clear_with(root, |cursor| unsafe { free(cursor) });
}

/// Frees a tree at once, its cells with `free_cell`: no other thread uses it.
pub(crate) fn clear_with<V: TreeVersion>(root: &mut Root<V>, free_cell: impl FnMut(Word<'_>)) {
    let last = std::mem::replace(root.get_mut(), V::empty());
    // SAFETY: the root was the only way to the last version, and is borrowed exclusively; what was retired before is
    // not reachable from the last version.
    unsafe { free_all(&last.roots(), free_cell) };
}

/// Returns the size of everything that `roots` reach.
pub(crate) fn measure(roots: &[Word<'_>]) -> Size {
    let mut size = Size::default();
    let mut pending = roots.to_vec();
    while let Some(word) = pending.pop() {
        let Some(BlockMemory { bytes, .. }) = word.memory() else {
            continue;
        };
        size.nodes += 1;
        size.bytes += slab::rounded(bytes);
        pending.extend_from_slice(word.children());
    }
    size
}

/// The heap bytes of a block, without the overhead of the allocator.
pub(super) fn bytes_of(word: Word<'_>) -> usize {
    word.memory()
        .map_or(0, |memory| slab::rounded(memory.bytes))
}
