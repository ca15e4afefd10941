//! Edits: make and retire blocks of the tree.

use std::ptr::NonNull;

use smallvec::SmallVec;

use super::block::{BlockHeader, BlockMemory, GroupCursor, HEADER_BYTES, WORD_BYTES};
use super::garbage::{GarbageList, TreeVersion, bytes_of};
use super::word::{BlockKind, View, Word};
use crate::SubscriptionFilter;
use crate::sync::{AtomicU32, GarbageCounter, Guard, Root, ones, slab};

/// The blocks that one attempt to commit makes and retires.
pub(crate) struct Edit<'g> {
    guard: &'g Guard,
    garbage: &'g GarbageCounter,
    fresh: SmallVec<[Word<'g>; 32]>,
    retired: SmallVec<[Word<'g>; 32]>,
    retired_bytes: usize,
    size: Size,
    handles: Option<HandleLookup<'g>>,
    key: Option<u64>,
}

/// Looks up the handle that a leaf stores for the readers of an inline payload; `None` if the handle does not fit
/// into a word.
pub(crate) type HandleLookup<'g> = &'g dyn Fn(u64) -> Option<Word<'g>>;

/// The heap use of a version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    /// Blocks and cells.
    pub(crate) nodes: usize,
    /// Their bytes, without the overhead of the allocator.
    pub(crate) bytes: usize,
}

impl<'g> Edit<'g> {
    /// Begins an attempt on a version of this `size`.
    pub(crate) fn new(guard: &'g Guard, garbage: &'g GarbageCounter, size: Size) -> Self {
        Self {
            guard,
            garbage,
            fresh: SmallVec::new(),
            retired: SmallVec::new(),
            retired_bytes: 0,
            size,
            handles: None,
            key: None,
        }
    }

    /// Enables handles in leaves.
    pub(crate) fn keep_handles(&mut self, handles: HandleLookup<'g>) {
        self.handles = Some(handles);
    }

    /// Sets the key of the subscriber whose subscriptions change; strategies that hash need it.
    pub(crate) fn deal_by(&mut self, key: Option<u64>) {
        self.key = key;
    }

    pub(crate) fn key(&self) -> Option<u64> {
        self.key
    }

