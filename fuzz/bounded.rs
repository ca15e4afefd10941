//! Counts the memory that a thread holds while it reads hostile bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Runs `work`, which may hold at most `limit` bytes more than before at any moment.
pub(crate) fn within(limit: usize, work: impl FnOnce()) {
    let before = HELD.get();
    PEAK.set(before);
    work();
    let peak = PEAK.get().saturating_sub(before);
    assert!(
        peak <= limit,
        "{peak} bytes were allocated, the limit is {limit}"
    );
}

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; the counters neither allocate nor need a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Memory that another thread allocated may be freed here: the count stops at zero.
        HELD.set(HELD.get() + layout.size());
        PEAK.set(PEAK.get().max(HELD.get()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: the memory came from `alloc` above, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
