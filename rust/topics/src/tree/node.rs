//! The one heap layout of the tree, and the edit that makes and retires blocks.
//!
//! A block is 8 bytes of header (tag: 4, number of words: 2, length of text: 2), then the words of 8 bytes, then the
//! text. It never changes after it was made, with the exception of a group's [`Turn`], which is no block.
//!
//! Who frees: a block is reachable from versions. A writer that replaces a block in a new version retires it in the
//! edit; when the version is published, the retired blocks are freed after a grace period. A failed edit frees what
//! it made, after a grace period too, so that no [`Word`] dangles while its pin lives.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use smallvec::SmallVec;

use super::word::{ALIGNMENT, Kind, View, Word};
use crate::sync::{Arc, AtomicU32, AtomicUsize, Guard, Relaxed, Root};

/// The first 8 bytes of a block.
#[repr(C)]
pub(crate) struct Header {
    tag: u32,
    words: u16,
    text: u16,
}

const HEADER_BYTES: usize = size_of::<Header>();
const WORD_BYTES: usize = size_of::<Word<'static>>();

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

    /// Heap bytes, without what the allocator adds.
    pub(crate) fn bytes(self) -> usize {
        layout(self.words().len(), self.text().len()).size()
    }
}

/// Whose turn it is in a shared group: outside of the versions, shared by all of them.
#[repr(C, align(16))]
#[derive(Default)]
pub(crate) struct Turn {
    /// Counts the messages of a round robin.
    pub(crate) next: AtomicU32,
    /// The subscriber that took the last message, plus one.
    pub(crate) sticky: AtomicU32,
}

impl<'g> Word<'g> {
    /// The turn of a group; `None` if the word is no cell. Only for words of a directory.
    pub(crate) fn turn(self) -> Option<&'g Turn> {
        match self.view() {
            // SAFETY: the cells of a directory are made by `Edit::make_turn` and freed as blocks are.
            View::Cell(cell) => Some(unsafe { cell.cast().as_ref() }),
            _ => None,
        }
    }
}

/// The heap bytes that wait for a grace period.
pub(crate) type Ledger = Arc<AtomicUsize>;

/// What one attempt to commit makes and replaces.
pub(crate) struct Edit<'g> {
    guard: &'g Guard,
    ledger: &'g Ledger,
    fresh: SmallVec<[Word<'g>; 16]>,
    retired: Vec<Word<'static>>,
    size: Size,
}

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
            retired: Vec::with_capacity(16),
            size,
        }
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
        let block = allocate(layout(word_count, text_len));
        // SAFETY: the allocation holds the header, then `word_count` words, then `text_len` bytes; nobody else
        // knows it yet, and the sources are other allocations.
        unsafe {
            let head = block.cast::<Header>();
            head.write(header);
            let mut target = head.add(1).cast::<Word<'g>>();
            for part in words {
                target.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                target = target.add(part.len());
            }
            let mut target = target.cast::<u8>();
            for part in text {
                target.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                target = target.add(part.len());
            }
        }
        self.adopt(Word::pointer(kind, block.cast()))
    }

    /// Makes the turn of a new group.
    pub(crate) fn make_turn(&mut self) -> Word<'g> {
        let cell = allocate(Layout::new::<Turn>());
        // SAFETY: the allocation has the layout of a `Turn`, and nobody else knows it yet.
        unsafe { cell.cast::<Turn>().write(Turn::default()) };
        self.adopt(Word::cell(cell.cast()))
    }

    fn adopt(&mut self, word: Word<'g>) -> Word<'g> {
        self.size.nodes += 1;
        self.size.bytes += bytes_of(word);
        self.fresh.push(word);
        word
    }

    /// Gives up the block or turn that `word` points to, not what that points to in turn.
    ///
    /// The caller no longer links it in the version that this edit makes. Other words are ignored.
    pub(crate) fn retire(&mut self, word: Word<'g>) {
        if matches!(word.view(), View::Empty | View::Inline(_)) {
            return;
        }
        self.size.nodes -= 1;
        self.size.bytes -= bytes_of(word);
        // SAFETY: only the lifetime changes; the bag frees the block when no pin needs it any more.
        self.retired.push(unsafe { detach(word) });
    }

    /// The heap use of the version that this edit makes.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    /// The version was published: frees what it replaced, after a grace period.
    pub(crate) fn publish(mut self) {
        self.fresh.clear();
        let retired = std::mem::take(&mut self.retired);
        self.free_later(retired);
    }

    fn free_later(&self, words: Vec<Word<'static>>) {
        if words.is_empty() {
            return;
        }
        let bytes = words.iter().map(|word| bytes_of(*word)).sum();
        let ledger = Arc::clone(self.ledger);
        // ORDERING: Relaxed: a count that orders nothing.
        ledger.fetch_add(bytes, Relaxed);
        let bag = Box::new(Bag {
            words,
            bytes,
            ledger,
        });
        // SAFETY: the blocks are in no version that a later pin can reach, and in no other bag. The bag is freed
        // by any thread: blocks have no drop code and no affinity.
        unsafe { self.guard.defer_unchecked(move || bag.free()) };
    }
}

