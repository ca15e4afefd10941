//! Maps memory of the system in aligned blocks of 2 MiB, each of which can be one huge page.

use std::ptr::NonNull;

/// Size of a huge page and of the blocks of [`map`], in bytes.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::HUGE_BYTES;

    pub(super) fn map() -> Option<NonNull<u8>> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: fresh memory, wherever the system likes.
        let twice = unsafe { mmap_anonymous(ptr::null_mut(), 2 * HUGE_BYTES, protection, flags) };
        let start = NonNull::new(twice.ok()?.cast::<u8>())?;
        let before = start.as_ptr().align_offset(HUGE_BYTES);
        // SAFETY: the piece and the ranges around it lie in the mapping above; the ranges are whole pages, not in use.
        unsafe {
            let piece = start.add(before);
            give_back(start, before);
            give_back(piece.add(HUGE_BYTES), HUGE_BYTES - before);
            Some(piece)
        }
    }

    pub(super) unsafe fn unmap(piece: NonNull<u8>) {
        // SAFETY: the caller's contract.
        unsafe { give_back(piece, HUGE_BYTES) };
    }

    /// # Safety
    ///
    /// The range consists of whole pages that are no longer in use.
    unsafe fn give_back(start: NonNull<u8>, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller's contract. If the system refuses, unused memory stays mapped.
            let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
        }
    }

    pub(super) unsafe fn forget(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's contract. If the system refuses, it keeps the memory.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }

    pub(super) fn advise(start: *mut u8, bytes: usize) {
        // SAFETY: the advice changes how memory is backed, not its contents; the system may refuse.
        let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::HUGE_BYTES;

    fn layout() -> Layout {
        // INVARIANT: a power of two that is far smaller than the address space.
        Layout::from_size_align(HUGE_BYTES, HUGE_BYTES).expect("2 MiB are a layout")
    }

    pub(super) fn map() -> Option<NonNull<u8>> {
        // SAFETY: the layout's size is not 0.
        NonNull::new(unsafe { alloc_zeroed(layout()) })
    }

    pub(super) unsafe fn unmap(piece: NonNull<u8>) {
        // SAFETY: the caller's contract.
        unsafe { dealloc(piece.as_ptr(), layout()) };
    }

    pub(super) unsafe fn forget(_: NonNull<u8>, _: usize) {}

    pub(super) fn advise(_: *mut u8, _: usize) {}
}

/// Returns [`HUGE_BYTES`] of zeros with the same alignment; `None` if the system has no memory left.
pub(crate) fn map() -> Option<NonNull<u8>> {
    system::map()
}

/// Returns memory to the system.
///
/// # Safety
///
/// `piece` came from [`map`], and is no longer in use.
pub(crate) unsafe fn unmap(piece: NonNull<u8>) {
    // SAFETY: the caller's contract.
    unsafe { system::unmap(piece) };
}

/// Returns the pages of a part of such memory to the system, as far as it can; whatever is in them then is undefined.
///
/// # Safety
///
/// The range lies in memory of [`map`], and nothing in it is in use.
pub(crate) unsafe fn forget(start: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { system::forget(start, bytes) };
}

/// Advises the system to use huge pages for memory that is about to be filled. Does nothing if the range contains no
/// whole huge page.
pub fn prefer_huge(start: *mut u8, bytes: usize) {
    let before = start.align_offset(HUGE_BYTES);
    let whole = bytes.saturating_sub(before) / HUGE_BYTES * HUGE_BYTES;
    if whole > 0 {
        system::advise(start.wrapping_add(before), whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_aligned_and_zero_and_can_be_written() {
        let pieces: Vec<_> = (0..3).map(|_| map().unwrap()).collect();
        for piece in &pieces {
            assert_eq!(piece.addr().get() % HUGE_BYTES, 0);
            prefer_huge(piece.as_ptr(), HUGE_BYTES);
            for offset in [0, HUGE_BYTES / 2, HUGE_BYTES - 1] {
                // SAFETY: mapped above, and inside.
                let byte = unsafe { piece.add(offset) };
                // SAFETY: as above.
                assert_eq!(unsafe { byte.read() }, 0);
                // SAFETY: as above.
                unsafe { byte.write(1) };
            }
        }
        for piece in pieces {
            // SAFETY: mapped above, and not used any more.
            unsafe { unmap(piece) };
        }
    }

    #[test]
    fn ranges_without_a_whole_huge_page_are_left_alone() {
        let mut bytes = vec![7_u8; 10_000];
        prefer_huge(bytes.as_mut_ptr(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
