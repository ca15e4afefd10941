//! Returns freed memory that the program's allocator (malloc) has cached to the system.

/// Returns freed memory that the program's allocator has cached to the system; true if there was any.
///
/// glibc has one arena for each thread, and by itself returns only memory at the end of an arena. This function locks
/// the arenas in turn. Threads that allocate from a locked arena wait about 0.2 ms for each MiB that is returned, and
/// 1 µs for each free chunk of a page or more, even if nothing is left to return. With other allocators the function
/// does nothing.
pub fn give_back_freed() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: malloc_trim takes the allocator's own locks, and touches no memory that is in use.
    let is_given_back = unsafe { libc::malloc_trim(0) == 1 };
    #[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri))))]
    let is_given_back = false;
    is_given_back
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
