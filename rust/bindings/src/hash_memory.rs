//! Memory of password hashes: later hashes use it again, and together they take a part of the memory budget.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use argon2::Block;

/// The part of the budget that hashes take together; one hash may run in any budget.
const PART: usize = 8;
/// Memory of more blocks of 1 KiB than these is freed after its hash: few hashes are that large.
const KEPT_BLOCKS_MAX: usize = 64 * 1024;

/// The memory of all hashes of the process.
pub(crate) static HASH_MEMORY: HashMemory = HashMemory::new();

/// Memory of hashes: what running ones use, and what is kept for the next ones. Allocated for each hash, the
/// allocator would keep seven freed ones of 19 MiB for each thread.
pub(crate) struct HashMemory {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    limit_bytes: usize,
    used_bytes: usize,
    kept: Vec<Vec<Block>>,
    /// Hashes begin in the order in which they came: a large one is not passed for ever by small ones.
    next_ticket: u64,
    next_to_begin: u64,
}

/// The memory of one hash.
pub(crate) struct HashBlocks<'m> {
    memory: &'m HashMemory,
    blocks: Vec<Block>,
    counted_bytes: usize,
}

impl HashMemory {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                limit_bytes: usize::MAX,
                used_bytes: 0,
                kept: Vec::new(),
                next_ticket: 0,
                next_to_begin: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Memory for a hash of `count` blocks. Blocks while running hashes leave no room for it, and while earlier ones
    /// wait.
    pub(crate) fn take(&self, count: usize) -> HashBlocks<'_> {
        let needed = count * size_of::<Block>();
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        while state.next_to_begin != ticket || !state.has_room(needed) {
            state = self.wait(state);
        }
        state.next_to_begin += 1;
        let mut blocks = state.kept.pop().unwrap_or_default();
        let counted_bytes = needed.max(bytes_of(&blocks));
        state.used_bytes += counted_bytes;
        state.free_above_limit();
        drop(state);
        self.changed.notify_all();
        blocks.resize(count, Block::default());
        HashBlocks {
            memory: self,
            blocks,
            counted_bytes,
        }
    }

    /// Sets the memory budget, frees kept memory above the part of hashes, and returns the bytes that they hold.
    pub(crate) fn measure(&self, budget: usize) -> usize {
        let mut state = self.lock();
        state.limit_bytes = budget / PART;
        state.free_above_limit();
        let held = state.held_bytes();
        drop(state);
        self.changed.notify_all();
        held
    }

    fn give_back(&self, blocks: Vec<Block>, counted_bytes: usize) {
        let mut state = self.lock();
        state.used_bytes -= counted_bytes;
        if blocks.capacity() <= KEPT_BLOCKS_MAX {
            state.kept.push(blocks);
            state.free_above_limit();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'m>(&self, state: MutexGuard<'m, State>) -> MutexGuard<'m, State> {
        let woken = self.changed.wait(state);
        woken.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self, bytes: usize) -> bool {
        self.used_bytes == 0 || self.used_bytes.saturating_add(bytes) <= self.limit_bytes
    }

    fn held_bytes(&self) -> usize {
        let kept = self.kept.iter().map(bytes_of);
        self.used_bytes + kept.sum::<usize>()
    }

    fn free_above_limit(&mut self) {
        while self.held_bytes() > self.limit_bytes && self.kept.pop().is_some() {}
    }
}

impl HashBlocks<'_> {
    pub(crate) fn as_mut(&mut self) -> &mut [Block] {
        &mut self.blocks
    }
}

impl Drop for HashBlocks<'_> {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        self.memory.give_back(blocks, self.counted_bytes);
    }
}

fn bytes_of(blocks: &Vec<Block>) -> usize {
    blocks.capacity() * size_of::<Block>()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const BLOCK: usize = size_of::<Block>();

    #[test]
    fn memory_is_used_again_and_counted_while_it_is_kept() {
        let memory = HashMemory::new();
        let (one, two) = (memory.take(10), memory.take(10));
        assert_eq!(memory.measure(PART * 100 * BLOCK), 20 * BLOCK);
        drop((one, two));

        let again = memory.take(10);

        assert_eq!(memory.measure(PART * 100 * BLOCK), 20 * BLOCK);
        drop(again);
        assert_eq!(memory.measure(PART * 15 * BLOCK), 10 * BLOCK);
        assert_eq!(memory.measure(0), 0);
    }

    #[test]
    fn one_hash_runs_in_any_budget_and_keeps_nothing_above_it() {
        let memory = HashMemory::new();
        memory.measure(PART * 5 * BLOCK);

        let one = memory.take(10);

        assert_eq!(memory.measure(PART * 5 * BLOCK), 10 * BLOCK);
        drop(one);
        assert_eq!(memory.measure(PART * 5 * BLOCK), 0);
    }

    #[test]
    fn a_large_hash_keeps_no_memory() {
        let memory = HashMemory::new();

        drop(memory.take(KEPT_BLOCKS_MAX + 1));

        assert_eq!(memory.measure(usize::MAX), 0);
    }

    #[test]
    fn hashes_without_room_wait_and_begin_in_their_order() {
        let memory = HashMemory::new();
        memory.measure(PART * 10 * BLOCK);
        let (began, begins) = mpsc::channel();
        let first = memory.take(8);
        std::thread::scope(|scope| {
            for (place, blocks) in [(1, 20), (2, 1)] {
                let (memory, began) = (&memory, began.clone());
                scope.spawn(move || {
                    let held = memory.take(blocks);
                    began.send(place).expect("the test listens");
                    drop(held);
                });
                while memory.lock().next_ticket <= place {
                    std::thread::yield_now();
                }
            }

            // The small one would fit, but came later.
            assert_eq!(memory.lock().next_to_begin, 1);
            drop(first);
            assert_eq!(begins.recv(), Ok(1));
            assert_eq!(begins.recv(), Ok(2));
        });
    }
}
