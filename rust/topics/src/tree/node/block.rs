//! Blocks of the tree, and how they are read.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use super::word::{LINE, View, Word};
use crate::SubscriptionFilter;
use crate::sync::{AtomicU32, ones, prefetch, slab};

/// The first 8 bytes of a block.
#[repr(C)]
pub(crate) struct BlockHeader {
    pub(super) tag: u32,
    pub(super) words: u16,
    pub(super) text: u16,
}

pub(super) const HEADER_BYTES: usize = size_of::<BlockHeader>();
pub(super) const WORD_BYTES: usize = size_of::<Word<'static>>();

/// The largest HAMT block.
const FULL_BRANCHES_BYTES: usize = HEADER_BYTES + u64::BITS as usize * WORD_BYTES;

/// A block; the pin `'g` keeps it alive.
#[derive(Clone, Copy)]
pub(crate) struct Block<'g> {
    header: NonNull<BlockHeader>,
    life: PhantomData<&'g BlockHeader>,
}

impl<'g> Block<'g> {
    /// # Safety
    ///
    /// `header` begins a block made by [`Edit::make`] that is not freed before `'g` ends.
    #[inline]
    pub(in crate::tree) unsafe fn from_raw(header: NonNull<BlockHeader>) -> Self {
        Self {
            header,
            life: PhantomData,
        }
    }

    #[inline]
    fn header(self) -> &'g BlockHeader {
        // SAFETY: `from_raw` requires a live block, and headers are never written again.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(crate) fn tag(self) -> u32 {
        self.header().tag
    }

    #[inline]
    pub(crate) fn words(self) -> &'g [Word<'g>] {
        let count = usize::from(self.header().words);
        // SAFETY: `count` words follow the header, initialized and never written again; what they point to lives
        // as long as this block is reachable, and longer than the pin under which it was reached.
        unsafe { slice::from_raw_parts(self.header.add(1).cast().as_ptr(), count) }
    }

    #[inline]
    pub(crate) fn word(self, index: usize) -> Word<'g> {
        self.words()[index]
    }

    #[inline]
    pub(crate) fn text(self) -> &'g [u8] {
        let (words, len) = (
            usize::from(self.header().words),
            usize::from(self.header().text),
        );
        // SAFETY: `len` bytes follow the words, initialized and never written again.
        unsafe {
            let text = self.header.add(1).cast::<Word<'g>>().add(words).cast();
            slice::from_raw_parts(text.as_ptr(), len)
        }
    }
}

/// A HAMT block; the pin `'g` keeps it alive.
#[derive(Clone, Copy)]
pub(crate) struct Branches<'g> {
    bitmap: NonNull<u64>,
    life: PhantomData<&'g u64>,
}

impl<'g> Branches<'g> {
    /// # Safety
    ///
    /// `bitmap` begins a block made by [`Edit::make_branches`] that is not freed before `'g` ends.
    #[inline]
    pub(in crate::tree) unsafe fn from_raw(bitmap: NonNull<u64>) -> Self {
        Self {
            bitmap,
            life: PhantomData,
        }
    }

    /// One bit for each digit that has a slot.
    #[inline]
    pub(crate) fn bitmap(self) -> u64 {
        // SAFETY: `from_raw` requires a live block, and bitmaps are never written again.
        unsafe { self.bitmap.read() }
    }

    /// The slots, in the order of their digits.
    #[inline]
    pub(crate) fn slots(self) -> &'g [Word<'g>] {
        let count = ones(self.bitmap());
        // SAFETY: a word a bit follows the bitmap, initialized and never written again; what they point to lives
        // as long as this block is reachable, and longer than the pin under which it was reached.
        unsafe { slice::from_raw_parts(self.bitmap.add(1).cast().as_ptr(), count) }
    }

    /// The slot of a digit, if there is one; digits are below 64.
    #[inline]
    pub(crate) fn slot(self, digit: u32) -> Option<Word<'g>> {
        let bitmap = self.bitmap();
        if bitmap >> digit & 1 == 0 {
            return None;
        }
        // SAFETY: as in `slots`: as many words stand before this one as bits are set below its own.
        Some(unsafe {
            self.bitmap
                .add(1)
                .cast()
                .add(place_of(bitmap, digit))
                .read()
        })
    }

    /// Prefetches the cache lines in which the slot of a digit may be: most blocks are short or full.
    #[inline]
    pub(crate) fn prefetch(self, digit: u32) {
        let block = self.bitmap.as_ptr().cast::<u8>().cast_const();
        prefetch(block.wrapping_add(LINE));
        prefetch(block.wrapping_add(HEADER_BYTES + digit as usize * WORD_BYTES));
    }

    /// Prefetches all cache lines of a full block that is copied soon.
    #[inline]
    pub(crate) fn prefetch_all(self) {
        let block = self.bitmap.as_ptr().cast::<u8>().cast_const();
        for line in 1..=FULL_BRANCHES_BYTES / LINE {
            prefetch(block.wrapping_add(line * LINE));
        }
    }
}

/// The index of the slot of a digit, present or not.
#[inline]
pub(crate) fn place_of(bitmap: u64, digit: u32) -> usize {
    ones(bitmap & ((1 << digit) - 1))
}

/// The round-robin cursor of a shared group. It is outside of the versions, which share it.
#[repr(C, align(16))]
pub(crate) struct GroupCursor {
    /// Counts the messages of a round robin.
    pub(crate) next: AtomicU32,
    /// The subscriber that took the last message, plus one.
    pub(crate) sticky: AtomicU32,
    /// Name and filter of the group, for looking it up in any version.
    pub(crate) group: SubscriptionFilter,
}

/// The heap bytes of a cursor, without the overhead of the allocator.
pub(crate) const GROUP_CURSOR_BYTES: usize = slab::rounded(size_of::<GroupCursor>());

/// The address of a block, its words, and its size in bytes.
pub(super) struct BlockMemory {
    pub(super) start: NonNull<u8>,
    pub(super) words: usize,
    pub(super) bytes: usize,
}

impl<'g> Word<'g> {
    /// The words of the block that this word points to, if it is a pointer.
    pub(crate) fn children(self) -> &'g [Word<'g>] {
        match self.view() {
            View::Hamt(branches) => branches.slots(),
            _ => self.block().map_or(&[], Block::words),
        }
    }

    /// The memory of the block or cursor that the word points to.
    pub(super) fn memory(self) -> Option<BlockMemory> {
        let (start, words, text) = match self.view() {
            View::Hamt(branches) => (branches.bitmap.cast(), ones(branches.bitmap()), 0),
            View::Cell(cell) => (cell.cast(), 0, size_of::<GroupCursor>() - HEADER_BYTES),
            _ => {
                let block = self.block()?;
                let header = block.header();
                let text = usize::from(header.text);
                (block.header.cast(), usize::from(header.words), text)
            }
        };
        Some(BlockMemory {
            start,
            words,
            bytes: HEADER_BYTES + words * WORD_BYTES + text,
        })
    }

    /// The cursor of a group; `None` if the word is not a cell. Only for words of a directory.
    pub(crate) fn group_cursor(self) -> Option<&'g GroupCursor> {
        match self.view() {
            // SAFETY: the cells of a directory are made by `Edit::make_group_cursor` and freed as blocks are.
            View::Cell(cell) => Some(unsafe { cell.cast().as_ref() }),
            _ => None,
        }
    }
}
