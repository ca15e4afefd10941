//! The one heap layout of the tree, and the edit that makes and retires blocks.
//!
//! A block is 8 bytes of header (tag: 4, number of words: 2, length of text: 2), then the words of 8 bytes, then the
//! text. A HAMT block is 8 bytes of bitmap, then a word a bit. Neither changes after it was made, with the exception
//! of a group's [`Turn`], which is no block.
//!
//! Who frees: a block is reachable from versions. A writer that replaces a block in a new version retires it in the
//! edit; when the version is published, the retired blocks are freed after a grace period. A failed edit frees what
//! it made, after a grace period too, so that no [`Word`] dangles while its pin lives.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use smallvec::SmallVec;

use super::word::{Kind, LINE, View, Word};
use crate::GroupId;
use crate::sync::{AtomicU32, Debt, Guard, Ledger, Root, Waste, ones, pool, prefetch};

/// The first 8 bytes of a block.
#[repr(C)]
pub(crate) struct Header {
    tag: u32,
    words: u16,
    text: u16,
}

const HEADER_BYTES: usize = size_of::<Header>();
const WORD_BYTES: usize = size_of::<Word<'static>>();

/// The largest HAMT block.
const FULL_BRANCHES_BYTES: usize = HEADER_BYTES + u64::BITS as usize * WORD_BYTES;

/// A block that lives as long as the pin `'g`.
#[derive(Clone, Copy)]
pub(crate) struct Block<'g> {
    header: NonNull<Header>,
    life: PhantomData<&'g Header>,
}

impl<'g> Block<'g> {
    /// # Safety
    ///
    /// `header` begins a block made by [`Edit::make`] that is not freed before `'g` ends.
    #[inline]
    pub(super) unsafe fn from_raw(header: NonNull<Header>) -> Self {
        Self {
            header,
            life: PhantomData,
        }
    }

    #[inline]
    fn header(self) -> &'g Header {
        // SAFETY: `from_raw` promises a live block, and headers are never written again.
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

/// A HAMT block that lives as long as the pin `'g`.
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
    pub(super) unsafe fn from_raw(bitmap: NonNull<u64>) -> Self {
        Self {
            bitmap,
            life: PhantomData,
        }
    }

    /// A bit a digit that has a slot.
    #[inline]
    pub(crate) fn bitmap(self) -> u64 {
        // SAFETY: `from_raw` promises a live block, and bitmaps are never written again.
        unsafe { self.bitmap.read() }
    }

    /// The slots, by rising digit.
    #[inline]
    pub(crate) fn slots(self) -> &'g [Word<'g>] {
        let count = ones(self.bitmap());
        // SAFETY: a word a bit follows the bitmap, initialized and never written again; what they point to lives
        // as long as this block is reachable, and longer than the pin under which it was reached.
        unsafe { slice::from_raw_parts(self.bitmap.add(1).cast().as_ptr(), count) }
    }

    /// The slot of a digit below 64, if it has one.
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

    /// Asks for the lines in which the slot of a digit may be, while the first comes: most blocks are short or full.
    #[inline]
    pub(crate) fn prefetch(self, digit: u32) {
        let block = self.bitmap.as_ptr().cast::<u8>().cast_const();
        prefetch(block.wrapping_add(LINE));
        prefetch(block.wrapping_add(HEADER_BYTES + digit as usize * WORD_BYTES));
    }

    /// Asks for all lines of a block that is full; it is copied soon.
    #[inline]
    pub(crate) fn prefetch_all(self) {
        let block = self.bitmap.as_ptr().cast::<u8>().cast_const();
        for line in 1..=FULL_BRANCHES_BYTES / LINE {
            prefetch(block.wrapping_add(line * LINE));
        }
    }
}

/// The place of the slot of a digit, or where it would be.
#[inline]
pub(crate) fn place_of(bitmap: u64, digit: u32) -> usize {
    ones(bitmap & ((1 << digit) - 1))
}

/// Whose turn it is in a shared group: outside of the versions, shared by all of them.
#[repr(C, align(16))]
pub(crate) struct Turn {
    /// Counts the messages of a round robin.
    pub(crate) next: AtomicU32,
    /// The subscriber that took the last message, plus one.
    pub(crate) sticky: AtomicU32,
    /// The group that it belongs to.
    pub(crate) group: GroupId,
}

/// The heap bytes of a turn, without what the allocator adds.
pub(crate) const TURN_BYTES: usize = pool::rounded(size_of::<Turn>());

/// Where a block lies, its words, and all its bytes.
struct Memory {
    start: NonNull<u8>,
    words: usize,
    bytes: usize,
}

