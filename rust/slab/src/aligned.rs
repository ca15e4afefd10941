//! The program's allocator, less the holes between blocks that are aligned to 128 bytes.
//!
//! The runtime aligns a socket and a task to 128 bytes. Behind 16 bytes of glibc, two such blocks have a hole of 112
//! between them, or what happens to fit (`docs/adr/0137`). Here they are pieces of chunks, without a header.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use crate::chunks::Chunks;
use crate::fork::lock;
use crate::pool::{FINE_BYTES, class_of};

/// The alignment of blocks that are pieces. A span begins at a page, so each piece whose size is a multiple has it.
const ALIGNED: usize = 128;

/// The largest size of a block that is a piece.
const LARGEST: usize = FINE_BYTES / ALIGNED * ALIGNED;

/// The chunks of all threads, without huge pages: parts that are not in use take no memory. There is no list for each
/// thread, since a connection takes two blocks, and a message none.
pub(crate) static CHUNKS: Mutex<Chunks> = Mutex::new(Chunks::new(usize::MAX));

fn chunks() -> MutexGuard<'static, Chunks> {
    lock(&CHUNKS)
}

/// The allocator of a program, for its `#[global_allocator]`: small blocks that are aligned to 128 bytes are pieces of
/// chunks, and all others come from the system's allocator.
///
/// ```
/// use std::sync::Arc;
///
/// #[global_allocator]
/// static ALLOCATOR: mqttcore_slab::ProgramAllocator = mqttcore_slab::ProgramAllocator;
///
/// #[repr(align(128))]
/// struct Aligned(u8);
///
/// let block = Arc::new(Aligned(7));
/// assert_eq!(block.0, 7);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramAllocator;

/// The size class of a block; `None` if it comes from the system's allocator. Miri has its own view of each block.
#[inline]
const fn class_of_block(layout: Layout) -> Option<usize> {
    if layout.align() != ALIGNED || layout.size() > LARGEST || cfg!(miri) {
        return None;
    }
    class_of(layout.size().next_multiple_of(ALIGNED))
}

// SAFETY: a class depends on the layout alone, so a block goes back to where it came from. A piece is as large as its
// class and aligned to `ALIGNED`, and the chunks hand it out once until it is put back. Chunks use this allocator for
// their lists, whose alignment is that of a pointer: they come from the system, and the lock is not taken twice. They
// abort without memory, and do not unwind.
unsafe impl GlobalAlloc for ProgramAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of_block(layout) {
            // SAFETY: the caller's contract.
            None => unsafe { System.alloc(layout) },
            Some(class) => chunks().take(class).as_ptr(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (class_of_block(layout), NonNull::new(block)) {
            // SAFETY: the caller's contract: `alloc` took a piece of this class, which is no longer in use.
            (Some(class), Some(piece)) => unsafe { chunks().put(class, piece) },
            // SAFETY: the caller's contract, and blocks of no class are of the system.
            _ => unsafe { System.dealloc(block, layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class_of_block(layout).is_none() {
            // SAFETY: the caller's contract.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's contract; a piece is as large as the layout says.
        unsafe {
            let piece = self.alloc(layout);
            piece.write_bytes(0, layout.size());
            piece
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() != ALIGNED {
            // SAFETY: the caller's contract, and such blocks are of the system.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        // SAFETY: the caller's contract: the size is not 0, and does not overflow with this alignment.
        unsafe {
            let new_layout = Layout::from_size_align_unchecked(new_size, layout.align());
            let new_block = self.alloc(new_layout);
            if !new_block.is_null() {
                new_block.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new_block
        }
    }
}

/// Returns the memory of pieces that are not in use to the system, page by page.
pub(crate) fn give_back() {
    let mut chunks = chunks();
    chunks.trim();
    chunks.give_back_vacant();
}
