//! `ProgramAllocator` as the allocator of a program.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use mqttcore_slab::{ProgramAllocator, give_back_freed};

#[global_allocator]
static ALLOCATOR: ProgramAllocator = ProgramAllocator;

/// Sizes of blocks on both sides of the largest one that is a piece.
const SIZES: [usize; 6] = [128, 256, 384, 512, 640, 4096];

/// A socket of the runtime, or a task.
#[repr(align(128))]
struct Block([u8; 256]);

/// Tests take turns, since they look at the memory of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 128).expect("a small size")
}

#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse::<usize>().ok());
    kib.expect("a number of KiB") << 10
}

#[test]
fn blocks_of_all_sizes_are_aligned_and_keep_apart_on_several_threads() {
    let _alone = alone();
    let fill = |mark: u8| {
        let blocks: Vec<_> = (0..600)
            .map(|place| {
                let layout = layout(SIZES[place % SIZES.len()]);
                // SAFETY: the size is not 0, and the block is as large as the layout says.
                unsafe {
                    let block = ALLOCATOR.alloc(layout);
                    block.write_bytes(mark, layout.size());
                    (block, layout)
                }
            })
            .collect();
        for (block, layout) in blocks {
            assert_eq!(block.addr() % 128, 0);
            // SAFETY: allocated above with this layout, and filled.
            unsafe {
                let bytes = std::slice::from_raw_parts(block, layout.size());
                assert!(bytes.iter().all(|byte| *byte == mark));
                ALLOCATOR.dealloc(block, layout);
            }
        }
    };

    thread::scope(|scope| {
        for mark in 1..=4 {
            scope.spawn(move || fill(mark));
        }
    });
}

#[test]
fn a_block_that_is_used_again_can_be_all_zeros() {
    let _alone = alone();
    for bytes in SIZES {
        // SAFETY: the size is not 0; each block is written and read within it, and freed with its layout.
        unsafe {
            let block = ALLOCATOR.alloc(layout(bytes));
            block.write_bytes(0xFF, bytes);
            ALLOCATOR.dealloc(block, layout(bytes));
            let block = ALLOCATOR.alloc_zeroed(layout(bytes));
            let zeros = std::slice::from_raw_parts(block, bytes);
            assert!(zeros.iter().all(|byte| *byte == 0));
            ALLOCATOR.dealloc(block, layout(bytes));
        }
    }
}

#[test]
fn a_block_that_grows_or_shrinks_keeps_its_bytes() {
    let _alone = alone();
    for (before, after) in SIZES
        .into_iter()
        .flat_map(|one| SIZES.map(|other| (one, other)))
    {
        // SAFETY: the sizes are not 0; each block is written and read within its size, and freed with its layout.
        unsafe {
            let block = ALLOCATOR.alloc(layout(before));
            block.write_bytes(7, before);
            let block = ALLOCATOR.realloc(block, layout(before), after);
            assert_eq!(block.addr() % 128, 0);
            let kept = std::slice::from_raw_parts(block, before.min(after));
            assert!(kept.iter().all(|byte| *byte == 7));
            ALLOCATOR.dealloc(block, layout(after));
        }
    }
}

/// glibc puts 16 bytes before each block, and what fits into the 112 behind it.
#[test]
#[cfg(target_os = "linux")]
fn ten_thousand_blocks_take_their_size_and_go_back_but_for_their_pages() {
    const COUNT: usize = 10_000;
    let _alone = alone();
    let mut blocks: Vec<Option<Box<Block>>> = Vec::with_capacity(COUNT);
    // The list itself is not to be measured.
    blocks.resize_with(COUNT, || None);
    // Nor are pages that other tests have used.
    give_back_freed();
    let before = resident_bytes();

    blocks.fill_with(|| Some(Box::new(Block([1; 256]))));

    let each = (resident_bytes() - before) / COUNT;
    assert!((250..270).contains(&each), "{each} bytes each");

    let is_kept = |place: &usize| place.is_multiple_of(1_000);
    for place in (0..COUNT).filter(|place| !is_kept(place)) {
        blocks[place] = None;
    }
    give_back_freed();

    let left = resident_bytes().saturating_sub(before);
    assert!(left < COUNT * 256 / 10, "{} KiB are left", left >> 10);
    let kept = blocks.iter().flatten();
    assert!(kept.flat_map(|block| block.0).all(|byte| byte == 1));
}

/// A lock that another thread held while the process was forked would never be free in the child.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_child_allocates_whatever_other_threads_did_while_it_was_forked() {
    let _alone = alone();
    let is_over = AtomicBool::new(false);
    let allocate = |mark: u8| {
        let block = Box::new(Block([mark; 256]));
        let piece = mqttcore_slab::allocate(2_000);
        // SAFETY: taken above with the same size.
        unsafe { mqttcore_slab::release(piece, 2_000) };
        block.0 == [mark; 256]
    };
    let child_ends_well = || {
        let mut status = 0;
        // SAFETY: the child allocates, which is tested, and ends without destructors, by a signal if it has to wait for
        // 20 s. The parent has a place for its status.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(20);
                libc::_exit(i32::from(!allocate(3)));
            }
            libc::waitpid(child, &raw mut status, 0) == child && status == 0
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert!(allocate(2));
                }
            });
        }
        let all_end_well = (0..300).all(|_| child_ends_well());
        is_over.store(true, Ordering::Relaxed);
        assert!(all_end_well, "a child waits for a lock");
    });
}
