//! Texts that are shared by reference count, behind one word.

use std::process::abort;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::slab;

/// A text with an offset and a mark, in one piece of memory. A clone costs one reference count.
///
/// As large as a pointer, since each filter is held by its session and by the directory. Atomics of std in all builds,
/// as for other reference counts.
pub(crate) struct SharedText(NonNull<TextHeader>);

/// The bytes before the text.
#[repr(C)]
struct TextHeader {
    /// Twice the number of references, and one for the mark.
    references: AtomicU32,
    len: u16,
    start: u16,
}

/// One reference in [`TextHeader::references`].
const REFERENCE: u32 = 2;
/// The bit of the mark.
const MARK: u32 = 1;

// SAFETY: the text is never written after `new`, and the count is atomic.
unsafe impl Send for SharedText {}
// SAFETY: as above.
unsafe impl Sync for SharedText {}

impl SharedText {
    /// Copies `text`, at most [`MAX_BYTES`](crate::MAX_BYTES) long.
    pub(crate) fn new(text: &str, start: u16, is_marked: bool) -> Self {
        // INVARIANT: names and filters are parsed with a limit of 65,535 bytes.
        let len = u16::try_from(text.len()).expect("a text of MQTT");
        let header = slab::allocate(memory_bytes(len)).cast::<TextHeader>();
        let references = AtomicU32::new(REFERENCE | u32::from(is_marked));
        // SAFETY: the memory has room for the header and `len` bytes, is aligned for the header, and nobody else
        // knows it.
        unsafe {
            header.write(TextHeader {
                references,
                len,
                start,
            });
            let bytes = header.add(1).cast::<u8>();
            bytes.copy_from_nonoverlapping(NonNull::from(text.as_bytes()).cast(), text.len());
        }
        Self(header)
    }

    #[inline]
    fn header(&self) -> &TextHeader {
        // SAFETY: the memory lives as long as there is a reference.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        let len = usize::from(self.header().len);
        // SAFETY: `new` copied `len` bytes of a `str` behind the header, and nobody writes to them.
        unsafe {
            let bytes = self.0.add(1).cast::<u8>();
            str::from_utf8_unchecked(std::slice::from_raw_parts(bytes.as_ptr(), len))
        }
    }

    #[inline]
    pub(crate) fn start(&self) -> usize {
        usize::from(self.header().start)
    }

    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.header().references.load(Relaxed) & MARK != 0 // ORDERING: the mark never changes.
    }
}

impl Clone for SharedText {
    #[inline]
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: this reference keeps the text alive meanwhile.
        let before = self.header().references.fetch_add(REFERENCE, Relaxed);
        if before > u32::MAX / 2 {
            // The count would end at zero: only references that are leaked get here.
            abort();
        }
        Self(self.0)
    }
}

impl Drop for SharedText {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release: uses of this reference are over before the memory is freed.
        let before = self.header().references.fetch_sub(REFERENCE, Release);
        if before & !MARK == REFERENCE {
            fence(Acquire); // ORDERING: pairs with the release of the other references.
            let bytes = memory_bytes(self.header().len);
            // SAFETY: allocated by `new` with as many bytes, and this was the last reference.
            unsafe { slab::release(self.0.cast(), bytes) };
        }
    }
}

/// Bytes of a text of `len` bytes with its header.
fn memory_bytes(len: u16) -> usize {
    size_of::<TextHeader>() + usize::from(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_bytes_its_offset_and_its_mark() {
        let long = "x".repeat(usize::from(u16::MAX));
        for (text, start, is_marked) in [("", 0, true), ("a", 1, false), (&long, 9, true)] {
            let shared = SharedText::new(text, start, is_marked);
            let clone = shared.clone();
            drop(shared);

            assert_eq!(clone.as_str(), text);
            assert_eq!(clone.start(), usize::from(start));
            assert_eq!(clone.is_marked(), is_marked);
        }
        assert_eq!(size_of::<Option<SharedText>>(), size_of::<usize>());
    }

    #[test]
    fn threads_share_a_text_and_the_last_one_frees_it() {
        let text = SharedText::new("a/+/b", 0, true);

        std::thread::scope(|scope| {
            for clone in [text.clone(), text.clone(), text.clone()] {
                scope.spawn(move || {
                    let more = [clone.clone(), clone];
                    assert!(more.iter().all(|one| one.as_str() == "a/+/b"));
                });
            }
        });

        let left = text.header().references.load(Relaxed);
        assert_eq!(left, REFERENCE | MARK, "this one");
    }
}
