//! Freed memory that the program's allocator (malloc) caches: how much, and when the system gets it back.

use crate::aligned;

/// Returns freed memory that the program's allocator has cached to the system, and that of
/// [`ProgramAllocator`](crate::ProgramAllocator); true if malloc had any.
///
/// glibc has one arena for each thread, and by itself returns only memory at the end of an arena. This function locks
/// the arenas in turn. Threads that allocate from a locked arena wait about 0.2 ms for each MiB that is returned, and
/// 1 µs for each free chunk of a page or more, even if nothing is left to return. With other allocators the function
/// does nothing.
pub fn give_back_freed() -> bool {
    aligned::give_back();
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: malloc_trim takes the allocator's own locks, and touches no memory that is in use.
    let is_given_back = unsafe { libc::malloc_trim(0) == 1 };
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    let is_given_back = false;
    is_given_back
}

/// Bytes that stay at the end of each arena.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const KEPT_BYTES: libc::c_int = 2 << 20;
/// Blocks below this size come from arenas, not from the system: those of messages of the default
/// `maximum_packet_size`.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const LARGE_BYTES: libc::c_int = 4 << 20;

/// Keeps up to 2 MiB of freed memory at the end of each arena, for the whole process; true if the allocator does it.
///
/// glibc itself keeps 128 KiB: what a burst of messages has freed goes to the system, and causes a page fault for each
/// page of the next burst (ADR 0130). [`give_back_freed`] returns the rest. With other allocators the function does
/// nothing.
pub fn keep_freed() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: mallopt takes the allocator's own locks, and changes thresholds of later calls only.
    let is_set = unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES) == 1
            && libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) == 1
    };
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    let is_set = false;
    is_set
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
mod tests {
    use super::*;

    const BLOCK: usize = 8 << 10;
    const BLOCKS: usize = 8 << 10;

    /// Resident memory of the process in bytes.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().nth(1));
        kib.unwrap().parse::<usize>().unwrap() << 10
    }

    #[test]
    fn freed_blocks_below_one_that_is_in_use_go_back() {
        let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; BLOCK]).collect();
        let above = vec![1_u8; BLOCK];
        drop(blocks);
        let kept = resident();

        assert!(give_back_freed());

        let freed = kept.saturating_sub(resident());
        assert!(freed >= BLOCK * BLOCKS * 9 / 10, "{} KiB", freed >> 10);
        drop(above);
    }
}
