//! How many heap blocks are in use, counted without a shared write: each thread has a counter of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Threads that get a counter of their own; all later ones share the last.
const COUNTERS: usize = 256;

/// On a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicI64);

static ALL: [Counter; COUNTERS] = [const { Counter(AtomicI64::new(0)) }; COUNTERS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The system's allocator, with its blocks counted: for a program's `#[global_allocator]`.
pub struct Counting;

fn add(blocks: i64) {
    let index = OWN.try_with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed).min(COUNTERS - 1));
        }
        own.get()
    });
    let index = index.unwrap_or(COUNTERS - 1);
    let counter = &ALL[index].0;
    if index == COUNTERS - 1 {
        counter.fetch_add(blocks, Ordering::Relaxed);
    } else {
        // ORDERING: Relaxed, and no read-modify-write: this thread alone writes here.
        counter.store(counter.load(Ordering::Relaxed) + blocks, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(-1);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// Returns the blocks in use, 0 in a program without [`Counting`]. Exact while no other thread allocates.
pub fn blocks() -> i64 {
    ALL.iter()
        .map(|counter| counter.0.load(Ordering::Relaxed))
        .sum()
}
