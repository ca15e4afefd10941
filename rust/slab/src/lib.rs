//! A slab allocator for the trees of `mqttcore-topics`: pieces of few sizes, in chunks of 2 MiB.
//!
//! A search in a tree of a million filters mostly waits for memory. It waits less if the blocks lie together in huge
//! pages than if they come from the system's allocator (`docs/adr/0034`). Freed pieces stay in lists of the thread,
//! since a writer soon needs the same sizes again.
//!
//! This is not a general-purpose allocator: it cannot resize, the alignment is at most [`ALIGNMENT`], and the
//! caller of [`release`] has to know the size.
//!
//! [`ProgramAllocator`] has such chunks for the blocks of a program that are aligned to 128 bytes (`docs/adr/0137`).
//!
//! [`give_back_freed`] and [`keep_freed`] are about the program's allocator instead (`docs/adr/0038`, `docs/adr/0130`).
//!
//! Under Miri each piece is a separate allocation, so that Miri finds uses after release. With `--cfg pooled` Miri runs
//! the slab allocator itself (`make miri` does both).
//!
//! ```
//! let piece = mqttcore_slab::allocate(40);
//! assert_eq!(piece.addr().get() % mqttcore_slab::ALIGNMENT, 0);
//! // SAFETY: allocated above with the same size, and not used any more.
//! unsafe { mqttcore_slab::release(piece, 40) };
//! ```
#![warn(missing_docs)]

mod aligned;
mod chunks;
mod fork;
mod freed;
mod pages;
mod pool;

pub use aligned::ProgramAllocator;
pub use freed::{give_back_freed, keep_freed};
pub use pages::prefer_huge;
pub use pool::{ALIGNMENT, allocate, release, rounded, trim, used_bytes};

/// Prefetches the cache line of an address that will be read soon. A hint: any address is allowed.
#[inline]
pub fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program could see, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    let _ = address;
}
