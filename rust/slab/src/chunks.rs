//! Chunk allocator: chunks of 2 MiB are divided into spans, and spans into pieces of one size.
//!
//! A match in a tree of a million filters misses the caches, and half of its time are TLB misses. Blocks that lie
//! together in huge pages avoid these; a general-purpose allocator does not offer that. The header of a chunk
//! describes its spans, so that pieces need no header. A span without pieces is returned to its chunk, and a chunk
//! without spans to the system, except for one spare chunk.
//!
//! The first chunks use small pages, which the system backs at their first use: a small tree takes little memory.

use std::alloc::{Layout, handle_alloc_error};
use std::iter;
use std::ptr::NonNull;

use crate::pages::{HUGE_BYTES, forget, map, prefer_huge, unmap};
use crate::pool::{CLASSES, FINE_BYTES, class_bytes};

/// Number of fine spans in a chunk, the header included.
const MOST_SPANS: usize = HUGE_BYTES / SizeClasses::Fine.span_bytes();

/// The span size of a chunk, by the size of its pieces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SizeClasses {
    /// Small spans, for all blocks but sets: little is wasted if there are few pieces of a size.
    Fine,
    /// Large spans, for large pieces: little is wasted after the last piece of a span.
    Coarse,
}

impl SizeClasses {
    const fn of(piece_bytes: usize) -> Self {
        if piece_bytes <= FINE_BYTES {
            Self::Fine
        } else {
            Self::Coarse
        }
    }

    const fn span_bytes(self) -> usize {
        match self {
            Self::Fine => 4 << 10,
            Self::Coarse => 32 << 10,
        }
    }

    /// The number of spans that the header of a chunk takes.
    const fn header_spans(self) -> usize {
        size_of::<Chunk>().div_ceil(self.span_bytes())
    }

    /// The number of spans of a chunk after its header.
    const fn spans(self) -> usize {
        HUGE_BYTES / self.span_bytes() - self.header_spans()
    }
}

/// A free piece: it begins with the address of the next free one.
type Free = Option<NonNull<u8>>;

/// The entry of a span in its chunk's header; all zeros if the span is vacant.
#[derive(Default)]
struct Span {
    /// List of the free pieces that were in use before.
    free: Free,
    /// Links of the list of spans of this class that have free pieces.
    next: Option<NonNull<Self>>,
    previous: Option<NonNull<Self>>,
    /// Number of pieces in use.
    used: u16,
    /// Number of pieces that were ever in use; the memory of those after them is untouched.
    touched: u16,
}

/// The header of a chunk. All zeros are valid, so that only the parts in use of a new header are touched.
#[repr(C)]
struct Chunk {
    /// One bit for each vacant span.
    vacant: [u64; MOST_SPANS / u64::BITS as usize],
    vacancies: usize,
    is_coarse: bool,
    spans: [Span; MOST_SPANS],
}

impl Chunk {
    fn grain(&self) -> SizeClasses {
        if self.is_coarse {
            SizeClasses::Coarse
        } else {
            SizeClasses::Fine
        }
    }

    fn cut(&mut self, grain: SizeClasses) {
        self.is_coarse = grain == SizeClasses::Coarse;
        self.vacant = Default::default();
        let (first, count) = (grain.header_spans(), grain.spans());
        for span in first..first + count {
            self.vacant[span / 64] |= 1 << (span % 64);
        }
        self.vacancies = count;
    }

    /// Takes the first vacant span.
    fn take_span(&mut self) -> Option<usize> {
        let (word, bits) = self
            .vacant
            .iter_mut()
            .enumerate()
            .find(|(_, bits)| **bits != 0)?;
        let span = word * 64 + bits.trailing_zeros() as usize;
        *bits &= *bits - 1;
        self.vacancies -= 1;
        Some(span)
    }

    fn put_span(&mut self, span: usize) {
        self.spans[span] = Span::default();
        self.vacant[span / 64] |= 1 << (span % 64);
        self.vacancies += 1;
    }

    fn is_vacant(&self, span: usize) -> bool {
        self.vacant[span / 64] >> (span % 64) & 1 != 0
    }

    /// Vacant spans beside each other: the first, and how many.
    fn vacant_runs(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut next = 0;
        iter::from_fn(move || {
            let start = (next..MOST_SPANS).find(|span| self.is_vacant(*span))?;
            let end = (start..MOST_SPANS).find(|span| !self.is_vacant(*span));
            next = end.unwrap_or(MOST_SPANS);
            Some((start, next - start))
        })
    }
}

/// The chunk that contains an address.
fn chunk_of<T>(address: NonNull<T>) -> NonNull<Chunk> {
    let chunk = address
        .as_ptr()
        .map_addr(|address| address & !(HUGE_BYTES - 1));
    // SAFETY: no chunk is at address 0.
    unsafe { NonNull::new_unchecked(chunk.cast()) }
}

