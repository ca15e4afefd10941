//! One word of the tree: nothing, a small value, or a tagged pointer to a block.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::block::{Block, BlockHeader, Branches};
use crate::sync::prefetch;

const _: () = assert!(
    usize::BITS == 64,
    "a word holds a pointer or a 64-bit subscription"
);

pub(crate) use mqttcore_slab::ALIGNMENT;

/// Blocks are aligned so that four bits of their address are free for the tag.
const TAG_BITS: usize = ALIGNMENT - 1;
const INLINE: usize = 1;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// The kind of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BlockKind {
    /// A 64-way branch by hash: a bitmap, and one word for each bit.
    Hamt = 0,
    /// The only filter of its subtree: hash in the tag, the payload as word, the handle of the subscriber if there is
    /// only one subscription, and the remaining levels as text.
    Leaf = 1,
    /// A level with several filters below: hash in the tag, the fields of its node, its level as text.
    Entry = 2,
    /// Leaves and entries whose hashes are equal, ordered by level.
    Collision = 3,
    /// Subscriptions, ordered by subscriber.
    Array = 4,
    /// A 16-way branch by subscriber: bitmap and shift in the tag, prefix and count as first word.
    Branch = 5,
    /// Plain subscriptions and the map of groups; or, in that map, a group's subscriptions and its cursor.
    Extended = 6,
    /// Mutable data outside of the blocks: a group's cursor, or a retained value.
    Cell = 7,
}

/// A word that was read or made under the pin `'g`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Word<'g> {
    bits: *const (),
    life: PhantomData<&'g BlockHeader>,
}

/// A decoded word.
#[derive(Clone, Copy)]
pub(crate) enum View<'g> {
    Empty,
    Inline(u64),
    Hamt(Branches<'g>),
    Leaf(Block<'g>),
    Entry(Block<'g>),
    Collision(Block<'g>),
    Array(Block<'g>),
    Branch(Block<'g>),
    Extended(Block<'g>),
    Cell(NonNull<()>),
}

impl<'g> Word<'g> {
    pub(crate) const EMPTY: Self = Self::new(ptr::null());

    const fn new(bits: *const ()) -> Self {
        Self {
            bits,
            life: PhantomData,
        }
    }

    /// Stores a value whose lowest bit is set.
    pub(crate) fn inline(value: u64) -> Self {
        debug_assert!(value & 1 == 1, "the lowest bit tells values from pointers");
        let address = usize::try_from(value).unwrap_or(INLINE);
        Self::new(ptr::without_provenance(address | INLINE))
    }

    /// Points to a block or cell, which is aligned to [`ALIGNMENT`].
    pub(super) fn pointer(kind: BlockKind, block: NonNull<()>) -> Self {
        debug_assert!(block.addr().get() & TAG_BITS == 0, "blocks are aligned");
        Self::new(
            block
                .as_ptr()
                .map_addr(|address| address | ((kind as usize) << 1)),
        )
    }

    /// A word of the same kind with another block.
    pub(super) fn with_block(self, block: NonNull<()>) -> Self {
        let tag = self.bits.addr() & TAG_BITS;
        Self::new(block.as_ptr().map_addr(|address| address | tag))
    }

    /// Points to a cell, which is aligned to [`ALIGNMENT`].
    pub(crate) fn cell(cell: NonNull<()>) -> Self {
        Self::pointer(BlockKind::Cell, cell)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.bits.is_null()
    }

    /// Whether both words are the same value or point to the same block.
    pub(crate) fn is_same(self, other: Word<'_>) -> bool {
        ptr::eq(self.bits, other.bits)
    }

    /// Prefetches the block that the word points to. A hint, without any other effect.
    ///
    /// Of a HAMT block it prefetches the bitmap and the lines that may hold the slot of `digit`; of other blocks the
    /// first one or two lines.
    #[inline]
    pub(crate) fn prefetch(self, digit: u32) {
        if self.bits.addr() & INLINE == 0 {
            let block = self.bits.map_addr(|address| address & !TAG_BITS);
            prefetch(block);
            let block = block.cast::<u8>();
            if self.bits.addr() & TAG_BITS == (BlockKind::Hamt as usize) << 1 {
                prefetch(block.wrapping_add(LINE));
                prefetch(block.wrapping_add((1 + digit as usize) * size_of::<u64>()));
            } else {
                prefetch(block.wrapping_add(LINE / 2));
            }
        }
    }

    /// Prefetches the first line of the block that the word points to.
    #[inline]
    pub(super) fn prefetch_head(self) {
        prefetch(self.bits.map_addr(|address| address & !TAG_BITS));
    }

    /// The value of an inline word; meaningless for others.
    pub(crate) fn value(self) -> u64 {
        self.bits.addr() as u64
    }

    pub(crate) fn is_hamt(self) -> bool {
        matches!(self.view(), View::Hamt(_))
    }

    #[inline]
    pub(crate) fn view(self) -> View<'g> {
        #[cfg(test)]
        VIEWS.with(|views| views.set(views.get() + 1));
        let address = self.bits.addr();
        if address & INLINE != 0 {
            return View::Inline(address as u64);
        }
        let kind = (address & TAG_BITS) >> 1;
        let pointer = self.bits.map_addr(|address| address & !TAG_BITS).cast_mut();
        let Some(pointer) = NonNull::new(pointer) else {
            return View::Empty;
        };
        if kind == BlockKind::Hamt as usize {
            // SAFETY: a word of this kind was made by `pointer` from a live HAMT block, which is not freed before
            // the pin `'g` ends.
            return View::Hamt(unsafe { Branches::from_raw(pointer.cast()) });
        }
        if kind == BlockKind::Cell as usize {
            return View::Cell(pointer);
        }
        // SAFETY: a word of any other kind was made by `pointer` from a live block, which is not freed before the pin
        // `'g` ends.
        let block = unsafe { Block::from_raw(pointer.cast()) };
        match kind {
            1 => View::Leaf(block),
            2 => View::Entry(block),
            3 => View::Collision(block),
            4 => View::Array(block),
            5 => View::Branch(block),
            _ => View::Extended(block),
        }
    }

    /// The block that the word points to; `None` for a HAMT block and for words that are not pointers.
    pub(crate) fn block(self) -> Option<Block<'g>> {
        match self.view() {
            View::Empty | View::Inline(_) | View::Cell(_) | View::Hamt(_) => None,
            View::Leaf(block)
            | View::Entry(block)
            | View::Collision(block)
            | View::Array(block)
            | View::Branch(block)
            | View::Extended(block) => Some(block),
        }
    }
}

/// A word in a version. It outlives pins: the epoch keeps the version as long as its blocks.
#[repr(transparent)]
pub(crate) struct Stored(Word<'static>);

impl Stored {
    pub(crate) const EMPTY: Self = Self(Word::EMPTY);

    /// Reads the word; it is valid while the version is borrowed.
    pub(crate) fn get(&self) -> Word<'_> {
        self.0
    }
}

impl From<Word<'_>> for Stored {
    fn from(word: Word<'_>) -> Self {
        Self(Word::new(word.bits))
    }
}

// SAFETY: what a word points to is immutable or atomic, and reclaimed by whichever thread advances the epoch.
unsafe impl Send for Stored {}
// SAFETY: as above; reading a word changes nothing.
unsafe impl Sync for Stored {}

#[cfg(test)]
thread_local! {
    static VIEWS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Number of words that this thread has decoded: a measure of its work.
#[cfg(all(test, not(any(loom, shuttle, miri))))]
pub(crate) fn views() -> usize {
    VIEWS.get()
}