impl Drop for Edit<'_> {
    /// The attempt failed or changed nothing: what it made was never published.
    fn drop(&mut self) {
        // SAFETY: as in `retire`.
        let fresh = self
            .fresh
            .drain(..)
            .map(|word| unsafe { detach(word) })
            .collect();
        self.free_later(fresh);
    }
}

/// Blocks that wait for their grace period.
struct Bag {
    words: Vec<Word<'static>>,
    bytes: usize,
    ledger: Ledger,
}

impl Bag {
    fn free(&self) {
        // ORDERING: Relaxed: a count that orders nothing.
        self.ledger.fetch_sub(self.bytes, Relaxed);
        for word in &self.words {
            // SAFETY: the grace period is over, and each block is in one bag only.
            unsafe { free(*word) };
        }
    }
}

/// # Safety
///
/// The caller knows by other means how long the block lives.
unsafe fn detach(word: Word<'_>) -> Word<'static> {
    // SAFETY: the types differ in their lifetime only.
    unsafe { std::mem::transmute(word) }
}

/// Frees the block or turn of `word`.
///
/// # Safety
///
/// Nobody reaches it any more, and nobody else frees it.
unsafe fn free(word: Word<'_>) {
    match (word.view(), word.block()) {
        // SAFETY: blocks are allocated with the layout that their header tells.
        (_, Some(block)) => unsafe {
            let layout = layout(block.words().len(), block.text().len());
            dealloc(block.header.as_ptr().cast(), layout);
        },
        // SAFETY: turns are allocated with the layout of their type.
        (View::Cell(cell), None) => unsafe {
            dealloc(cell.as_ptr().cast(), Layout::new::<Turn>());
        },
        _ => {}
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
        if let Some(block) = word.block() {
            pending.extend_from_slice(block.words());
            // SAFETY: the caller's promise; each block has one parent, so it comes by once.
            unsafe { free(word) };
        } else if let View::Cell(_) = word.view() {
            free_cell(word);
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
        if matches!(word.view(), View::Empty | View::Inline(_)) {
            continue;
        }
        size.nodes += 1;
        size.bytes += bytes_of(word);
        pending.extend_from_slice(word.block().map_or(&[], Block::words));
    }
    size
}

fn bytes_of(word: Word<'_>) -> usize {
    word.block().map_or(size_of::<Turn>(), Block::bytes)
}

fn layout(words: usize, text: usize) -> Layout {
    let size = HEADER_BYTES + words * WORD_BYTES + text;
    // INVARIANT: both lengths fit 16 bits, so the size is far below `isize::MAX`.
    Layout::from_size_align(size, ALIGNMENT).expect("a block's size is small")
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: no layout here has size 0.
    let pointer = unsafe { alloc(layout) };
    NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout))
}