/// The entry of a span by its number. Computed by address alone: the pointer must outlive every borrow of the chunk.
fn span_of(chunk: NonNull<Chunk>, number: usize) -> NonNull<Span> {
    assert!(number < MOST_SPANS, "a chunk has so many spans");
    // SAFETY: the entry lies in the chunk at this address.
    unsafe {
        let spans = chunk.byte_add(std::mem::offset_of!(Chunk, spans));
        spans.cast::<Span>().add(number)
    }
}

/// The number of a span in its chunk.
fn number_of(span: NonNull<Span>) -> usize {
    let offset = span.addr().get() % HUGE_BYTES - std::mem::offset_of!(Chunk, spans);
    offset / size_of::<Span>()
}

const fn capacity(class: usize) -> usize {
    let bytes = class_bytes(class);
    SizeClasses::of(bytes).span_bytes() / bytes
}

/// All chunks of the process; a lock serialises access.
pub(crate) struct Chunks {
    /// Spans with free pieces, by size class.
    roomy: [Option<NonNull<Span>>; CLASSES],
    /// Chunks with vacant spans, by [`SizeClasses`].
    open: [Vec<NonNull<Chunk>>; 2],
    /// The spare chunk: it has no spans in use.
    spare: Option<NonNull<Chunk>>,
    /// Number of chunks without the spare one.
    count: usize,
    /// Number of chunks that use small pages.
    small_paged: usize,
    /// Bytes of the pieces in use.
    used_bytes: usize,
}

// SAFETY: this value alone owns its chunks.
unsafe impl Send for Chunks {}

impl Chunks {
    /// Without chunks; all but the first `small_paged` will use huge pages.
    pub(crate) const fn new(small_paged: usize) -> Self {
        Self {
            roomy: [None; CLASSES],
            open: [const { Vec::new() }; 2],
            spare: None,
            count: 0,
            small_paged,
            used_bytes: 0,
        }
    }