impl<'g> Word<'g> {
    /// The words of the block that this one points to, if it does.
    pub(crate) fn children(self) -> &'g [Word<'g>] {
        match self.view() {
            View::Hamt(branches) => branches.slots(),
            _ => self.block().map_or(&[], Block::words),
        }
    }

    /// The memory of the block or turn that the word points to.
    fn memory(self) -> Option<Memory> {
        let (start, words, text) = match self.view() {
            View::Hamt(branches) => (branches.bitmap.cast(), ones(branches.bitmap()), 0),
            View::Cell(cell) => (cell.cast(), 0, size_of::<Turn>() - HEADER_BYTES),
            _ => {
                let block = self.block()?;
                let header = block.header();
                let text = usize::from(header.text);
                (block.header.cast(), usize::from(header.words), text)
            }
        };
        Some(Memory {
            start,
            words,
            bytes: HEADER_BYTES + words * WORD_BYTES + text,
        })
    }

    /// The turn of a group; `None` if the word is no cell. Only for words of a directory.
    pub(crate) fn turn(self) -> Option<&'g Turn> {
        match self.view() {
            // SAFETY: the cells of a directory are made by `Edit::make_turn` and freed as blocks are.
            View::Cell(cell) => Some(unsafe { cell.cast().as_ref() }),
            _ => None,
        }
    }
}

/// What one attempt to commit makes and replaces.
pub(crate) struct Edit<'g> {
    guard: &'g Guard,
    ledger: &'g Ledger,
    fresh: SmallVec<[Word<'g>; 32]>,
    retired: SmallVec<[Word<'g>; 32]>,
    retired_bytes: usize,
    size: Size,
    /// Groups that were ever made; the next one has this number.
    groups_made: u64,
    handles: Option<Handles<'g>>,
}

/// Looks up what a leaf keeps beside a payload that is a value, for its readers; `None` if it does not fit a word.
pub(crate) type Handles<'g> = &'g dyn Fn(u64) -> Option<Word<'g>>;

/// The heap use of a version.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    /// Blocks and cells.
    pub(crate) nodes: usize,
    /// Their bytes, without what the allocator adds.
    pub(crate) bytes: usize,
}

impl<'g> Edit<'g> {
    /// Begins an attempt on a version of this `size`.
    pub(crate) fn new(guard: &'g Guard, ledger: &'g Ledger, size: Size) -> Self {
        Self {
            guard,
            ledger,
            fresh: SmallVec::new(),
            retired: SmallVec::new(),
            retired_bytes: 0,
            size,
            groups_made: 0,
            handles: None,
        }
    }

    /// Goes on from a version that was made after so many groups.
    pub(crate) fn after_groups(mut self, groups_made: u64) -> Self {
        self.groups_made = groups_made;
        self
    }

    pub(crate) fn groups_made(&self) -> u64 {
        self.groups_made
    }

    /// Lets leaves keep handles.
    pub(crate) fn keep_handles(&mut self, handles: Handles<'g>) {
        self.handles = Some(handles);
    }

