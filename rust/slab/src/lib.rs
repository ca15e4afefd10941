//! A slab allocator for the trees of `mqttcore-topics`: pieces of few sizes, in chunks of 2 MiB.
//!
//! A search in a tree of a million filters waits for memory. Pieces that lie together in huge pages let it wait less
//! than those of the system's allocator do (`docs/adr/0034`). What a thread frees stays in lists of that thread, since
//! a writer soon needs the same sizes again.
//!
//! The crate refuses to be an allocator for everything: no resizing, no alignment above [`ALIGNMENT`], and whoever
//! releases a piece has to know its size.
//!
//! One function is about the allocator of the program instead: [`give_back_freed`] (`docs/adr/0038`).
//!
//! Under Miri each piece is an allocation of its own, so that Miri finds pieces that are used after their release. With
//! `--cfg pooled` Miri runs the allocator itself (`make miri` does both).
//!
//! ```
//! let piece = mqttcore_slab::allocate(40);
//! assert_eq!(piece.addr().get() % mqttcore_slab::ALIGNMENT, 0);
//! // SAFETY: allocated above with the same size, and not used any more.
//! unsafe { mqttcore_slab::release(piece, 40) };
//! ```
#![warn(missing_docs)]

mod chunks;
mod freed;
mod pages;
mod pool;

pub use freed::give_back_freed;
pub use pages::prefer_huge;
pub use pool::{ALIGNMENT, allocate, release, rounded, trim, used_bytes};

/// Asks the processor for the cache line at an address that will be read soon. A hint: any address will do.
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