    /// Bytes of the pieces in use and of chunk headers.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes + self.count * size_of::<Chunk>()
    }

    /// Allocates a piece of a class.
    pub(crate) fn take(&mut self, class: usize) -> NonNull<u8> {
        let mut span = match self.roomy[class] {
            Some(span) => span,
            None => self.add_span(class),
        };
        // SAFETY: a span with room is in a chunk of ours, and nobody else borrows it.
        let known = unsafe { span.as_mut() };
        let piece = if let Some(piece) = known.free {
            // SAFETY: a free piece is ours, and begins with the address of the next.
            known.free = unsafe { piece.cast::<Free>().read() };
            piece
        } else {
            let offset = number_of(span) * SizeClasses::of(class_bytes(class)).span_bytes()
                + usize::from(known.touched) * class_bytes(class);
            known.touched += 1;
            // SAFETY: the piece lies in its span: a span with room whose list is empty has untouched pieces.
            unsafe { chunk_of(span).cast::<u8>().add(offset) }
        };
        known.used += 1;
        if usize::from(known.used) == capacity(class) {
            self.unlink(class, span);
        }
        self.used_bytes += class_bytes(class);
        piece
    }

    /// Frees a piece.
    ///
    /// # Safety
    ///
    /// `piece` came from [`take`](Self::take) with the same class, and is no longer in use.
    pub(crate) unsafe fn put(&mut self, class: usize, piece: NonNull<u8>) {
        let chunk = chunk_of(piece);
        let number =
            piece.addr().get() % HUGE_BYTES / SizeClasses::of(class_bytes(class)).span_bytes();
        let mut span = span_of(chunk, number);
        // SAFETY: pieces lie in chunks of ours, and nobody else borrows one.
        let known = unsafe { span.as_mut() };
        // SAFETY: the piece is ours from here on, and large and aligned enough.
        unsafe { piece.cast::<Free>().write(known.free) };
        known.free = Some(piece);
        let was_full = usize::from(known.used) == capacity(class);
        known.used -= 1;
        let is_over = known.used == 0;
        self.used_bytes -= class_bytes(class);
        if was_full {
            self.link(class, span);
        }
        if is_over {
            self.unlink(class, span);
            self.remove_span(chunk, number);
        }
    }

    /// Returns the spare chunk to the system.
    pub(crate) fn trim(&mut self) {
        if let Some(chunk) = self.spare.take() {
            // SAFETY: it came from `map`, and has no piece in use.
            unsafe { unmap(chunk.cast()) };
        }
        if self.count == 0 {
            self.open = [const { Vec::new() }; 2];
        }
    }

    /// Returns the memory of vacant spans to the system, which backs them again at their next use.
    pub(crate) fn give_back_vacant(&mut self) {
        for chunk in self.open.iter().flatten() {
            // SAFETY: open chunks are ours, and nobody else borrows one.
            let known = unsafe { chunk.as_ref() };
            let bytes = known.grain().span_bytes();
            for (start, count) in known.vacant_runs() {
                // SAFETY: these spans lie in the chunk, and have no piece.
                unsafe { forget(chunk.cast::<u8>().add(start * bytes), count * bytes) };
            }
        }
    }

    fn link(&mut self, class: usize, mut span: NonNull<Span>) {
        // SAFETY: spans with pieces are in chunks of ours, and nobody else borrows one.
        let known = unsafe { span.as_mut() };
        known.previous = None;
        known.next = self.roomy[class];
        if let Some(mut next) = known.next {
            // SAFETY: as above; another span than this one.
            unsafe { next.as_mut().previous = Some(span) };
        }
        self.roomy[class] = Some(span);
    }

    fn unlink(&mut self, class: usize, mut span: NonNull<Span>) {
        // SAFETY: as in `link`.
        let known = unsafe { span.as_mut() };
        let (previous, next) = (known.previous.take(), known.next.take());
        match previous {
            // SAFETY: as in `link`.
            Some(mut previous) => unsafe { previous.as_mut().next = next },
            None => self.roomy[class] = next,
        }
        if let Some(mut next) = next {
            // SAFETY: as in `link`.
            unsafe { next.as_mut().previous = previous };
        }
    }

    /// Takes a vacant span for pieces of a class.
    #[cold]
    fn add_span(&mut self, class: usize) -> NonNull<Span> {
        let grain = SizeClasses::of(class_bytes(class));
        let mut chunk = match self.open[grain as usize].last() {
            Some(chunk) => *chunk,
            None => self.add_chunk(grain),
        };
        // SAFETY: open chunks are ours, and nobody else borrows one.
        let known = unsafe { chunk.as_mut() };
        // INVARIANT: an open chunk has a vacancy.
        let span = known.take_span().expect("open chunks have vacancies");
        if known.vacancies == 0 {
            self.open[grain as usize].pop();
        }
        let span = span_of(chunk, span);
        self.link(class, span);
        span
    }

    fn remove_span(&mut self, mut chunk: NonNull<Chunk>, number: usize) {
        // SAFETY: chunks with spans are ours, and nobody else borrows one.
        let known = unsafe { chunk.as_mut() };
        let grain = known.grain();
        known.put_span(number);
        if known.vacancies == 1 {
            self.open[grain as usize].push(chunk);
        }
        if known.vacancies == grain.spans() {
            self.remove_chunk(chunk, grain);
        }
    }

    fn add_chunk(&mut self, grain: SizeClasses) -> NonNull<Chunk> {
        let mut chunk = self.spare.take().unwrap_or_else(|| self.map_chunk());
        // SAFETY: the mapping is new and not shared, and all zeros are a valid chunk.
        unsafe { chunk.as_mut() }.cut(grain);
        self.open[grain as usize].push(chunk);
        self.count += 1;
        chunk
    }

    fn map_chunk(&self) -> NonNull<Chunk> {
        let Some(chunk) = map() else {
            handle_alloc_error(Layout::new::<Chunk>());
        };
        if self.count >= self.small_paged {
            prefer_huge(chunk.as_ptr(), HUGE_BYTES);
        }
        chunk.cast()
    }

    #[cold]
    fn remove_chunk(&mut self, chunk: NonNull<Chunk>, grain: SizeClasses) {
        self.open[grain as usize].retain(|other| *other != chunk);
        self.count -= 1;
        if let Some(spare) = self.spare.replace(chunk) {
            // SAFETY: it came from `map`, and has no piece in use.
            unsafe { unmap(spare.cast()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: usize = if cfg!(miri) { 100 } else { 200_000 };

    /// Pieces in use, each filled with its own byte.
    struct Used {
        chunks: Chunks,
        pieces: Vec<(usize, u8, NonNull<u8>)>,
    }

    impl Used {
        fn new() -> Self {
            Self {
                chunks: Chunks::new(2),
                pieces: Vec::new(),
            }
        }

        fn take(&mut self, class: usize, mark: u8) {
            let piece = self.chunks.take(class);
            assert_eq!(piece.addr().get() % crate::pool::ALIGNMENT, 0);
            // SAFETY: a piece of the class is as large as it says.
            unsafe { piece.write_bytes(mark, class_bytes(class)) };
            self.pieces.push((class, mark, piece));
        }

        /// Frees a piece after a check that nobody else wrote to it.
        fn put(&mut self, index: usize) {
            let (class, mark, piece) = self.pieces.swap_remove(index);
            // SAFETY: `take` wrote all of it.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), class_bytes(class)) };
            let step = if cfg!(miri) { bytes.len() - 1 } else { 1 };
            assert!(bytes.iter().step_by(step).all(|byte| *byte == mark));
            // SAFETY: taken with this class, and no longer in use.
            unsafe { self.chunks.put(class, piece) };
        }

        fn put_all(&mut self) {
            while !self.pieces.is_empty() {
                self.put(self.pieces.len() / 2);
            }
        }

        fn assert_nothing_is_left(mut self) {
            assert_eq!((self.chunks.count, self.chunks.used_bytes()), (0, 0));
            assert!(self.chunks.roomy.iter().all(Option::is_none));
            assert!(self.chunks.open.iter().all(Vec::is_empty));
            self.chunks.trim();
            assert_eq!(self.chunks.spare, None);
        }
    }

    #[test]
    fn pieces_of_all_sizes_keep_apart_and_go_back() {
        let (mut used, mut random) = (Used::new(), 1_usize);
        for step in 0..STEPS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = random >> 33;
            // First more pieces are taken than freed, then more freed than taken.
            let goes = if step < STEPS / 2 { 3 } else { 5 };
            if word % 8 < goes && !used.pieces.is_empty() {
                used.put(word / 8 % used.pieces.len());
            } else {
                used.take(word / 8 % CLASSES, step.to_le_bytes()[0]);
            }
        }
        used.put_all();
        used.assert_nothing_is_left();
    }

    #[test]
    fn a_span_serves_one_size_until_its_last_piece_goes() {
        for class in [0, CLASSES - 1] {
            let (mut used, grain) = (Used::new(), SizeClasses::of(class_bytes(class)));
            for pieces in 1..=2 * capacity(class) {
                used.take(class, 1);
                // SAFETY: a chunk of ours with a piece in use, which nobody borrows.
                let vacancies = unsafe { chunk_of(used.pieces[0].2).as_ref() }.vacancies;
                assert_eq!(grain.spans() - vacancies, pieces.div_ceil(capacity(class)));
                let bytes = pieces * class_bytes(class) + size_of::<Chunk>();
                assert_eq!(used.chunks.used_bytes(), bytes);
            }
            // If a full span loses a piece, the next piece comes from it.
            let piece = used.pieces[0].2;
            used.put(0);
            used.take(class, 1);
            assert_eq!(used.pieces.last().map(|last| last.2), Some(piece));

            used.put_all();
            used.assert_nothing_is_left();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "touches megabytes")]
    fn a_full_chunk_that_loses_a_span_is_where_the_next_comes_from() {
        let (mut used, class) = (Used::new(), 3);
        let grain = SizeClasses::of(class_bytes(class));
        let of_a_chunk = grain.spans() * capacity(class);
        (0..of_a_chunk).for_each(|_| used.take(class, 2));
        assert!(used.chunks.open[grain as usize].is_empty());

        for spans in [1, 2, 1, 3] {
            (0..spans * capacity(class)).for_each(|_| used.put(used.pieces.len() - 1));
            assert_eq!(used.chunks.open[grain as usize].len(), 1);
            (0..spans * capacity(class)).for_each(|_| used.take(class, 2));
            assert_eq!(used.chunks.open[grain as usize].len(), 0);
        }

        assert_eq!(used.chunks.count, 1);
        used.put_all();
        used.assert_nothing_is_left();
    }

    #[test]
    #[cfg_attr(miri, ignore = "touches megabytes")]
    fn chunks_come_when_the_last_is_full_and_go_when_they_are_empty() {
        for class in [3, CLASSES - 1] {
            let mut used = Used::new();
            let grain = SizeClasses::of(class_bytes(class));
            let of_a_chunk = grain.spans() * capacity(class);
            for _ in 0..3 * of_a_chunk {
                used.take(class, 2);
            }
            assert_eq!(used.chunks.count, 3);
            assert!(used.chunks.open[grain as usize].is_empty());
            used.take(class, 2);
            assert_eq!(used.chunks.count, 4);

            while used.pieces.len() > 2 * of_a_chunk {
                used.put(used.pieces.len() - 1);
            }
            assert_eq!(used.chunks.count, 2);
            assert!(used.chunks.spare.is_some());
            // The spare chunk serves the next request of any class.
            used.take(CLASSES - 1 - class % (CLASSES - 1), 3);
            assert!(used.chunks.spare.is_none());
            used.put_all();
            used.assert_nothing_is_left();
        }
    }

    #[test]
    fn little_is_lost_behind_the_last_piece_of_a_span() {
        for class in 0..CLASSES {
            let (bytes, span) = (
                class_bytes(class),
                SizeClasses::of(class_bytes(class)).span_bytes(),
            );
            assert!(capacity(class) > 0 && capacity(class) * bytes <= span);
            assert!((span - capacity(class) * bytes) * 10 <= span, "{bytes}");
        }
    }
}