    /// Makes the leaf of a payload that is not empty.
    pub(crate) fn make_leaf(&mut self, tag: u32, text: &[&[u8]], payload: Word<'g>) -> Word<'g> {
        let handle = match (self.handles, payload.view()) {
            (Some(handles), View::Inline(value)) => handles(value),
            _ => None,
        };
        self.make(Kind::Leaf, tag, &[&[payload], handle.as_slice()], text)
    }

    /// Makes a block out of the concatenation of `words` and that of `text`.
    pub(crate) fn make(
        &mut self,
        kind: Kind,
        tag: u32,
        words: &[&[Word<'g>]],
        text: &[&[u8]],
    ) -> Word<'g> {
        let word_count: usize = words.iter().map(|part| part.len()).sum();
        let text_len: usize = text.iter().map(|part| part.len()).sum();
        let header = Header {
            tag,
            // INVARIANT: sets split at 256, HAMT nodes have 32 slots, and 65,536 equal keyed hashes do not occur.
            words: u16::try_from(word_count).expect("a block has few words"),
            // INVARIANT: texts are filters, topics or share names, which have at most 65,535 bytes.
            text: u16::try_from(text_len).expect("a text fits its length"),
        };
        let bytes = HEADER_BYTES + word_count * WORD_BYTES + text_len;
        let block = pool::allocate(bytes);
        // SAFETY: the allocation holds the header, then `word_count` words, then `text_len` bytes; nobody else
        // knows it yet, and the sources are other allocations.
        unsafe {
            let head = block.cast::<Header>();
            head.write(header);
            let target = write_parts(head.add(1).cast(), words);
            write_parts(target.cast(), text);
        }
        self.adopt(Word::pointer(kind, block.cast()), bytes)
    }

    /// Makes a HAMT block out of the concatenation of `slots`, of which there is one a bit.
    pub(crate) fn make_branches(&mut self, bitmap: u64, slots: &[&[Word<'g>]]) -> Word<'g> {
        let count: usize = slots.iter().map(|part| part.len()).sum();
        assert!(
            count == ones(bitmap),
            "a slot a bit: all readers rely on it"
        );
        let bytes = HEADER_BYTES + count * WORD_BYTES;
        let block = pool::allocate(bytes);
        // SAFETY: the allocation holds the bitmap, then `count` words; nobody else knows it yet, and the sources are
        // other allocations.
        unsafe {
            let head = block.cast::<u64>();
            head.write(bitmap);
            write_parts(head.add(1).cast(), slots);
        }
        self.adopt(Word::pointer(Kind::Hamt, block.cast()), bytes)
    }

    /// Makes a copy of the block of `word` with other words in these places, and retires `word`.
    pub(crate) fn with_words<const N: usize>(
        &mut self,
        word: Word<'g>,
        new: [(usize, Word<'g>); N],
    ) -> Word<'g> {
        let Some(Memory {
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
        let block = pool::allocate(bytes);
        // SAFETY: the allocation is as large as the old block, whose header, words and text are initialized and lie
        // together; nobody else knows it yet. Each index is that of one of the words.
        unsafe {
            block.copy_from_nonoverlapping(old, bytes);
            let words = block.add(HEADER_BYTES).cast::<Word<'g>>();
            for (index, new) in new {
                words.add(index).write(new);
            }
        }
        // One comes, one goes: the size stays.
        self.retired.push(word);
        self.retired_bytes += pool::rounded(bytes);
        let copy = word.with_block(block.cast());
        self.fresh.push(copy);
        copy
    }

    /// As [`with_words`](Self::with_words), for one word.
    pub(crate) fn with_word(&mut self, word: Word<'g>, index: usize, new: Word<'g>) -> Word<'g> {
        self.with_words(word, [(index, new)])
    }

    /// Makes the turn of a new group.
    pub(crate) fn make_turn(&mut self) -> Word<'g> {
        let cell = pool::allocate(size_of::<Turn>());
        let turn = Turn {
            next: AtomicU32::new(0),
            sticky: AtomicU32::new(0),
            group: GroupId(self.groups_made),
        };
        self.groups_made += 1;
        // SAFETY: the allocation is large and aligned enough for a `Turn`, and nobody else knows it yet.
        unsafe { cell.cast::<Turn>().write(turn) };
        self.adopt(Word::cell(cell.cast()), size_of::<Turn>())
    }

    fn adopt(&mut self, word: Word<'g>, bytes: usize) -> Word<'g> {
        self.size.nodes += 1;
        self.size.bytes += pool::rounded(bytes);
        self.fresh.push(word);
        word
    }

    /// Gives up the block or turn that `word` points to, not what that points to in turn.
    ///
    /// The caller no longer links it in the version that this edit makes. Other words are ignored.
    pub(crate) fn retire(&mut self, word: Word<'g>) {
        let Some(Memory { bytes, .. }) = word.memory() else {
            return;
        };
        let bytes = pool::rounded(bytes);
        self.size.nodes -= 1;
        self.size.bytes -= bytes;
        self.retired_bytes += bytes;
        self.retired.push(word);
    }

    /// The heap use of the version that this edit makes.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// Puts `next` in the place of `current`, under whose pin this edit was made; `false` when another writer was
    /// faster. What the version replaced is freed after a grace period.
    pub(crate) fn publish<V: Version>(mut self, root: &Root<V>, current: &V, next: V) -> bool {
        let Some(unlinked) = root.replace(current, next, self.guard) else {
            return false;
        };
        self.fresh.clear();
        let bytes = (self.retired_bytes, size_of::<V>());
        let bag = Bag::new(&self.retired, self.ledger, bytes);
        unlinked.destroy_with(Some(bag.into_waste()));
        true
    }
}

impl Drop for Edit<'_> {
    /// The attempt failed or changed nothing: what it made was never published.
    fn drop(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        // The blocks are in no version, and in no other bag.
        let bytes = self.fresh.iter().map(|word| bytes_of(*word)).sum();
        let bag = Bag::new(&self.fresh, self.ledger, (bytes, 0));
        bag.into_waste().defer(self.guard);
    }
}

/// What an epoch keeps of one deferral: 4 words in a list of 64 with a head.
const DEFERRAL_BYTES: usize = 40;

/// Blocks that wait for their grace period: a small pointer.
struct Bag(NonNull<BagHead>);

/// In front of the words of a bag.
struct BagHead {
    debt: Debt,
    count: usize,
}

impl Bag {
    /// Takes blocks of `blocks` bytes that no later pin can reach, and books all that waits with them: itself, a
    /// version of `version` bytes, and what the epoch adds.
    fn new(words: &[Word<'_>], ledger: &Ledger, (blocks, version): (usize, usize)) -> Self {
        let own = Self::bytes(words.len());
        let head = pool::allocate(own).cast::<BagHead>();
        let rest = pool::rounded(version) + pool::rounded(own) + DEFERRAL_BYTES;
        let debt = ledger.charge(blocks + rest);
        // SAFETY: the memory holds the head and behind it the words, and nobody else knows it. Only the lifetime of
        // the words changes; the bag frees the blocks when no pin needs them any more.
        unsafe {
            head.write(BagHead {
                debt,
                count: words.len(),
            });
            let target = head.add(1).cast::<Word<'_>>();
            target.copy_from_nonoverlapping(NonNull::from(words).cast(), words.len());
        }
        Self(head)
    }

    fn bytes(count: usize) -> usize {
        size_of::<BagHead>() + count * WORD_BYTES
    }

    /// Gives the bag up. Any thread may free it: blocks have no drop code and no affinity.
    fn into_waste(self) -> Waste {
        // SAFETY: the bag owns its blocks, and this pointer is the only one to it.
        unsafe { Waste::new(self.0.cast(), Self::free) }
    }

    /// # Safety
    ///
    /// `bag` is that of `into_waste`, and the grace period of its blocks is over.
    unsafe fn free(bag: NonNull<()>) {
        let head = bag.cast::<BagHead>();
        // SAFETY: written by `new`, and read out once.
        let BagHead { debt, count } = unsafe { head.read() };
        // SAFETY: `new` wrote `count` words behind the head.
        let words =
            unsafe { slice::from_raw_parts(head.add(1).cast::<Word<'static>>().as_ptr(), count) };
        // Their headers tell their sizes, and may have left the cache long ago.
        for word in words {
            word.prefetch_head();
        }
        for word in words {
            // SAFETY: the grace period is over, and each block is in one bag only.
            unsafe { free(*word) };
        }
        // SAFETY: allocated by `new` with these bytes; nobody else knows it.
        unsafe { pool::release(head.cast(), Self::bytes(count)) };
        drop(debt);
    }
}

/// Frees the block or turn of `word`.
///
/// # Safety
///
/// Nobody reaches it any more, and nobody else frees it.
unsafe fn free(word: Word<'_>) {
    if let Some(Memory { start, bytes, .. }) = word.memory() {
        // SAFETY: blocks are allocated with the size that their header tells, turns with that of their type.
        unsafe { pool::release(start, bytes) };
    }
}

/// Frees everything that `roots` reach, cells through `free_cell`. Uses a list, not the call stack.
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
            // SAFETY: the caller's promise; each block has one parent, so it comes by once.
            unsafe { free(word) };
        }
    }
}

/// A state of a tree; all but the last state of a [`Root`] are retired block by block.
pub(crate) trait Version: Send + Sync + 'static {
    fn empty() -> Self;

    /// The words that everything hangs off.
    fn roots(&self) -> SmallVec<[Word<'_>; 5]>;
}

/// Empties a tree whose cells are turns, at once: nobody else has it.
pub(crate) fn clear(root: &mut Root<impl Version>) {
    // SAFETY: turns are freed as blocks are, under the promise of `clear_with`.
    clear_with(root, |turn| unsafe { free(turn) });
}

/// Empties a tree at once, its cells through `free_cell`: nobody else has it.
pub(crate) fn clear_with<V: Version>(root: &mut Root<V>, free_cell: impl FnMut(Word<'_>)) {
    let last = std::mem::replace(root.get_mut(), V::empty());
    // SAFETY: the root was the only way to the last version, and is borrowed exclusively; what was retired before is
    // not reachable from the last version.
    unsafe { free_all(&last.roots(), free_cell) };
}

/// Adds up what `roots` reach.
pub(crate) fn measure(roots: &[Word<'_>]) -> Size {
    let mut size = Size::default();
    let mut pending = roots.to_vec();
    while let Some(word) = pending.pop() {
        let Some(Memory { bytes, .. }) = word.memory() else {
            continue;
        };
        size.nodes += 1;
        size.bytes += pool::rounded(bytes);
        pending.extend_from_slice(word.children());
    }
    size
}

/// The heap bytes of a block, without what the allocator adds.
fn bytes_of(word: Word<'_>) -> usize {
    word.memory()
        .map_or(0, |memory| pool::rounded(memory.bytes))
}

/// Writes parts one behind the other; answers the place behind the last.
///
/// # Safety
///
/// There is memory for all of them from `target` on, which no part is in.
unsafe fn write_parts<T: Copy>(mut target: NonNull<T>, parts: &[&[T]]) -> NonNull<T> {
    for part in parts {
        // SAFETY: the caller's promise.
        unsafe {
            target.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
            target = target.add(part.len());
        }
    }
    target
}