    /// Makes a leaf; the payload must not be empty.
    pub(crate) fn make_leaf(&mut self, tag: u32, text: &[&[u8]], payload: Word<'g>) -> Word<'g> {
        let handle = match (self.handles, payload.view()) {
            (Some(handles), View::Inline(value)) => handles(value),
            _ => None,
        };
        self.make(BlockKind::Leaf, tag, &[&[payload], handle.as_slice()], text)
    }

    /// Makes a block of the concatenated `words` and the concatenated `text`.
    pub(crate) fn make(
        &mut self,
        kind: BlockKind,
        tag: u32,
        words: &[&[Word<'g>]],
        text: &[&[u8]],
    ) -> Word<'g> {
        let word_count: usize = words.iter().map(|part| part.len()).sum();
        let text_len: usize = text.iter().map(|part| part.len()).sum();
        let header = BlockHeader {
            tag,
            // INVARIANT: sets split at 256, HAMT nodes have 32 slots, and 65,536 equal keyed hashes do not occur.
            words: u16::try_from(word_count).expect("a block has few words"),
            // INVARIANT: texts are filters, topics or share names, which have at most 65,535 bytes.
            text: u16::try_from(text_len).expect("a text fits its length"),
        };
        let bytes = HEADER_BYTES + word_count * WORD_BYTES + text_len;
        let block = slab::allocate(bytes);
        // SAFETY: the allocation holds the header, then `word_count` words, then `text_len` bytes; nobody else
        // knows it yet, and the sources are other allocations.
        unsafe {
            let head = block.cast::<BlockHeader>();
            head.write(header);
            let target = write_parts(head.add(1).cast(), words);
            write_parts(target.cast(), text);
        }
        self.adopt(Word::pointer(kind, block.cast()), bytes)
    }

    /// Makes a HAMT block of the concatenated `slots`, one for each bit.
    pub(crate) fn make_branches(&mut self, bitmap: u64, slots: &[&[Word<'g>]]) -> Word<'g> {
        let count: usize = slots.iter().map(|part| part.len()).sum();
        assert!(
            count == ones(bitmap),
            "a slot a bit: all readers rely on it"
        );
        let bytes = HEADER_BYTES + count * WORD_BYTES;
        let block = slab::allocate(bytes);
        // SAFETY: the allocation holds the bitmap, then `count` words; nobody else knows it yet, and the sources are
        // other allocations.
        unsafe {
            let head = block.cast::<u64>();
            head.write(bitmap);
            write_parts(head.add(1).cast(), slots);
        }
        self.adopt(Word::pointer(BlockKind::Hamt, block.cast()), bytes)
    }

    /// Copies the block of `word` with other words at these indices, and retires `word`.
    pub(crate) fn with_words<const N: usize>(
        &mut self,
        word: Word<'g>,
        new: [(usize, Word<'g>); N],
    ) -> Word<'g> {
        let Some(BlockMemory {
            start: old,
            words: count,
            bytes,
        }) = word.memory()
        else {
            return word;
        };
        assert!(
            new.iter().all(|(index, _)| *index < count),
            "only words of the block are replaced"
        );
        let block = slab::allocate(bytes);
        // SAFETY: the allocation is as large as the old block, whose header, words and text are initialized and lie
        // together; nobody else knows it yet. Each index is that of one of the words.
        unsafe {
            block.copy_from_nonoverlapping(old, bytes);
            let words = block.add(HEADER_BYTES).cast::<Word<'g>>();
            for (index, new) in new {
                words.add(index).write(new);
            }
        }
        // One entry is added and one removed: the size stays.
        self.retired.push(word);
        self.retired_bytes += slab::rounded(bytes);
        let copy = word.with_block(block.cast());
        self.fresh.push(copy);
        copy
    }

    /// Like [`with_words`](Self::with_words), for one word.
    pub(crate) fn with_word(&mut self, word: Word<'g>, index: usize, new: Word<'g>) -> Word<'g> {
        self.with_words(word, [(index, new)])
    }

    /// Makes the cursor of a new group.
    pub(crate) fn make_group_cursor(&mut self, group: &SubscriptionFilter) -> Word<'g> {
        let cell = slab::allocate(size_of::<GroupCursor>());
        let cursor = GroupCursor {
            next: AtomicU32::new(0),
            sticky: AtomicU32::new(0),
            group: group.clone(),
        };
        // SAFETY: the allocation is large and aligned enough for a `GroupCursor`, and nobody else knows it yet.
        unsafe { cell.cast::<GroupCursor>().write(cursor) };
        self.adopt(Word::cell(cell.cast()), size_of::<GroupCursor>())
    }

    fn adopt(&mut self, word: Word<'g>, bytes: usize) -> Word<'g> {
        self.size.nodes += 1;
        self.size.bytes += slab::rounded(bytes);
        self.fresh.push(word);
        word
    }

    /// Retires the block or cursor that `word` points to, without its children.
    ///
    /// The caller no longer links it in the version that this edit makes. Other words are ignored.
    pub(crate) fn retire(&mut self, word: Word<'g>) {
        let Some(BlockMemory { bytes, .. }) = word.memory() else {
            return;
        };
        let bytes = slab::rounded(bytes);
        self.size.nodes -= 1;
        self.size.bytes -= bytes;
        self.retired_bytes += bytes;
        self.retired.push(word);
    }

    /// The heap use of the version that this edit makes.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Replaces `current` by `next`; `current` was loaded under the pin of this edit. Returns `false` if another
    /// writer was faster. The replaced blocks are freed after a grace period. This ends the edit.
    pub(crate) fn publish<V: TreeVersion>(&mut self, root: &Root<V>, current: &V, next: V) -> bool {
        let Some(unlinked) = root.replace(current, next, self.guard) else {
            return false;
        };
        self.fresh.clear();
        let bytes = (self.retired_bytes, size_of::<V>());
        let list = GarbageList::new(&self.retired, self.garbage, bytes);
        unlinked.destroy_with(Some(list.into_garbage()));
        true
    }
}

impl Drop for Edit<'_> {
    /// The attempt failed or changed nothing: its new blocks were never published.
    fn drop(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        // The blocks are in no version, and in no other list.
        let bytes = self.fresh.iter().map(|word| bytes_of(*word)).sum();
        let list = GarbageList::new(&self.fresh, self.garbage, (bytes, 0));
        list.into_garbage().defer(self.guard);
    }
}

/// Writes parts one after the other; returns the end.
///
/// # Safety
///
/// There is memory for all of them from `target` on, which no part is in.
unsafe fn write_parts<T: Copy>(mut target: NonNull<T>, parts: &[&[T]]) -> NonNull<T> {
    for part in parts {
        // SAFETY: the caller's contract.
        unsafe {
            target.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
            target = target.add(part.len());
        }
    }
    target
}
